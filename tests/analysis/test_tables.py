"""The comparison as text: what a terminal, a program and a spreadsheet get."""

import csv
import io
import json

import pytest

from gptcli.analysis.compare import compare
from gptcli.analysis.tables import interval, p_words, terminal_lines, to_csv, to_json

HOSTILE = "\x1b[31mred\u202e"


@pytest.fixture
def comparison(make_run):
    return compare(
        [
            make_run(stage=stage, seed=seed, loss=loss + seed / 100 + (seed % 2) * shift)
            for stage, loss, shift in (("4_7", 2.2, 0.0), ("4_9", 2.1, 0.001))
            for seed in range(4)
        ]
    )


@pytest.mark.parametrize(
    ("arguments", "signed", "expected"),
    [
        ((2.24106, 0.00604), False, "2.2411 ± 0.0060"),
        ((2.5, None), False, "2.5000"),
        ((-0.5, 0.1), True, "-0.5000 ± 0.1000"),
        ((0.5, None), True, "+0.5000"),
        ((None, None), True, "-"),
    ],
)
def test_interval(arguments, signed, expected):
    assert interval(*arguments, signed=signed) == expected


@pytest.mark.parametrize(
    ("p", "expected"),
    [(0.0004, "p <0.001"), (0.0312, "p 0.031"), (0.312, "p 0.31"), (1.0, "p 1.00"), (None, "")],
)
def test_p_words(p, expected):
    assert p_words(p) == expected


def test_table_names_what_is_compared_and_reads_it(comparison):
    lines = terminal_lines(comparison)
    assert lines[0].startswith(
        "validation loss over the whole split, 4 seeds each, 1,000 steps, tiny_shakespeare"
    )
    assert "paired by seed, Holm-corrected" in lines[0]
    header, first, second = lines[2:5]
    assert header.split()[0] == "stage" and "against 4_7" in header
    assert first.split()[:2] == ["4_7", "41,921"] and first.endswith("-")
    assert "2.2250 ± " in first and "-0.0995 ± 0.0009  p <0.001" in second and second.endswith("better")


@pytest.mark.parametrize("width", [120, 90, 72, 40, 24])
def test_narrow_terminals_lose_columns_never_the_result(comparison, width):
    lines = terminal_lines(comparison, width)
    table = lines[2:]
    assert all(len(line) <= width for line in table)
    text = "\n".join(table)
    assert (
        "4_9" in text and "2.1255" in text and "-0.0995" in text and "p <0.001" in text and "better" in text
    )


def test_one_group_is_compared_with_nothing(make_run):
    lines = terminal_lines(compare([make_run(seed=1), make_run(seed=2, loss=2.1)]))
    assert "no differences tested" in lines[0] and "against" not in lines[2] and "reading" not in lines[2]


def test_metric_that_was_asked_for_is_named(make_run):
    lines = terminal_lines(compare([make_run(seed=1), make_run(seed=2, loss=2.1)], metric="train_loss"))
    assert lines[1] == "metric train_loss (asked for)"


def test_json_is_strict_and_whole(comparison):
    def refuse(constant):
        raise AssertionError(constant)

    data = json.loads(to_json(comparison), parse_constant=refuse)
    base, other = data["groups"]
    assert data["baseline"] == base["group"] == "4_7" and data["metric"] == "full_val_loss"
    assert base["difference"] is None and other["difference"] == pytest.approx(-0.0995)
    assert other["seeds"][1] == {"seed": 1, "value": pytest.approx(2.121)}
    assert other["method"] == "paired" and other["pairs"] == 4
    assert other["curve"]["steps"] == [250, 500, 750, 1000]


def test_csv_has_a_row_per_group(comparison):
    rows = list(csv.DictReader(io.StringIO(to_csv(comparison))))
    assert [row["group"] for row in rows] == ["4_7", "4_9"]
    assert float(rows[1]["mean"]) == pytest.approx(2.1255) and rows[0]["p_holm"] == ""
    assert rows[1]["stage.name"] == "4_9" and rows[1]["reading"] == "better"


def test_csv_cells_are_no_formulas(make_run):
    runs = [make_run(stage=stage, changes={"stage.name": stage}) for stage in ("=1+1", "4_10")]
    assert "'=1+1" in [row["group"] for row in csv.DictReader(io.StringIO(to_csv(compare(runs))))]


def test_control_characters_reach_no_terminal(make_run):
    runs = [make_run(stage=HOSTILE), make_run(), make_run(status="failed", reason=HOSTILE)]
    text = "\n".join(terminal_lines(compare(runs))) + "\n".join(terminal_lines(compare(runs), 30))
    assert "\x1b" not in text and "\u202e" not in text and "\\x1b[31mred" in text
