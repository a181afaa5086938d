"""Minority collapse: the classifiers of small classes merge where N^2 lW lH reaches their count, and not before."""

import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch

from ...ufm import RegularizedUFM, solve
from .._cells import Calculation, calculations
from .._common.seeds import per_seed
from .._results import Planned, Results
from .._study import Profile, Study, studies
from ..claims import AtLeast, AtMost, Claim, Evidence
from ..pictures import GREY, PURPLE, Figure, colour, figure, legend_below
from ._gaps import GAP_LAW, gap, gap_rows, law, row_distance

MINORITY = 4
COUNTS: dict[str, list[int]] = {
    "40 40 4 4 4": [40, 40, 4, 4, 4],
    "60 30 12 4 4": [60, 30, 12, 4, 4],
    "25 9 9 4 4 4": [25, 9, 9, 4, 4, 4],
}
BIASES: dict[str, float | None] = {"none": None, "decayed": 0.01, "free": 0.0}
RATIOS: Mapping[Profile, tuple[float, ...]] = {
    "smoke": (0.5, 1.5),
    "desk": (0.1, 0.25, 0.5, 0.75, 0.95, 1.05, 1.25, 1.5, 2.0),
    "paper": (0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 1.01, 1.05, 1.1, 1.25, 1.5, 2.0),
}
"""N^2 lW lH / n_B: minority collapse is predicted from 1 on."""
NET_RATIOS: Mapping[Profile, tuple[float, ...]] = {
    "smoke": (0.5,),
    "desk": (0.1, 0.25, 0.5, 1.5, 2.0),
    "paper": (0.1, 0.25, 0.5, 0.75, 1.25, 1.5, 2.0),
}
NET_STEPS: Mapping[Profile, int] = {"smoke": 200, "desk": 3000, "paper": 10_000}
WEIGHT_TO_FEATURE = 4.0
"""lW / lH: only their product matters."""
INPUTS, HIDDEN, DIM = 32, 128, 16


def decays(counts: list[int], ratio: float) -> tuple[float, float]:
    """(lW, lH) with N^2 lW lH = ratio n_B."""
    mu = math.sqrt(ratio * MINORITY) / sum(counts)
    return mu * math.sqrt(WEIGHT_TO_FEATURE), mu / math.sqrt(WEIGHT_TO_FEATURE)


def predicted(counts: list[int], ratio: float) -> float:
    """What the gap law says of the minority."""
    weight, feature = decays(counts, ratio)
    return law(MINORITY, sum(counts), math.sqrt(weight * feature))


def _model_at_ratio(counts: list[int], ratio: float, bias_decay: float | None) -> RegularizedUFM:
    return RegularizedUFM("cross-entropy", len(counts), counts, 2 * len(counts), *decays(counts, ratio), bias_decay)


@calculations.add("imbalance/minority-optimum")
def minority_at_optimum(counts: list[int], ratio: float, bias_decay: float | None) -> dict[str, Any]:
    """The minority's gap and row distance at the global minimum, with the certificate's duality gap."""
    problem = _model_at_ratio(counts, ratio, bias_decay)
    point = problem.optimum().point
    duality = problem.certify(point).gap
    found = gap_rows(problem, point)[-1]
    return {**found, "law": predicted(counts, ratio), "duality_gap": math.inf if duality is None else float(duality)}


@calculations.add("imbalance/minority-descent")
def minority_after_descent(counts: list[int], ratio: float, bias_decay: float | None, seed: int) -> dict[str, Any]:
    """The same where L-BFGS on all samples ends, from a random start."""
    problem = _model_at_ratio(counts, ratio, bias_decay)
    trace = solve(problem, "lbfgs", seed=seed, tol=1e-10, max_iter=20_000)
    return {**gap_rows(problem, trace.point)[-1], "law": predicted(counts, ratio), "outcome": trace.outcome}


@calculations.add("imbalance/minority-net")
def minority_of_a_net(counts: list[int], ratio: float, steps: int, seed: int) -> dict[str, Any]:
    """The same for a net of one hidden layer on Gaussian clusters, with the decays on W and H, by Adam."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.repeat_interleave(torch.arange(len(counts)), torch.tensor(counts))
    centres = torch.randn(len(counts), INPUTS, generator=generator)
    inputs = centres[labels] + 0.5 * torch.randn(len(labels), INPUTS, generator=generator)
    shapes = ((HIDDEN, INPUTS), (HIDDEN,), (DIM, HIDDEN), (len(counts), DIM))
    layers = [
        (torch.randn(shape, generator=generator) / math.sqrt(shape[-1]) if len(shape) > 1 else torch.zeros(shape))
        for shape in shapes
    ]
    first, offset, second, head = (layer.requires_grad_() for layer in layers)
    optimizer = torch.optim.Adam([first, offset, second, head], lr=3e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    weight_decay, feature_decay = decays(counts, ratio)

    def forward() -> tuple[torch.Tensor, torch.Tensor]:
        features = torch.relu(inputs @ first.T + offset) @ second.T
        return features, features @ head.T

    for _ in range(steps):
        optimizer.zero_grad()
        features, logits = forward()
        decay = weight_decay * head.square().sum() + feature_decay * features.square().sum()
        (torch.nn.functional.cross_entropy(logits, labels) + decay / 2).backward()
        optimizer.step()
        schedule.step()
    with torch.no_grad():
        likely = torch.softmax(forward()[1], dim=1)
    minority = [index for index, count in enumerate(counts) if count == MINORITY]
    return {
        "gap": gap(likely, labels, minority),
        "distance": row_distance(head.detach(), minority),
        "law": predicted(counts, ratio),
    }


@studies.add("imbalance/minority-collapse")
class MinorityCollapse(Study):
    """The product of the decays is swept through N^2 lW lH = n_B, in theory, by descent and in a net."""

    figures = ("the gap law",)
    question = "Do the classifiers of small classes merge exactly where N^2 lambda_W lambda_H reaches their count?"
    claims = (
        Claim(
            "merged",
            "At the global minimum the rows of the small classes coincide wherever N^2 lW lH >= n_B, whatever the "
            "other classes and the bias (largest distance, relative to the longest row).",
            f"{GAP_LAW}; the phenomenon: Fang et al. 2021",
            AtMost(1e-6),
        ),
        Claim(
            "apart",
            "Where N^2 lW lH < n_B they do not coincide: the gap in probability is that of the law, 1 - N mu/sqrt(n_B) "
            "(largest distance from it).",
            GAP_LAW,
            AtMost(1e-8),
        ),
        Claim(
            "distinct",
            "The rows themselves are then apart (smallest distance, relative to the longest row).",
            GAP_LAW,
            AtLeast(1e-3),
        ),
        Claim(
            "descent",
            "Descent from random starts ends with the law's gap on both sides of the threshold (largest distance).",
            GAP_LAW,
            AtMost(1e-5),
        ),
        Claim(
            "net",
            "So does a small net with the decays on its last classifier and features (largest distance).",
            "our reading: the law is proved for free features",
            AtMost(0.05),
            kind="ours",
        ),
    )
    costs = {"smoke": "3 s", "desk": "3 min of one core", "paper": "15 min of one core"}
    setting = {
        "smoke": "Three sets of counts with a minority of 4 samples a class, two products of decays, one seed.",
        "desk": "Three sets of counts with a minority of 4 samples a class, no, decayed and free bias, nine products "
        "of decays from 0.1 to 2 times the threshold; 10 starts of L-BFGS, and 10 nets of one hidden layer of 128 on "
        "Gaussian clusters at five products.",
        "paper": "As at desk size with 13 products and longer training. There is no such figure in the four papers.",
    }
    provenance = {"counts, decays, net": "guess"}
    final_seeds = {"smoke": (0,), "desk": tuple(range(20, 30)), "paper": tuple(range(20, 30))}

    def cells(self, profile: Profile) -> Iterator[Planned]:
        for name, counts in COUNTS.items():
            for bias, decay in BIASES.items():
                for ratio in RATIOS[profile]:
                    arguments = {"counts": counts, "ratio": ratio, "bias_decay": decay}
                    labels = {"counts": name, "bias": bias, "ratio": ratio}
                    yield Planned(Calculation("imbalance/minority-optimum", arguments), {"what": "optimum", **labels})
                    for seed in self.seeds(profile):
                        cell = Calculation("imbalance/minority-descent", {**arguments, "seed": seed})
                        yield Planned(cell, {"what": "descent", **labels, "seed": seed})
        name, counts = next(iter(COUNTS.items()))
        for ratio in NET_RATIOS[profile]:
            for seed in self.seeds(profile):
                arguments = {"counts": counts, "ratio": ratio, "steps": NET_STEPS[profile], "seed": seed}
                labels = {"what": "net", "counts": name, "ratio": ratio, "seed": seed}
                yield Planned(Calculation("imbalance/minority-net", arguments), labels)

    def evidence(self, results: Results) -> Mapping[str, Evidence]:
        exact = results.where(what="optimum")
        merged = [entry.value for entry in exact if entry.labels["ratio"] >= 1]
        apart = [entry.value for entry in exact if entry.labels["ratio"] < 1]
        duality = max(entry.value["duality_gap"] for entry in exact)
        descents, nets = (results.where(what=what) for what in ("descent", "net"))
        reached, trained = per_seed(descents, _farthest_from_law), per_seed(nets, _farthest_from_law)
        farthest = max(value["distance"] for value in merged)
        return {
            "merged": Evidence.exact(
                farthest,
                why=f"{len(merged)} minima, with duality gaps of {duality:.0e} or less.",
            ),
            "apart": Evidence.exact(
                max(abs(value["gap"] - value["law"]) for value in apart), why=f"{len(apart)} minima."
            ),
            "distinct": Evidence.exact(min(value["distance"] for value in apart)),
            "descent": Evidence(reached, why=f"{len(descents)} descents; the farthest is {max(reached):.0e} away."),
            "net": Evidence(trained, why=f"{len(nets)} nets; the farthest is {max(trained):.2g} away."),
        }

    def table(self, results: Results) -> list[dict[str, Any]]:
        rows = []
        for (what, counts, bias, ratio), mine in results.groups("what", "counts", "bias", "ratio"):
            row = {"what": what, "counts": counts, "bias": bias, "ratio": ratio, "law": mine[0].value["law"]}
            means = {key: float(np.mean([entry.value[key] for entry in mine])) for key in ("gap", "distance")}
            rows.append({**row, **means})
        return rows

    def draw(self, results: Results) -> Figure:
        picture, axes = figure(1, 2, size=(3.0, 2.3))
        exact = results.where(what="optimum", bias="none")
        names = results.labels("counts")
        top = max(results.labels("ratio"))
        fine = np.linspace(0.0, 1.05 * top, 400)
        axes[0, 0].plot(fine, np.maximum(0, 1 - np.sqrt(fine)), color="black", linewidth=0.9, label="gap law")
        for name in names:
            mine = exact.where(counts=name)
            ratios = [entry.labels["ratio"] for entry in mine]
            style = {"color": colour(name, names), "marker": "os^"[names.index(name)], "mfc": "none", "ms": 4}
            for axis, key in zip(axes[0], ("gap", "distance"), strict=True):
                line = "none" if key == "gap" else "-"
                axis.plot(ratios, [entry.value[key] for entry in mine], linestyle=line, label=f"n = {name}", **style)
        for what, mark in (("descent", "+"), ("net", "x")):
            mine = results.where(what=what, counts=names[0]) if what == "net" else results.where(what=what, bias="none")
            for axis, key in zip(axes[0], ("gap", "distance"), strict=True):
                axis.plot(
                    [entry.labels["ratio"] for entry in mine],
                    [entry.value[key] for entry in mine],
                    mark,
                    color=GREY if what == "descent" else PURPLE,
                    ms=3.5,
                    label=what,
                    zorder=0 if what == "descent" else 3,
                )
        for axis, name in zip(axes[0], ("gap between small classes", "distance of their rows"), strict=True):
            axis.axvline(1, color=GREY, linestyle=(0, (4, 2)), linewidth=1.0)
            axis.set_xlabel(r"$N^2\lambda_W\lambda_H\,/\,n_B$")
            axis.set_title(name)
        legend_below(picture, axes[0, 0], columns=3)
        return picture


def _farthest_from_law(results: Results) -> float:
    """The largest distance of a gap from the law."""
    return max(abs(entry.value["gap"] - entry.value["law"]) for entry in results)
