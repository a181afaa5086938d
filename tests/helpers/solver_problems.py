"""Small problems with a closed form, and a script that solves them from many starts.

    python tests/solver_problems.py PART PARTS

prints one JSON object: for each problem and method the largest excess over the closed form and the regimes
found. As a script it runs without the annotation checker of the tests, which would take most of the time.
"""

import json
import sys

from neuralcollapse.ufm import ContrastiveUFM, NormalizedUFM, RegularizedUFM, methods, solve
from neuralcollapse.ufm.solvers import solver_methods

PROBLEMS = {
    "regularised cross-entropy": RegularizedUFM("ce", 3, 2, 4, 0.02, 0.05, 0.01),
    "regularised label smoothing": RegularizedUFM("ls:alpha=0.2", 4, 2, 3, 0.02, 0.02),
    "regularised focal": RegularizedUFM("focal:gamma=2", 3, 3, 4, 0.01, 0.02),
    "squared error, d < K-1": RegularizedUFM("mse", 4, 2, 2, 0.02, 0.03, 0.1),
    "squared error, d = K-1": RegularizedUFM("mse", 3, 2, 2, 0.02, 0.03, 0.0),
    "squared error, d > K": RegularizedUFM("mse", 3, 2, 5, 0.02, 0.03),
    "normalised cross-entropy": NormalizedUFM("ce", 4, 2, 5),
    "normalised cross-entropy, tau 4": NormalizedUFM("ce", 3, 2, 4, temperature=4.0),
    "normalised focal": NormalizedUFM("focal", 3, 2, 4, temperature=2.0),
    "normalised label smoothing, below": NormalizedUFM("ls", 3, 2, 4, temperature=1.5),
    "normalised label smoothing, above": NormalizedUFM("ls", 3, 2, 4, temperature=6.0),
    "contrastive": ContrastiveUFM(3, 2, 4),
    "contrastive, tau 2": ContrastiveUFM(4, 3, 5, temperature=2.0),
}
FURTHER = ("regularised focal", "normalised cross-entropy, tau 4", "contrastive, tau 2")
"""More sizes and temperatures, from thirty starts instead of a hundred."""
FEWER_FOR_SLOW = (  # Adam and plain descent take ten times the iterations
    "regularised cross-entropy",
    "regularised label smoothing",
    "squared error, d > K",
    "normalised cross-entropy",
    "normalised focal",
    "contrastive",
)
CASES = [
    (label, name)
    for label, problem in PROBLEMS.items()
    for name in methods(problem)
    if solver_methods[name].reliable and (name not in ("adam", "armijo") or label in FEWER_FOR_SLOW)
]


def from_many_starts(label: str, name: str, starts: int) -> dict[str, object]:
    problem = PROBLEMS[label]
    best = problem.optimum().value
    excesses, regimes = [], set()
    for seed in range(starts):
        trace = solve(problem, name, seed=seed, tol=0.0, gap=3e-9, max_iter=20_000, record=())
        excesses.append(trace.value - best)
        regimes.add(str(trace.regime))
    return {"lowest": min(excesses), "highest": max(excesses), "regimes": sorted(regimes)}


if __name__ == "__main__":
    part, parts = int(sys.argv[1]), int(sys.argv[2])
    found = {
        f"{label}; {name}": from_many_starts(label, name, 30 if label in FURTHER else 100)
        for label, name in CASES[part::parts]
    }
    sys.stdout.write(json.dumps(found))
