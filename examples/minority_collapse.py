"""Minority collapse at the predicted count: the gap law of cross-entropy against solves that do not know it.

    python examples/minority_collapse.py [picture.svg]

Three classes of 100 samples and two of n: at the global minimum a sample of a small class gives its own class
p_k(k) - p_k(k') = max(0, 1 - N mu/sqrt(n)) more than the other small class.
"""

import math
import sys

import torch
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from neuralcollapse.ufm import RegularizedUFM, solve

LARGE, MANY = 100, 3
COUNTS = (1, 2, 3, 4, 6, 8, 11, 15, 20, 28, 40)
COLOURS = ("#0072B2", "#D55E00", "#009E73")
DECAYS = (0.004, 0.008, 0.012)


def measured_gap(count: int, decay: float) -> float:
    """The gap at a minimum found by trust regions."""
    problem = RegularizedUFM("ce", MANY + 2, [LARGE] * MANY + [count] * 2, 8, decay, decay)
    point = solve(problem, "trust-region", tol=1e-11, record=()).point
    small = MANY * LARGE
    logits = point.H[small] @ point.classifier.T
    shares = torch.softmax(logits, dim=0)
    return float(shares[MANY] - shares[MANY + 1])


def predicted_gap(count: int, decay: float) -> float:
    """The law, with mu = sqrt(lW lH) = decay."""
    total = MANY * LARGE + 2 * count
    return max(0.0, 1 - total * decay / math.sqrt(count))


def main(path: str | None = None) -> None:
    """Solve, compare and draw."""
    figure = Figure(figsize=(5.2, 3.2), layout="constrained")
    axis = figure.subplots()
    worst = 0.0
    for index, decay in enumerate(DECAYS):
        colour = COLOURS[index]
        found = [measured_gap(count, decay) for count in COUNTS]
        fine = [1 + step / 10 for step in range(10 * (COUNTS[-1] - 1) + 1)]
        law = [max(0.0, 1 - (MANY * LARGE + 2 * n) * decay / math.sqrt(n)) for n in fine]
        axis.plot(fine, law, color=colour)
        axis.annotate(
            f"decay {decay:g}", (fine[-1], law[-1]), (6, 0), textcoords="offset points", color=colour, va="center"
        )
        axis.plot(COUNTS, found, "o", ms=4, mfc="white", color=colour)
        worst = max(worst, *(abs(a - predicted_gap(n, decay)) for a, n in zip(found, COUNTS, strict=True)))
    axis.set_xscale("log")
    axis.set_xlabel("samples $n$ of each of two small classes (three have 100)")
    axis.set_ylabel("$p_k(k)-p_k(k')$")
    axis.set_xticks([1, 2, 5, 10, 20, 40], ["1", "2", "5", "10", "20", "40"], minor=False)
    axis.xaxis.set_minor_locator(NullLocator())
    axis.spines[["top", "right"]].set_visible(False)
    if path is not None:
        figure.savefig(path)
    print(f"largest difference between the law and the solves: {worst:.1e}")


if __name__ == "__main__":
    main(*sys.argv[1:])
