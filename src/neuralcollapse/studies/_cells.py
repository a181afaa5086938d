"""Cells: the units of work of a study. A cell is a plain value; its key decides where its result lies."""

import hashlib
import inspect
import json
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch.utils.flop_counter import FlopCounterMode

from .._support.files import JSONObject, write_json
from .._support.registry import Registry
from ..data import Source, sources
from ..models import create
from ..training import Plan, Progress, Run, train
from ..training.optimizers import evaluations_per_step
from ..ufm import Problem, Trace, solve

__all__ = ["Calculation", "Cell", "Solve", "Train", "calculations", "training_images"]

FORMAT = 1
"""Counts up when cells of the same plan would give other results; old results are then not taken for new ones."""

Report = Callable[[float], None]
"""Takes the fraction of a cell that is done."""

calculations: Registry[Callable[..., JSONObject]] = Registry("calculation")
"""Functions that :class:`Calculation` cells call by name; they return what JSON can hold."""


class Cell(ABC):
    """One piece of work: what to do (``spec``), how to do it into a folder, and how to read it back."""

    kind: ClassVar[str]

    @abstractmethod
    def spec(self) -> JSONObject:
        """Everything that decides the result, as JSON."""

    @abstractmethod
    def run(self, folder: Path, *, root: str | None, report: Report) -> None:
        """Do the work, or go on with it, in ``folder``."""

    @abstractmethod
    def read(self, folder: Path) -> Any:
        """What :meth:`run` left in ``folder``."""

    @abstractmethod
    def first_steps(self, steps: int, *, root: str | None) -> str:
        """Begin the work, stop after ``steps`` and say in a few words what came out."""

    @staticmethod
    @abstractmethod
    def rows(folder: Path) -> Iterator[JSONObject]:
        """The history for the index: ``step``, ``split`` and values by name."""

    def guess(self) -> float:
        """Roughly the seconds that it takes, to begin with the longest; siblings that have run tell it better."""
        return 1.0

    def with_setting(self, name: str, value: object) -> "Cell | None":
        """The cell with one of its settings changed; None if it has none of this name."""
        return None

    @property
    def family(self) -> str:
        """As :attr:`key`, but the same for cells that differ by their seed only."""
        spec = self.spec()
        bare = {name: entry for name, entry in spec.items() if name != "seed"}
        for part in ("plan", "arguments"):
            if part in bare:
                bare[part] = {name: entry for name, entry in bare[part].items() if name != "seed"}
        return json.dumps([self.kind, bare], sort_keys=True)

    @property
    def key(self) -> str:
        """Sixteen digits that two cells share exactly when they do the same."""
        text = json.dumps([FORMAT, self.kind, self.spec()], sort_keys=True)
        return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


LATER = ("intervals",)
"""Fields that plans got after the first results: where one is not given, the cell is the one that it was before."""


@dataclass(frozen=True)
class Train(Cell):
    """Train a net; read as a :class:`~neuralcollapse.training.Run`."""

    plan: Plan
    features: bool = False
    """Whether to keep the final features of the training and test sets."""
    kind: ClassVar[str] = "train"

    def spec(self) -> JSONObject:
        plan = self.plan.model_dump(mode="json")
        for name in LATER:
            if plan[name] is None:
                del plan[name]
        return {"plan": plan, "features": self.features}

    def run(self, folder: Path, *, root: str | None, report: Report) -> None:
        def after_step(progress: Progress) -> None:
            report((progress.epoch + progress.step / progress.steps) / progress.epochs)

        train(
            self.plan,
            folder / "run",
            root=root,
            resume=True,
            keep=1,
            save_features=self.features,
            on_step=after_step,
        )

    def read(self, folder: Path) -> Run:
        return Run.open(folder / "run")

    def guess(self) -> float:
        images, work = training_images(self.plan.data, self.plan.per_class), _work(self.plan.data, self.plan.model)
        evaluations = evaluations_per_step(self.plan.optimizer)
        # A gradient is about three forward passes; cores here do some 40 GFLOP/s, and the loop costs 20 microseconds.
        return 0.5 + self.plan.epochs * images * evaluations * (3 * work / 4e10 + 2e-5)

    def with_setting(self, name: str, value: object) -> "Train | None":
        if name not in Plan.model_fields:
            return None
        changed = {**self.plan.model_dump(), name: value}
        if name == "epochs" and isinstance(self.plan.measure, tuple) and isinstance(value, int):
            changed["measure"] = _at_the_same_shares(self.plan.measure, self.plan.epochs, value)
        return replace(self, plan=Plan(**changed))

    @staticmethod
    def rows(folder: Path) -> Iterator[JSONObject]:
        for row in Run.open(folder / "run").history:
            yield {"step": row["epoch"], **{name: value for name, value in row.items() if name != "epoch"}}

    def first_steps(self, steps: int, *, root: str | None) -> str:
        losses: list[float] = []

        def after_step(progress: Progress) -> None:
            losses.append(float(progress.loss))
            if len(losses) == steps:
                raise _Enough

        with tempfile.TemporaryDirectory(prefix="neuralcollapse-") as folder, suppress(_Enough):
            train(self.plan, Path(folder) / "run", root=root, on_step=after_step)
        return "loss " + ", ".join(f"{loss:.4g}" for loss in losses)


def _at_the_same_shares(measured: tuple[int, ...], epochs: int, others: int) -> tuple[int, ...]:
    """Epochs at the same shares of a run of another length.

    >>> _at_the_same_shares((1, 2, 100, 900, 1000), 1000, 50)
    (1, 5, 45, 50)
    """
    return tuple(sorted({max(1, round(epoch * others / epochs)) for epoch in measured}))


def _source(data: str) -> Source:
    name, arguments = sources.parse(data)
    return sources[name](**arguments)


def training_images(data: str, per_class: int | None) -> int:
    """Images that a net is trained on, before any are held out.

    >>> training_images("digits", 12)
    120
    """
    source = _source(data)
    return source.train_size if per_class is None else per_class * source.num_classes


@lru_cache(maxsize=256)
def _work(data: str, model: str) -> float:
    """The floating-point operations of a net on one image of a data set."""
    source = _source(data)
    channels, height, width = source.image_shape
    # Image sources can make their images smaller, and repeat their grey values.
    size, repeated = getattr(source, "size", None), getattr(source, "channels", None)
    shape = (repeated or channels, size or height, size or width)
    net = create(model, shape, source.num_classes).eval()
    counter = FlopCounterMode(display=False)
    with counter, torch.no_grad():
        net(torch.zeros(1, *shape))
    return float(counter.get_total_flops())


class _Enough(Exception):  # noqa: N818 (not an error)
    """Ends a training run after its first steps."""


@dataclass(frozen=True)
class Solve(Cell):
    """Minimise an unconstrained feature model; read as a :class:`~neuralcollapse.ufm.Trace`."""

    problem: Problem
    method: str = "gradient-descent"
    seed: int = 0
    options: Mapping[str, Any] = field(default_factory=dict)
    """Those of :func:`neuralcollapse.ufm.solve`."""
    scale: float = 1.0
    """Factor of the seed's random start, for models that leave norms free."""
    kind: ClassVar[str] = "solve"

    def spec(self) -> JSONObject:
        options = {name: list(value) if isinstance(value, tuple) else value for name, value in self.options.items()}
        problem = json.loads(self.problem.to_json())
        spec = {"problem": problem, "method": self.method, "seed": self.seed, "options": options}
        return spec if self.scale == 1 else {**spec, "scale": self.scale}

    def run(self, folder: Path, *, root: str | None, report: Report) -> None:
        most = self.options.get("max_iter", 1000)

        def on_record(row: Mapping[str, Any]) -> None:
            report(row["iteration"] / most)

        self._solve(on_record=on_record, **self.options).save(folder / "trace")

    def read(self, folder: Path) -> Trace:
        return Trace.load(folder / "trace")

    def guess(self) -> float:
        entries = sum(self.problem.counts) * self.problem.dim * self.problem.num_classes
        iterations = min(self.options.get("max_iter", 1000), 300)  # most end long before their last one
        return 0.1 + iterations * (1e-3 + 4e-9 * entries)

    def with_setting(self, name: str, value: object) -> "Solve | None":
        if name in ("method", "seed", "scale"):
            return replace(self, **{name: value})
        problem = json.loads(self.problem.to_json())
        if name in problem and name != "model":
            return replace(self, problem=Problem.from_json(json.dumps({**problem, name: value})))
        known = inspect.signature(solve).parameters
        if name in self.options or (name in known and name not in ("problem", "start", "on_record")):
            return replace(self, options={**self.options, name: value})
        return None

    @staticmethod
    def rows(folder: Path) -> Iterator[JSONObject]:
        for row in Trace.load(folder / "trace").rows():
            values = {name: value for name, value in row.items() if name not in ("iteration", "seconds")}
            yield {"step": row["iteration"], "split": "train", **values}

    def first_steps(self, steps: int, *, root: str | None) -> str:
        return f"value {self._solve(**{**self.options, 'max_iter': steps}).value:.6g}"

    def _solve(self, **options: Any) -> Trace:
        start = None if self.scale == 1 else self.problem.random_point(self.seed) * self.scale
        return solve(self.problem, self.method, start, self.seed, **options)


@dataclass(frozen=True)
class Calculation(Cell):
    """Call a function of :data:`calculations`; read as the dictionary that it returned."""

    name: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    kind: ClassVar[str] = "calculation"

    def spec(self) -> JSONObject:
        return {"name": self.name, "arguments": dict(self.arguments)}

    def run(self, folder: Path, *, root: str | None, report: Report) -> None:
        write_json(folder / "result.json", calculations[self.name](**self.arguments))

    def read(self, folder: Path) -> JSONObject:
        result = json.loads((folder / "result.json").read_text(encoding="utf-8"))
        if not isinstance(result, dict) or not result:
            raise ValueError("result.json holds no results")
        return result

    def with_setting(self, name: str, value: object) -> "Calculation | None":
        return replace(self, arguments={**self.arguments, name: value}) if name in self.arguments else None

    @staticmethod
    def rows(folder: Path) -> Iterator[JSONObject]:
        result = json.loads((folder / "result.json").read_text(encoding="utf-8"))
        numbers = {name: value for name, value in result.items() if isinstance(value, int | float)}
        if numbers:
            yield {"step": 0, "split": "train", **numbers}

    def first_steps(self, steps: int, *, root: str | None) -> str:
        return f"{len(calculations[self.name](**self.arguments))} results"


KINDS: dict[str, type[Cell]] = {cell.kind: cell for cell in (Train, Solve, Calculation)}
