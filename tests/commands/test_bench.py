"""gptcli bench as a user types it: its figures agree with each other and with counts made by hand."""

import json
import time

import pytest
import torch

from gptcli.analysis import speed
from gptcli.cli import main


@pytest.fixture
def facts(capsys, quick):
    """Returns a function that gives what gptcli bench --json prints for a small setting."""

    def measured(*arguments):
        assert main(["bench", "stage=4_10", *quick, "--seconds", "0.1", "--json", *arguments]) == 0
        return json.loads(capsys.readouterr().out)

    return measured


@pytest.mark.parametrize("members", [1, 3])
def test_rates_follow_from_the_time_of_a_step(facts, members, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    started = time.perf_counter()
    found = facts("--members", str(members))
    elapsed = time.perf_counter() - started
    step, tokens = found["milliseconds_per_step"], members * 4 * 8
    assert found["members"] == members
    assert 0 < step["minimum"] <= step["median"] <= step["maximum"] < elapsed * 1e3
    assert found["tokens_per_second"] == pytest.approx(tokens / step["median"] * 1e3)
    assert found["share_of_matmul_rate"] == pytest.approx(
        found["gflops_per_second"] / found["matmul_gflops_per_second"]
    )
    # 3 blocks of 12 width^2 weights and the head, twice forward and four times backward; attention of width 32 over 8.
    vocabulary = (found["parameters"] - 3 * 12 * 32**2 - 8 * 32 - 3 * (4 * 32 + 6 * 32) - 64) // 65
    flops = 6 * (3 * 12 * 32**2 + 32 * vocabulary) + 12 * 3 * 8 * 32
    assert found["gflops_per_second"] == pytest.approx(flops * found["tokens_per_second"] / 1e9, rel=0.01)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("compile_setting", ["auto", "true", "false"])
def test_the_matrix_product_has_the_threads_of_the_run(facts, compile_setting, monkeypatch):
    threads, real = [], speed.matmul_rate

    def watched(*arguments):
        monkeypatch.setattr(speed, "synchronize", lambda device: threads.append(torch.get_num_threads()))
        return real(*arguments)

    monkeypatch.setattr(speed, "matmul_rate", watched)
    before = torch.get_num_threads()
    try:
        assert facts("trainer.threads=2", f"trainer.compile={compile_setting}")["threads"] == 2
    finally:
        torch.set_num_threads(before)
    # Twelve products, a synchronization before and after each; the evaluation comes after.
    assert threads[:24] == [2] * 24


def test_text_names_where_it_was_measured(capsys, quick):
    assert main(["bench", "stage=4_10", *quick, "--seconds", "0.1"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("stage 4_10") and "1 thread" in lines[0]
    assert [line.split()[0] for line in lines[1:]] == ["step", "training", "evaluation", "arithmetic", "peak"]
