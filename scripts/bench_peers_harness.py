"""Times one function of step_5_11.py, or ours for the same work, in a process of its own.

    python scripts/bench_peers_harness.py WHAT PEERS CORPUS

WHAT is peer-step, or SIDE-generate (200 characters from one) or SIDE-slide (characters past a full context) with SIDE
peer or ours. The last line of output is JSON: milliseconds a step or character, and peak memory.
"""

import json
import resource
import sys
import time
import types
from pathlib import Path

import torch

_SLIDE_CHARACTERS = 60
_CHARACTERS = 200


def main():
    what, peers, corpus = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
    side, work = what.split("-")
    torch.manual_seed(0)
    milliseconds = {"step": peer_step, "generate": generate, "slide": slide}[work](
        peer_namespace(peers / "step_5_11.py", corpus) if side == "peer" else None
    )
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"milliseconds": milliseconds, "peak_mebibytes": peak}))


def peer_namespace(path, corpus):
    """Returns the step file's names, run up to the call that trains."""
    text = path.read_text(encoding="utf-8")
    head = text[: text.index("\ntrain_model()")]
    folder = Path("data/local/text")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "shakespeare.txt").write_text(corpus.read_text(encoding="utf-8"), encoding="utf-8")
    sys.modules.setdefault("requests", types.ModuleType("requests"))
    sys.argv = [str(path)]
    names = {"__name__": "peer"}
    exec(compile(head, str(path), "exec"), names)
    return names


def peer_step(peer):
    """Times training steps as train_model makes them."""
    model, optimizer = peer["model"], peer["optimizer"]

    def step():
        x, y = peer["get_batch"]("train")
        loss = peer["compute_loss"](model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    step()
    return _milliseconds(step, 2)


def generate(peer):
    """Times 200 characters from one."""
    return _characters(peer, [0], _CHARACTERS)


def slide(peer):
    """Times characters past a full context."""
    return _characters(peer, [0] * 256, _SLIDE_CHARACTERS)


def _characters(peer, prompt, count):
    if peer is None:
        model, run = _our_model(), _ours
        _choose_threads(model, len(prompt) + count, 1)
    else:
        model, run = peer["model"].eval(), _theirs
    with torch.no_grad():
        run(model, prompt, 5)
        return _milliseconds(lambda: run(model, prompt, count), 1) / count


def _choose_threads(*arguments):
    from gptcli.commands.generate import _choose_threads as choose

    choose(*arguments)


def _our_model():
    from gptcli.model.gpt import GPT
    from gptcli.stages import stage_model

    return GPT(stage_model("5_11"), 65)


def _ours(model, prompt, count):
    from gptcli.generation import Sampling
    from gptcli.generation import generate as draw

    for _ in draw(model, [prompt], count, Sampling(), [0]):
        pass


def _theirs(model, prompt, count):
    model.generate(torch.tensor([prompt]), max_new_tokens=count)


def _milliseconds(function, times):
    started = time.perf_counter()
    for _ in range(times):
        function()
    return (time.perf_counter() - started) / times * 1e3


if __name__ == "__main__":
    main()
