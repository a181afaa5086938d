"""Figure 8 of the mse paper: whether rescaling MSE turns the descent direction towards the own classifier."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from .._cells import Calculation, calculations
from .._pictures import figure
from .._results import Planned, Results
from .._study import Profile, Study, Verdict, studies
from ._slices import LOSSES, NORM, descent_field, grid

CLASSES = {"smoke": (10, None), "desk": (10, 100, None), "paper": (10, 100, None)}
"""None: the limit of many classes."""
POINTS = {"smoke": 60, "desk": 400, "paper": 400}
ARROWS = 11


@calculations.add("mse/gradient-field")
def gradient_field(loss: str, num_classes: int | None, points: int) -> dict[str, Any]:
    """The mean alignment of descent with falling theta over the region, at theta = pi/2, and a coarse field."""
    field = descent_field(loss, num_classes, *grid(points))
    edge = descent_field(loss, num_classes, grid(points)[0], [np.pi / 2])
    s, theta = np.linspace(0.25, NORM, ARROWS), np.linspace(0.08, np.pi / 2, ARROWS)
    arrows = descent_field(loss, num_classes, s, theta)
    return {
        "alignment": float(field.alignment.mean()),
        "alignment_at_right_angle": float(edge.alignment.mean()),
        "share": float(field.share.mean()),
        "turned_away": float((field.by_theta < 0).mean()),
        "s": s.tolist(),
        "theta": theta.tolist(),
        "descent_s": (-arrows.by_s).tolist(),
        "descent_theta": (-arrows.by_theta).tolist(),
    }


@studies.add("mse/gradient-field")
class GradientField(Study):
    """Descent directions over the norm and the angle of one feature."""

    figures = ("8",)
    question = "Does rescaling MSE, by M or by alpha, align the descent direction with falling theta?"
    claim = (
        "Over 0 < s < 5, 0 < theta < pi/2 the mean cosine between the descent direction and falling theta is larger "
        "with M = 5, with alpha = 5 and with both than for vanilla MSE, at every K and in the limit of many classes."
    )
    costs = {"smoke": "6 s", "desk": "9 s", "paper": "9 s"}
    decides = ("smoke", "desk", "paper")
    setting = {
        "smoke": "K = 10 and the limit of many classes, a coarse grid.",
        "desk": "K = 10, 100 and the limit of many classes; the paper's size.",
        "paper": (
            "K = 10, 100 and the limit of many classes, in the coordinates (s, theta). The paper does not name its "
            "large M and alpha: 5 and 5. The limit for CE is the corrected one, (-cos theta, s sin theta)."
        ),
    }

    def cells(self, profile: Profile) -> Iterator[Planned]:
        for count in CLASSES[profile]:
            for name, loss in LOSSES.items():
                arguments = {"loss": loss, "num_classes": count, "points": POINTS[profile]}
                yield Planned(Calculation("mse/gradient-field", arguments), {"loss": name, "K": count})

    def check(self, results: Results) -> Verdict:
        gains = {
            name: min(
                results.only(loss=name, K=count)["alignment"] - results.only(loss="MSE", K=count)["alignment"]
                for count in results.labels("K")
            )
            for name in LOSSES
            if name != "MSE"
        }
        rescaled = min(gain for name, gain in gains.items() if name != "CE")
        limit = {name: results.only(loss=name, K=None) for name in LOSSES}
        return Verdict.of(
            rescaled > 0,
            rescaled,
            "smallest gain in mean cosine of a rescaled MSE over vanilla MSE",
            f"Mean cosines in the limit: {_listed(limit, 'alignment')}. At theta = pi/2 alone: "
            f"{_listed(limit, 'alignment_at_right_angle')}. With alpha = 5, M = 1 descent turns away from the own "
            f"classifier on {limit['MSE (alpha=5)']['turned_away']:.0%} of the area, where s cos theta > "
            "alpha M/(alpha - 1).",
        )

    def draw(self, results: Results) -> Any:
        counts = results.labels("K")
        picture, axes = figure(len(counts), len(LOSSES), size=(1.75, 1.7), sharex=True, sharey=True)
        for row, count in zip(axes, counts, strict=True):
            for axis, name in zip(row, LOSSES, strict=True):
                value = results.only(loss=name, K=count)
                along, turn = np.array(value["descent_s"]), np.array(value["descent_theta"])
                size = np.hypot(along, turn)
                # Lengths by the square root: descent is many times steeper at large s.
                shorter = np.sqrt(size.max() * size) / size
                inward = -turn / size
                place = value["s"], value["theta"], along * shorter, turn * shorter
                arrows = axis.quiver(*place, inward, cmap="coolwarm", clim=(-1, 1))
                if axis is axes[0, 0]:
                    picture.colorbar(arrows, ax=axes, aspect=40, pad=0.01, label=r"cosine with falling $\theta$")
                text = rf"mean cosine {value['alignment']:.2f}"
                axis.set_title(f"{name}\n{text}" if count == counts[0] else text)
            row[0].set_ylabel(("many classes" if count is None else f"K = {count}") + "\n" + r"angle $\theta$")
        for axis in axes[-1]:
            axis.set_xlabel("norm s")
        return picture


def _listed(values: dict[str, dict[str, Any]], key: str) -> str:
    return ", ".join(f"{name} {value[key]:.3f}" for name, value in values.items())
