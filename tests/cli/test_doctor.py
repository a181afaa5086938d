"""The doctor says what is wrong with an installation, and help does not wait for PyTorch."""

import json
import os
import subprocess
import sys
from importlib import metadata

import pytest
import torch

from neuralcollapse.cli import main


def said(capsys) -> dict:
    assert main(["doctor", "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_a_whole_installation_has_no_requirement_unmet(capsys):
    facts = said(capsys)
    assert facts["healthy"]
    assert not [line for line in facts["warnings"] if "this needs" in line]


def test_threads_cuda_torchvision_and_versions_are_told(capsys, monkeypatch, tmp_path):
    (tmp_path / "torchvision.py").write_text("raise RuntimeError('operator torchvision::nms does not exist')\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "torchvision", raising=False)
    monkeypatch.setattr(torch, "get_num_threads", lambda: (os.cpu_count() or 1) + 1)
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(
        metadata, "requires", lambda name: ["numpy>=99", "no-such-thing>=1", 'pillow>=99; extra == "x"']
    )
    lines = said(capsys)["warnings"]
    assert [line.split(" ")[0] for line in lines] == ["numpy", "no-such-thing", "torch", "this", "torchvision"]
    assert "operator torchvision::nms does not exist" in lines[-1]
    main(["doctor"])
    assert capsys.readouterr().out.count("warning") == 5


@pytest.mark.parametrize("line", [["--help"], ["optimum", "--help"], ["solve", "--help"], ["train", "--help"]])
def test_help_does_not_import_torch(line):
    code = (
        "import contextlib, sys\n"
        "from neuralcollapse.cli import main\n"
        f"with contextlib.suppress(SystemExit): main({line!r})\n"
        "print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "Usage" in done.stdout
    assert done.stdout.splitlines()[-1] == "False"
