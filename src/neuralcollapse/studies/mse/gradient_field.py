"""Figure 8 of the mse paper: whether rescaling MSE turns the descent direction towards the own classifier."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from ..._support.notation import typeset
from .._cells import Calculation, calculations
from .._results import Planned, Results
from .._study import Profile, Study, studies
from ..claims import Above, AtMost, Claim, Evidence
from ..pictures import Figure, figure
from ._slices import AREAS, LOSSES, NORM, SCALES, Field, descent_field, grid

CLASSES = {"smoke": (10, None), "desk": (10, 100, None), "paper": (10, 100, None)}
"""None: the limit of many classes."""
POINTS = {"smoke": 60, "desk": 400, "paper": 400}
ARROWS = 8
NEAR = 1.2
"""Angles above this one are near the decision boundary."""
ROUNDING = 1e-9


@calculations.add("mse/gradient-field")
def gradient_field(loss: str, num_classes: int | None, points: int) -> dict[str, Any]:
    """The gradient at theta = pi/2, the mean alignment of descent with falling theta over areas, and a coarse field."""
    norms, angles = grid(points)
    field = descent_field(loss, num_classes, norms, angles)
    edge = descent_field(loss, num_classes, norms, [np.pi / 2])
    s, theta = np.linspace(0.25, NORM, ARROWS), np.linspace(0.08, np.pi / 2, ARROWS)
    arrows = descent_field(loss, num_classes, s, theta)
    areas = {norm: descent_field(loss, num_classes, *grid(points // 2, norm)).alignment.mean() for norm in AREAS}
    return {
        "alignment": float(field.alignment.mean()),
        "alignment_at_right_angle": float(edge.alignment.mean()),
        "least_alignment_at_right_angle": float(edge.alignment.min()),
        "alignment_near_boundary": float(field.alignment[field.theta > NEAR].mean()),
        "areas": [{"s_max": norm, "mean_cosine": float(value)} for norm, value in areas.items()],
        "turned_away": float((field.by_theta < 0).mean()),
        "predicted_wrongly": _predicted_wrongly(loss, field) if num_classes is None else None,
        "right_angle_error": _right_angle_error(loss, edge) if num_classes is None else None,
        "s": s.tolist(),
        "theta": theta.tolist(),
        "descent_s": (-arrows.by_s).tolist(),
        "descent_theta": (-arrows.by_theta).tolist(),
    }


def _right_angle_error(loss: str, edge: Field) -> float | None:
    """The largest relative distance of the gradient at theta = pi/2 from (s, alpha M s)."""
    scales = _scales_of(loss)
    if scales is None:
        return None
    alpha, target = scales
    along_s = np.abs(edge.by_s / edge.s - 1)
    along_theta = np.abs(edge.by_theta / (alpha * target * edge.s) - 1)
    return float(max(along_s.max(), along_theta.max()))


def _predicted_wrongly(loss: str, field: Field) -> float | None:
    """The share of the area on which descent turns away though s cos theta <= alpha M/(alpha - 1), or the reverse."""
    scales = _scales_of(loss)
    if scales is None:
        return None
    alpha, target = scales
    predicted = (alpha - 1) * field.s * np.cos(field.theta) > alpha * target
    return float((predicted != (field.by_theta < 0)).mean())


def _scales_of(loss: str) -> tuple[float, float] | None:
    return next((SCALES[name] for name, spec in LOSSES.items() if spec == loss and name in SCALES), None)


@studies.add("mse/gradient-field")
class GradientField(Study):
    """Descent directions over the norm and the angle of one feature.

    The paper draws the field and derives what it is at theta = pi/2, on the decision boundary; averages over areas
    depend on the area and are told as such.
    """

    figures = ("8",)
    question = "Does rescaling MSE, by M or by alpha, align the descent direction with falling theta?"
    claims = (
        Claim(
            "right-angle",
            "In the limit of many classes the gradient at theta = pi/2 is (s, alpha M s): both scales raise its part "
            "along theta and leave its part along s.",
            "Appendix C.2, (34)",
            AtMost(ROUNDING),
            unit="relative error",
        ),
        Claim(
            "aligned",
            "At theta = pi/2 the descent direction of MSE with larger M, with larger alpha and with both is closer to "
            "falling theta than that of vanilla MSE.",
            "Appendix C.2, Figure 8",
            Above(0.0),
            unit="cosine gained",
        ),
        Claim(
            "near-boundary",
            f"For theta > {NEAR}, s < {NORM:g} the mean cosine with falling theta gains from either scale, at every K.",
            "our reading of Figure 8",
            Above(0.0),
            kind="ours",
            unit="cosine gained",
        ),
        Claim(
            "areas",
            "The mean cosine with falling theta over 0 < s < s_max, 0 < theta < pi/2 gains from either scale, whatever "
            "s_max.",
            "our reading of Figure 8",
            Above(0.0),
            kind="ours",
            unit="cosine gained",
        ),
        Claim(
            "turned-away",
            "Descent turns away from the own classifier exactly where s cos theta > alpha M/(alpha - 1), so alpha "
            "without M does harm at large norms.",
            "our corollary of (34)",
            AtMost(0.0),
            kind="ours",
            unit="share of the area predicted wrongly",
        ),
    )
    costs = {"smoke": "6 s", "desk": "10 s", "paper": "10 s"}
    setting = {
        "smoke": "K = 10 and the limit of many classes, a coarse grid.",
        "desk": "K = 10, 100 and the limit of many classes, as at paper size: the text has the limit alone.",
        "paper": (
            "K = 10, 100 and the limit of many classes, in the coordinates (s, theta). The paper does not name its "
            "large M and alpha: 5 and 5. The limit for CE is the corrected one, (-cos theta, s sin theta)."
        ),
    }
    provenance = {"limit of many classes": "text", "K = 10, 100": "guess", "M, alpha": "guess", "largest s": "guess"}

    def cells(self, profile: Profile) -> Iterator[Planned]:
        for count in CLASSES[profile]:
            for name, loss in LOSSES.items():
                arguments = {"loss": loss, "num_classes": count, "points": POINTS[profile]}
                yield Planned(Calculation("mse/gradient-field", arguments), {"loss": name, "K": count})

    def evidence(self, results: Results) -> Mapping[str, Evidence]:
        limit = {name: results.only(loss=name, K=None) for name in LOSSES}
        squared = [name for name in SCALES if name != "MSE"]

        def gain(key: str, counts: list[int | None]) -> float:
            pairs = (
                (results.only(loss=n, K=k)[key], results.only(loss="MSE", K=k)[key]) for n in squared for k in counts
            )
            return min(rescaled - vanilla for rescaled, vanilla in pairs)

        counts = results.labels("K")
        rows = [
            {"loss": entry.labels["loss"], "K": entry.labels["K"], **row}
            for entry in results
            for row in entry.value["areas"]
        ]
        vanilla = {(row["K"], row["s_max"]): row["mean_cosine"] for row in rows if row["loss"] == "MSE"}
        gains = {
            (row["loss"], row["K"], row["s_max"]): row["mean_cosine"] - vanilla[row["K"], row["s_max"]]
            for row in rows
            if row["loss"] in squared
        }
        lost = [
            f"{name} up to s = {norm:g}" for (name, count, norm), value in gains.items() if count is None and value < 0
        ]
        away = limit["MSE (alpha=5)"]["turned_away"]
        return {
            "right-angle": Evidence.exact(
                max(limit[name]["right_angle_error"] for name in SCALES),
                why=f"Largest relative error over {len(SCALES)} pairs (alpha, M) and all s up to {NORM:g}.",
            ),
            "aligned": Evidence.exact(
                gain("least_alignment_at_right_angle", [None]),
                why=f"Mean cosines at theta = pi/2: {_values_in_words(limit, 'alignment_at_right_angle')}.",
            ),
            "near-boundary": Evidence.exact(
                gain("alignment_near_boundary", counts),
                why=f"Mean cosines in the limit: {_values_in_words(limit, 'alignment_near_boundary')}.",
            ),
            "areas": Evidence.exact(
                min(gains.values()),
                why=f"Mean cosines in the limit, s up to {NORM:g}: {_values_in_words(limit, 'alignment')}. In the "
                f"limit the mean is lower than that of vanilla MSE for {', '.join(lost) or 'none'}: the area decides.",
                table=[{**row, "K": row["K"] or "many"} for row in rows],
            ),
            "turned-away": Evidence.exact(
                max(limit[name]["predicted_wrongly"] for name in SCALES),
                why=f"With alpha = 5, M = 1 descent turns away from the own classifier on {away:.0%} of the area, the "
                "part where s cos theta > alpha M/(alpha - 1) = 1.25.",
            ),
        }

    def draw(self, results: Results) -> Figure:
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
                text = rf"cosine at $\pi/2$: {value['alignment_at_right_angle']:.2f}"
                axis.set_title(f"{typeset(name)}\n{text}" if count == counts[0] else text)
            row[0].set_ylabel(("many classes" if count is None else f"K = {count}") + "\n" + r"angle $\theta$")
        for axis in axes[-1]:
            axis.set_xlabel("norm s")
        return picture


def _values_in_words(values: dict[str, dict[str, Any]], key: str) -> str:
    return ", ".join(f"{name} {value[key]:.3f}" for name, value in values.items())
