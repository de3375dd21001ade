"""Times gptcli against other programs on the same work, side by side and alternating.

    python scripts/bench_peers.py PEERS CORPUS [--works W1 W2 ...] [--rounds 3] [--steps 1000] [--json FILE]

PEERS is a folder with step_4_10.py and step_5_11.py of the walkthrough and a checkout of nanoGPT; CORPUS is
tinyshakespeare.txt. Nothing of theirs is changed: lengths are set in a temporary copy, and speed is taken from whole
processes or from functions called as their authors call them.

    W1       stage 4_10 with the step file's evaluations, whole processes; W1cold compiles the kernels anew each time
    W1e      16 seeds of the same at once, a model
    W2       nanoGPT's README configuration for a CPU: 4 layers, 4 heads, width 128, block 64, batch 12
    W3       stage 5_11 at full size with dropout, a step
    W4       generation at 5_11 size, a character: 200 from one, and past the context
    startup  one training step from enter to exit, against importing torch and hydra
"""

import argparse
import json
import os
import pickle
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

HARNESS = Path(__file__).with_name("bench_peers_harness.py")
WORKS = ("startup", "W1", "W1cold", "W1e", "W2", "W3", "W4")


def main():
    arguments = _arguments()
    with tempfile.TemporaryDirectory() as scratch:
        bench = Bench(arguments, Path(scratch))
        rows = [row for work in arguments.works for row in getattr(bench, work.lower())()]
    for row in rows:
        print(_line(row))
    if arguments.json:
        Path(arguments.json).write_text(json.dumps(rows, indent=2) + "\n", encoding="utf-8")


def _arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("peers", type=Path)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--works", nargs="+", choices=WORKS, default=list(WORKS))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=10_000, help="training steps of W1 and W1e")
    parser.add_argument("--seeds", type=int, default=16, help="models of W1e")
    parser.add_argument("--json")
    return parser.parse_args()


def _line(row):
    ours, peer = row["ours"], row["peer"]
    note = f"   {row['note']}" if row.get("note") else ""
    return (
        f"{row['work']:<22} ours {ours['median']:9.3f} ({ours['minimum']:.3f} to {ours['maximum']:.3f}) {row['unit']:<10}"
        f" peer {peer['median']:9.3f} ({peer['minimum']:.3f} to {peer['maximum']:.3f})"
        f"   peer/ours {row['ratio']['median']:.2f} ({row['ratio']['minimum']:.2f} to {row['ratio']['maximum']:.2f})"
        f"   memory {ours['peak_mebibytes']:.0f} against {peer['peak_mebibytes']:.0f} MiB{note}"
    )


class Bench:
    """The works; each returns rows of a table."""

    def __init__(self, arguments, scratch):
        self.arguments, self.scratch = arguments, scratch
        self.data = scratch / "corpus"
        self.data.mkdir()
        shutil.copy(arguments.corpus, self.data / "tinyshakespeare.txt")
        self.environment = {**os.environ, "GPTCLI_DATA_DIR": str(self.data)}

    def startup(self):
        ours = self._gptcli("train", "stage=4_10", "trainer.steps=1")
        self._time(ours)  # a warm file cache, and kernels compiled
        return [self._pair("start-up", "s", lambda: self._time(ours), lambda: self._time(_python("import torch, hydra")))]

    def w1(self, work="W1 4_10", environment=None):
        ours = self._gptcli(
            "train", "stage=4_10", "trainer.eval_every=100", f"trainer.steps={self.arguments.steps}"
        )
        return [
            self._pair(
                f"{work}, {self.arguments.steps} steps",
                "s",
                lambda: self._time(ours, environment=environment() if environment else None),
                lambda: self._time(self._step_file("step_4_10.py", num_train_steps=self.arguments.steps), threads=1),
            )
        ]

    def w1cold(self):
        def empty_cache():
            return {"XDG_CACHE_HOME": tempfile.mkdtemp(dir=self.scratch)}

        return self.w1("W1 cold", empty_cache)

    def w1e(self):
        seeds = self.arguments.seeds
        ours = self._gptcli(
            "train", "-m", "stage=4_10", "trainer.eval_every=100", f"trainer.steps={self.arguments.steps}",
            f"seed=range(0,{seeds})", "hydra/launcher=ensemble",
        )

        def a_model():
            seconds, memory = self._time(ours)
            return seconds / seeds, memory

        peer = self._step_file("step_4_10.py", num_train_steps=self.arguments.steps)
        return [self._pair(f"W1e {seeds} seeds, a model", "s", a_model, lambda: self._time(peer, threads=1))]

    def w2(self):
        rows = []
        for name, extra, compiled in (
            ("fp32", (), False), ("fp32 to compiled", (), True),
            ("bf16", ("trainer.precision=bf16",), False), ("bf16 to compiled", ("trainer.precision=bf16",), True),
        ):
            ours = self._bench_command(
                "stage=4_10", "model.embedding_dim=128", "model.num_layers=4", "model.num_heads=4",
                "model.block_size=64", "trainer.batch_size=12", "optimizer=adamw", "trainer.grad_clip=1", *extra,
            )
            rows.append(
                self._pair(f"W2 {name}", "ms/step", partial(self._bench, ours), partial(self._nanogpt, compiled))
            )
        return rows

    def w3(self):
        rows = []
        for name, extra in (("fp32", ()), ("bf16", ("trainer.precision=bf16",))):
            ours = self._bench_command("stage=5_11", *extra, seconds=40)
            rows.append(
                self._pair(
                    f"W3 5_11 {name}", "ms/step", partial(self._bench, ours), partial(self._harness, "peer-step")
                )
            )
        return rows

    def w4(self):
        return [
            self._pair(
                f"W4 {name}",
                "ms/char",
                partial(self._harness, f"ours-{name}"),
                partial(self._harness, f"peer-{name}"),
            )
            for name in ("generate", "slide")
        ]

    def _pair(self, work, unit, ours, peer):
        """Returns a row: both sides measured in turn, and the ratio of each turn."""
        pairs = [(ours(), peer()) for _ in range(self.arguments.rounds)]
        return {
            "work": work,
            "unit": unit,
            "ours": _summary([pair[0] for pair in pairs]),
            "peer": _summary([pair[1] for pair in pairs]),
            "ratio": _spread([pair[1][0] / pair[0][0] for pair in pairs]),
        }

    def _time(self, command, threads=None, environment=None):
        """Returns the seconds and the peak memory in MiB of a process and its children."""
        variables = {**self.environment, **(environment or {})}
        if threads:
            variables |= {"OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads)}
        folder = tempfile.mkdtemp(dir=self.scratch)
        (Path(folder) / "data" / "local" / "text").mkdir(parents=True)
        shutil.copy(self.arguments.corpus, Path(folder) / "data" / "local" / "text" / "shakespeare.txt")
        started = time.perf_counter()
        process = subprocess.Popen(command, cwd=folder, env=variables, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        errors = process.stderr.read()
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - started
        if os.waitstatus_to_exitcode(status):
            raise SystemExit(f"{' '.join(map(str, command))} failed: {errors.decode()[-2000:]}")
        shutil.rmtree(folder)
        return seconds, usage.ru_maxrss / 1024

    def _gptcli(self, *arguments):
        return [sys.executable, "-m", "gptcli", *arguments]

    def _bench_command(self, *overrides, seconds=8):
        return self._gptcli("bench", *overrides, "--seconds", str(seconds), "--json")

    def _bench(self, command):
        done = subprocess.run(command, env=self.environment, capture_output=True, text=True, check=True)
        facts = json.loads(done.stdout)
        return facts["milliseconds_per_step"]["median"], facts["peak_memory_bytes"] / 2**20

    def _step_file(self, name, **numbers):
        """Returns the command that runs a step file with other values for some of its settings."""
        text = (self.arguments.peers / name).read_text(encoding="utf-8")
        for key, value in numbers.items():
            text, count = re.subn(rf"(?m)^{key} = \d+", f"{key} = {value}", text)
            assert count == 1, key
        path = self.scratch / f"{abs(hash((name, *numbers.items())))}.py"
        path.write_text(text, encoding="utf-8")
        return [sys.executable, str(path)]

    def _harness(self, what):
        command = [sys.executable, str(HARNESS), what, str(self.arguments.peers), str(self.arguments.corpus)]
        done = subprocess.run(command, cwd=self.scratch, env=self.environment, capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(f"{what} failed: {done.stderr[-2000:]}")
        facts = json.loads(done.stdout.splitlines()[-1])
        return facts["milliseconds"], facts["peak_mebibytes"]

    def _nanogpt(self, compiled):
        """Returns the median milliseconds of nanoGPT's training steps, as it prints them, and its peak memory."""
        folder = self.scratch / "nanoGPT"
        if not folder.exists():
            shutil.copytree(self.arguments.peers / "nanoGPT", folder)
            _write_nanogpt_data(folder / "data" / "shakespeare_char", self.arguments.corpus)
        command = [
            sys.executable, "train.py", "config/train_shakespeare_char.py", "--device=cpu", f"--compile={compiled}",
            "--eval_iters=1", "--eval_interval=1000", "--log_interval=1", "--block_size=64", "--batch_size=12",
            "--n_layer=4", "--n_head=4", "--n_embd=128", "--max_iters=120", "--dropout=0.0",
            "--always_save_checkpoint=False",
        ]
        with tempfile.TemporaryFile("w+") as output:
            process = subprocess.Popen(command, cwd=folder, stdout=output, stderr=subprocess.STDOUT)
            _, status, usage = os.wait4(process.pid, 0)
            output.seek(0)
            text = output.read()
        times = [float(found) for found in re.findall(r"time ([\d.]+)ms", text)]
        if os.waitstatus_to_exitcode(status) or len(times) < 50:
            raise SystemExit(f"nanoGPT failed: {text[-2000:]}")
        return statistics.median(times[20:]), usage.ru_maxrss / 1024


def _write_nanogpt_data(folder, corpus):
    import numpy

    text = corpus.read_text(encoding="utf-8")
    symbols = sorted(set(text))
    numbers = {symbol: number for number, symbol in enumerate(symbols)}
    tokens = numpy.array([numbers[symbol] for symbol in text], dtype=numpy.uint16)
    cut = int(0.9 * len(tokens))
    folder.mkdir(parents=True, exist_ok=True)
    tokens[:cut].tofile(folder / "train.bin")
    tokens[cut:].tofile(folder / "val.bin")
    meta = {"vocab_size": len(symbols), "itos": dict(enumerate(symbols)), "stoi": numbers}
    (folder / "meta.pkl").write_bytes(pickle.dumps(meta))


def _python(code):
    return [sys.executable, "-c", code]


def _spread(values):
    return {"median": statistics.median(values), "minimum": min(values), "maximum": max(values)}


def _summary(results):
    return _spread([value for value, _ in results]) | {"peak_mebibytes": max(memory for _, memory in results)}


if __name__ == "__main__":
    main()
