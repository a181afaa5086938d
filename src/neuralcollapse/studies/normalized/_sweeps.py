"""What figures 3 and 11 to 13 share: minima found from random starts over K and over tau, beside closed forms."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from ... import losses
from ...losses import LogitLoss
from ...ufm import ContrastiveUFM, NormalizedUFM, Trace
from .._cells import Solve
from .._results import Planned, Results
from ..pictures import colour, loss_name

__all__ = [
    "CONTRASTIVE",
    "DESCENT",
    "PROVENANCE",
    "SEEDS",
    "SWEEPS",
    "Reached",
    "collapse_value",
    "draw_sweeps",
    "solves",
    "spread_of_values",
    "sweep_cells",
    "sweep_rows",
    "worst_of_each_seed",
]

DIM, PER_CLASS = 16, 3
CONTRASTIVE = "supervised-contrastive"
DESCENT = "gradient-descent"
OPTIONS = {"tol": 1e-10, "max_iter": 1000, "record": ("value", "nc1")}


@dataclass(frozen=True)
class Sweep:
    """K at tau = 1, and tau at K = 3."""

    classes: tuple[int, ...]
    temperatures: tuple[float, ...]


WHOLE = Sweep(tuple(range(2, 18)), tuple(round(0.25 * step, 2) for step in range(1, 21)))
SWEEPS = {"smoke": Sweep((2, 5, 10), (0.5, 1.5, 2.5)), "desk": WHOLE, "paper": WHOLE}
SEEDS = {"smoke": (0, 1), "desk": tuple(range(10, 15)), "paper": tuple(range(10))}
PROVENANCE: dict[str, Literal["text", "code", "guess"]] = {
    "dim": "text",
    "per_class": "text",
    "num_classes, where tau varies": "text",
    "temperature, where K varies": "text",
    "the values of K and tau": "guess",
    "seeds": "guess",
    "start": "guess",
}


def model_on_spheres(loss: str, num_classes: int, temperature: float) -> NormalizedUFM | ContrastiveUFM:
    """The model on unit spheres, d = 16, n = 3."""
    if loss == CONTRASTIVE:
        return ContrastiveUFM(num_classes, PER_CLASS, DIM, temperature)
    return NormalizedUFM(loss, num_classes, PER_CLASS, DIM, temperature)


def collapse_value(loss: str, num_classes: int, temperature: float) -> float:
    """The loss at a simplex ETF, whether or not that is the minimum: ell(K tau/(K-1))."""
    if loss == CONTRASTIVE:
        return model_on_spheres(loss, num_classes, temperature).optimum().value
    on_logits = losses.get(loss)
    assert isinstance(on_logits, LogitLoss)
    return float(on_logits.margin_value(num_classes * temperature / (num_classes - 1), num_classes))


def sweep_cells(
    loss: str, sweep: Sweep, seeds: tuple[int, ...], method: Literal["gradient-descent", "trust-region"] = DESCENT
) -> Iterator[Planned]:
    """Solves from random starts at every K and every tau, by the papers' gradient descent unless told otherwise."""
    points = [("K", count, 1.0) for count in sweep.classes] + [("tau", 3, tau) for tau in sweep.temperatures]
    for name, count, tau in points:
        for seed in seeds:
            cell = Solve(model_on_spheres(loss, count, tau), method, seed, OPTIONS)
            labels = {"loss": loss, "sweep": name, "K": count, "tau": tau, "seed": seed}
            yield Planned(cell, labels if method == DESCENT else {**labels, "method": method})


@dataclass(frozen=True)
class Reached:
    """Where one solve ended."""

    loss: str
    num_classes: int
    temperature: float
    trace: Trace

    @property
    def excess(self) -> float:
        """The value less the closed-form minimum."""
        return self.trace.value - self.trace.problem.optimum().value

    @property
    def departure(self) -> float:
        """How far below the value at collapse."""
        return collapse_value(self.loss, self.num_classes, self.temperature) - self.trace.value


def solves(results: Results) -> list[Reached]:
    """All solves of some results."""
    found = []
    for (loss, count, tau), group in results.groups("loss", "K", "tau"):
        found += [Reached(loss, count, tau, entry.value) for entry in group]
    return found


def worst_of_each_seed(results: Results, measure: Callable[[Reached], float]) -> list[float]:
    """The largest value of a measure over all K and tau, for each seed."""
    return [max(map(measure, solves(results.where(seed=seed)))) for seed in results.labels("seed")]


def spread_of_values(results: Results) -> float:
    """The largest difference of two values that were reached from different starts of one problem."""
    groups = results.groups("loss", "sweep", "K", "tau")
    return max(float(np.ptp([entry.value.value for entry in group])) for _, group in groups)


def sweep_rows(results: Results) -> list[dict[str, Any]]:
    """One row a K or tau: the closed forms, and the values and NC1 that were reached."""
    rows = []
    for (loss, sweep, count, tau), group in results.groups("loss", "sweep", "K", "tau"):
        traces: list[Trace] = [entry.value for entry in group]
        values = np.array([trace.value for trace in traces])
        rows.append(
            {
                "loss": loss_name(loss),
                "sweep": sweep,
                "K": count,
                "tau": tau,
                "starts": len(traces),
                "at_collapse": collapse_value(loss, count, tau),
                "minimum": traces[0].problem.optimum().value,
                "reached": float(values.mean()),
                "spread": float(np.ptp(values)),
                "nc1": float(max(trace.history["nc1"][-1] or 0.0 for trace in traces)),
                "iterations": float(np.mean([trace.iterations for trace in traces])),
            }
        )
    return rows


def draw_sweeps(axes: np.ndarray, results: Results, loss: str) -> None:
    """Two panels, over K and over tau: the value of collapse as a line, the values reached as marks."""
    for axis, sweep in zip(axes, ("K", "tau"), strict=True):
        reached = solves(results.where(loss=loss, sweep=sweep))
        places = [one.num_classes if sweep == "K" else one.temperature for one in reached]
        if sweep == "K":
            line = np.arange(min(places), max(places) + 1)
            exact = [collapse_value(loss, int(count), 1.0) for count in line]
        else:
            line = np.linspace(min(places), max(places), 200)
            exact = [collapse_value(loss, 3, float(tau)) for tau in line]
        axis.plot(line, exact, color="black", linewidth=1.0, label="at collapse, closed form")
        values = [one.trace.value for one in reached]
        axis.plot(places, values, "o", color=colour(loss), alpha=0.6, label="reached by descent")
        axis.locator_params(axis="x", integer=True)
        axis.set_xlabel("K" if sweep == "K" else r"temperature $\tau$")
        axis.set_title(rf"{loss_name(loss)}, $\tau$ = 1" if sweep == "K" else f"{loss_name(loss)}, K = 3")
    axes[0].set_ylabel("minimum")
