"""Every code block of every page is run, or, for commands that take long, read by the parser that would run it."""

import re
import shlex
from pathlib import Path

import pytest
import torch

import neuralcollapse as nc
from neuralcollapse import cli
from neuralcollapse._support.registry import load_entries
from neuralcollapse.cli._app import app

HOME = Path(__file__).parents[2]
PAGES = {path.name: path.read_text(encoding="utf-8") for path in sorted((HOME / "docs").glob("*.md"))}
ELSEWHERE = {"integrations.md": "tests/integrations/test_docs.py", "stored.md": "tests/docs/test_stored.py"}
BLOCK = re.compile(r"^( *)```python\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
SHELL = re.compile(r"^ *```(?:bash)?\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
# What would take minutes or a download becomes the same with less.
SMALLER = {
    "data.md": {'"mnist", root="data", per_class=200': '"digits", per_class=20'},
    "training.md": {
        'model="resnet8:width=16"': 'model="mlp:width=8", per_class=5, test_per_class=2',
        "epochs=200": "epochs=2",
    },
    "studies.md": {'out="results")': 'out="results", workers=1)'},
    "index.md": {"lightning.Trainer(": "lightning.pytorch.Trainer(logger=False, enable_checkpointing=False, "},
}
load_entries("neuralcollapse.cli", [str(Path(cli.__file__).parent)])


def blocks(name):
    found = []
    for indent, text in BLOCK.findall(PAGES[name]):
        code = "\n".join(line.removeprefix(indent) for line in text.splitlines())
        for old, new in SMALLER.get(name, {}).items():
            code = code.replace(old, new)
        found.append(code)
    return found


def names():
    """What pages take for granted: a model, a loader, and features with a classifier."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(5, 8), torch.nn.ReLU(), torch.nn.Linear(8, 4))
    x, labels = torch.randn(80, 5), torch.arange(80) % 4
    features = model[:2](x).detach()
    report = nc.measure(features, labels, model[2].weight, model[2].bias)

    class Trainer:
        def add_callback(self, callback):
            assert callback is not None

        def get_eval_dataloader(self):
            return [(x, labels)]

    return {
        "nc": nc, "torch": torch, "model": model, "loader": [(x, labels)], "features": features, "labels": labels,
        "weight": model[2].weight, "bias": model[2].bias, "other": report, "another": report, "trainer": Trainer(),
        "train_one_epoch": lambda model: None,
    }  # fmt: skip


@pytest.mark.unchecked
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", [name for name in PAGES if blocks(name) and name not in ELSEWHERE])
def test_the_blocks_of_a_page_run(name, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    space = names()
    if name == "index.md":
        pytest.importorskip("transformers")
        space["lightning"] = pytest.importorskip("lightning")
    for code in blocks(name):
        exec(compile(code, name, "exec"), space)


def test_every_page_with_code_is_run_somewhere():
    for page, file in ELSEWHERE.items():
        assert page in (HOME / file).read_text(encoding="utf-8")
    assert sum(bool(blocks(name)) for name in PAGES) >= 7


def commands():
    for name, page in {**PAGES, "README.md": (HOME / "README.md").read_text(encoding="utf-8")}.items():
        for text in SHELL.findall(page):
            for line in text.splitlines():
                if match := re.match(r" *neuralcollapse (.+)", line):
                    yield name, re.split(r"  +|  #", re.sub(r"\[[^\]]*\]", "", match[1]))[0].strip()


@pytest.mark.parametrize(("page", "command"), sorted(set(commands())))
def test_a_command_of_a_page_is_understood(page, command):
    app.parse_args(shlex.split(command), exit_on_error=False, print_error=False)


FITS = 110
"""Columns of code in the documentation's width on a screen of 1280 pixels."""


@pytest.mark.parametrize("name", PAGES)
def test_lines_of_code_fit_their_column(name):
    inside, wide = False, []
    for line in PAGES[name].splitlines():
        if line.lstrip().startswith("```"):
            inside = not inside
        elif inside and len(line) > FITS:
            wide.append(line)
    assert wide == []


@pytest.mark.parametrize("path", sorted((HOME / "docs" / "tutorials").glob("*.py")), ids=lambda path: path.stem)
def test_lines_of_tutorials_fit_their_column(path):
    lines = path.read_text(encoding="utf-8").splitlines()
    assert [line for line in lines if len(line) > FITS and not line.startswith("# ")] == []
