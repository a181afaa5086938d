"""A plan: everything that decides the result of a training run, as a plain, frozen, serialisable value."""

import hashlib
import json
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from .. import losses
from ..data import profiles, sources
from ..metrics import METRICS
from ..models import heads, nets
from .optimizers import optimizers
from .schedules import create_schedule

__all__ = ["Plan"]

FORMAT = 1


class Plan(BaseModel):
    """All that decides a run. Defaults: the embedded digits, which collapse in about two minutes.

    >>> plan = Plan(data="digits", model="resnet8:width=8", loss="focal:gamma=3", epochs=20)
    >>> Plan.from_json(plan.to_json()) == plan
    True
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    data: str = "digits"
    """A name of ``nc.data.load``."""
    per_class: int | None = Field(None, ge=1)
    test_per_class: int | None = Field(None, ge=1)
    validation: float = Field(0.0, ge=0, lt=1)
    """Fraction of the training set held out; its accuracy chooses the best checkpoint."""
    imbalance: str | None = None
    random_labels: bool = False
    augment: bool = False
    """Random crop with padding 4 and horizontal flip."""

    model: str = "resnet8"
    """A name of ``nc.models.create``, with its sizes: ``"resnet18:width=8"``."""
    head: str = "linear"
    loss: str = "cross-entropy"

    optimizer: str = "sgd"
    learning_rate: float = Field(0.05, gt=0)
    schedule: str = "milestones"
    epochs: int = Field(200, ge=1)
    batch_size: int = Field(128, ge=2)
    clip_gradient: float | None = Field(None, gt=0)

    decay_on: Literal["parameters", "features"] = "parameters"
    """``parameters``: weight decay on all of them. ``features``: on (W, H, b), as in the theory."""
    weight_decay: float = Field(5e-3, ge=0)
    """On all parameters, or on W: adds weight_decay/2 |.|^2 to the objective."""
    feature_decay: float = Field(0.0, ge=0)
    """On H, the N features before any normalisation: adds feature_decay/2 |H|_F^2."""
    bias_decay: float = Field(0.0, ge=0)
    """On b."""

    precision: Literal["float32", "bfloat16"] = "float32"
    channels_last: bool = True
    device: str = "auto"
    seed: int = Field(0, ge=0)

    measure: Literal["log", "every"] | tuple[int, ...] = "log"
    """Epochs after which loss, accuracy and neural collapse are measured: log-spaced, every one, or these."""
    metrics: tuple[str, ...] | None = None
    """Names of the metrics to measure; all of them when not given."""

    def __init__(self, **values: Any) -> None:
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise ValueError(_one_line(error)) from None

    @model_validator(mode="after")
    def _consistent(self) -> "Plan":
        sources.parse(self.data)
        nets.parse(self.model)
        head, _ = heads.parse(self.head)
        optimizer, _ = optimizers.parse(self.optimizer)
        create_schedule(self.schedule)
        if losses.get(self.loss).takes != "logits":
            raise ValueError(f"loss {self.loss!r} acts on features; training here takes a loss on logits")
        if self.imbalance is not None:
            profiles.parse(self.imbalance)
        for name in self.metrics or ():
            METRICS[name]
        if isinstance(self.measure, tuple) and not all(1 <= epoch <= self.epochs for epoch in self.measure):
            raise ValueError(f"measure must name epochs from 1 to {self.epochs}, got {list(self.measure)}")
        if self.decay_on == "parameters" and (self.feature_decay or self.bias_decay):
            raise ValueError("feature_decay and bias_decay need decay_on='features'")
        if heads[head] is heads["normalized"]:
            if self.decay_on == "features":
                raise ValueError("a normalized head has no use for decay_on='features': norms are fixed")
            if optimizer == "lbfgs":
                raise ValueError("lbfgs cannot keep the rows of a normalized head on the sphere")
        elif optimizer == "riemannian-sgd":
            raise ValueError("riemannian-sgd is for head='normalized'; use sgd")
        if optimizer == "lbfgs" and self.clip_gradient is not None:
            raise ValueError("clip_gradient and lbfgs exclude each other: its line search needs the gradient")
        return self

    @property
    def run_id(self) -> str:
        """Twelve digits that two runs share exactly when their plans are equal."""
        text = json.dumps([FORMAT, self.model_dump(mode="json")], sort_keys=True)
        return hashlib.blake2b(text.encode(), digest_size=6).hexdigest()

    def to_json(self) -> str:
        """The plan as JSON text."""
        return self.model_dump_json(indent=2)

    @classmethod
    def from_json(cls, text: str) -> "Plan":
        """The plan from JSON text."""
        try:
            values = json.loads(text)
        except ValueError as error:
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
        except ValueError as error:
            raise ValueError(f"{file}: {' '.join(str(error).split())}") from None

    @classmethod
    def _from_mapping(cls, values: object) -> "Plan":
        if not isinstance(values, Mapping):
            raise ValueError("a plan must be a table of names and values")
        return cls(**{str(name): value for name, value in values.items()})


def _one_line(error: ValidationError) -> str:
    """What is wrong with the first field that is wrong."""
    first = error.errors(include_url=False)[0]
    message = first["msg"].removeprefix("Value error, ")
    if not first["loc"]:
        return f"plan: {message}"
    shown = repr(first["input"])
    return f"plan: {first['loc'][0]}: {message} (got {shown if len(shown) <= 60 else shown[:57] + '...'})"
