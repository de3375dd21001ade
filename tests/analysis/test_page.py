"""The page: whole, deaf to what strangers write into runs, and allowed to run nothing but its own scripts."""

import base64
import hashlib
import json
import os
import re
import shlex
import subprocess
import sys
from html.parser import HTMLParser

import pytest

from gptcli.analysis.compare import compare
from gptcli.analysis.output import check_target
from gptcli.analysis.page import check_library, command_line, script_json, to_html
from gptcli.errors import UserError

EVIL = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\x1b[31m\u202e&amp;'\""


class Elements(HTMLParser):
    """Collects the tags, attributes and texts of a page."""

    def __init__(self):
        super().__init__()
        self.tags, self.scripts, self.text = [], [], []

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        if tag == "script":
            self.scripts.append("")

    def handle_data(self, data):
        if (
            self.tags
            and self.tags[-1][0] == "script"
            and self.lasttag == "script"
            and self.cdata_elem == "script"
        ):
            self.scripts[-1] += data
        else:
            self.text.append(data)


def parse(page):
    elements = Elements()
    elements.feed(page)
    return elements


@pytest.fixture
def hostile(make_run):
    runs = [
        make_run(
            stage=stage,
            seed=seed,
            loss=2 + seed / 10,
            overrides=[f"data.path={EVIL}", f"stage={stage}"],
            git_revision=EVIL,
            corpus={"name": EVIL, "sha256": EVIL, "vocabulary": [EVIL], "characters": 1},
        )
        for stage in (EVIL, "4_10")
        for seed in range(2)
    ]
    runs.append(make_run(status="failed", reason=EVIL))
    for run in runs:
        (run.path / "samples.txt").write_text(f"{EVIL}\nROMEO:\n", encoding="utf-8")
    return to_html(compare(runs))


def test_strangers_text_is_text(hostile):
    elements = parse(hostile)
    tags = [tag for tag, _ in elements.tags]
    assert tags.count("script") == 3 and "img" not in tags and "b" not in tags
    attributes = {name for _, found in elements.tags for name in found}
    assert not {name for name in attributes if name.startswith("on")}
    assert "\x1b" not in hostile and "\u202e" not in hostile
    assert "alert(1)" in "".join(elements.text)


def test_nothing_is_loaded(hostile):
    found = [attributes for _, attributes in parse(hostile).tags]
    assert not [one for one in found if {"src", "href", "srcset", "action"} & set(one)]
    style = re.search("<style>(.*?)</style>", hostile, re.DOTALL)[1]
    assert "url(" not in style and "@import" not in style


def test_the_policy_allows_the_two_scripts_alone(hostile):
    elements = parse(hostile)
    policy = next(
        one["content"] for tag, one in elements.tags if one.get("http-equiv") == "Content-Security-Policy"
    )
    data, *scripts = elements.scripts
    expected = {base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts}
    assert set(re.findall("'sha256-([^']+)'", policy)) == expected and len(expected) == 2
    assert policy.startswith("default-src 'none'; ")
    assert json.loads(data)["groups"][0]["label"]


def test_json_inside_a_script_cannot_end_it():
    data = {"a": "</script><!--", "b": "\u2028&"}
    encoded = script_json(data)
    assert not set("<>&\u2028") & set(encoded) and json.loads(encoded) == data
    with pytest.raises(ValueError):
        script_json({"a": float("nan")})


def test_tables_samples_and_commands_are_there(make_run, tmp_path):
    runs = [
        make_run(stage=stage, seed=seed, loss=loss + seed / 100)
        for stage, loss in (("4_7", 2.2), ("4_9", 2.1))
        for seed in range(3)
    ]
    page = to_html(compare(runs))
    text = " ".join("".join(parse(page).text).split())
    assert "no claim: no spread between seeds" in text and "2.2200 ± 0.0248" in text
    assert "model.norm" in text and "layer_norm" in text and "model.num_heads" not in text
    assert "seed 0 of 4_9" in text and "gptcli train stage=4_9 seed=2" in text
    path = tmp_path / "a.html"
    path.write_text(page, encoding="utf-8")
    check_target(path, "--html")


def test_a_sample_that_is_a_link_is_not_followed(make_run, tmp_path):
    (tmp_path / "secret").write_text("the secret")
    run = make_run()
    (run.path / "samples.txt").unlink()
    os.symlink(tmp_path / "secret", run.path / "samples.txt")
    page = to_html(compare([run]))
    assert "the secret" not in page and "No samples were kept." in page


def test_commands_come_back_from_a_shell(make_run):
    words = ["data.path=/a b/c'd\"e$HOME`x`;rm", "model.num_heads=4", "stage.title=!\\*?[a]"]
    assert shlex.split(command_line(make_run(overrides=words))) == ["gptcli", "train", *words]


def test_stage_names_lose_the_quotes_that_hydra_needs(make_run):
    command = command_line(make_run(overrides=["stage='4_7'", "stage.title='4_7'"]))
    assert command == "gptcli train stage=4_7 'stage.title='\"'\"'4_7'\"'\"''"


def test_control_characters_come_back_from_bash(make_run):
    words = ["data.path=/a\nb'\\\x1b[31m\u202e"]
    command = command_line(make_run(overrides=words)).replace("gptcli train ", "printf %s ")
    assert command.isprintable()
    environment = {**os.environ, "LC_ALL": "C.UTF-8"}
    done = subprocess.run(["bash", "-c", command], capture_output=True, check=True, env=environment)
    assert done.stdout.decode() == words[0]


def test_missing_plotly_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "plotly", None)
    with pytest.raises(UserError, match=r"needs plotly.*gptcli\[plots\]"):
        check_library()
