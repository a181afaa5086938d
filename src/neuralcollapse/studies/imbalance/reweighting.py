"""Class weights turn the gap law round: which classes merge first is a matter of omega_k sqrt(n_k)."""

import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from ...losses import CrossEntropy, LogitAdjusted, LogitLoss
from ...ufm import RegularizedUFM, solve
from .._cells import Calculation, calculations
from .._common.seeds import per_seed
from .._results import Planned, Results
from .._study import Profile, Study, studies
from ..claims import AtMost, Claim, Evidence, Holds
from ..pictures import GREY, Figure, colour, figure, legend_below
from ._gaps import GAP_LAW, gap_rows, groups_of, law

COUNTS = [40, 40, 10, 10, 2, 2]
SCHEMES = {
    "plain": "no weights",
    "adjusted": "logit adjustment",
    "inverse": r"weights $\sim 1/n_k$",
    "root": r"weights $\sim n_k^{-1/2}$",
}
DECAYS: Mapping[Profile, tuple[float, ...]] = {
    "smoke": (0.02, 0.04),
    "desk": (0.002, 0.005, 0.01, 0.015, 0.02, 0.025, 0.03, 0.035, 0.04, 0.045, 0.05, 0.055, 0.06, 0.08, 0.1),
    "paper": tuple(round(0.002 * step, 3) for step in range(1, 61)),
}
"""mu = lW = lH."""
EQUAL = 1e-6


def weights_of(scheme: str, counts: list[int]) -> list[float]:
    """omega_k; each scheme has a mean of 1 over the samples."""
    total = sum(counts)
    if scheme == "inverse":
        return [total / (len(counts) * count) for count in counts]
    if scheme == "root":
        scale = total / math.fsum(math.sqrt(count) for count in counts)
        return [scale / math.sqrt(count) for count in counts]
    return [1.0] * len(counts)


def loss_of(scheme: str, counts: list[int]) -> LogitLoss:
    """The loss of a scheme."""
    if scheme == "adjusted":
        return LogitAdjusted("ce", prior=counts)
    return CrossEntropy(class_weights=None if scheme == "plain" else weights_of(scheme, counts))


@calculations.add("imbalance/reweighting")
def reweighting(scheme: str, counts: list[int], mu: float, seed: int) -> dict[str, Any]:
    """The gap of each group where L-BFGS ends, and what the law says."""
    problem = RegularizedUFM(loss_of(scheme, counts), len(counts), counts, 2 * len(counts), mu, mu)
    trace = solve(problem, "lbfgs", seed=seed, tol=1e-10, max_iter=20_000)
    shift = [math.log(count) for count in counts] if scheme == "adjusted" else None
    groups = gap_rows(problem, trace.point, shift)
    weights = weights_of(scheme, counts)
    return {
        "counts": [group["count"] for group in groups],
        "gaps": [group["gap"] for group in groups],
        "distances": [group["distance"] for group in groups],
        "laws": [law(group["count"], sum(counts), mu, weights[counts.index(group["count"])]) for group in groups],
        "outcome": trace.outcome,
    }


@studies.add("imbalance/reweighting")
class Reweighting(Study):
    """The gap of three groups of classes as the decays grow, without weights and with three corrections."""

    figures = ("the gap law",)
    question = "Do inverse-frequency weights turn minority collapse round, so that the large classes merge first?"
    claims = (
        Claim(
            "plain",
            "Without weights, descent ends with the gaps max(0, 1 - N mu/sqrt(n_k)): small classes merge first "
            "(largest distance).",
            GAP_LAW,
            AtMost(EQUAL),
        ),
        Claim(
            "adjusted",
            "Logit adjustment does not move these gaps (largest distance).",
            GAP_LAW,
            AtMost(EQUAL),
        ),
        Claim(
            "inverse",
            "With weights N/(K n_k) the gaps are max(0, 1 - K mu sqrt(n_k)) (largest distance).",
            GAP_LAW,
            AtMost(EQUAL),
        ),
        Claim(
            "turned",
            "So the large classes merge first: at every decay a group has merged if and only if n_k >= 1/(K mu)^2.",
            GAP_LAW,
            Holds(),
        ),
        Claim(
            "root",
            "Weights ~ n_k^(-1/2) give all groups the same gap (largest difference of two groups).",
            GAP_LAW,
            AtMost(EQUAL),
        ),
    )
    costs = {"smoke": "1 s", "desk": "1 min of one core", "paper": "4 min of one core"}
    setting = {
        "smoke": "Counts 40, 40, 10, 10, 2, 2, no bias, d = 12, two decays, one start each.",
        "desk": "Counts 40, 40, 10, 10, 2, 2, no bias, d = 12, 15 decays, L-BFGS from 10 starts each.",
        "paper": "As at desk size with 60 decays. There is no such figure in the four papers.",
    }
    provenance = {"counts, decays, starts": "guess"}
    final_seeds = {"smoke": (0,), "desk": tuple(range(20, 30)), "paper": tuple(range(20, 30))}

    def cells(self, profile: Profile) -> Iterator[Planned]:
        for scheme in SCHEMES:
            for mu in DECAYS[profile]:
                for seed in self.seeds(profile):
                    arguments = {"scheme": scheme, "counts": COUNTS, "mu": mu, "seed": seed}
                    labels = {"scheme": scheme, "mu": mu, "seed": seed}
                    yield Planned(Calculation("imbalance/reweighting", arguments), labels)

    def evidence(self, results: Results) -> Mapping[str, Evidence]:
        found = {}
        for scheme in ("plain", "adjusted", "inverse"):
            mine = results.where(scheme=scheme)
            off = per_seed(mine, lambda some: max(_farthest_gap(entry.value) for entry in some))
            found[scheme] = Evidence(off, why=f"{len(mine)} descents; the farthest gap is {max(off):.0e} away.")
        spread = per_seed(results.where(scheme="root"), lambda some: max(np.ptp(entry.value["gaps"]) for entry in some))
        found["root"] = Evidence(spread, why=f"They differ by at most {max(spread):.0e}.")
        inverse = results.where(scheme="inverse")
        right = [_merged_as_predicted(entry.value, entry.labels["mu"]) for entry in inverse]
        found["turned"] = Evidence.exact(all(right), why=f"It is so in {sum(right)} of {len(right)} descents.")
        return found

    def table(self, results: Results) -> list[dict[str, Any]]:
        rows = []
        for (scheme, mu), mine in results.groups("scheme", "mu"):
            for place, count in enumerate(mine[0].value["counts"]):
                gaps = [entry.value["gaps"][place] for entry in mine]
                row = {"scheme": scheme, "mu": mu, "count": count, "law": mine[0].value["laws"][place]}
                rows.append({**row, "gap": float(np.mean(gaps)), "spread": float(np.ptp(gaps))})
        return rows

    def draw(self, results: Results) -> Figure:
        picture, axes = figure(1, len(SCHEMES), size=(1.75, 2.1), sharey=True)
        counts = sorted(groups_of(COUNTS), reverse=True)
        for axis, (scheme, title) in zip(axes[0], SCHEMES.items(), strict=True):
            mine = results.where(scheme=scheme)
            top = max(mine.labels("mu"))
            fine, weights = np.linspace(0, top, 400), weights_of(scheme, COUNTS)
            for place, count in enumerate(counts):
                weight = weights[COUNTS.index(count)]
                style = {"color": colour(count, counts)}
                curve = [law(count, sum(COUNTS), mu, weight) for mu in fine]
                axis.plot(fine, curve, linewidth=0.9, linestyle="-" if place == 0 else (0, (4, 2 * place)), **style)
                axis.plot(
                    [entry.labels["mu"] for entry in mine],
                    [entry.value["gaps"][place] for entry in mine],
                    linestyle="none",
                    marker="os^"[place],
                    ms=(5, 3.5, 2)[place],
                    mfc="none",
                    label=f"n = {count}",
                    **style,
                )
            axis.set_title(title)
            axis.locator_params(axis="x", nbins=3)
            axis.set_xlabel(r"$\mu=\sqrt{\lambda_W\lambda_H}$")
        axes[0, 0].set_ylabel("gap within the group")
        axes[0, 0].plot([], [], color=GREY, label="gap law")
        legend_below(picture, axes[0, 0])
        return picture


def _farthest_gap(value: Mapping[str, Any]) -> float:
    """The largest distance of a gap from the law."""
    return max(abs(gap - said) for gap, said in zip(value["gaps"], value["laws"], strict=True))


def _merged_as_predicted(value: Mapping[str, Any], mu: float) -> bool:
    """Whether the groups whose gap is zero are those of at least 1/(K mu)^2 samples a class."""
    threshold = 1 / (len(COUNTS) * mu) ** 2
    pairs = zip(value["counts"], value["gaps"], strict=True)
    return all((gap <= EQUAL) == (count >= threshold) for count, gap in pairs)
