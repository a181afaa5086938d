"""What the page offers: losses with their parameters, methods, limits. All of it read off the registries."""

from collections.abc import Sequence
from dataclasses import asdict, fields
from typing import Any

from ... import __version__, losses
from ..._support.fields.models import MODEL_WORDS, ModelField, models_by_fields
from ..._support.files import JSONObject
from ..._support.notation import typeset
from ...losses import LogitLoss
from ...ufm import Problem, methods, problems
from ...ufm.solvers import solver_methods
from . import _optimum, _solve
from ._network import LARGEST_UPLOAD, SUFFIXES

__all__ = ["describe_page"]

RANGES: dict[str, JSONObject] = {
    "focal.gamma": {"min": 0, "max": 10, "step": 0.1},
    "label-smoothing.alpha": {"min": 0, "max": 0.95, "step": 0.01},
    "squared-error.alpha": {"min": 0.1, "max": 100, "log": True},
    "squared-error.target": {"min": 0.1, "max": 100, "log": True},
}
"""Sliders' ranges; a parameter without one is a plain field."""


def describe_page(results: bool, places: Sequence[str] = ()) -> JSONObject:
    """For the page's controls; ``places`` are the names of runs and files given at the start."""
    models = models_by_fields()
    return {
        "version": __version__,
        "results": results,
        "places": list(places),
        "losses": [_describe_loss(name) for name, entry in losses.losses.items() if issubclass(entry, LogitLoss)],
        "models": {kind: [_describe_field(field) for field in declared] for kind, declared in models.items()},
        "model_words": {kind: MODEL_WORDS[kind] for kind in models},
        "methods": {kind: methods(_example(kind, declared)) for kind, declared in models.items()},
        "method_summaries": {name: entry.summary for name, entry in solver_methods.items()},
        "limits": {
            "optimum": asdict(_optimum.LIMITS),
            "solve": {**asdict(_solve.LIMITS), "max_iter": _solve.MAX_ITER, "seconds": _solve.MAX_SECONDS},
            "upload": LARGEST_UPLOAD,
        },
        "suffixes": SUFFIXES,
    }


def _describe_loss(name: str) -> JSONObject:
    loss = losses.get(name)
    parameters = [
        {"name": field.name, "value": getattr(loss, field.name), **RANGES.get(f"{name}.{field.name}", {})}
        for field in fields(loss)  # type: ignore[arg-type]
        if isinstance(getattr(loss, field.name), float)
    ]
    return {"name": name, "summary": typeset(loss.summary), "parameters": parameters}


def _example(kind: str, declared: Sequence[ModelField]) -> Problem:
    """A small model of this kind: which methods work on it does not depend on its numbers."""
    small = {field.name: _start_value(field) for field in declared if field.required and field.kind != "loss"}
    asks_for_a_loss = any(field.kind == "loss" for field in declared)
    return problems[kind](**({"loss": "ce"} if asks_for_a_loss else {}), **small)


def _start_value(field: ModelField) -> Any:
    """What the form begins with."""
    if field.start is not None:
        return field.start
    return field.slider[0] if field.required or field.default is None else field.default


def _describe_field(field: ModelField) -> JSONObject:
    """A model's field as the form asks for it."""
    low, high = field.slider
    slider: JSONObject = {"min": low, "max": high}
    if field.kind == "scale":
        slider |= {"log": True} if high >= 1000 * low else {"step": low}
    return {
        "name": field.flag,
        "kind": field.kind,
        "label": field.label,
        "value": None if field.kind == "loss" else _start_value(field),
        "optional": field.or_none,
        "zero": field.or_zero,
        "choices": list(field.choices),
        **({} if field.kind in ("loss", "choice") else slider),
    }
