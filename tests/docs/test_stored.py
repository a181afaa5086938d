"""The examples of docs/stored.md, run in order in an empty folder."""

import os
import re
import shlex
from pathlib import Path

import pytest
import torch

from neuralcollapse.cli import main

PAGE = Path(__file__).parents[2] / "docs" / "stored.md"


@pytest.mark.unchecked
def test_every_example_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    blocks = re.findall(r"```(python|bash)\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.S)
    assert [kind for kind, _ in blocks].count("python") >= 7
    space: dict[str, object] = {}
    for kind, text in blocks:
        if kind == "python":
            # One process: starting others takes longer than the work.
            exec(
                compile(
                    text.replace('measure_files("features")', 'measure_files("features", workers=1)'),
                    "stored.md",
                    "exec",
                ),
                space,
            )
        else:
            for line in text.strip().splitlines():
                program, *arguments = shlex.split(line)
                assert program == "neuralcollapse"
                assert main([*arguments, *([] if "--workers" in arguments else ["--workers", "1"])]) == 0
    assert os.path.getsize("report.png") > 10_000
    assert os.path.getsize("history.png") > 5_000
    assert "<svg" in Path("report.html").read_text()
    assert len(list(Path("features").glob("shard-*"))) == 4
    assert "Neural collapse: " in capsys.readouterr().out
