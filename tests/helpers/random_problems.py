"""Random models of every kind, for tests that must hold for all of them."""

import math

import numpy as np

from neuralcollapse import losses
from neuralcollapse.losses import CrossEntropy, LogitAdjusted, LogitLoss, VectorScaling
from neuralcollapse.ufm import (
    ContrastiveUFM,
    NormalizedUFM,
    Problem,
    RegressionUFM,
    RegularizedUFM,
    critical_temperature,
)


def spread(generator: np.random.Generator, count: int, decades: float) -> list[float]:
    """Positive numbers around 1."""
    return (10 ** generator.uniform(-decades, decades, count)).tolist()


def convex_loss(generator: np.random.Generator, counts: list[int]) -> LogitLoss:
    """One of all convex losses, with any parameters."""
    classes = len(counts)
    smoothing, strength = generator.uniform(0.01, 0.9), generator.uniform(-1, 2)
    alpha, target = 10 ** generator.uniform(-1, 1.3), 10 ** generator.uniform(-1, 1)
    makers = [
        lambda: losses.get("ce"),
        lambda: losses.get(f"ls:alpha={smoothing:.3f}"),
        lambda: losses.get("mse"),
        lambda: losses.get(f"mse:alpha={alpha:.3f},target={target:.3f}"),
        lambda: CrossEntropy(spread(generator, classes, 0.7)),
        lambda: CrossEntropy([sum(counts) / (classes * n) for n in counts]),
        lambda: LogitAdjusted("ce", [float(n) for n in counts], strength),
        lambda: LogitAdjusted(f"ls:alpha={smoothing / 2:.3f}", spread(generator, classes, 0.7), strength),
        lambda: LogitAdjusted("mse", spread(generator, classes, 0.7), strength / 2),
        lambda: VectorScaling(spread(generator, classes, 0.4), generator.normal(size=classes).tolist()),
    ]
    return makers[int(generator.integers(len(makers)))]()


def some_bias(generator: np.random.Generator, decades: float) -> float | None:
    """No bias, a free one, or any decay."""
    return [None, 0.0, 10 ** generator.uniform(-decades, decades)][int(generator.integers(3))]


def imbalanced(generator: np.random.Generator) -> RegularizedUFM:
    """Any convex loss, counts that are not all equal, decays over five decades, d below and above K, any bias."""
    classes = int(generator.integers(2, 9))
    shapes = [
        generator.integers(1, 40, classes),
        generator.choice(generator.integers(1, 60, 2), classes),
        np.round(200 * 10 ** (-generator.uniform(0.5, 2.3) * np.arange(classes) / (classes - 1))).clip(1),
        generator.choice([1, 2, 3], classes),
    ]
    counts = [int(n) for n in shapes[int(generator.integers(4))]]
    if len(set(counts)) == 1:
        counts[0] += 1
    mu = math.sqrt(generator.choice(counts)) / sum(counts) * 10 ** generator.uniform(-4, 0.5)
    balance = 10 ** generator.uniform(-1.5, 1.5)
    dim = int(generator.integers(1, classes + 4))
    loss = convex_loss(generator, counts)
    return RegularizedUFM(loss, classes, counts, dim, mu * balance, mu / balance, some_bias(generator, 4))


def regularized(generator: np.random.Generator) -> RegularizedUFM:
    """Any loss, few or equal counts, near and far from every threshold; now and then non-negative features."""
    classes = int(generator.choice([2, 3, 4, 5, 6, 8, 20], p=[0.2, 0.2, 0.2, 0.15, 0.1, 0.1, 0.05]))
    counts = [int(generator.choice([1, 1, 2, 3, 7]))] * classes
    if generator.random() < 0.4:
        counts = [int(n) for n in generator.integers(1, 9, classes)]
    loss = convex_loss(generator, counts)
    if generator.random() < 0.3:
        loss = losses.get(f"focal:gamma={generator.uniform(0.1, 6):.3f}")
    s = 10 ** generator.uniform(-2.5, 0.4) / classes * getattr(loss, "target", 1.0)
    if isinstance(loss, losses.Focal) and generator.random() < 0.6:
        edge = loss.transition(classes)
        near = generator.choice([edge.zero_stable_above, edge.exchange, edge.collapse_exists_below])
        s = near * 10 ** generator.uniform(-0.02, 0.02)
    mu, balance = s / math.sqrt(sum(counts) / classes), 10 ** generator.uniform(-1, 1)
    dim = int(generator.integers(1, classes + 3))
    features = "nonnegative" if generator.random() < 0.08 else "free"
    bias = some_bias(generator, 6)
    return RegularizedUFM(loss, classes, counts, dim, mu * balance, mu / balance, bias, features)


def normalized(generator: np.random.Generator) -> NormalizedUFM:
    """Any loss on spheres, at temperatures below and above the critical one."""
    classes, samples = int(generator.integers(2, 8)), int(generator.integers(1, 4))
    loss = convex_loss(generator, [samples] * classes)
    if generator.random() < 0.3:
        loss = losses.get(f"focal:gamma={generator.uniform(0.1, 6):.3f}")
    temperature = 10 ** generator.uniform(-2, 1.5)
    if isinstance(loss, losses.LabelSmoothing) and generator.random() < 0.6:
        temperature = critical_temperature(loss, classes) * 10 ** generator.uniform(-0.3, 0.6)
    return NormalizedUFM(loss, classes, samples, int(generator.integers(1, classes + 3)), temperature)


def contrastive(generator: np.random.Generator) -> ContrastiveUFM:
    """The supervised contrastive model."""
    classes, samples = int(generator.integers(2, 6)), int(generator.integers(2, 5))
    dim = int(generator.integers(1, classes + 2))
    return ContrastiveUFM(classes, samples, dim, 10 ** generator.uniform(-1.5, 0.7))


def regression(generator: np.random.Generator) -> RegressionUFM:
    """Any targets."""
    samples, outputs = int(generator.integers(1, 8)), int(generator.integers(1, 5))
    targets = generator.normal(size=(samples, outputs)) * 10 ** generator.uniform(-2, 2)
    mu = float(np.linalg.norm(targets, 2)) / samples * 10 ** generator.uniform(-3, 0.2)
    balance = 10 ** generator.uniform(-1, 1)
    dim = int(generator.integers(1, outputs + 2))
    return RegressionUFM(targets, dim, mu * balance, mu / balance, some_bias(generator, 3))


def any_problem(generator: np.random.Generator) -> Problem:
    """Half of them regularised."""
    kinds = [regularized, regularized, regularized, normalized, contrastive, regression]
    return kinds[int(generator.integers(len(kinds)))](generator)
