"""A plan: everything that decides the result of a training run, as a plain, frozen, serialisable value."""

import hashlib
import json
import math
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError, model_validator

from .. import losses
from .._support.checks import describe, one_line
from .._support.fields.plan import PlanFields
from ..data import imbalances, sources
from ..metrics import METRICS
from ..models import heads, nets
from .optimizers import optimizers
from .schedules import create_schedule

__all__ = ["Plan"]

FORMAT = 2
"""Counts up when equal plans would give other results than before."""


class Plan(PlanFields):
    """All that decides a run. Defaults: the embedded digits, which collapse in about two minutes.

    >>> plan = Plan(data="digits", model="resnet8:width=8", loss="focal:gamma=3", epochs=20)
    >>> Plan.from_json(plan.to_json()) == plan
    True
    """

    def __init__(self, **values: Any) -> None:
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise ValueError(_first_fault(error)) from None

    @model_validator(mode="after")
    def _consistent(self) -> "Plan":
        sources.parse(self.data)
        nets.parse(self.model)
        head, options = heads.parse(self.head)
        optimizer, _ = optimizers.parse(self.optimizer)
        create_schedule(self.schedule)
        self._check_views(losses.get(self.loss).takes == "features")
        if self.imbalance is not None:
            imbalances.parse(self.imbalance)
        for name in self.metrics or ():
            METRICS[name]
        if isinstance(self.measure, tuple) and not all(1 <= epoch <= self.epochs for epoch in self.measure):
            raise ValueError(f"measure must name epochs from 1 to {self.epochs}, got {list(self.measure)}")
        if self.decay_on == "parameters" and (self.feature_decay or self.bias_decay):
            raise ValueError("feature_decay and bias_decay need decay_on='features'")
        if self.feature_decay_over != "set" and not self.feature_decay:
            raise ValueError(f"feature_decay_over={self.feature_decay_over!r} needs a feature_decay")
        if heads[head] is heads["normalized"]:
            if self.decay_on == "features":
                raise ValueError("a normalized head has no use for decay_on='features': norms are fixed")
            if optimizer == "lbfgs":
                raise ValueError("lbfgs cannot keep the rows of a normalized head on the sphere")
        elif options.get("unit_rows") and optimizer == "lbfgs":
            raise ValueError("lbfgs cannot keep the rows of a head at norm one: its line search moves them")
        elif optimizer == "riemannian-sgd":
            raise ValueError("riemannian-sgd is for head='normalized'; use sgd")
        if optimizer == "lbfgs" and self.clip_gradient is not None:
            raise ValueError("clip_gradient and lbfgs exclude each other: its line search needs the gradient")
        return self

    def _check_views(self, on_features: bool) -> None:
        if not on_features and (self.views != 1 or self.projection is not None):
            raise ValueError(f"views and projection are for a loss on features, got loss {self.loss!r}")
        if self.views == 2 and not self.augment:
            raise ValueError("views=2 needs augment=True: without it both views are the same")
        if on_features and self.decay_on == "features":
            raise ValueError(f"loss {self.loss!r} does not see the features' norms: use decay_on='parameters'")

    def decays_per_loss(self, train_size: int) -> tuple[float, float, float] | None:
        """Decays of W, H and b as ``nc.ufm.RegularizedUFM`` takes them, with the loss of weight one.

        ``None`` where the plan does not put decay on features, or on features of norm one, whose decay has no gradient.

        Args:
            train_size: The number N of training samples.

        """
        if self.decay_on != "features" or self.feature_decay_over == "unit":
            return None
        feature_decay = self.feature_decay
        if self.feature_decay_over == "batch":  # the set's |H|^2 enters once an epoch, a batch at a time
            feature_decay /= math.ceil(train_size / self.batch_size)
        return self.weight_decay / self.loss_scale, feature_decay / self.loss_scale, self.bias_decay / self.loss_scale

    @property
    def run_id(self) -> str:
        """Twelve digits that two runs share exactly when their plans are equal.

        Fields at their defaults do not enter, so that a new field leaves the ids of old plans as they are.
        """
        text = json.dumps([FORMAT, self.model_dump(mode="json", exclude_defaults=True)], sort_keys=True)
        return hashlib.blake2b(text.encode(), digest_size=6).hexdigest()

    def to_json(self) -> str:
        """The plan as JSON text."""
        return self.model_dump_json(indent=2)

    @classmethod
    def from_json(cls, text: str) -> "Plan":
        """The plan from JSON text."""
        try:
            values = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"a plan must be JSON: {error}") from None
        return cls._from_mapping(values)

    @classmethod
    def from_file(cls, path: str | Path) -> "Plan":
        """The plan in a ``.toml`` or ``.json`` file."""
        file = Path(path)
        try:
            text = file.read_text(encoding="utf-8")
            if file.suffix == ".toml":
                return cls._from_mapping(tomllib.loads(text))
            return cls.from_json(text)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{file}: {one_line(error)}") from None

    @classmethod
    def _from_mapping(cls, values: object) -> "Plan":
        if not isinstance(values, Mapping):
            raise ValueError("a plan must be a table of names and values")
        return cls(**{str(name): value for name, value in values.items()})


def _first_fault(error: ValidationError) -> str:
    """What is wrong with the first field that is wrong."""
    first = error.errors(include_url=False)[0]
    message = first["msg"].removeprefix("Value error, ")
    if not first["loc"]:
        return f"plan: {message}"
    return f"plan: {first['loc'][0]}: {message} (got {describe(first['input'])})"
