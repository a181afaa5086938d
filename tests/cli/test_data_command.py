"""``neuralcollapse data``: tables and JSON on stdout, one line and code 2 for bad input."""

import json

import pytest

from neuralcollapse.cli import main
from neuralcollapse.data import sources


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch):
    monkeypatch.delenv("NEURALCOLLAPSE_DATA", raising=False)


def test_list_names_every_data_set(capsys):
    assert main(["data", "list", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["name"] for row in rows] == list(sources)
    assert {row["name"] for row in rows if row["here"]} == {"digits", "synthetic"}
    assert main(["data", "list"]) == 0
    assert "fashion-mnist" in capsys.readouterr().out


def test_check_says_usable_or_why_not(capsys, tmp_path):
    assert main(["data", "check", "digits"]) == 0
    assert "usable, 1,500 train" in capsys.readouterr().out
    assert main(["data", "check", "mnist", "--root", str(tmp_path), "--json"]) == 1
    report = json.loads(capsys.readouterr().out)
    assert report["usable"] is False
    assert str(tmp_path) in report["problem"]


def test_get(capsys, tmp_path):
    assert main(["data", "get", "digits"]) == 0
    assert "nothing to fetch" in capsys.readouterr().out
    assert main(["data", "get", "mini-imagenet", "--root", str(tmp_path)]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("neuralcollapse: error: mini-imagenet cannot be fetched")
    assert captured.err.count("\n") == 1


def test_an_unknown_name_gets_a_hint(capsys):
    assert main(["data", "check", "cifar11"]) == 2
    assert "did you mean 'cifar10" in capsys.readouterr().err
