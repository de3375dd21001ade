"""A trained model brought back from its run, with nothing in the files trusted."""

from dataclasses import dataclass, replace

from gptcli.config import from_dict
from gptcli.data.corpus import load_corpus
from gptcli.data.tokenizer import CharacterTokenizer, describe_difference
from gptcli.errors import RunError, UserError
from gptcli.model.gpt import GPT
from gptcli.model.parameters import parameter_shapes
from gptcli.training.checkpoint import newest_good_checkpoint
from gptcli.validation import validate, validate_size


@dataclass(frozen=True)
class LoadedModel:
    """A model in evaluation mode with the vocabulary that it was trained on.

    notes tells a person what was done on the way, for example that a damaged checkpoint was passed over.
    """

    model: GPT
    tokenizer: CharacterTokenizer
    config: object
    step: int
    corpus: dict
    notes: list


def load_model(reference, device="cpu"):
    """Returns the LoadedModel of a RunReference.

    Raises:
        RunError: no checkpoint is whole, or its tensors do not fit its settings.
    """
    checkpoint, notes = newest_good_checkpoint(reference.run_path, reference.checkpoint_name or "latest")
    try:
        config = from_dict(checkpoint.state["config"])
        validate(config)
        tokenizer = CharacterTokenizer(checkpoint.state["vocabulary"])
        corpus = {key: _text(checkpoint.state["corpus"][key]) for key in ("name", "sha256")}
        validate_size(config.model, tokenizer.vocabulary_size, trains=False)
    except (UserError, KeyError, TypeError, ValueError) as error:
        raise RunError(f"{checkpoint.path} does not describe a model: {_words(error)}") from error
    model = _model_with(config.model, tokenizer.vocabulary_size, checkpoint)
    return LoadedModel(model.to(device).eval(), tokenizer, config, checkpoint.step, corpus, notes)


def load_corpus_of(loaded):
    """Returns the Corpus that a LoadedModel was trained on.

    Raises:
        UserError: what is there now under that name is another text.
        RunError: it cannot be read or downloaded.
    """
    data = loaded.config.data
    if data.name == "auto":
        data = replace(data, name=loaded.corpus["name"])
    corpus = load_corpus(data)
    if corpus.sha256 != loaded.corpus["sha256"]:
        difference = describe_difference(loaded.tokenizer, corpus.tokenizer)
        raise UserError(
            f"{corpus.name} is not the corpus that the run was trained on: its sha256 is"
            f" {corpus.sha256[:12]}..., the run's {loaded.corpus['sha256'][:12]}..."
            f"{'; ' + difference if difference else ''}"
        )
    return corpus


def _words(error):
    return f"it lacks {error}" if isinstance(error, KeyError) else error


def _text(value):
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is not text")
    return value


def _model_with(config, vocabulary_size, checkpoint):
    wanted = parameter_shapes(config, vocabulary_size)
    found = {name: tuple(tensor.shape) for name, tensor in checkpoint.model.items()}
    if wanted != found:
        differing = sorted(name for name in {*wanted, *found} if wanted.get(name) != found.get(name))[0]
        raise RunError(
            f"{checkpoint.path} does not fit its own settings: {differing} is {found.get(differing, 'missing')},"
            f" wanted {wanted.get(differing, 'nothing of that name')}"
        )
    model = GPT(config, vocabulary_size)
    model.load_state_dict(checkpoint.model)
    return model
