"""Sweeps as a user types them: failures told at once and apart, the table, and going on after anything."""

import csv
import json
import os
import re
import signal
import subprocess
import sys
import time

import pytest

from gptcli.cli import main
from gptcli.sweep.command import _create_directory


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    """Every test types its command in an empty folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def sweep(*overrides):
    """Runs gptcli train -m in the folder `sweep`; returns the exit status."""
    return main(["train", "-m", "hydra.sweep.dir=sweep", *overrides])


def jobs(here, folder="sweep"):
    """Returns the jobs of sweep.json."""
    return json.loads((here / folder / "sweep.json").read_text())["jobs"]


def info(path):
    """Returns what a job's run.json holds."""
    return json.loads((path / "run.json").read_text())


def test_every_combination_is_trained_and_ranked(quick, here, capsys):
    assert sweep(*quick, "stage=4_10", "model.num_heads=1,4", "model.num_layers=1,2") == 0
    done = jobs(here)
    assert [(job["number"], job["varies"], job["directory"]) for job in done] == [
        (0, {"model.num_heads": "1", "model.num_layers": "1"}, "0-num_heads=1,num_layers=1"),
        (1, {"model.num_heads": "1", "model.num_layers": "2"}, "1-num_heads=1,num_layers=2"),
        (2, {"model.num_heads": "4", "model.num_layers": "1"}, "2-num_heads=4,num_layers=1"),
        (3, {"model.num_heads": "4", "model.num_layers": "2"}, "3-num_heads=4,num_layers=2"),
    ]
    for job in done:
        run = info(here / "sweep" / job["directory"])
        assert run["status"] == job["status"] == "finished"
        assert run["config"]["model"]["num_heads"] == int(job["varies"]["model.num_heads"])
        assert run["sweep"] == {"directory": "sweep", "job": job["number"]}
        assert job["val_loss"] == run["full_val_loss"] and job["parameters"] == run["parameters"]
        assert len(list((here / "sweep" / job["directory"]).glob("events.out.tfevents.*"))) == 1
    rows = list(csv.DictReader((here / "sweep" / "sweep.csv").open()))
    losses = [float(row["val_loss"]) for row in rows]
    assert losses == sorted(job["val_loss"] for job in done)
    assert [row["rank"] for row in rows] == ["1", "2", "3", "4"]
    assert {row["model.num_heads"] for row in rows} == {"1", "4"}
    out = capsys.readouterr().out
    table = out[out.index("rank  num_heads  num_layers  parameters  val loss  seconds  run") :].splitlines()
    assert [line.split()[-1] for line in table[1:5]] == [row["directory"] for row in rows]
    assert table[5] == "4 of 4 jobs finished; sweep.json and sweep.csv in sweep"
    assert len(re.findall(r"^\d\d:\d\d:\d\d  \d/4  ", out, re.MULTILINE)) == 4 and "\r" not in out


def test_a_job_equals_the_run_by_itself(quick, here):
    assert sweep(*quick, "stage=5_4", "seed=1,2") == 0
    assert main(["train", "hydra.run.dir=alone", *quick, "stage=5_4", "seed=2"]) == 0
    assert info(here / "alone")["full_val_loss"] == jobs(here)[1]["val_loss"]


@pytest.mark.parametrize(
    ("override", "reasons"),
    [
        # Refused when composed, and failing once the corpus is read.
        ("model.num_heads=4,5,7,8", ["model.num_heads=5 does not divide", "model.num_heads=7 does not divide"]),
        ("model.block_size=8,5000,6000,16", ["needs at least 5001", "needs at least 6001"]),
        ("optimizer.learning_rate=1e-3,1000,999,1e-4", ["lower optimizer.learning_rate"] * 2),
    ],
)
def test_ok_failing_failing_ok(override, reasons, quick, here, capsys):
    assert sweep(*quick, "stage=4_10", override) == 1
    out = capsys.readouterr().out
    done = jobs(here)
    assert [job["status"] for job in done] == ["finished", "failed", "failed", "finished"]
    for job, reason in zip(done[1:3], reasons, strict=True):
        assert reason in job["reason"]
        assert reason in (here / "sweep" / job["directory"] / "train.log").read_text()
        assert info(here / "sweep" / job["directory"])["status"] == "failed"
        told = re.search(rf"^\d\d:\d\d:\d\d  \d/4  {re.escape(job['directory'])}   failed: (.*)$", out, re.MULTILINE)
        assert reason in told[1]
        assert f"failed  {job['directory']}: " in out
    assert out.rstrip().endswith("2 of 4 jobs finished; sweep.json and sweep.csv in sweep")
    rows = list(csv.DictReader((here / "sweep" / "sweep.csv").open()))
    assert [row["status"] for row in rows] == ["finished", "finished", "failed", "failed"]
    assert [reason in row["reason"] for row, reason in zip(rows[2:], reasons, strict=True)] == [True, True]


def test_a_job_that_is_killed_is_told_with_the_signal(quick, here):
    command = [sys.executable, "-m", "gptcli", "train", "-m", "hydra.sweep.dir=sweep", *quick, "stage=2_9"]
    settings = ["trainer.steps=5,1000000", "trainer.log_every=1000", "trainer.eval_every=1000", "sweep.workers=1"]
    process = subprocess.Popen([*command, *settings], stdout=subprocess.PIPE, text=True)
    _wait(lambda: (here / "sweep" / "1-steps=1000000" / "metrics.jsonl").exists())
    children = subprocess.run(["ps", "-o", "pid=", "--ppid", str(process.pid)], capture_output=True, text=True)
    os.kill(int(children.stdout.split()[0]), signal.SIGKILL)
    out, _ = process.communicate(timeout=180)
    assert process.returncode == 1 and "the process was ended by SIGKILL (out of memory?)" in out
    assert [job["status"] for job in jobs(here)] == ["finished", "failed"]
    assert "SIGKILL" in (here / "sweep" / "1-steps=1000000" / "train.log").read_text()


def _wait(condition):
    deadline = time.monotonic() + 180
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_stop_on_failure_starts_no_further_job(quick, here, capsys):
    settings = ["model.block_size=8,5000,16,4", "sweep.stop_on_failure=true", "sweep.workers=1"]
    assert sweep(*quick, "stage=2_9", *settings) == 1
    assert [job["status"] for job in jobs(here)] == ["finished", "failed", "waiting", "waiting"]
    assert not (here / "sweep" / "2-block_size=16").exists()
    assert "1 of 4 jobs finished" in capsys.readouterr().out


@pytest.mark.parametrize("how", ["kill", "interrupt"])
def test_a_sweep_that_ended_early_goes_on_under_its_own_numbers(how, quick, here, capsys):
    """Six jobs, stopped once two have finished; what is finished is kept as it is."""
    command = [sys.executable, "-m", "gptcli", "train", "-m", "hydra.sweep.dir=sweep", *quick, "stage=3_14"]
    settings = ["seed=range(0,6)", "trainer.steps=300", "trainer.log_every=100", "sweep.workers=1"]
    settings += ["trainer.eval_every=100", "trainer.checkpoint_every=100"]
    process = subprocess.Popen([*command, *settings], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    _wait(lambda: (here / "sweep" / "2-seed=2" / "metrics.jsonl").exists())
    process.send_signal(signal.SIGKILL if how == "kill" else signal.SIGINT)
    out, error = process.communicate(timeout=180)
    assert process.returncode == (-signal.SIGKILL if how == "kill" else 130), error
    assert how == "kill" or "go on with: gptcli resume sweep" in out
    _wait(lambda: _is_free(here / "sweep" / "2-seed=2"))
    folders = [here / "sweep" / f"{number}-seed={number}" for number in range(6)]
    finished = [path for path in folders if path.exists() and info(path)["status"] == "finished"]
    kept = {path: path.stat().st_mtime_ns for folder in finished for path in folder.rglob("*")}
    assert folders[:2] == finished[:2] and len(finished) < 6
    assert main(["resume", "sweep"]) == 0
    assert f"{len(finished)} of 6 jobs are kept" in capsys.readouterr().out
    assert {path: path.stat().st_mtime_ns for folder in finished for path in folder.rglob("*")} == kept
    assert [(job["number"], job["directory"], job["status"]) for job in jobs(here)] == [
        (number, f"{number}-seed={number}", "finished") for number in range(6)
    ]
    assert (
        main(["train", "hydra.run.dir=alone", *quick, "stage=3_14", *settings[1:], "seed=2", "sweep.workers=auto"]) == 0
    )
    assert info(here / "alone")["full_val_loss"] == jobs(here)[2]["val_loss"]


def _is_free(path):
    """Tells whether the job of a killed sweep has noticed and let go of its directory."""
    from gptcli.training.lock import holder

    return holder(path) is None


def test_a_sweep_with_nothing_left_to_do_says_so(quick, here, capsys):
    assert sweep(*quick, "stage=2_9", "seed=1,2") == 0
    before = jobs(here)
    assert main(["resume", "sweep"]) == 0
    assert "2 of 2 jobs are kept" in capsys.readouterr().out and jobs(here) == before
    assert main(["resume", "sweep", "--steps", "30"]) == 2


def test_failed_jobs_are_tried_again(quick, here, text_path, capsys):
    """The cause may be gone: here a file that was too short has grown."""
    (here / "grows.txt").write_text("the cat sat on a mat")
    assert sweep(*quick, "stage=2_9", f"data.path={text_path},grows.txt") == 1
    assert [job["status"] for job in jobs(here)] == ["finished", "failed"]
    (here / "grows.txt").write_text(text_path.read_text())
    assert main(["resume", "sweep"]) == 0
    assert [job["status"] for job in jobs(here)] == ["finished", "finished"]
    assert len(list((here / "sweep").glob("1-path=grows.txt.failed-*"))) == 1


def test_all_wrong_is_wrong_use_and_nothing_is_written(quick, here, capsys):
    assert sweep(*quick, "stage=4_10", "model.num_heads=5,7") == 2
    error = capsys.readouterr().err
    assert "model.num_heads=5 does not divide" in error and len(error.splitlines()) == 1
    assert not list(here.iterdir())


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("model.num_haeds=1,2", "unknown key model.num_haeds; did you mean model.num_heads?"),
        ("stage=4_9,4_99", "unknown stage 4_99"),
        ("optimizer.learning_rate=interval(0,1)", "a sweep needs listed values"),
        ("data.path=nowhere1.txt,nowhere2.txt", "nowhere1.txt"),
    ],
)
def test_what_cannot_be_swept_over_is_refused_at_once(override, message, quick, here, capsys):
    assert sweep(*quick, override) == 2
    assert message in capsys.readouterr().err and not list(here.iterdir())


def test_one_value_is_a_sweep_of_one_job(quick, here):
    assert sweep(*quick, "stage=2_9") == 0
    assert [job["status"] for job in jobs(here)] == ["finished"]


def test_a_folder_that_holds_a_sweep_is_refused(quick, here, capsys):
    assert sweep(*quick, "stage=2_9") == 0
    before = (here / "sweep" / "sweep.json").read_bytes()
    assert sweep(*quick, "stage=2_9", "seed=1,2") == 2
    assert "holds a sweep already; go on with it by gptcli resume" in capsys.readouterr().err
    assert (here / "sweep" / "sweep.json").read_bytes() == before


def test_two_sweeps_of_one_second_do_not_mix(quick, here):
    command = [sys.executable, "-m", "gptcli", "train", "-m", *quick, "stage=2_9"]
    started = [subprocess.Popen([*command, f"seed={seed},{seed + 1}"]) for seed in (10, 20)]
    assert [process.wait(timeout=240) for process in started] == [0, 0]
    found = sorted((here / "outputs" / "multirun").glob("*/*/sweep.json"))
    assert len(found) == 2
    seeds = [sorted(job["varies"]["seed"] for job in json.loads(path.read_text())["jobs"]) for path in found]
    assert sorted(seeds) == [["10", "11"], ["20", "21"]]


def test_a_default_folder_that_another_sweep_took_gets_an_ending(here):
    first, second = (_create_directory(here / "outputs" / "12-00-00", []) for _ in range(2))
    assert first.name == "12-00-00" and re.fullmatch(r"12-00-00-[0-9a-f]{4}", second.name) and second.is_dir()


def test_stages_of_a_pattern_become_jobs(quick, here):
    assert sweep(*quick, "stage=glob(3_*,exclude=3_1*)", "trainer.steps=2") == 0
    assert [(job["varies"], job["directory"]) for job in jobs(here)] == [
        ({"stage": "3_7"}, "0-stage=3_7"), ({"stage": "3_8"}, "1-stage=3_8"),
    ]  # fmt: skip
    assert [info(here / "sweep" / job["directory"])["stage"] for job in jobs(here)] == ["3_7", "3_8"]


def test_runs_and_generate_find_a_job_by_its_name(quick, here, capsys):
    """A name with = in it is passed back to other commands without harm."""
    assert sweep(*quick, "stage=2_9", "seed=1,2") == 0
    capsys.readouterr()
    assert main(["generate", "sweep/1-seed=2", "--tokens", "5", "--seed", "1"]) == 0
    assert main(["runs", "sweep", "--json"]) == 0
    assert "1-seed=2" in capsys.readouterr().out


HOSTILE = [
    ("format", 99, "format"),
    ("jobs", "none", "is not the record of a sweep"),
    ("directory", "../outside", "is not the name of a job's folder"),
    ("directory", "/tmp/outside", "is not the name of a job's folder"),
    ("directory", "..", "is not the name of a job's folder"),
    ("directory", "a\nb", "is not the name of a job's folder"),
    ("number", "many", "is not the record of a sweep"),
    ("config", {"model": {"target": "os.system"}}, "is not the record of a sweep"),
]


@pytest.mark.parametrize(("key", "value", "message"), HOSTILE)
def test_a_record_that_was_tampered_with_is_refused(key, value, message, quick, here, capsys):
    assert sweep(*quick, "stage=2_9", "trainer.steps=1") == 0
    path = here / "sweep" / "sweep.json"
    record = json.loads(path.read_text())
    (record if key in record else record["jobs"][0])[key] = value
    path.write_text(json.dumps(record))
    capsys.readouterr()
    assert main(["resume", "sweep"]) == 1
    error = capsys.readouterr().err
    assert message in error and len(error.splitlines()) == 1
    assert {entry.name for entry in here.iterdir()} == {"sweep"}


@pytest.mark.parametrize("content", ["", "{", "[" * 100_000, "null", "[]", "\x00"])
def test_a_damaged_record_is_refused(content, here, capsys):
    (here / "sweep").mkdir()
    (here / "sweep" / "sweep.json").write_text(content)
    assert main(["resume", "sweep"]) == 1
    assert "is not the record of a sweep" in capsys.readouterr().err
