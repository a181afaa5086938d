"""What the models answer with: an optimum, a certificate, a trace, each with its words as types."""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, TypedDict

import torch
from torch import Tensor

from .._support.files import JSONObject, damaged, digests, json_number, sealed, unsealed, write_json, write_text
from .._support.tensors import read_tensors, write_tensors
from .._support.theme import BLUE, plain_axes, plain_decimals
from .point import Point, load_point, save_point
from .problem import Problem

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pandas import DataFrame

__all__ = ["Certificate", "HistoryColumn", "HistoryRow", "Optimum", "Outcome", "Regime", "Trace", "Verdict"]

Verdict = Literal["global minimum", "strict saddle", "not a critical point", "undecided"]
"""What kind of point it is."""

GLOBAL_MINIMUM: Final = "global minimum"
STRICT_SADDLE: Final = "strict saddle"
NOT_CRITICAL: Final = "not a critical point"
UNDECIDED: Final = "undecided"

Outcome = Literal["converged", "max_iter", "max_seconds", "stalled", "saddle", "diverged"]
"""How a solve ended."""

Regime = Literal[
    "zero",
    "neural collapse",
    "neural collapse with a common direction",
    "orthogonal frame",
    "low rank",
    "broken symmetry",
    "spread",
    "orthogonal features",
    "imbalanced collapse",
    "minority collapse",
    "convex program",
    "interpolation",
    "polygon",
    "cross-polytope",
    "orthogonal simplices",
    "equal classifiers",
    "fixed head",
    "shrunken targets",
]
"""Which solution an optimum is."""

HistoryRow = dict[str, float | None]
"""A recorded iteration: its number, the seconds since the start, the columns asked for; None for no finite value."""
HistoryColumn = list[float | None]
"""A column of a history, one entry a recorded iteration."""

MAY_DIVERGE = ("value", "gradient_norm")
"""Numbers of a trace that may not be finite: null in a file, NaN when it is read."""
POINTS_FILE = "points.safetensors"
FILES = ("point.safetensors", "history.jsonl", "seconds.json", "trace.json")
CHECKED = ("point.safetensors", "history.jsonl")
"""Those with a checksum, as points have: times differ whenever a solve is repeated, and ``trace.json`` must not."""


@dataclass(frozen=True, eq=False)
class Optimum:
    """A global minimum: in closed form, or by a convex program with a certificate (regime "convex program").

    ``regime`` names which solution it is. ``proved`` says whether it is proved to be global; where it is ``False``
    (a few corners, named in ``note``) it is the lowest value known. ``logit_scale`` is z_true - z_other at the class
    means (the coefficient of I - 11'/K in the class logits), norms are of one row (root mean square where the rows
    differ), ``bias`` is the value of every entry (``None`` without a bias or where entries differ). ``simplices`` are
    the numbers of classes of orthogonal simplices, falling.
    """

    value: float
    regime: Regime
    logit_scale: float
    weight_norm: float | None
    feature_norm: float
    bias: float | None = None
    proved: bool = True
    note: str = ""
    simplices: tuple[int, ...] | None = None
    build_point: Callable[[], Point] = field(repr=False, kw_only=True)
    build_grams: Callable[[], tuple[Tensor, Tensor]] = field(repr=False, kw_only=True)

    def __repr__(self) -> str:
        regime = self.regime if self.simplices is None else f"{self.regime} {'+'.join(map(str, self.simplices))}"
        return (
            f"Optimum({regime}, value {self.value:.10g}, logit scale {self.logit_scale:.6g}, "
            f"{'proved' if self.proved else 'not proved'})"
        )

    @cached_property
    def point(self) -> Point:
        """A global minimiser, built when first asked for."""
        return self.build_point()

    @cached_property
    def _grams(self) -> tuple[Tensor, Tensor]:
        return self.build_grams()

    @property
    def weight_gram(self) -> Tensor:
        """W W' (K, K); in the contrastive model, which has no classifier, that of the class means."""
        return self._grams[0]

    @property
    def mean_gram(self) -> Tensor:
        """The Gram matrix (K, K) of the class means of H."""
        return self._grams[1]

    def to_dict(self) -> JSONObject:
        """The numbers, for JSON."""
        names = ("value", "regime", "logit_scale", "weight_norm", "feature_norm", "bias", "proved", "note")
        return {name: getattr(self, name) for name in names} | {
            "simplices": None if self.simplices is None else list(self.simplices)
        }


def one_feature_a_class(
    arrays: Callable[[], tuple[Tensor, Tensor, Tensor | None]], labels: Callable[[], Tensor]
) -> "Builders":
    """What builds an optimum's point and Gram matrices from (W, class means, bias) and the class of each sample."""

    def build_point() -> Point:
        weight, means, bias = arrays()
        return Point(weight, means[labels()], bias)

    def build_grams() -> tuple[Tensor, Tensor]:
        weight, means, _ = arrays()
        return weight @ weight.T, means @ means.T

    return {"build_point": build_point, "build_grams": build_grams}


class Builders(TypedDict):
    """The two that an :class:`Optimum` asks for."""

    build_point: Callable[[], Point]
    build_grams: Callable[[], tuple[Tensor, Tensor]]


def mean_margin(logits: Tensor) -> float:
    """The mean over classes of z_true - mean z_other, from the logits (K, K) at the class means.

    >>> mean_margin(torch.tensor([[2.0, 1.0], [0.0, 3.0]]))
    2.0
    """
    own = logits.diagonal()
    return float((own - (logits.sum(1) - own) / (len(logits) - 1)).mean())


@dataclass(frozen=True, eq=False)
class Certificate:
    """A rigorous statement about a point of a model.

    ``lower_bound`` bounds the global minimum from below, so ``gap = value - lower_bound`` bounds the distance to it
    from above. ``verdict`` is one of "global minimum" (within the tolerance), "strict saddle", "not a critical point",
    "undecided"; ``reason`` says why. At a strict saddle ``escape`` is a unit direction and ``curvature`` the second
    derivative of the value along it. ``spectral_ratio`` is the papers' test at critical points: at most 1 proves
    global optimality for convex losses.
    """

    value: float
    lower_bound: float
    gap: float
    gradient_norm: float
    verdict: Verdict
    reason: str
    bound_source: str
    spectral_ratio: float | None = None
    escape: Point | None = None
    curvature: float | None = None

    def __repr__(self) -> str:
        curved = "" if self.curvature is None else f", curvature {self.curvature:.3g}"
        return (
            f"Certificate({self.verdict}, value {self.value:.10g}, gap {self.gap:.1e} by {self.bound_source}, "
            f"gradient norm {self.gradient_norm:.1e}{curved})"
        )

    def to_dict(self) -> JSONObject:
        """The numbers and words, for JSON (non-finite numbers as null)."""
        names = ("value", "lower_bound", "gap", "gradient_norm", "spectral_ratio", "curvature")
        numbers = {name: json_number(getattr(self, name)) for name in names}
        return {**numbers, "verdict": self.verdict, "reason": self.reason, "bound_source": self.bound_source}


@dataclass(frozen=True, eq=False)
class Trace:
    """The result of :func:`neuralcollapse.ufm.solve`.

    ``history`` maps a column's name to its entries, one a recorded iteration ("iteration" and "seconds"
    besides what was asked for); ``pandas.DataFrame(trace.history)`` is the table. ``outcome`` is one word:
    "converged", "max_iter", "max_seconds", "stalled" (rounding allows no further decrease), "saddle" (a
    strict saddle that this method does not leave) or "diverged" (``value`` or ``gradient_norm`` is no longer finite);
    ``message`` is the sentence. ``regime`` names the closed form that
    was reached, if one was.
    """

    point: Point
    history: Mapping[str, Sequence[float | None]]
    converged: bool
    method: str
    message: str
    outcome: Outcome
    problem: Problem
    value: float
    gradient_norm: float
    iterations: int
    seconds: float
    seed: int | None = None
    regime: Regime | None = None
    points: Sequence[Point] | None = None
    """The point of each recorded iteration, where "points" was recorded."""

    def __repr__(self) -> str:
        return (
            f"Trace({self.method}, {self.outcome} after {self.iterations} iterations, value {self.value:.10g}, "
            f"gradient norm {self.gradient_norm:.1e}{'' if self.regime is None else f', {self.regime}'})"
        )

    def to_dataframe(self) -> "DataFrame":
        """The history as a pandas table, one row a recorded iteration."""
        import pandas

        return pandas.DataFrame({name: list(column) for name, column in self.history.items()})

    def plot(self) -> "Figure":
        """The recorded columns over the iterations, as a matplotlib figure with one panel each.

        The value is drawn as its excess over the lowest one recorded; columns that are never negative are logarithmic.
        """
        from matplotlib.figure import Figure

        names = [name for name in self.history if name not in ("iteration", "seconds")]
        figure = Figure(figsize=(3.2 * max(len(names), 1), 2.8), layout="constrained")
        axes = figure.subplots(1, max(len(names), 1), squeeze=False)[0]
        steps = list(self.history["iteration"])
        for axis, name in zip(axes, names, strict=False):
            column = [math.nan if entry is None else float(entry) for entry in self.history[name]]
            finite = [entry for entry in column if math.isfinite(entry)]
            excess = name == "value" and len(finite) > 1
            if excess:
                column = [entry - min(finite) for entry in column]
            positive = [entry for entry in column if entry > 0]
            axis.plot(steps, column, color=BLUE, marker="." if len(steps) < 30 else None)
            if len(positive) > 1 and all(not entry < 0 for entry in column) and name != "accuracy":
                axis.set_yscale("log")
            axis.set_title(f"{name} − lowest" if excess else name, fontsize=10)
            axis.set_xlabel("iteration", fontsize=8)
            plain_axes(axis)
        plain_decimals(figure)
        return figure

    def to_dict(self) -> JSONObject:
        """All but the point and the history, as plain values (non-finite numbers as null)."""
        skipped = ("point", "history", "problem", "points")
        facts = {field.name: getattr(self, field.name) for field in fields(self) if field.name not in skipped}
        facts |= {name: json_number(facts[name]) for name in MAY_DIVERGE}
        return {"problem": json.loads(self.problem.to_json()), **facts}

    def rows(self) -> list[HistoryRow]:
        """The history, one mapping a recorded iteration."""
        return [dict(zip(self.history, row, strict=True)) for row in zip(*self.history.values(), strict=True)]

    def save(self, folder: str | Path) -> None:
        """Write the trace into ``folder``: point.safetensors, history.jsonl, seconds.json and, last, trace.json.

        Points that were recorded are in points.safetensors; of an earlier trace in ``folder`` nothing is left.
        Times have a file of their own: the others are the same, byte by byte, whenever the solve is repeated.
        ``trace.json`` has checksums of them and of itself, so that a damaged trace is not taken for a whole one.
        """
        target = Path(folder)
        save_point(target / "point.safetensors", self.point, {"problem": self.problem.to_json()})
        if self.points is not None:
            stacked = {name: [getattr(point, name) for point in self.points] for name in ("W", "H", "b")}
            arrays = {name: torch.stack(blocks) for name, blocks in stacked.items() if blocks and blocks[0] is not None}
            write_tensors(target / POINTS_FILE, arrays)
        else:
            (target / POINTS_FILE).unlink(missing_ok=True)
        rows = [{name: entry for name, entry in row.items() if name != "seconds"} for row in self.rows()]
        write_text(target / "history.jsonl", "".join(json.dumps(row, allow_nan=False) + "\n" for row in rows))
        write_json(target / "seconds.json", {"total": self.seconds, "history": list(self.history["seconds"])})
        facts = {name: value for name, value in self.to_dict().items() if name != "seconds"}
        has_points = self.points is not None
        stated = {"points": has_points, "files": digests(target, (*CHECKED, POINTS_FILE) if has_points else CHECKED)}
        write_json(target / "trace.json", sealed({**facts, **stated}))

    @staticmethod
    def saved_in(folder: str | Path) -> bool:
        """Whether ``folder`` holds a whole trace."""
        return all((Path(folder) / name).is_file() for name in FILES)

    @staticmethod
    def load(folder: str | Path) -> "Trace":
        """Read what :meth:`save` wrote; ValueError names what is wrong."""
        source = Path(folder)
        if not Trace.saved_in(source):
            missing = next(name for name in FILES if not (source / name).is_file())
            raise ValueError(f"{source}: not a saved trace ({missing} is missing)")
        point, _ = load_point(source / "point.safetensors")
        try:
            facts = unsealed(json.loads((source / "trace.json").read_text(encoding="utf-8")))
            if broken := damaged(source, facts.pop("files", {})):
                raise ValueError(f"{broken} does not match its checksum")
            # Old files do not say whether points belong to them.
            has_points = facts.pop("points", (source / POINTS_FILE).is_file())
            points = _load_points(source / POINTS_FILE) if has_points else None
            times = json.loads((source / "seconds.json").read_text(encoding="utf-8"))
            lines = (source / "history.jsonl").read_text(encoding="utf-8").splitlines()
            rows = [json.loads(line) for line in lines]
            problem = Problem.from_json(json.dumps(facts.pop("problem")))
            facts |= {name: math.nan for name in MAY_DIVERGE if facts[name] is None}
            history: dict[str, HistoryColumn] = {"iteration": [row["iteration"] for row in rows]}
            history["seconds"] = list(times["history"])
            for name in rows[0]:
                history.setdefault(name, [row[name] for row in rows])
            return Trace(point=point, history=history, problem=problem, seconds=times["total"], points=points, **facts)
        except (ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError) as error:
            reason = str(error) if isinstance(error, ValueError) else repr(error)
            raise ValueError(f"{source}: not a saved trace ({' '.join(reason.split())})") from error


def _load_points(path: Path) -> tuple[Point, ...]:
    arrays, _ = read_tensors(path)
    if "H" not in arrays:
        raise ValueError(f"{path}: the array 'H' is missing")
    count = len(arrays["H"])
    rows: list[Point] = []
    for index in range(count):
        weight, bias = (arrays[name][index] if name in arrays else None for name in ("W", "b"))
        rows.append(Point(weight, arrays["H"][index], bias))
    return tuple(rows)
