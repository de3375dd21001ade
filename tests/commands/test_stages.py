"""gptcli stages as a user types it."""

import json

from gptcli.cli import main


def test_the_table(capsys):
    assert main(["stages"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["stage", "parameters", "val", "loss", "title"]
    rows = {line.split()[0]: line.split(maxsplit=3)[1:] for line in lines[1:23]}
    assert rows["2_9"] == ["4,225", "2.49", "A bigram table"]
    assert rows["4_8"][0] == "48,257" and rows["5_14"][0] == "10,788,929"
    assert list(rows)[:3] == ["2_9", "3_7", "3_8"] and list(rows)[-4:] == ["5_11", "5_12", "5_13", "5_14"]


def test_json(capsys):
    assert main(["stages", "--json"]) == 0
    ladder = json.loads(capsys.readouterr().out)
    assert len(ladder) == 22
    assert ladder[14]["name"] == "4_10" and ladder[14]["parameters"] == 42_369 and ladder[14]["section"] == "4.10"
    assert all(stage["title"] and stage["change"] for stage in ladder)


def test_another_vocabulary(capsys):
    assert main(["stages", "--vocabulary", "10", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["parameters"] == 100
    assert main(["stages", "--vocabulary", "0"]) == 2
