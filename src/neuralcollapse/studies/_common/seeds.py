"""From runs to evidence: the worst over settings for each seed, agreement of accuracies, orders by rank."""

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from scipy.stats import rankdata

from .._results import Results
from ..claims import RULINGS, Agrees, Evidence, known

__all__ = ["FITS", "agreement", "fits", "known", "listed", "per_seed", "points", "rank_correlation", "worst"]

FITS = 0.99
"""Training accuracy of a net that does what claims about collapse presuppose."""


def per_seed(results: Results, number: Callable[[Results], float]) -> list[float]:
    """One number for the runs of each seed."""
    return [float(number(mine)) for _, mine in results.groups("seed")]


def worst(results: Results, name: str, split: str = "train") -> list[float]:
    """The largest final value of a metric over all runs of a seed, one a seed; NaN where one is."""
    return per_seed(results, lambda mine: mine.final(name, split).max())


def fits(results: Results, least: float = FITS) -> bool:
    """Whether every net fits its training set."""
    return bool((results.final("accuracy") >= least).all())


def points(results: Results, split: str = "test") -> np.ndarray:
    """Final accuracies in percentage points, one a run."""
    return 100 * results.final("accuracy", split)


def agreement(
    differences: Mapping[str, Sequence[float] | np.ndarray],
    limit: Agrees,
    *,
    floor_met: bool | None = None,
    why: str | None = None,
) -> Evidence:
    """Of several differences, each with one number a seed, the one that agrees least: the worst by itself.

    Of several with the same verdict it is the one with the largest sum of size and noise. Its interval is two standard
    errors of the mean over the seeds to either side. ``why`` says more than the list of all differences does.
    """
    found: list[tuple[int, float, str, float, float]] = []
    for name, values in differences.items():
        array = np.asarray(values, dtype=np.float64)
        mean = float(array.mean())
        noise = 2 * float(array.std(ddof=1)) / math.sqrt(array.size) if array.size > 1 else math.nan
        ruling = limit.rule(mean, mean - noise, mean + noise)
        distance = mean if limit.one_sided else abs(mean)
        size = math.inf if math.isnan(noise + mean) else distance + noise
        found.append((-RULINGS.index(ruling), size, name, mean, noise))
    _, _, name, mean, noise = max(found)
    words = f"Differences in points: {', '.join(_with_noise(n, m, e) for _, _, n, m, e in found)}."
    table = [
        {"comparison": n, "difference": m, "two_standard_errors": None if math.isnan(e) else e}
        for _, _, n, m, e in found
    ]
    return Evidence.interval(
        mean, mean - noise, mean + noise, floor_met=floor_met, why=words if why is None else why, table=table
    )


def _with_noise(name: str, mean: float, noise: float) -> str:
    return f"{name} {mean:+.2f}" + ("" if math.isnan(noise) else f" +- {noise:.2f}")


def rank_correlation(first: Sequence[float] | np.ndarray, second: Sequence[float] | np.ndarray) -> float:
    """Spearman's; 0 where one of the two is constant, which neither rises nor falls; NaN where a number is missing."""
    one, two = np.asarray(first, dtype=float), np.asarray(second, dtype=float)
    if np.isnan(one).any() or np.isnan(two).any():
        return math.nan
    if np.ptp(one) == 0 or np.ptp(two) == 0:
        return 0.0
    return round(float(np.corrcoef(rankdata(one), rankdata(two))[0, 1]), 12)  # ranks that agree give exactly one


def listed(results: Results, by: str, name: str, split: str = "train", shown: str = "{:.2g}") -> str:
    """The mean final value of a metric for each value of a label: ``"SGD 0.01, Adam 0.02"``."""
    return ", ".join(
        f"{key} {shown.format(float(mine.final(name, split).mean()))}" for (key,), mine in results.groups(by)
    )
