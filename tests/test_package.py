"""The package as a whole: light import, README and docstring examples that run."""

import doctest
import importlib
import pkgutil
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import neuralcollapse as nc

ROOT = Path(__file__).parent.parent
HEAVY = (
    "matplotlib",
    "plotly",
    "sklearn",
    "lightning",
    "transformers",
    "torchmetrics",
    "pandas",
    "cvxpy",
    "pymanopt",
)


def modules():
    names = ["neuralcollapse"]
    for found in pkgutil.walk_packages(nc.__path__, "neuralcollapse."):
        if not found.name.endswith("__main__"):
            names.append(found.name)
    return names


def test_import_is_light():
    code = (
        "import sys, neuralcollapse as nc; assert 'torch' not in sys.modules;"
        "nc.ufm, nc.losses, nc.frames, nc.landscape;"
        f"print([name for name in {HEAVY!r} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_public_names_resolve():
    for name in nc.__all__:
        assert getattr(nc, name) is not None
    assert set(nc.__all__) <= set(dir(nc))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        nc.nothing  # noqa: B018


@pytest.mark.unchecked
@pytest.mark.parametrize("name", modules())
def test_docstring_examples(name):
    module = importlib.import_module(name)
    assert doctest.testmod(module, optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE).failed == 0
    exported = getattr(module, "__all__", [])
    assert all(hasattr(module, entry) for entry in exported)


@pytest.mark.unchecked
def test_readme_python_runs(tmp_path, monkeypatch):
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.S)
    assert blocks
    monkeypatch.chdir(tmp_path)
    for block in blocks:
        exec(compile(block, "README.md", "exec"), {})


@pytest.mark.unchecked
def test_readme_commands_run(tmp_path, monkeypatch, capsys):
    from neuralcollapse.cli import main

    monkeypatch.chdir(tmp_path)
    np.savez("features.npz", features=np.random.default_rng(0).normal(size=(60, 8)), labels=np.arange(60) % 3)
    lines = re.findall(r"^neuralcollapse (.*)$", (ROOT / "README.md").read_text(), re.M)
    assert len(lines) >= 2
    for line in lines:
        assert main(line.split()) == 0, line
    capsys.readouterr()


def test_readme_names_the_two_commands():
    text = (ROOT / "README.md").read_text()
    makefile = (ROOT / "Makefile").read_text()
    for target in ("demo", "test"):
        assert f"make {target}" in text
        assert re.search(rf"^{target}:", makefile, re.M)


@pytest.mark.parametrize("path", sorted((ROOT / "examples").glob("*.py")), ids=lambda path: path.name)
def test_examples_run(path):
    done = subprocess.run([sys.executable, path], capture_output=True, text=True, check=True)
    assert done.stdout
