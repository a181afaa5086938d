"""Random command lines, from the parser's own table of commands and options."""

import io
import os
import random
import shutil
import types
import typing
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from functools import cache
from pathlib import Path
from typing import Any, Literal

from attack.workers import Reporter
from neuralcollapse import cli
from neuralcollapse._support.registry import load_entries
from neuralcollapse.cli import main
from neuralcollapse.cli._app import app

NUMBERS = ["0", "1", "2", "3", "-1", "5", "1e300", "1e-300", ".01", "1e9", "2147483648", "9223372036854775807"]
NUMBERS += ["9" * 400, "nan", "inf", "-inf", "1e5", "0.5", "1,2", "0x10", "1_0", "--1", "1e-30", "1e30", "50,50,5"]
TEXTS = ["", "x", "ce", "focal:gamma=1e9", "ls:alpha=2", "mse:alpha=0", "sc", "digits", "[/bold]", "../x", "a" * 5000]
TEXTS += ["é\n", "\x00", "-", "--", "~", "/proc", "/dev/null", "/proc/self/mem", ":warning:", "%s", "{}", "'; DROP x"]
TEXTS += [
    "synthetic:num_classes=2,dim=2,per_class=3",
    "mlp:width=3",
    "point.safetensors",
    "features.npz",
    "run",
    "solved",
]
TEXTS += ["plan.toml", "results", "cosine:period=0", "sgd:momentum=2", "lbfgs:memory=0", "exponential:ratio=0"]
BASES = [
    "optimum --loss ce --classes 3 --dim 4 --weight-decay .01 --feature-decay .01",
    "optimum --loss mse --classes 3 --per-class 4,2,2 --dim 4 --weight-decay .01 --feature-decay .01 --bias-decay 0",
    "optimum --classes 3 --dim 4 --temperature 1 --json",
    "solve --classes 3 --dim 4 --per-class 2 --temperature 1 --max-seconds 2",
    "solve --loss mse --classes 3 --dim 2 --weight-decay .01 --feature-decay .01 --max-seconds 2 --out solved",
    "solve --classes 3 --dim 2 --temperature 1 --trials 2 --workers 1 --max-seconds 1 --out trials --resume",
    "certify point.safetensors",
    "certify point.safetensors --loss ce --classes 3 --per-class 2 --dim 4 --weight-decay .01 --feature-decay .01",
    "measure features.npz",
    "measure features.npz --json --metrics all --intervals .9",
    "measure features.npz --keep kept --classes 3 --workers 1",
    "train --data synthetic:num_classes=2,dim=2,per_class=3 --model mlp:width=3 --epochs 1 --out run",
    "train --plan plan.toml --out run --resume",
    "report run --out page.html",
    "report / --out page.html",
    "measure / --json",
    "results run",
    "study show losses/collapse",
    "study list --json",
    "data list",
    "data check digits",
    "doctor --json",
]
LEFT_OUT = {"demo": "minutes", "explore": "it serves until it is interrupted", "data get": "it downloads"}
"""Commands that are not drawn, and why."""
MEANT = {
    "loss": ["ce", "focal:gamma=2", "mse", "ls:alpha=.1", "sc"],
    "classes": ["2", "3", "4"],
    "dim": ["1", "2", "4"],
    "per-class": ["1", "2", "3,2,1"],
    "out": ["run", "made", "page.html", "solved.safetensors"],
    "metrics": ["core", "all", "nc1,nc2"],
    "files": ["features.npz", "features.parquet", "point.safetensors"],
    "workers": ["1"],
    "trials": ["1", "2"],
    "method": ["lbfgs", "trust-region", "gradient-descent:step=.1", "adam"],
    "data": ["synthetic:num_classes=2,dim=2,per_class=3"],
    "model": ["mlp:width=3", "regularized", "normalized", "contrastive"],
    "start": ["point.safetensors"],
    "plan": ["plan.toml"],
    "name": ["digits", "losses/collapse", "synthetic"],
    "profile": ["smoke"],
}
"""Values that fit options of these names."""


@cache
def commands() -> dict[tuple[str, ...], list[Any]]:
    """Every command with its arguments, from the parser's own table."""
    load_entries("neuralcollapse.cli", [str(Path(cli.__file__).parent)])
    return dict(_below(app, ()))


def _below(application: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], list[Any]]]:
    for name in application:
        if name.startswith("-"):
            continue
        below = application[name]
        if below.default_command is None:
            yield from _below(below, (*path, name))
        else:
            yield (*path, name), list(below.assemble_argument_collection())


def words_of(argument: Any, randomly: random.Random) -> list[str]:
    """An option and a value for it, which fits more often than not; none for a flag."""
    name = randomly.choice(list(argument.names)) if argument.names else ""
    hint = argument.hint
    option = [name] if name.startswith("-") else []
    if hint is bool:
        return option
    return [*option, value_of(name.lstrip("-"), hint, randomly)]


def value_of(name: str, hint: Any, randomly: random.Random) -> str:
    """A value for an option of this name and type."""
    if randomly.random() < 0.2:
        return randomly.choice(NUMBERS + TEXTS)
    if name in MEANT:
        return randomly.choice(MEANT[name])
    kinds = _kinds(hint)
    choices = [str(choice) for kind in kinds if typing.get_origin(kind) is Literal for choice in typing.get_args(kind)]
    choices = [choice for choice in choices if choice != "ray"]  # a cluster takes half a minute to start
    if choices:
        return randomly.choice(choices)
    return randomly.choice(NUMBERS if {int, float} & set(kinds) else TEXTS)


def _kinds(hint: Any) -> list[Any]:
    origin = typing.get_origin(hint)
    if origin in (typing.Union, types.UnionType, tuple, list):
        return [kind for part in typing.get_args(hint) for kind in _kinds(part)]
    return [typing.get_args(hint)[0]] if origin is typing.Annotated else [hint]


def command_line(randomly: random.Random) -> list[str]:
    """A command that works with a value or two replaced or added, or one with random options."""
    known = {path: arguments for path, arguments in commands().items() if " ".join(path) not in LEFT_OUT}
    if randomly.random() < 0.7:
        line = randomly.choice(BASES).split()
        path = tuple(line[:2]) if tuple(line[:2]) in known else (line[0],)
        for _ in range(randomly.randrange(1, 3)):
            if randomly.random() < 0.4 and len(line) > len(path):
                line[randomly.randrange(len(path), len(line))] = randomly.choice(NUMBERS + TEXTS)
            elif known[path]:
                line += words_of(randomly.choice(known[path]), randomly)
    else:
        path = randomly.choice(sorted(known))
        line = list(path)
        for _ in range(randomly.randrange(8)):
            if known[path] and randomly.random() < 0.9:
                line += words_of(randomly.choice(known[path]), randomly)
            else:
                line.append(randomly.choice(NUMBERS + TEXTS))
    return _short(path, line)


def _short(path: tuple[str, ...], line: list[str]) -> list[str]:
    """Bounds on the work of a line that turns out to be right: an hour of training is no hang."""
    if path == ("train",):
        line += ["--epochs", "1", "--data", "synthetic:num_classes=2,dim=2,per_class=3"]
        line += [] if "--out" in line else ["--out", "run"]
    elif path == ("solve",):
        line += ["--max-seconds", "2"]
        line += ["--trials", "2", "--workers", "1"] if "--trials" in line or "--workers" in line else []
    elif path == ("study", "run"):
        line += ["--profile", "smoke", "--steps", "1"]
    elif path == ("measure",):
        line += ["--workers", "1"]
    return line


def run_line(line: list[str]) -> tuple[str, str | None]:
    """How a command ended, and what is wrong with that."""
    out, error = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(error):
        try:
            code = main(line)
        except SystemExit as end:
            code = end.code
    said = error.getvalue()
    if code not in (0, 1, 2, 130):
        return f"code {code}", f"exit code {code}: {said[-300:]}"
    if "a fault of this program" in said or "Traceback" in said:
        return "fault", said[-500:]
    if code == 2 and sum(text.startswith("neuralcollapse: error") for text in said.splitlines()) != 1:
        return "lines", f"not one line: {said[-500:]}"
    return f"exit code {code}", None


class Lines:
    """The attack on the command line, with ``samples`` in the folder where each command runs."""

    def __init__(self, seed: int, samples: Path, scratch: Path):
        self.seed, self.samples, self.scratch = seed, samples, scratch

    def __call__(self, number: int, reporter: Reporter) -> None:
        line = command_line(random.Random(f"{self.seed}/lines/{number}"))
        shutil.rmtree(self.scratch, ignore_errors=True)
        shutil.copytree(self.samples, self.scratch)
        os.chdir(self.scratch)
        reporter.now(line)
        ended, bad = run_line(line)
        reporter.ended(ended, line[0], None if bad is None else f"trial {number}: {line}: {bad}")
