"""Measures how the cost of training grows: time and memory against width, depth, block size, batch and corpus size.

    python scripts/cost_growth.py [--seconds 2] [--largest-corpus 300] [--json FILE]

Each row is `gptcli bench` on stage 4_10 with one setting changed, in a process of its own. The exponent is that of the
power law between a row and the one before it: 1 is proportional. Corpora are synthetic text of so many million characters,
read for the first time and then again from the token cache.
"""

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SWEPT = {
    "model.embedding_dim": (32, 64, 128, 256, 512, 1024),
    "model.num_layers": (1, 3, 6, 12, 24),
    "model.block_size": (8, 32, 128, 512, 1024),
    "trainer.batch_size": (8, 32, 128, 512, 2048),
}
_LOADER = """
import resource, sys, time
from gptcli.config import DataConfig
from gptcli.data.corpus import load_corpus
started = time.perf_counter()
load_corpus(DataConfig("text_file", sys.argv[1], 0.1, None, None))
print(time.perf_counter() - started, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--largest-corpus", type=int, default=300, metavar="MILLION", help="million characters")
    parser.add_argument("--json")
    arguments = parser.parse_args()
    rows = []
    for key, values in SWEPT.items():
        rows += with_exponents([bench(key, value, arguments.seconds) for value in values])
    rows += with_exponents(corpora(arguments.largest_corpus))
    print("| setting | value | time | exponent | peak memory (MiB) |\n|---|---|---|---|---|")
    for row in rows:
        exponent = "" if row["exponent"] is None else f"{row['exponent']:.2f}"
        print(f"| {row['key']} | {row['value']:,} | {row['time']:.3f} {row['unit']} | {exponent} | {row['mebibytes']:.0f} |")
    if arguments.json:
        Path(arguments.json).write_text(json.dumps(rows, indent=2) + "\n", encoding="utf-8")


def bench(key, value, seconds):
    """Returns the row of one setting."""
    command = [sys.executable, "-m", "gptcli", "bench", "stage=4_10", "data=synthetic_play", f"{key}={value}"]
    command += ["trainer.threads=1", "--seconds", str(seconds), "--json"]
    facts = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    return {
        "key": key,
        "value": value,
        "time": facts["milliseconds_per_step"]["median"],
        "unit": "ms/step",
        "mebibytes": facts["peak_memory_bytes"] / 2**20,
    }


def corpora(largest):
    """Returns the rows of reading text files of growing size, first and second time."""
    from gptcli.data.synthetic_play import generate

    piece = generate(0, 1_000_000)
    sizes = [size for size in (1, 10, 100, 300, 1000, 3000) if size <= largest]
    first, again = [], []
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "XDG_CACHE_HOME": folder, "GPTCLI_DATA_DIR": ""}
        for size in sizes:
            path = Path(folder) / f"{size}.txt"
            with open(path, "w", encoding="utf-8") as file:
                for _ in range(size):
                    file.write(piece)
            for rows, name in ((first, "corpus, first time"), (again, "corpus, again")):
                rows.append(load(path, name, size, environment))
            path.unlink()
    return first + again


def load(path, name, size, environment):
    """Returns the row of reading one file."""
    command = [sys.executable, "-c", _LOADER, str(path)]
    time.sleep(0.1)
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    seconds, mebibytes = map(float, done.stdout.split())
    return {"key": name, "value": size * 1_000_000, "time": seconds, "unit": "s", "mebibytes": mebibytes}


def with_exponents(rows):
    """Adds to each row the exponent of growth since the row before it of the same key."""
    for index, row in enumerate(rows):
        before = rows[index - 1] if index and rows[index - 1]["key"] == row["key"] else None
        row["exponent"] = (
            math.log(row["time"] / before["time"]) / math.log(row["value"] / before["value"]) if before else None
        )
    return rows


if __name__ == "__main__":
    main()
