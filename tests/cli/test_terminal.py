"""What the terminal shows at 80 and at 50 columns: whole words, few lines, a next step; and what a pipe gets.

The files in ``snapshots/`` are what was looked at and found good. After a change that is meant:
``NEURALCOLLAPSE_SNAPSHOTS=write python -m pytest tests/cli/test_terminal.py``, and look at them again.
"""

import io
import os
import re
import shlex
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from rich.console import Console

import neuralcollapse.studies as studies_layer
from neuralcollapse import cli
from neuralcollapse._support.registry import load_entries
from neuralcollapse._support.theme import LOSSES
from neuralcollapse.cli import main
from neuralcollapse.cli._app import app
from neuralcollapse.cli._output.progress import clock
from neuralcollapse.cli._output.terminal import at_a_word, fitting, print_table
from neuralcollapse.studies import Answer

pytestmark = pytest.mark.unchecked
load_entries("neuralcollapse.cli", [str(Path(cli.__file__).parent)])
SNAPSHOTS = Path(__file__).parent / "snapshots"
HEIGHTS = {"study-list": 8, "results": 12, "measure": 16, "train": 12}
COLUMNS = ("study", "profile", "cell", "loss", "data", "model", "seed", "split", "accuracy", "nc1", "nc2", "nc3")
SAME = ("mnist:size=14", "resnet8:width=8", 10, "train")
ROWS = [
    ("losses/collapse", "desk", "1a2b3c4d5e6f", "cross-entropy", *SAME, 1.0, 0.01234, 0.2345, 0.1234),
    ("losses/collapse", "desk", "f6e5d4c3b2a1", "focal:gamma=3", *SAME, 0.9876, 1.234e-05, 0.1, None),
]


@pytest.fixture
def screen(monkeypatch, tmp_path, capsys):
    """Run a command on a terminal of some columns, and return its lines."""
    monkeypatch.chdir(tmp_path)
    numbers = np.random.default_rng(0)
    labels = np.arange(90) % 3
    features = np.eye(3, 8)[labels] + 0.1 * numbers.normal(size=(90, 8))
    np.savez("features.npz", features=features, labels=labels, weight=np.eye(3, 8), bias=np.zeros(3))
    monkeypatch.setattr(studies_layer, "query", lambda *_: Answer(COLUMNS, ("VARCHAR",) * len(COLUMNS), ROWS))

    def run(arguments, width):
        settings = {"COLUMNS": str(width), "LINES": "40", "TERM": "xterm", "TTY_COMPATIBLE": "1", "NO_COLOR": "1"}
        for name, value in settings.items():
            monkeypatch.setenv(name, value)
        code = main(shlex.split(arguments))
        shown = capsys.readouterr()
        assert code == 0, shown.err
        text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown.out + shown.err)
        return [line.rsplit("\r")[-1].rstrip() for line in text.splitlines()]

    return run


STUDIES = {
    "losses/collapse": (
        "Do the features and the classifier collapse alike under CE, FL, LS and MSE?",
        ("1", "5"),
        "25 min",
    ),
    "normalized/overparameterization": (
        "Do normalised nets fit and collapse in fewer epochs than regularised ones as nets grow, and why?",
        ("6", "table 2"),
        "30 min on 1 core, the cells of another study",
    ),
}


CLAIMS = [SimpleNamespace(kind=kind) for kind in ("paper", "paper", "ours")]


@pytest.fixture
def two_studies(monkeypatch):
    """Two studies whose texts stay as they are."""
    made = {
        name: SimpleNamespace(id=name, question=question, figures=figures, costs={"desk": cost}, claims=CLAIMS)
        for name, (question, figures, cost) in STUDIES.items()
    }
    monkeypatch.setattr(studies_layer, "studies", made)
    monkeypatch.setattr(studies_layer, "get", made.__getitem__)


@pytest.mark.parametrize("width", [80, 50])
def test_the_list_of_all_studies_has_two_lines_for_each(screen, width):
    *lines, _, _ = screen("study list", width)
    assert len(lines) == 2 * len(studies_layer.studies)
    assert max(map(len, lines[:-1])) <= width  # the last is a command to copy
    assert [line.split()[0] for line in lines[::2]] == list(studies_layer.studies)


COMMANDS = {
    "study-list": "study list",
    "results": "results",
    "measure": "measure features.npz",
    "train": "train --per-class 2 --test-per-class 1 --model mlp:width=8 --epochs 2 --measure 2 --out run{}",
}


def steady(name, lines):
    """Lines without what changes from run to run: bars, and the numbers of a training run."""
    lines = [line for line in lines if line and not re.match(r"epoch \d+/\d+ +[━╸╺ ]", line)]
    return [re.sub(r"\d+\.\d+(e-?\d+)?|(?<=nc4_mismatch )\d", "#", line) if name == "train" else line for line in lines]


def words_of(lines):
    """The words, without the lines of tables and without commas."""
    return {word.strip(",:") for word in re.split(r"[\s│┃]+", " ".join(lines)) if re.search(r"\w", word)}


@pytest.mark.parametrize("width", [80, 50])
@pytest.mark.parametrize("name", COMMANDS)
def test_a_screen(screen, two_studies, name, width):
    lines = steady(name, screen(COMMANDS[name].format(width), width))
    body = [line for line in lines if not line.startswith(("next: ", "      neuralcollapse", "finished: "))]
    assert max(map(len, body)) <= width
    assert len(lines) <= HEIGHTS[name]
    wide = words_of(steady(name, screen(COMMANDS[name].format(f"{width}-wide"), 300)))
    cut = words_of(body) - wide - {"no", "room", "for"}
    assert not cut, f"words that are not in the wide answer: {cut}"
    text = "\n".join(lines) + "\n"
    file = SNAPSHOTS / f"{name}-{width}.txt"
    if os.environ.get("NEURALCOLLAPSE_SNAPSHOTS") == "write":
        file.write_text(text, encoding="utf-8")
    assert text == file.read_text(encoding="utf-8")


def test_a_pipe_gets_whole_rows_separated_by_tabs(capsys, monkeypatch):
    monkeypatch.setattr(studies_layer, "query", lambda *_: Answer(COLUMNS, ("VARCHAR",) * len(COLUMNS), ROWS * 60))
    assert main(["results"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "\t".join(COLUMNS)
    assert len(lines) == 121
    assert lines[2].split("\t")[-2:] == ["0.1", ""]
    assert main(["results", "--limit", "2"]) == 0
    cut = capsys.readouterr()
    assert cut.out.splitlines() == lines[:3]
    assert "118 more rows" in cut.err
    for command in (["study", "list"], ["data", "list"]):
        assert main(command) == 0
        rows = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
        assert len({len(row) for row in rows}) == 1
        assert len(rows) > 5


def commands(parser=app, name=()):
    for word in parser:
        if not word.startswith("-"):
            inner = parser[word]
            below = list(commands(inner, (*name, word)))
            yield from below or [(*name, word)]


@pytest.mark.parametrize("command", list(commands()), ids=" ".join)
def test_every_help_has_examples_that_can_be_pasted(command, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    assert main([*command, "--help"]) == 0
    text = capsys.readouterr().out
    pasted = re.sub(r" \\\s*\n\s*", " ", text)
    start = " neuralcollapse " + " ".join(command)
    examples = [line.strip() for line in pasted.splitlines() if re.match(rf"{re.escape(start)}(\s|$)", line)]
    assert examples
    for example in examples:
        app.parse_args(shlex.split(example)[1:], exit_on_error=False, print_error=False)


def test_the_next_step_can_be_pasted_whatever_the_file_is_called(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    model = ["--classes", "3", "--dim", "3", "--temperature", "1"]
    assert main(["optimum", *model, "--out", "my point.safetensors"]) == 0
    step = capsys.readouterr().err.removeprefix("next: ").strip()
    assert shlex.split(step) == ["neuralcollapse", "certify", "my point.safetensors"]
    assert main(shlex.split(step)[1:]) == 0
    assert main(["data", "check", "digits", "--root", "my data"]) == 0
    step = capsys.readouterr().err.splitlines()[-1].removeprefix("next: ").strip()
    words = ["neuralcollapse", "train", "--data", "digits", "--root", "my data", "--out", "RUN"]
    assert shlex.split(step) == words


def test_completion_is_generated_for_every_shell():
    for shell in ("bash", "zsh", "fish"):
        script = app.generate_completion(prog_name="neuralcollapse", shell=shell)
        assert all(word in script for word in ("measure", "certify", "study"))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["study", "list"], "the same command goes on where it was"),
        (["train", "--out", "run"], "the same command with --resume goes on where it was"),
        (["train", "--out", "run", "--resume"], "the same command goes on where it was"),
        (["data", "get", "mnist"], "the same command goes on where it was"),
        (["measure", "x.npz", "--keep", "kept"], "the same command goes on where it was"),
        (["doctor"], "interrupted"),
    ],
)
def test_an_interrupt_says_how_to_go_on(arguments, words, capsys, monkeypatch):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("neuralcollapse.cli._app.app", interrupt)
    assert main(arguments) == 130
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("neuralcollapse: interrupted")
    assert line.endswith(words)


def test_text_is_cut_behind_a_word():
    assert at_a_word("does it hold", 12) == "does it hold"
    assert at_a_word("does it hold", 11) == "does it …"
    assert at_a_word("does it hold", 4) == "does"[:4]


def test_columns_that_fit_are_chosen():
    rows = [("a" * 10, "b" * 30, "c")]
    assert fitting(("first", "second", "third"), rows, 80) == [0, 1, 2]
    assert fitting(("first", "second", "third"), rows, 30) == [0, 2]
    assert fitting(("first", "second", "third"), rows, 5) == [0]
    whole = (10 + 3) + (30 + 3) + (5 + 3) + 1
    assert fitting(("first", "second", "third"), rows, whole) == [0, 1, 2]
    assert fitting(("first", "second", "third"), rows, whole - 1) == [0, 1]


@pytest.mark.parametrize(
    ("seconds", "words"), [(5, "0:05"), (83.4, "1:23"), (3599, "59:59"), (3600, "1:00:00"), (7265, "2:01:05")]
)
def test_time_is_told_as_on_a_clock(seconds, words):
    assert clock(seconds) == words


def test_a_loss_has_its_colour_in_a_table_and_none_under_no_color(monkeypatch):
    def shown():
        out = io.StringIO()
        screen = Console(file=out, force_terminal=True, color_system="truecolor", width=60)
        print_table(["loss", "nc1"], [["CE", "0.1"], ["focal:gamma=3", "0.2"], ["0.25", "CE"]], screen)
        return out.getvalue()

    monkeypatch.delenv("NO_COLOR", raising=False)
    text = shown()
    for name, spec in (("cross-entropy", "CE"), ("focal", "focal:gamma=3")):
        code = ";".join(str(int(LOSSES[name].colour[at : at + 2], 16)) for at in (1, 3, 5))
        assert text.count(f"38;2;{code}m{spec}") == 1
    assert text.count("38;2;") == 2
    monkeypatch.setenv("NO_COLOR", "1")
    assert "38;2;" not in shown()


@pytest.mark.parametrize("width", [80, 50])
def test_a_study_is_shown_with_indented_lines_and_a_line_for_cells_that_differ_in_their_seed(screen, width):
    lines = screen("study show normalized/value", width)
    assert max(map(len, lines[:-1])) <= width  # the last is a command to copy
    assert len(lines) < 120
    assert any("seeds 10 to 14" in line for line in lines)
    assert not any("tau" in line for line in lines)
    claims = lines[lines.index(next(line for line in lines if line.startswith("- "))) :]
    until = next(place for place, line in enumerate(claims) if not line)
    assert all(line.startswith(("- ", "  ")) for line in claims[:until])
