"""Kills training runs at random moments, resumes them to their end, and compares them with uninterrupted ones.

Weights, optimizer state, metrics.jsonl (apart from times), samples and TensorBoard's curves must be equal to the last
bit. A run is killed again and again by SIGKILL, then left to finish.

    python scripts/stress_kill.py --kills 100 --json kills.json
"""

import argparse
import json
import logging
import math
import multiprocessing
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path

import torch

from gptcli.cli import main
from gptcli.runs import Run
from gptcli.training.checkpoint import load_checkpoint

STAGES = ("2_9", "3_14", "4_10", "5_4")
RECIPES = ("default", "walkthrough")
OPTIMIZERS = ("adam", "adamw")
SCHEDULES = ("constant", "linear", "cosine")
TIMES = ("seconds", "tokens_per_second")


def cases():
    """Returns the settings to try: every stage, recipe, optimizer and schedule, each pair of choices somewhere."""
    found = []
    for number in range(12):
        found.append({
            "stage": STAGES[number % 4],
            "recipe": RECIPES[number // 2 % 2],
            "optimizer": OPTIMIZERS[number // 3 % 2],
            "schedule": SCHEDULES[number % 3],
            "compile": ("false", "auto")[number // 4 % 2],
        })  # fmt: skip
    return found


def overrides(case, text, folder, steps):
    """Returns the command line of a case, with an event of some kind every few steps."""
    more = [] if case["schedule"] == "constant" else ["schedule.warmup_steps=20"]
    if case["stage"] == "5_4":
        more.append("model.dropout=0.2")
    if case["recipe"] == "default":
        more.append("trainer.eval_tokens=400")
    groups = [f"{key}={case[key]}" for key in ("stage", "recipe", "optimizer", "schedule")]
    return [
        *groups, "data=text_file", f"data.path={text}", f"trainer.steps={steps}", "trainer.batch_size=4",
        "trainer.eval_every=10", "trainer.checkpoint_every=7", "trainer.log_every=3", "trainer.sample_every=20",
        "trainer.sample_tokens=8", "trainer.threads=1", "trainer.device=cpu", f"trainer.compile={case['compile']}",
        f"hydra.run.dir={folder}", *more,
    ]  # fmt: skip


def quietly(arguments):
    """Runs the command line without output, as a process's whole work."""
    torch.set_num_threads(1)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for number in (1, 2):
        os.dup2(nowhere, number)
    os._exit(main(arguments))


def started(arguments):
    process = multiprocessing.get_context("fork").Process(target=quietly, args=(arguments,))
    process.start()
    return process


def killed(arguments, folder, longest, draw):
    """Starts a command, kills it at a random moment after it began to write; returns whether it still ran."""
    info = folder / "run.json"
    before = info.stat().st_mtime_ns if info.exists() else None
    process = started(arguments)
    while process.is_alive() and not (info.exists() and info.stat().st_mtime_ns != before):
        time.sleep(0.001)
    time.sleep(draw.uniform(0, longest))
    alive = process.is_alive()
    if alive:
        os.kill(process.pid, signal.SIGKILL)
    process.join()
    return alive and process.exitcode == -signal.SIGKILL


def survived(case, text, folder, steps, kills, draw):
    """Kills a run of case so many times, lets it finish, and returns what was seen.

    differences names what is not equal to the uninterrupted run: nothing should be.
    """
    straight, run = folder / "straight", folder / "killed"
    process = started(["train", *overrides(case, text, straight, steps)])
    process.join()
    if process.exitcode:
        raise SystemExit(f"the uninterrupted run of {case} ended with status {process.exitcode}")
    longest = Run(straight).info["seconds"] / 2
    seen = {**case, "kills": 0, "steps_at_kills": [], "leftovers": 0, "resumes_from": []}
    command = ["train", *overrides(case, text, run, steps)]
    while seen["kills"] < kills and killed(command, run, longest, draw):
        seen["kills"] += 1
        seen["steps_at_kills"].append(Run(run).info.get("step"))
        seen["leftovers"] += len(list(run.rglob(".partial-*")))
        names = Run(run).checkpoints()
        seen["resumes_from"].append(int(names[-1][5:]) if names else 0)
        command = ["resume", str(run)]
    process = started(command)
    process.join()
    finished = Run(run).status == "finished"
    seen["differences"] = differences(straight, run) if finished else [f"it ended as {Run(run).status}"]
    return seen


def differences(straight, run):
    """Returns the names of what differs between two finished runs."""
    found = []
    if list(run.rglob(".partial-*")):
        found.append("leftovers")
    names = [Run(path).checkpoints() for path in (straight, run)]
    if names[0] != names[1]:
        return [f"checkpoints {names[0]} and {names[1]}"]
    for name in names[0]:
        first, second = (load_checkpoint(path / "checkpoints" / name) for path in (straight, run))
        for kind in ("model", "optimizer", "extra"):
            if not same_tensors(getattr(first, kind), getattr(second, kind)):
                found.append(f"{name}: {kind}")
        if without_times(first.state["progress"]) != without_times(second.state["progress"]):
            found.append(f"{name}: progress")
    for which in ("latest", "best"):
        if (straight / "checkpoints" / which).read_text() != (run / "checkpoints" / which).read_text():
            found.append(which)
    if records(straight) != records(run):
        found.append("metrics.jsonl")
    if (straight / "samples.txt").read_bytes() != (run / "samples.txt").read_bytes():
        found.append("samples.txt")
    return found + [f"TensorBoard {tag}" for tag in curves_that_differ(straight, run)]


def same_tensors(first, second):
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


def without_times(values):
    return {key: value for key, value in values.items() if key not in TIMES}


def records(run):
    return [without_times(json.loads(line)) for line in (run / "metrics.jsonl").read_text().splitlines()]


def curves_that_differ(straight, run):
    """Returns the tags whose curves, as TensorBoard itself reads them, differ."""
    first, second = curves(straight), curves(run)
    return [tag for tag in sorted({*first, *second}) if first.get(tag) != second.get(tag)]


def curves(run):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    logging.getLogger("tensorboard").setLevel(logging.ERROR)
    events = EventAccumulator(str(run), size_guidance={"scalars": 0})
    events.Reload()
    return {
        tag: [(event.step, event.value) for event in events.Scalars(tag)]
        for tag in events.Tags()["scalars"]
        if not tag.startswith("speed/")
    }


def text_file(folder):
    """Writes a text that a model can learn something of and returns its path."""
    draw, words = random.Random(3), ("to", "be", "or", "not", "that", "is", "the", "question", "nobler\n")
    path = folder / "text.txt"
    path.write_text(" ".join(draw.choice(words) for _ in range(1200)), encoding="utf-8")
    return path


def stress(kills, steps, seed, folder):
    """Spreads kills over all cases; yields what each saw."""
    draw, tried = random.Random(seed), cases()
    text = text_file(folder)
    for number, case in enumerate(tried):
        share = kills // len(tried) + (number < kills % len(tried))
        if share:
            place = folder / str(number)
            place.mkdir()
            yield survived(case, text, place, steps, share, draw)
            shutil.rmtree(place)


def table_row(seen):
    settings = " ".join(f"{seen[key]:<11}" for key in ("stage", "recipe", "optimizer", "schedule", "compile"))
    return f"{settings} {seen['kills']:>5}  {', '.join(seen['differences']) or 'equal'}"


def command_line():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--steps", type=int, default=200, help="of each run")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", metavar="FILE")
    arguments = parser.parse_args()
    began, all_seen = time.perf_counter(), []
    with tempfile.TemporaryDirectory() as folder:
        for seen in stress(arguments.kills, arguments.steps, arguments.seed, Path(folder)):
            print(table_row(seen), flush=True)
            all_seen.append(seen)
    made = sum(seen["kills"] for seen in all_seen)
    failed = sum(bool(seen["differences"]) for seen in all_seen)
    leftovers = sum(seen["leftovers"] for seen in all_seen)
    minutes = (time.perf_counter() - began) / 60
    print(f"{made} kills, {leftovers} of half-written files, {len(all_seen)} runs, {failed} differ; {minutes:.1f} min")
    if arguments.json:
        summary = {"kills": made, "leftovers": leftovers, "runs_that_differ": failed, "cases": all_seen}
        Path(arguments.json).write_text(json.dumps(summary, indent=2) + "\n")
    return 1 if failed or made < math.floor(arguments.kills * 0.9) else 0


if __name__ == "__main__":
    sys.exit(command_line())
