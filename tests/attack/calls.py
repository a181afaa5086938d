"""Random calls of every public function, class and method, found by looking at the package."""

import importlib
import inspect
import os
import random
import shutil
import typing
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import hypothesis
from hypothesis import strategies as st

import neuralcollapse as nc
from attack.arguments import MADE, fitting, unfit
from attack.workers import Reporter

EXPECTED = (ValueError, TypeError, NotImplementedError, OSError, ImportError)
EXAMPLES = 10
"""Calls of one function in a trial."""
LEFT_OUT = {
    "data.get": "it downloads",
    "web.open_page": "it opens a browser",
    "web.explorer.ExplorerServer": "it serves until it is closed",
    "studies.run_studies": "minutes, in processes of its own: kills and damage have it",
    "studies.Study.run": "the same",
    "studies.first_steps": "the same",
    "web.report.write_demo": "minutes",
    "web.explorer.write_static": "minutes",
    **{
        f"studies.Study.{name}": "a study's own part, which the runner calls"
        for name in ("cells", "draw", "evidence", "interactive", "table", "parts")
    },
    **{
        f"models.{name}.{method}": "a module of PyTorch, which fails as its modules do"
        for name in ("Classifier", "LinearHead", "SimplexETFHead", "NormalizedHead")
        for method in ("forward", "features", "prepare", "attach")
    },
    "training.RiemannianSGD": "an optimizer of PyTorch, which fails as its optimizers do",
    "metrics.SecondPass.all_reduce": "between processes of a group",
    "metrics.ClassStatistics.all_reduce": "between processes of a group",
    "metrics.ClassStatistics.on_state": "takes its tensors unchecked, as it says",
}
"""What is not called, and why."""


ALWAYS = {"workers": 1, "max_seconds": 2.0}
"""Values that are given whatever is drawn: a pool of processes takes longer to start than all else."""


@dataclass(frozen=True)
class Target:
    """Something to call: a function or class, or a method of an object that is made first."""

    name: str
    call: Callable[..., Any]
    owner: type | None = None

    def arguments(self) -> list[tuple[inspect.Parameter, Any]]:
        """Its parameters with their types."""
        hints = _hints(self.call)
        parameters = list(inspect.signature(self.call).parameters.values())[0 if self.owner is None else 1 :]
        return [(parameter, hints.get(parameter.name, parameter.annotation)) for parameter in parameters]


def _hints(call: Callable[..., Any]) -> dict[str, Any]:
    source: Any = call.__init__ if inspect.isclass(call) else call
    source = getattr(source, "__wrapped__", source)
    try:
        return typing.get_type_hints(source)
    except (NameError, TypeError, AttributeError):  # imports that only type checkers see
        return {}


@cache
def targets() -> dict[str, Target]:
    """Every public callable of the package and its layers, and the public methods of what :data:`MADE` makes."""
    found: dict[str, Target] = {}
    for layer in (*nc._LAYERS, "web.report", "web.explorer"):
        module = importlib.import_module(f"neuralcollapse.{layer}")
        for name in module.__all__:
            value = getattr(module, name)
            if _callable(value):
                found.setdefault(f"{layer}.{name}", Target(f"{layer}.{name}", value))
    for owner in MADE:
        if owner.__module__.startswith("neuralcollapse"):
            found |= {target.name: target for target in _methods(owner)}
    return {name: target for name, target in sorted(found.items()) if name not in LEFT_OUT}


@cache
def _public() -> frozenset[str]:
    layers = [importlib.import_module(f"neuralcollapse.{layer}") for layer in nc._LAYERS]
    return frozenset(name for layer in layers for name in layer.__all__)


def _callable(value: Any) -> bool:
    if inspect.isclass(value):
        ours = value.__module__.startswith("neuralcollapse") and not issubclass(value, BaseException)
        return ours and not inspect.isabstract(value) and not getattr(value, "_is_protocol", False)
    return inspect.isfunction(value)


def _methods(owner: type) -> Iterator[Target]:
    layer = owner.__module__.split(".")[1]
    kinds = [owner, *(type(value) for value in MADE[owner]() if type(value).__name__ in _public())]
    for kind in dict.fromkeys(kinds):
        for name, value in inspect.getmembers(kind, inspect.isfunction):
            public = not name.startswith("_") or name == "__call__"
            if public and value.__module__.startswith("neuralcollapse"):
                yield Target(f"{layer}.{kind.__name__}.{name}", value, kind)
        for name, value in inspect.getmembers(kind, inspect.ismethod):  # those of the class itself
            if not name.startswith("_") and value.__module__.startswith("neuralcollapse"):
                yield Target(f"{layer}.{kind.__name__}.{name}", value)


@st.composite
def calls(draw: st.DrawFn, target: Target) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Arguments for a target: most of them fit, none to two do not."""
    plain: list[Any] = [] if target.owner is None else [draw(fitting(target.owner))]
    named: dict[str, Any] = {}
    parameters = target.arguments()
    wrong = set(draw(st.lists(st.integers(0, max(0, len(parameters) - 1)), max_size=2)))
    for number, (parameter, kind) in enumerate(parameters):
        if parameter.kind in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL):
            continue
        optional = parameter.default is not parameter.empty
        if parameter.name in ALWAYS:
            named[parameter.name] = ALWAYS[parameter.name]
            continue
        if optional and number not in wrong and draw(st.integers(0, 2)):
            continue
        value = draw((unfit if number in wrong else fitting)(kind, parameter.name))
        if parameter.kind == parameter.POSITIONAL_ONLY:
            plain.append(value)
        else:
            named[parameter.name] = value
    return tuple(plain), named


def describe(value: object) -> str:
    """A value in few characters."""
    try:
        return " ".join(repr(value).split())[:80]
    except Exception as error:
        return f"<{type(value).__name__}: {type(error).__name__}>"


def ending(target: Target, plain: tuple[Any, ...], named: dict[str, Any]) -> tuple[str, str | None]:
    """How a call ended: "value" or the name of an exception; and what is wrong with that."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if target.owner is None:
                value = target.call(*plain, **named)
            else:
                value = getattr(plain[0], target.call.__name__)(*plain[1:], **named)
            if inspect.isgenerator(value):
                next(value, None)
    except Exception as error:
        name = type(error).__name__
        if not isinstance(error, EXPECTED) and not type(error).__module__.startswith("neuralcollapse"):
            return name, f"{name}: {' '.join(str(error).split())[:300]}{_where(error)}"
        if "\n" in str(error) or not str(error):
            return name, f"not one line: {name}: {str(error)[:300]}{_where(error)}"
        return name, None
    return "value", None


def _where(error: Exception) -> str:
    import traceback

    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "neuralcollapse" in frame.filename]
    return f" @ {Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else ""


class Calls:
    """The attack on the functions: trial ``n`` calls one of them, chosen in turn, a few times."""

    def __init__(self, seed: int, samples: Path, scratch: Path):
        self.seed, self.samples, self.scratch = seed, samples, scratch

    def __call__(self, number: int, reporter: Reporter) -> None:
        chosen = list(targets().values())
        target = chosen[number % len(chosen)]
        shutil.rmtree(self.scratch, ignore_errors=True)
        shutil.copytree(self.samples, self.scratch)
        os.chdir(self.scratch)

        @hypothesis.seed(random.Random(f"{self.seed}/calls/{number}").getrandbits(64))
        @hypothesis.settings(
            max_examples=EXAMPLES,
            database=None,
            deadline=None,
            phases=[hypothesis.Phase.generate],
            suppress_health_check=list(hypothesis.HealthCheck),
        )
        @hypothesis.given(calls(target))
        def attempt(given: tuple[tuple[Any, ...], dict[str, Any]]) -> None:
            plain, named = given
            words = [*map(describe, plain), *(f"{name}={describe(value)}" for name, value in named.items())]
            shown = f"{target.name}({', '.join(words)})"
            reporter.now(shown)
            ended, wrong = ending(target, plain, named)
            fault = None if wrong is None else f"trial {number}: {shown}: {wrong}"
            reporter.ended(ended, target.name.split(".")[0], fault)

        attempt()
