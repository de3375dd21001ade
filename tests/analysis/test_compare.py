"""The whole comparison against scipy and sums by hand, and everything that a reader must be told."""

import pytest
from scipy import stats

from gptcli.analysis.compare import compare
from gptcli.errors import UserError

BASE, BETTER, SAME = [2.20, 2.24, 2.21, 2.25], [2.11, 2.13, 2.12, 2.14], [2.21, 2.23, 2.22, 2.24]


@pytest.fixture
def ladder(make_run):
    rows = {"4_7": BASE, "4_8": SAME, "4_9": BETTER}
    return [
        make_run(stage=stage, seed=seed, loss=loss)
        for stage, losses in rows.items()
        for seed, loss in enumerate(losses)
    ]


def test_against_scipy(ladder):
    result = compare(ladder, metric="val_loss")
    _, same, better = result.groups
    assert [group.label for group in result.groups] == ["4_7", "4_8", "4_9"]
    p = stats.ttest_rel(BETTER, BASE).pvalue
    assert better.against.p == pytest.approx(p) and better.holm_p == pytest.approx(2 * p)
    assert same.holm_p == pytest.approx(stats.ttest_rel(SAME, BASE).pvalue)
    gaps = [a - b for a, b in zip(BETTER, BASE, strict=True)]
    low, high = stats.t.interval(0.95, 3, loc=sum(gaps) / 4, scale=stats.sem(gaps))
    assert better.against.value == pytest.approx((low + high) / 2)
    assert better.against.half_width == pytest.approx((high - low) / 2)
    assert [group.reading for group in result.groups] == ["baseline", "no difference found", "better"]


def test_costs_and_steps(ladder):
    base, _, better = compare(ladder).groups
    assert base.parameters == 41_921
    # Three blocks of 12 * 32^2 weights, the head 32 * 65: 6 operations each; attention 12 * 3 * 8 * 32.
    assert base.flops_per_token == 6 * (3 * 12 * 1024 + 2080) + 12 * 3 * 8 * 32
    assert base.flops == 256_000 * base.flops_per_token
    # The curves fall 1 per 1,000 steps: 4_9 ends 0.1 lower, so it passes the baseline's end 100 steps before.
    assert base.steps_to_baseline == pytest.approx(1000)
    assert better.steps_to_baseline == pytest.approx(900)


def test_the_default_metric_is_the_whole_split(ladder):
    result = compare(ladder)
    assert result.metric == "full_val_loss" and result.metric_is_default
    assert result.groups[0].summary.mean == pytest.approx(sum(BASE) / 4 + 0.01)


def test_one_seed_makes_no_claim(make_run):
    result = compare([make_run(stage="4_7", loss=2.2), make_run(stage="4_9", loss=1.0)])
    assert result.groups[1].reading == "no claim: one seed"
    assert result.groups[1].against.value == pytest.approx(-1.2)
    assert any("one seed only (4_7, 4_9): no claim can be made" in note for note in result.notes)


def test_other_seeds_fall_back_to_welch(make_run):
    runs = [make_run(stage="4_7", seed=seed, loss=loss) for seed, loss in enumerate(BASE)]
    runs += [make_run(stage="4_9", seed=10 + seed, loss=loss) for seed, loss in enumerate(BETTER)]
    group = compare(runs, metric="val_loss").groups[1]
    assert group.holm_p == pytest.approx(stats.ttest_ind(BETTER, BASE, equal_var=False).pvalue)
    assert group.reading == "better (Welch: seeds do not pair)"


def test_what_failed_or_goes_on_is_left_out_and_said(make_run):
    good = [make_run(seed=seed, loss=2 + seed / 10) for seed in range(2)]
    bad = [
        make_run(seed=2, status="failed", reason="the loss is not finite at step 40"),
        make_run(seed=3, status="interrupted"),
        make_run(seed=4, full_val_loss=None, val_loss=None),
        make_run(seed=5, status="running"),
    ]
    (bad[2].path / "metrics.jsonl").unlink()
    result = compare(good + bad, metric="val_loss")
    assert len(result.groups[0].values) == 2
    reasons = dict(result.left_out)
    assert reasons[str(bad[0].path)] == "failed: the loss is not finite at step 40"
    assert reasons[str(bad[1].path)] == "interrupted"
    assert reasons[str(bad[2].path)] == "no finite val_loss"
    assert reasons[str(bad[3].path)] == "dead"
    assert any("4 runs left out" in note for note in result.notes)


def test_nothing_finished_is_an_error(make_run):
    with pytest.raises(UserError, match=r"no finished run with a val_loss.*failed"):
        compare([make_run(status="failed")])


def corpus(digest="ab", vocabulary="abc"):
    return {"name": "text_file", "sha256": digest * 32, "vocabulary": list(vocabulary), "characters": 9}


@pytest.mark.parametrize(
    ("other", "words"),
    [
        (corpus(digest="cd"), "other corpora (text_file abababab and text_file cdcdcdcd)"),
        (corpus(vocabulary="abd"), "other vocabularies (3 and 3 symbols, differing in 'cd')"),
    ],
)
def test_other_texts_are_not_compared(make_run, other, words):
    runs = [
        make_run(stage=stage, seed=seed, corpus=text)
        for stage, text in (("4_7", corpus()), ("4_9", other))
        for seed in range(3)
    ]
    result = compare(runs, by=["stage"])
    group = result.groups[1]
    assert group.against.value is None and group.holm_p is None and group.steps_to_baseline is None
    assert group.reading.startswith("no claim: other")
    assert any(words in note for note in result.notes)


def test_one_group_of_two_corpora_is_refused(make_run):
    runs = [make_run(seed=1, corpus=corpus()), make_run(seed=2, corpus=corpus(digest="cd"))]
    with pytest.raises(UserError, match=r"group 4_10 mixes runs with other corpora.*--by corpus"):
        compare(runs, by=["stage"])


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("model.block_size", 16, "contexts of different lengths"),
        ("recipe.name", "walkthrough", "evaluation windows"),
        ("trainer.steps", 2000, "trained for different lengths"),
        ("trainer.eval_tokens", 4096, "different numbers of windows"),
    ],
)
def test_other_measuring_is_compared_with_a_warning(make_run, key, value, words):
    runs = [make_run(seed=seed, loss=2 + seed / 10) for seed in range(2)]
    runs += [make_run(seed=seed, changes={key: value}) for seed in range(2)]
    result = compare(runs)
    assert any(words in note and key in note for note in result.notes)


def test_the_floor_and_what_is_below_it(make_run):
    runs = [make_run(seed=seed, loss=loss, floor=1.9) for seed, loss in enumerate((2.0, 2.1))]
    result = compare(runs, metric="val_loss")
    assert result.groups[0].floor_distance == pytest.approx(0.15)
    leaking = compare([make_run(seed=seed, loss=1.5, floor=1.9) for seed in range(2)], metric="val_loss")
    assert any("0.4000 nats below the corpus's floor: look for a leak" in note for note in leaking.notes)


def test_mixed_groups_and_repeated_seeds_are_said(make_run):
    runs = [make_run(changes={"model.num_heads": heads}, loss=heads) for heads in (2, 4)]
    notes = compare(runs, by=["stage"]).notes
    assert any("inside group 4_10, model.num_heads varies" in note for note in notes)
    assert any("2 runs over 1 seed" in note for note in notes)


def test_partial_pairs_are_said(make_run):
    runs = [make_run(stage="4_7", seed=seed, loss=2 + seed / 10) for seed in range(2)]
    runs += [make_run(stage="4_9", seed=seed, loss=2 + seed**2 / 10) for seed in range(4)]
    result = compare(runs)
    assert result.groups[1].against.pairs == 2
    assert any("paired over the 2 seeds" in note for note in result.notes)


def test_runs_of_another_version_are_compared_without_flops(make_run):
    runs = [make_run(seed=seed, changes={"model.an_older_key": 1}) for seed in range(2)]
    group = compare(runs).groups[0]
    assert group.flops is None and group.summary.n == 2
