"""The plane of two classifiers, and the phase diagram of the decays."""

import math

import numpy as np

from ..._support.files import JSONObject
from ...landscape import FeatureSlice, phase_diagram
from ...losses import logit_loss
from ._fields import Fields

__all__ = ["describe_phases", "describe_slice"]

GRID = 61
ARROWS = 13
DECAYS = 31


def describe_slice(fields: Fields) -> JSONObject:
    """The loss of a feature of norm s and angle theta (mse, Appendix C), with the directions of descent."""
    loss = logit_loss(fields.word("loss"))
    count = fields.integer("classes", minimum=3, maximum=1000)
    reach = fields.number("reach", minimum=0.1, maximum=100)
    fields.finish()
    plane = FeatureSlice(loss, count)
    s, theta = np.linspace(0, reach, GRID), np.linspace(0, math.pi, GRID)
    value = np.asarray(plane.value(s[None, :], theta[:, None]))
    lowest = np.unravel_index(int(value.argmin()), value.shape)
    coarse_s = np.linspace(0, reach, ARROWS + 2)[1:-1]
    coarse_theta = np.linspace(0, math.pi, ARROWS + 2)[1:-1]
    by_s, by_theta = plane.gradient(coarse_s[None, :], coarse_theta[:, None])
    return {
        "spec": loss.spec,
        "s": s.tolist(),
        "theta": theta.tolist(),
        "value": value.tolist(),
        "lowest": {"s": s[lowest[1]], "theta": theta[lowest[0]], "value": value[lowest]},
        # Own and other classifier are equally near here: half of the angle between two rows of a simplex ETF.
        "boundary": math.acos(-1 / (count - 1)) / 2,
        "arrows": {
            "s": coarse_s.tolist(),
            "theta": coarse_theta.tolist(),
            "down_s": np.negative(by_s).tolist(),
            "down_theta": np.negative(by_theta).tolist(),
        },
    }


def describe_phases(fields: Fields) -> JSONObject:
    """Which solution of the regularised model is the global minimum at which decays."""
    loss = logit_loss(fields.word("loss"))
    count = fields.integer("classes", minimum=2, maximum=100)
    per_class = fields.integer("per_class", minimum=1, maximum=1000)
    dim = fields.integer("dim", minimum=1, maximum=1000)
    bias = fields.number("bias_decay", minimum=0, maximum=1e6) if fields.has("bias_decay") else None
    fields.finish()
    if bias is not None and not loss.is_convex:
        raise ValueError(
            f"the phase diagram of {loss.spec} with a bias takes minutes, because partly collapsed points are searched "
            "at every pair of decays: leave the bias out here, or look at single pairs under Optimum"
        )
    decays = np.geomspace(1e-5, 1, DECAYS).tolist()
    diagram = phase_diagram(loss, count, per_class, dim, decays, decays, bias)
    regimes = sorted(set(diagram.regimes.ravel().tolist()))
    boundary = diagram.boundary
    return {
        "spec": loss.spec,
        "decays": decays,
        "regimes": regimes,
        "codes": [[regimes.index(name) for name in row] for row in diagram.regimes.tolist()],
        "values": diagram.values.tolist(),
        "logit_scales": diagram.logit_scales.tolist(),
        # Hyperbolas lW lH = s^2/n.
        "boundary": None
        if boundary is None
        else {
            "first_order": boundary.first_order,
            "zero_stable_above": boundary.zero_stable_above**2 / per_class,
            "exchange": boundary.exchange**2 / per_class,
            "collapse_exists_below": boundary.collapse_exists_below**2 / per_class,
        },
    }
