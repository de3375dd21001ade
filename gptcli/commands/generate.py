"""gptcli generate: text from a run."""

import json
import os
import sys

from gptcli.errors import UserError
from gptcli.terminal import printable

SUMMARY = """Continue a prompt with a trained model, streaming each character as it is drawn.

RUN is a run directory, a checkpoint in it, or latest. The prompt may be of any length: the model sees its last
block_size characters. Without a prompt the text starts from a newline, or from the vocabulary's first character."""
EXAMPLES = """examples:
  gptcli generate latest --prompt "ROMEO:"
  gptcli generate latest --prompt "To be" --tokens 500 --temperature 0.8 --top-k 10 --seed 7
  gptcli generate latest --samples 3 --json
  gptcli generate latest --interactive"""

# Every sample's random numbers are drawn before its first character.
_MOST_CHARACTERS = 10**8


def add_arguments(parser):
    """Declares what the command takes."""
    parser.add_argument("run", metavar="RUN", help="run directory, checkpoint, or latest")
    source = parser.add_mutually_exclusive_group()
    source.add_argument("--prompt", metavar="TEXT", help="what to continue")
    source.add_argument("--prompt-file", metavar="FILE", help="UTF-8 file with what to continue; - for standard input")
    source.add_argument("--interactive", action="store_true", help="ask for a prompt again and again")
    parser.add_argument("--tokens", type=int, default=200, metavar="N", help="characters to draw (default 200)")
    parser.add_argument("--temperature", type=float, default=1.0, help="0 takes the most probable (default 1)")
    parser.add_argument("--top-k", type=int, default=0, metavar="K", help="keep the K most probable; 0: all")
    parser.add_argument("--top-p", type=float, default=1.0, metavar="P", help="keep the most probable of total P")
    parser.add_argument("--seed", type=int, default=None, metavar="N", help="draw the same text again")
    parser.add_argument("--samples", type=int, default=1, metavar="N", help="texts to draw (default 1)")
    parser.add_argument("--skip-unknown", action="store_true", help="leave out characters the model does not know")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(arguments):
    """Draws; returns the exit status."""
    _check(arguments)
    prompt = _prompt(arguments)

    import torch

    from gptcli.generation import Sampling
    from gptcli.runs import resolve_run
    from gptcli.training.loading import load_model

    sampling = Sampling(arguments.temperature, arguments.top_k, arguments.top_p)
    loaded = load_model(resolve_run(arguments.run))
    for note in loaded.notes:
        print(f"note: {printable(note)}", file=sys.stderr)
    seed = arguments.seed if arguments.seed is not None else torch.seed() % 2**31
    if arguments.interactive:
        return _interact(loaded, arguments, sampling, seed)
    _continue(loaded, prompt, arguments, sampling, seed)
    return 0


def _check(arguments):
    for name, value, least in (("--tokens", arguments.tokens, 1), ("--samples", arguments.samples, 1)):
        if value < least:
            raise UserError(f"{name} {value} must be at least {least}")
        if value > _MOST_CHARACTERS:
            raise UserError(f"{name} {value} must be at most {_MOST_CHARACTERS}")
    if arguments.samples * arguments.tokens > _MOST_CHARACTERS:
        raise UserError(
            f"--samples {arguments.samples} of --tokens {arguments.tokens} are more than {_MOST_CHARACTERS} characters"
        )
    if arguments.seed is not None and not 0 <= arguments.seed < 2**63:
        raise UserError(f"--seed {arguments.seed} must be at least 0 and below 2^63")
    if arguments.interactive and arguments.json:
        raise UserError("--interactive and --json do not go together")


def _as_utf8(prompt):
    """Returns what was typed as UTF-8, whatever the locale has made of its bytes."""
    try:
        return prompt and os.fsencode(prompt).decode("utf-8", "surrogateescape")
    except UnicodeError:
        return prompt


def _prompt(arguments):
    if arguments.prompt_file is None:
        return _as_utf8(arguments.prompt)
    if arguments.prompt_file == "-":
        return sys.stdin.buffer.read().decode("utf-8", errors="surrogateescape")
    from gptcli.data.text import read_text

    return read_text(arguments.prompt_file).text


def _choose_threads(model, length, samples):
    """Gives torch as many threads as the work of one symbol feeds: past the context that is a whole window's."""
    import torch

    from gptcli.training.threads import threads_without_gradients

    block_size = model.config.block_size
    tokens = samples * (block_size if length > block_size else 1)
    torch.set_num_threads(threads_without_gradients(model.parameter_count(), tokens))


def _continue(loaded, prompt, arguments, sampling, seed):
    """Draws arguments.samples continuations of one prompt and prints them."""
    from gptcli.generation import generate

    tokenizer = loaded.tokenizer
    prompt = _spelled(prompt, tokenizer, arguments.skip_unknown)
    shown = prompt or ""
    start = prompt or ("\n" if "\n" in tokenizer.symbols else tokenizer.symbols[0])
    if len(start) > loaded.config.model.block_size:
        print(f"note: the model sees the prompt's last {loaded.config.model.block_size} characters", file=sys.stderr)
    seeds = [(seed + number) % 2**63 for number in range(arguments.samples)]
    ids = tokenizer.encode(start).tolist()
    _choose_threads(loaded.model, len(start) + arguments.tokens, len(seeds))
    drawn = generate(loaded.model, [ids] * len(seeds), arguments.tokens, sampling, seeds)
    if arguments.samples == 1 and not arguments.json:
        _write(printable(shown, keep_newlines=True))
        for symbol in drawn:
            _write(printable(tokenizer.decode([int(symbol[0])]), keep_newlines=True))
        _write("\n")
        return
    columns = list(zip(*(symbols.tolist() for symbols in drawn), strict=True))
    texts = [tokenizer.decode(list(column)) for column in columns]
    if arguments.json:
        samples = [{"seed": one, "prompt": shown, "text": text} for one, text in zip(seeds, texts, strict=True)]
        print(json.dumps({"step": loaded.step, "samples": samples}, indent=2, ensure_ascii=False))
        return
    for number, text in enumerate(texts, 1):
        _write(f"--- {number} of {len(texts)}, seed {seeds[number - 1]}\n")
        _write(f"{printable(shown + text, keep_newlines=True)}\n")


def _spelled(prompt, tokenizer, skip_unknown):
    """Returns the prompt as the vocabulary can spell it; without skip_unknown an unknown character is an error."""
    if not prompt:
        return prompt
    prompt = prompt.replace("\r\n", "\n")
    if skip_unknown:
        known, skipped = tokenizer.known(prompt)
        if skipped:
            print(f"note: {skipped} characters that the model does not know are left out", file=sys.stderr)
        return known
    tokenizer.encode(prompt)
    return prompt


def _interact(loaded, arguments, sampling, seed):
    """Reads prompts until end of input; a bad prompt is reported and asked for again."""
    number = 0
    while True:
        try:
            prompt = input("prompt> " if sys.stdin.isatty() else "")
        except EOFError:
            return 0
        try:
            _continue(loaded, prompt, arguments, sampling, seed + number)
        except UserError as error:
            print(f"error: {printable(error)}", file=sys.stderr)
        number += arguments.samples


def _write(text):
    sys.stdout.write(text)
    sys.stdout.flush()
