"""Whether the losses of two groups may be set side by side, and what has to be said where they barely may."""

from gptcli.analysis.grouping import shown
from gptcli.errors import UserError

# Different values here mean other evaluation windows or other batches: the comparison stands, with a word.
_MEASURING = {
    "recipe.name": "the recipe decides the batches and the evaluation windows",
    "model.block_size": "losses are over contexts of different lengths",
    "trainer.eval_tokens": "validation losses are over different numbers of windows",
    "trainer.eval_every": "the best validation loss is the best of different numbers of evaluations",
    "trainer.batch_size": "runs saw different numbers of tokens",
    "trainer.steps": "runs were trained for different lengths",
}
# Different values here make the speed incomparable, and nothing else.
_SPEED = ("trainer.device", "trainer.threads", "trainer.compile", "trainer.precision")


def text_of(run):
    """Returns what two runs must share for their losses to be of one kind: corpus, split and vocabulary."""
    return run.value("corpus.sha256"), run.value("data.validation_fraction"), vocabulary(run)


def vocabulary(run):
    """Returns the symbols of a run's corpus; nothing when run.json does not hold a list of them."""
    symbols = run.value("corpus.vocabulary")
    return tuple(map(str, symbols)) if isinstance(symbols, list) else ()


def check_group(group):
    """Raises UserError when one group holds losses of different kinds: their mean would mean nothing."""
    first = group.runs[0]
    for run in group.runs[1:]:
        if problem := mismatch(first, run):
            raise UserError(
                f"group {group.label} mixes runs with {problem}; compare them apart or add "
                f"--by {'data.validation_fraction' if 'split' in problem else 'corpus'}"
            )


def mismatch(run, other):
    """Returns in words why the losses of two runs are of different kinds, or None."""
    (digest, fraction, symbols), (digest_b, fraction_b, symbols_b) = text_of(run), text_of(other)
    if digest != digest_b:
        return f"other corpora ({_corpus_name(run)} and {_corpus_name(other)})"
    if symbols != symbols_b:
        return f"other vocabularies ({_difference(symbols, symbols_b)})"
    if fraction != fraction_b:
        return f"another split (validation_fraction {fraction} and {fraction_b})"
    return None


def _corpus_name(run):
    corpus = run.info.get("corpus") or {}
    return f"{corpus.get('name', 'unknown')} {str(corpus.get('sha256', ''))[:8]}".strip()


def _difference(symbols, other):
    only, only_b = sorted(set(symbols) - set(other)), sorted(set(other) - set(symbols))
    differing = "".join(only[:5] + only_b[:5])
    return f"{len(symbols)} and {len(other)} symbols" + (f", differing in {differing!r}" if differing else "")


def warnings(groups):
    """Returns sentences about settings that differ between runs and touch what was measured."""
    found = []
    for key, consequence in _MEASURING.items():
        values = _values(groups, key)
        if len(values) > 1:
            found.append(f"{key} differs ({_listed(values)}): {consequence}")
    differing = [key for key in _SPEED if len(_values(groups, key)) > 1]
    devices = {str(run.info.get("device")) for group in groups for run in group.runs}
    if differing or len(devices) > 1:
        found.append(f"speeds are not comparable: {', '.join(differing or ['device'])} differs between runs")
    return found


def _values(groups, key):
    return list(dict.fromkeys(one.get(key) for group in groups for one in group.flat))


def _listed(values):
    words = [shown(value) for value in values]
    return ", ".join(words[:6]) + (", ..." if len(words) > 6 else "")
