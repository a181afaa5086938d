import math

import mpmath as mp
import numpy as np
import pytest
import torch

from neuralcollapse import landscape, losses
from neuralcollapse.frames import simplex_etf
from neuralcollapse.ufm import RegularizedUFM
from reference import best_value, first_derivative

SPECS = [name for name, kind in losses.losses.items() if kind.takes == "logits"] + ["mse:alpha=5,target=3"]


@pytest.mark.parametrize("classes", [3, 4, 10])
@pytest.mark.parametrize("spec", SPECS)
def test_slice_is_the_loss_of_a_feature_in_the_plane(spec, classes):
    """Against an explicit ETF, an explicit feature built by rotation, and the loss itself."""
    loss = losses.get(spec)
    frame = simplex_etf(classes, classes + 1, seed=0)
    own, other = frame[0], frame[1]
    across = other - (other @ own) * own
    across = across / across.norm()
    slice_ = landscape.FeatureSlice(loss, classes)
    for s, theta in ((0.7, 0.3), (3.0, 1.2), (5.0, -2.0), (2.0, math.pi / 2)):
        feature = s * (math.cos(theta) * own + math.sin(theta) * across)
        expected = float(loss((frame @ feature)[None], torch.tensor([0])))
        assert float(slice_.value(s, theta)) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("spec", SPECS)
def test_slice_gradient_against_differences(spec):
    slice_ = landscape.FeatureSlice(losses.get(spec), 6)
    s, theta = np.meshgrid([0.5, 2.0, 4.0], [-1.0, 0.2, 1.5])
    by_s, by_theta = slice_.gradient(s, theta)
    assert by_s.shape == (3, 3)
    np.testing.assert_allclose(by_s, first_derivative(lambda t: slice_.value(s + t, theta)), rtol=1e-8, atol=1e-9)
    np.testing.assert_allclose(by_theta, first_derivative(lambda t: slice_.value(s, theta + t)), rtol=1e-8, atol=1e-9)


def exact_value(spec, classes, s, theta):
    """The slice in 40 digits for astronomically many classes: the K-2 equal logits are counted, not stored."""
    root = mp.sqrt(classes * (classes - 2))
    own = s * mp.cos(theta)
    ahead = (root * mp.sin(theta) - mp.cos(theta)) * s / (classes - 1)
    rest = -(mp.sqrt(mp.mpf(classes) / (classes - 2)) * mp.sin(theta) + mp.cos(theta)) * s / (classes - 1)
    loss = losses.get(spec)
    if not loss.contrastive:
        wrong = ahead**2 + (classes - 2) * rest**2
        return loss.alpha * (own - loss.target) ** 2 / 2 + wrong / 2
    total = mp.log(mp.exp(own) + mp.exp(ahead) + (classes - 2) * mp.exp(rest))
    if spec.startswith("focal"):
        p = mp.exp(own - total)
        return -((1 - p) ** loss.gamma) * mp.log(p)
    alpha = getattr(loss, "alpha", 0)
    return total - (1 - alpha) * own - mp.mpf(alpha) / classes * (own + ahead + (classes - 2) * rest)


@pytest.mark.parametrize("spec", SPECS)
def test_limits_of_many_classes(spec):
    wide = landscape.WideSlice(losses.get(spec))
    many, s, theta = 10**12, mp.mpf("1.7"), mp.mpf("0.6")
    with mp.workdps(40):
        by_s = mp.diff(lambda x: exact_value(spec, many, x, theta), s)
        by_theta = mp.diff(lambda x: exact_value(spec, many, s, x), theta)
        offset = exact_value(spec, many, 0, theta) if losses.get(spec).contrastive else 0
        value = exact_value(spec, many, s, theta) - offset
    found = wide.gradient(1.7, 0.6)
    assert float(found[0]) == pytest.approx(float(by_s), abs=1e-9)
    assert float(found[1]) == pytest.approx(float(by_theta), abs=1e-9)
    assert float(wide.value(1.7, 0.6)) == pytest.approx(float(value), abs=1e-9)


def test_rescaling_turns_the_descent_towards_the_angle():
    """mse, Figure 8: at a right angle the share of the gradient that reduces theta grows with M and with alpha."""
    for losses_ in (
        [losses.SquaredError(1.0, m) for m in (1, 5, 20)],
        [losses.SquaredError(a, 1.0) for a in (1, 5, 20)],
    ):
        shares = []
        for loss in losses_:
            by_s, by_theta = landscape.WideSlice(loss).gradient(1.0, math.pi / 2)
            shares.append(by_theta / math.hypot(by_s, by_theta))
        assert shares == sorted(shares)
        assert shares[0] == pytest.approx(math.sqrt(0.5))
        assert shares[-1] > 0.99


@pytest.mark.parametrize("spec", ["ce", "ls:alpha=0.1", "focal:gamma=3"])
def test_curves_have_the_optimum_as_their_minimum(spec):
    loss = losses.get(spec)
    for classes, samples, weight, feature in ((5, 3, 0.01, 0.02), (10, 100, 5e-4, 5e-4), (4, 2, 0.3, 0.2)):
        model = RegularizedUFM(loss, classes, samples, classes, weight, feature)
        optimum = model.optimum()
        rho = np.linspace(0, 3 * (1 + classes * optimum.weight_norm**2), 200001)
        curve = landscape.xi(rho, loss, classes, samples, weight, feature)
        assert curve.min() == pytest.approx(optimum.value, abs=1e-7)
        assert rho[curve.argmin()] == pytest.approx(classes * optimum.weight_norm**2, abs=2e-3 * rho[-1])
        t = np.append(np.linspace(-(classes - 1) * (optimum.logit_scale + 2), 5, 200001), 0.0)  # the kink is at 0
        curve = landscape.psi(t, loss, classes, model.s)
        assert curve.min() == pytest.approx(optimum.value, abs=1e-7)
        assert best_value(model, seeds=(0,)) == pytest.approx(optimum.value, abs=1e-8)


def test_focal_curve_has_two_minima_between_its_thresholds():
    loss = losses.Focal(3.0)
    edge = loss.transition(100)
    t = np.linspace(-99 * 8, 0, 400001)

    def minima(c):
        curve = landscape.psi(t, loss, 100, c)
        inner = (curve[1:-1] < curve[:-2]) & (curve[1:-1] < curve[2:])
        return int(inner.sum()) + int(curve[-1] < curve[-2])

    assert edge.first_order
    assert minima(0.9 * edge.zero_stable_above) == 1
    assert minima(edge.exchange) == 2
    assert minima(1.05 * edge.collapse_exists_below) == 1
    assert not losses.CrossEntropy().transition(100).first_order


def test_phase_diagram():
    decays = (1e-4, 1e-2, 1.0)
    diagram = landscape.phase_diagram("ce", 4, 9, 5, decays, decays)
    for row, weight in enumerate(decays):
        for column, feature in enumerate(decays):
            zero = math.sqrt(9 * weight * feature) >= 1 / 4
            assert diagram.regimes[row, column] == ("zero" if zero else "neural collapse")
            assert bool(diagram.logit_scales[row, column] == 0) is zero
    assert diagram.boundary.exchange == pytest.approx(1 / 4)
    unknown = landscape.phase_diagram("ce", 6, 2, 2, [1e-3], [1e-3, 20.0])
    assert unknown.regimes.tolist() == [["unknown", "zero"]]
    assert np.isnan(unknown.values[0, 0])
    assert landscape.phase_diagram("mse", 3, 2, 3, [0.1], [0.1]).boundary is None


@pytest.mark.unchecked
def test_bad_input_names_the_argument():
    with pytest.raises(ValueError, match="num_classes must be at least 3"):
        landscape.FeatureSlice(losses.CrossEntropy(), 2)
    with pytest.raises(TypeError, match="loss must be a loss on logits"):
        landscape.WideSlice(losses.SupervisedContrastive())
    with pytest.raises(ValueError, match="weight_decay must be greater than 0"):
        landscape.xi(1.0, losses.CrossEntropy(), 3, 2, 0.0, 0.1)
    with pytest.raises(ValueError, match="at least one value"):
        landscape.phase_diagram("ce", 3, 2, 3, [], [0.1])
