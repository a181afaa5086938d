"""From a report and some features to what the page draws: plain numbers, a few thousand at most.

H: features (N, d); W: the classifier (K, d); m_k: class means; h_G: the mean of the samples.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ..._support.files import JSONObject
from ..._support.numerics import svd
from ...metrics import METRICS, ClassStatistics, CollapseReport
from ...metrics.report.gauges import gauges, headline

__all__ = ["METRIC_WORDS", "describe_network"]

SHOWN_CLASSES = 100
SHOWN_SAMPLES = 400
PAIR_SAMPLES = 150
"""Of each of the two classes that are hardest to tell apart."""
DIMENSIONS = 12
"""Of the space in which the page chooses its three directions."""
POINTS = 200
"""Of the curve of margins."""

METRIC_WORDS = {
    "NC1 variability": "how much samples vary within their class, against the distance of the classes",
    "NC2 geometry": "how far class means or classifier are from a simplex ETF",
    "NC3 self-duality": "how far the classifier is from the class means",
    "NC4 decisions": "how far decisions are from those of the nearest class mean",
    "NC5 out of distribution": "how far other data are from the span of the classes",
}

SampleRows = Float[Tensor, "N d"]
ClassLabels = Int[Tensor, " N"]


def describe_network(
    report: CollapseReport,
    features: SampleRows | None = None,
    labels: ClassLabels | None = None,
    weight: Tensor | None = None,
    *,
    layers: Mapping[str, CollapseReport] | None = None,
    notes: Sequence[str] = (),
) -> JSONObject:
    """Everything that the page shows of one state of a network, as plain values for JSON.

    ``features`` and ``labels`` are those of the report, or a part of them; without them there are gauges and metrics
    alone. ``layers`` are reports of the layers' outputs, in order.
    """
    found = gauges(report)
    result: JSONObject = {
        "title": report.sizes if report.layer is None else f"{report.sizes}; layer {report.layer}",
        "headline": headline(found),
        "accuracy": report.accuracy,
        "nearest_mean_accuracy": report.nearest_mean_accuracy,
        "classes": report.num_classes,
        "dim": report.dim,
        "samples": report.num_samples,
        "gauges": [{**gauge.__dict__} for gauge in found],
        "metrics": [_metric_facts(name, report) for name in report.values],
        "notes": [*report.notes, *notes],
        "names": list(_class_names(report)),
        "spread": _class_spreads(report),
        "margins": _margin_facts(report),
        "layers": _layer_facts(layers),
        "view": None,
        "pair": None,
        "gram": {},
    }
    if features is not None and labels is not None and features.shape[0]:
        result |= _views(features.to("cpu").to(torch.float64), labels.to("cpu"), weight, report.num_classes)
    return result


def _metric_facts(name: str, report: CollapseReport) -> JSONObject:
    metric = METRICS[name]
    return {
        "name": name,
        "property": metric.property,
        "meaning": METRIC_WORDS[metric.property],
        "value": report.values[name],
        "interval": report.intervals.get(name),
        "at_collapse": metric.at_collapse(report.num_classes),
        "at_random": metric.at_random,
        "better": metric.better,
        "definition": metric.definition,
        "paper": metric.paper,
        "reason": report.reasons.get(name),
    }


def _class_names(report: CollapseReport) -> Sequence[str]:
    if report.per_class is not None:
        return report.per_class.names[:SHOWN_CLASSES]
    return [str(label) for label in range(min(report.num_classes, SHOWN_CLASSES))]


def _class_spreads(report: CollapseReport) -> list[float] | None:
    """Root mean square distance of a class's samples from their mean, in units of the means' distance from h_G."""
    rows = report.per_class
    if rows is None or rows.variances is None:
        return None
    size = float(rows.mean_norms.square().mean().sqrt())
    values = rows.variances[:SHOWN_CLASSES].clamp(min=0).sqrt() / (size if size > 0 else 1.0)
    return _five_decimals(values)


def _margin_facts(report: CollapseReport) -> JSONObject | None:
    curve = report.cosine_margins
    if curve is None or not curve.shape[0]:
        return None
    picked = torch.linspace(0, curve.shape[0] - 1, min(POINTS, curve.shape[0])).round().to(torch.int64)
    share = picked / max(1, curve.shape[0] - 1)
    at_collapse = METRICS["cosine_margin"].at_collapse(report.num_classes)
    return {"share": _five_decimals(share), "margin": _five_decimals(curve[picked]), "at_collapse": at_collapse}


def _layer_facts(layers: Mapping[str, CollapseReport] | None) -> list[JSONObject]:
    return [
        {
            "name": name,
            "dim": report.dim,
            "nc1": report.values.get("nc1"),
            "nc1_quotient": report.values.get("nc1_quotient"),
        }
        for name, report in (layers or {}).items()
    ]


def _views(features: SampleRows, labels: ClassLabels, weight: Tensor | None, classes: int) -> JSONObject:
    statistics = ClassStatistics(classes, features.shape[1], passes=2)
    statistics.update(features, labels)
    counts, means = statistics.counts, statistics.means
    centre = features.mean(0)
    rows = None if weight is None else weight.detach().to("cpu").to(torch.float64)
    present = (counts > 0)[:SHOWN_CLASSES]
    kept = torch.nonzero(present).flatten()
    if kept.shape[0] < 2:
        return {}
    centred = torch.where((counts > 0)[:, None], means - centre, torch.zeros_like(means))
    gram = {"means": _cosines(centred[:SHOWN_CLASSES])}
    if rows is not None:
        gram["classifier"] = _cosines(rows[:SHOWN_CLASSES])
    return {
        "view": _view_of_means(features, labels, centred, centre, rows, kept),
        "pair": _worst_pair(features, labels, means, kept),
        "gram": gram,
    }


def _view_of_means(
    features: SampleRows, labels: ClassLabels, centred: Tensor, centre: Tensor, weight: Tensor | None, kept: Tensor
) -> JSONObject:
    """Class means, classifier rows and some samples in the main directions of means and classifier together.

    The unit is the root mean square distance of a class mean from h_G; classifier rows are scaled to the same.
    """
    unit = _typical_norm(centred[kept])
    blocks = [centred[kept] / unit]
    if weight is not None:
        weight = weight - weight.mean(0)
        weight = weight / _typical_norm(weight)
        blocks.append(weight[: int(kept.max()) + 1])
    # For more dimensions than rows by far, the thin factorisation of the rows is all there is.
    axes = svd(torch.cat(blocks), full_matrices=False)[2][:DIMENSIONS]
    each = max(2, SHOWN_SAMPLES // kept.shape[0])
    picked = torch.cat([_evenly_spaced(torch.nonzero(labels == label).flatten(), each) for label in kept.tolist()])
    return {
        "dim": axes.shape[0],
        "classes": kept.tolist(),
        "means": _five_decimals(centred[kept] @ axes.T / unit),
        "classifier": None if weight is None else _five_decimals(weight[kept] @ axes.T),
        "samples": _five_decimals((features[picked] - centre) @ axes.T / unit),
        "labels": labels[picked].tolist(),
    }


def _worst_pair(features: SampleRows, labels: ClassLabels, means: Tensor, kept: Tensor) -> JSONObject | None:
    """The two classes with the largest (v_i + v_j) / (2 |m_i - m_j|^2), and their samples along m_j - m_i.

    On that axis m_i is at 0 and m_j at 1.
    """
    variances = torch.stack([(features[labels == k] - means[k]).square().sum(1).mean() for k in kept.tolist()])
    apart = torch.cdist(means[kept], means[kept], compute_mode="donot_use_mm_for_euclid_dist").square()
    both = (variances[:, None] + variances[None, :]) / 2
    ratio = torch.where(apart > 0, both / apart, torch.inf).fill_diagonal_(-1.0)
    first, second = divmod(int(ratio.argmax()), kept.shape[0])
    first, second = sorted((first, second))
    one, other = int(kept[first]), int(kept[second])
    step = means[other] - means[one]
    length = float(step.square().sum())
    places = {}
    for name, label in (("first", one), ("second", other)):
        rows = _evenly_spaced(torch.nonzero(labels == label).flatten(), PAIR_SAMPLES)
        along = (features[rows] - means[one]) @ step
        places[name] = _five_decimals(along / length if length > 0 else along)
    value = float(ratio[first, second])
    return {"classes": [one, other], "cdnv": value if value < float("inf") else None, **places}


def _typical_norm(rows: Tensor) -> float:
    size = float(rows.square().sum(1).mean().sqrt())
    return size if size > 0 else 1.0


def _cosines(rows: Tensor) -> list[list[float]]:
    norms = torch.linalg.vector_norm(rows, dim=1, keepdim=True)
    unit = rows / norms.clamp(min=torch.finfo(torch.float64).tiny)
    return _five_decimals(unit @ unit.T)


def _evenly_spaced(positions: Tensor, most: int) -> Tensor:
    """At most so many of the positions, spread evenly: the same ones every time."""
    if positions.shape[0] <= most:
        return positions
    return positions[torch.linspace(0, positions.shape[0] - 1, most).round().to(torch.int64)]


def _five_decimals(values: Tensor) -> Any:
    """Five digits after the point of numbers near one: what a picture needs."""
    return torch.round(values.double(), decimals=5).tolist()
