"""Plain gradient descent, and the plain metric of the other methods, against descents written out by hand."""

import pytest

from neuralcollapse.ufm import NormalizedUFM, RegularizedUFM, solve

PROBLEMS = [RegularizedUFM("ce", 3, 4, 5, 0.01, 0.02), NormalizedUFM("ce", 3, 4, 5, temperature=2.0)]
IDS = ["regularised", "normalised"]


def by_hand(problem, point, iterations):
    """The values of Armijo's descent, by the problem's own value, gradient and retraction."""
    values, length = [problem.value(point)], None
    for _ in range(iterations):
        gradient = problem.gradient(point)
        square = gradient.norm() ** 2
        length = 1 / square**0.5 if length is None else 2 * length
        while True:
            trial = problem.retract(point, gradient * -length)
            if problem.value(trial) <= values[-1] - 1e-4 * length * square:
                break
            length /= 2
        point = trial
        values.append(problem.value(point))
    return [float(value) for value in values]


@pytest.mark.parametrize("problem", PROBLEMS, ids=IDS)
def test_armijo_is_the_textbook_descent(problem):
    trace = solve(problem, "armijo", seed=3, tol=0.0, max_iter=12, record=("value",), every=1)
    assert trace.history["value"] == pytest.approx(by_hand(problem, problem.random_point(3), 12), rel=1e-12)


@pytest.mark.parametrize("problem", PROBLEMS, ids=IDS)
@pytest.mark.parametrize("method", ["armijo", "conjugate-gradient:plain=True", "trust-region:plain=True"])
def test_plain_methods_reach_the_minimum(problem, method):
    trace = solve(problem, method, seed=1, max_iter=5000)
    assert trace.converged
    assert trace.value == pytest.approx(problem.optimum().value, abs=1e-9)


def test_the_first_plain_direction_is_the_gradient():
    """Conjugate gradients begin with a step along the gradient in the method's metric."""
    problem = PROBLEMS[1]
    start = problem.random_point(0)
    gradient = problem.gradient(start)
    steps = {}
    for plain in (False, True):
        after = solve(problem, f"conjugate-gradient:plain={plain}", start, max_iter=1).point
        # Along a tangent direction d the rows of the retracted point are (x + t d)/sqrt(1 + t^2 |d|^2).
        moved = after.map(lambda rows, base: rows / (rows * base).sum(1, keepdim=True) - base, start)
        steps[plain] = [
            float(-(m * g).sum() / (g * g).sum()) for m, g in zip(moved.blocks, gradient.blocks, strict=True)
        ]
    assert steps[True][0] == pytest.approx(steps[True][1], rel=1e-9)
    assert steps[False][1] == pytest.approx(4 * steps[False][0], rel=1e-9)  # n times longer for the features


@pytest.mark.unchecked
def test_plain_takes_a_truth_value():
    with pytest.raises(TypeError, match="plain must be True or False"):
        solve(PROBLEMS[0], "trust-region:plain=2")
