"""A plan: everything that decides the result of a training run, as a plain, frozen, serialisable value."""

import hashlib
import json
import math
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from .. import losses
from .._support.checks import LARGEST_COUNT, LARGEST_WIDTH, describe, one_line
from ..data import RandomLabels, imbalances, sources
from ..metrics import METRICS
from ..models import Init, heads, nets
from .optimizers import optimizers
from .schedules import create_schedule

__all__ = ["Plan"]

FORMAT = 2
"""Counts up when equal plans would give other results than before."""
MOST_EPOCHS = 10**7


class Plan(BaseModel):
    """All that decides a run. Defaults: the embedded digits, which collapse in about two minutes.

    >>> plan = Plan(data="digits", model="resnet8:width=8", loss="focal:gamma=3", epochs=20)
    >>> Plan.from_json(plan.to_json()) == plan
    True
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    data: str = "digits"
    """A name of ``nc.data.load``."""
    per_class: int | None = Field(None, ge=1, le=LARGEST_COUNT)
    test_per_class: int | None = Field(None, ge=1, le=LARGEST_COUNT)
    validation: float = Field(0.0, ge=0, lt=1)
    """Fraction of the training set held out; its accuracy chooses the best checkpoint."""
    imbalance: str | None = None
    random_labels: RandomLabels = False
    """``True``: a permutation of balanced labels; ``"independent"``: each label drawn by itself."""
    augment: bool = False
    """Random crop with padding 4 and horizontal flip."""
    shuffle: bool = True
    """Whether each epoch has an order of its own; otherwise all have that of the data set."""

    model: str = "resnet8"
    """A name of ``nc.models.create``, with its sizes: ``"resnet18:width=8"``."""
    init: Init = "kaiming-fan-out"
    """How convolutions start: ``kaiming-fan-out`` (geometric, mse) or ``torch``, its default (losses, normalized)."""
    head: str = "linear"
    loss: str = "cross-entropy"
    """A loss on logits; or ``supervised-contrastive``, which trains the encoder alone. Then cross-entropy trains the
    head on features that it does not change, so that accuracies and metrics with a classifier have one."""
    loss_scale: float = Field(1.0, gt=0)
    """The objective has this times the loss; 2/K makes the squared error a mean over classes, as ``nn.MSELoss``."""
    views: Literal[1, 2] = 1
    """Augmented views of each image in a batch, for a loss on features."""
    projection: int | None = Field(None, ge=1, le=LARGEST_WIDTH)
    """Outputs of a projection between the encoder and a loss on features."""

    optimizer: str = "sgd"
    learning_rate: float = Field(0.05, gt=0)
    schedule: str = "milestones"
    epochs: int = Field(200, ge=1, le=MOST_EPOCHS)
    batch_size: int = Field(128, ge=2, le=LARGEST_COUNT)
    clip_gradient: float | None = Field(None, gt=0)

    decay_on: Literal["parameters", "features"] = "parameters"
    """``parameters``: weight decay on all of them. ``features``: on (W, H, b), as in the theory."""
    weight_decay: float = Field(5e-3, ge=0)
    """On all parameters, or on W: adds weight_decay/2 |.|^2 to the objective."""
    feature_decay: float = Field(0.0, ge=0)
    """On H, the N features before any normalisation: adds feature_decay/2 |H|_F^2."""
    feature_decay_over: Literal["set", "batch", "unit"] = "set"
    """|H|^2 of the whole set, estimated from the batch; of the batch alone, as the normalized paper's code has it; or
    of the batch's features scaled to norm one, as the geometric paper's code has it, which has no gradient."""
    bias_decay: float = Field(0.0, ge=0)
    """On b."""

    precision: Literal["float32", "bfloat16"] = "float32"
    channels_last: bool = True
    device: str = "auto"
    seed: int = Field(0, ge=0, le=2**63 - 1)

    measure: Literal["log", "every"] | tuple[int, ...] = "log"
    """Epochs after which loss, accuracy and neural collapse are measured: log-spaced, every one, or these."""
    metrics: tuple[str, ...] | None = None
    """Names of the metrics to measure; those of the core when not given."""
    intervals: float | None = Field(None, gt=0, lt=1)
    """The level of confidence intervals of the metrics, such as 0.95; a row then has them under ``intervals``."""

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
