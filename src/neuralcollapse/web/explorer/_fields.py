"""What a request asks: fields by name, from a query string or a JSON object, each checked in one line."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ... import losses
from ..._support.checks import describe, integer, real
from ..._support.fields.models import ModelField, models_by_fields
from ..._support.registry import unknown_name
from ...ufm import Problem, problems

__all__ = ["Fields", "Limits", "problem_of"]

LONGEST = 200
"""Characters that a word may have."""


class Fields:
    """The fields of one request; every one must be asked for, so that a misspelt name is an error."""

    def __init__(self, given: Mapping[str, Any]):
        # An empty text field of the page means "not given".
        self._given = {name: value for name, value in given.items() if not (value is None or value == "")}
        self._known: set[str] = set()

    def has(self, name: str) -> bool:
        """Whether the field is given."""
        self._known.add(name)
        return name in self._given

    def word(self, name: str, default: str | None = None) -> str:
        """A short text."""
        value = self._get(name, default)
        if not isinstance(value, str):
            raise TypeError(f"{name} must be a text, got {describe(value)}")
        if len(value) > LONGEST:
            raise ValueError(f"{name} must have at most {LONGEST} characters, got {len(value)}")
        return value

    def integer(self, name: str, default: int | None = None, *, minimum: int, maximum: int) -> int:
        """A whole number within bounds."""
        value = self._get(name, default)
        if isinstance(value, str):
            try:
                value = int(value)
            except ValueError:
                raise ValueError(f"{name} must be a whole number, got {describe(value)}") from None
        return integer(name, value, minimum, maximum)

    def number(self, name: str, default: float | None = None, **bounds: float) -> float:
        """A finite number within the bounds of :func:`~neuralcollapse._support.checks.real`."""
        value = self._get(name, default)
        if isinstance(value, str):
            try:
                value = float(value)
            except ValueError:
                raise ValueError(f"{name} must be a number, got {describe(value)}") from None
        return real(name, value, **bounds)

    def counts(self, name: str, length: int, *, most: int) -> list[int]:
        """As many whole numbers as there are classes, with spaces between them, of at most ``most`` together."""
        value = self._get(name, None)
        words = value.split() if isinstance(value, str) and len(value) <= 20 * length else []
        if len(words) != length:
            raise ValueError(f"{name} must be {length} whole numbers with spaces between them, one a class")
        found = [integer(name, int(word) if word.isdecimal() and len(word) < 9 else word, 1, most) for word in words]
        if sum(found) > most:
            raise ValueError(f"{name} must add up to at most {most}, got {sum(found)}")
        return found

    def numbers(self, name: str, shape: tuple[int, ...]) -> Tensor:
        """A list of finite numbers as a tensor of this shape."""
        value = self._get(name, None)
        size = math.prod(shape)
        if not isinstance(value, list) or len(value) != size or not all(type(x) in (int, float) for x in value):
            raise ValueError(f"{name} must be a list of {size} numbers")
        try:
            block = torch.tensor(value, dtype=torch.float64)
        except OverflowError:  # a whole number beyond all floats
            raise ValueError(f"{name} must be finite") from None
        if not bool(torch.isfinite(block).all()):
            raise ValueError(f"{name} must be finite")
        return block.view(shape)

    def finish(self) -> None:
        """Raise if a field was given that nothing asked for."""
        for name in self._given:
            if name not in self._known:
                raise unknown_name("field", name[:LONGEST], sorted(self._known))

    def _get(self, name: str, default: object) -> Any:
        self._known.add(name)
        value = self._given.get(name, default)
        if value is None:
            raise ValueError(f"{name} is missing")
        return value


@dataclass(frozen=True)
class Limits:
    """The sizes up to which a request is answered."""

    classes: int
    per_class: int
    dim: int
    samples: int | None = None


def problem_of(fields: Fields, limits: Limits) -> Problem:
    """The model that the fields name, by the names of the command line's options."""
    kind = fields.word("model", "regularized")
    known = models_by_fields()
    if kind not in known:
        raise unknown_name("feature model", kind, list(known))
    classes = fields.integer("classes", minimum=2, maximum=limits.classes)
    per_class: int | list[int]
    if fields.has("counts"):
        counts = fields.counts("counts", classes, most=limits.samples or classes * limits.per_class)
        per_class = counts if len(set(counts)) > 1 else counts[0]
    else:
        per_class = fields.integer("per_class", minimum=1, maximum=limits.per_class)
    dim = fields.integer("dim", minimum=1, maximum=limits.dim)
    if limits.samples is not None and isinstance(per_class, int) and classes * per_class > limits.samples:
        raise ValueError(f"classes times per_class must be at most {limits.samples}, got {classes * per_class}")
    sizes = {"num_classes": classes, "per_class": per_class, "dim": dim}
    values = {
        field.name: sizes[field.name] if field.name in sizes else _given_value(fields, field)
        for field in known[kind]
        if field.name in sizes or not (field.quiet or field.or_none) or fields.has(field.flag)
    }
    return problems[kind](**values)


def _given_value(fields: Fields, field: ModelField) -> Any:
    """A field that is no size, within what the page answers."""
    if field.kind == "loss":
        return losses.logit_loss(fields.word(field.flag))
    if field.kind == "choice":
        return fields.word(field.flag)
    low, high = field.page
    if field.kind == "integer":
        return fields.integer(field.flag, minimum=max(field.minimum, int(low)), maximum=int(high))
    return fields.number(field.flag, maximum=high, **({"minimum": low} if field.or_zero else {"above": low}))
