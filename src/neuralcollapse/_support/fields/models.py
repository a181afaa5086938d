"""The one table of the fields that name an unconstrained feature model: name, type, range and words.

Files of points, the options of the command line, the fields of the page, the command that it shows and the checks of
the constructors all follow from it. It needs no torch, so that ``--help`` is quick.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from ..checks import describe, integer, positive_scale

__all__ = ["MODEL_FIELDS", "MODEL_WORDS", "ModelField", "declare_model", "fields_of", "models_by_fields"]

LARGEST = 10_000_000
"""The most classes and dimensions that a model takes; more are a slip of the pen."""
REQUIRED: object = ...


@dataclass(frozen=True)
class ModelField:
    """One argument of a model.

    Attributes:
        name: The constructor's keyword, and the key in a file.
        kind: A loss by its string form; a whole number; counts (one number, or one a class); a scale, positive and of a
            size that can be computed with; one of ``choices``; or an array, which the model checks itself.
        words: What it is, in a line.
        default: What it is when it is not given; REQUIRED if it must be.
        minimum: The smallest whole number or count.
        or_zero: Whether a scale may be 0.
        or_none: Whether it may be None.
        choices: The words that a choice may be.
        short: What the command line and the page call it, where that is not the keyword.
        page: The range that the page answers.
        label: What the page's form calls it; without one the form does not ask for it.
        slider: The ends of the form's slider, logarithmic where they are powers of ten apart.
        start: What the form begins with; without one the default, or the slider's lower end.
        quiet: Whether files leave it out at its default.

    """

    name: str
    kind: Literal["loss", "integer", "counts", "scale", "choice", "array"]
    words: str
    default: object = REQUIRED
    minimum: int = 1
    or_zero: bool = False
    or_none: bool = False
    choices: tuple[str, ...] = ()
    short: str = ""
    page: tuple[float, float] = (0.0, 1e6)
    label: str = ""
    slider: tuple[float, float] = (1e-5, 1.0)
    start: float | None = None
    quiet: bool = False

    @property
    def flag(self) -> str:
        """Its name on the page, and on the command line without dashes."""
        return self.short or self.name

    @property
    def option(self) -> str:
        """The option of the command line.

        >>> fields_of("normalized")["num_classes"].option, fields_of("normalized")["per_class"].option
        ('--classes', '--per-class')
        """
        return "--" + self.flag.replace("_", "-")

    @property
    def required(self) -> bool:
        """Whether there is no default."""
        return self.default is REQUIRED

    def check(self, value: object) -> Any:
        """``value`` as the model keeps it; ValueError or TypeError names the field, what it got and what it takes.

        >>> fields_of("normalized")["temperature"].check(2)
        2.0
        """
        if value is None and self.or_none:
            return None
        if self.kind == "integer":
            return integer(self.name, value, minimum=self.minimum, maximum=LARGEST)
        if self.kind == "scale":
            return positive_scale(self.name, value, or_zero=self.or_zero)
        if self.kind == "choice" and value not in self.choices:
            words = " or ".join(repr(choice) for choice in self.choices)
            raise ValueError(f"{self.name} must be {words}, got {describe(value)}")
        return value


LOSS = ModelField("loss", "loss", "Loss: ce, focal:gamma=3, ls:alpha=0.1, mse:alpha=1,target=1, or sc.")
SIZES = (
    ModelField(
        "num_classes",
        "integer",
        "Number of classes K.",
        minimum=2,
        short="classes",
        label="classes K",
        slider=(2, 20),
        start=4,
    ),
    ModelField(
        "per_class",
        "counts",
        "Samples a class n (default 1), or one number a class: 50,50,5,5 (or 50 50 5 5).",
        label="samples a class n",
        slider=(1, 50),
        start=10,
    ),
    ModelField("dim", "integer", "Feature dimension d.", label="dimensions d", slider=(1, 40), start=8),
)
TEMPERATURE = ModelField(
    "temperature",
    "scale",
    "Temperature tau (normalized and contrastive models).",
    1.0,
    page=(0.0, 1000.0),
    label="temperature τ",
    slider=(0.1, 10.0),
    start=2.0,
)

MODEL_FIELDS: dict[str, tuple[ModelField, ...]] = {}
"""The fields of each model, in the constructor's order."""
MODEL_WORDS: dict[str, str] = {}
"""What the page calls each model."""


def declare_model(kind: str, *fields: ModelField, words: str = "") -> tuple[ModelField, ...]:
    """Say what names models of this kind, and what the page calls them (by default ``kind``)."""
    MODEL_FIELDS[kind], MODEL_WORDS[kind] = fields, words or kind
    return fields


def models_by_fields() -> Mapping[str, tuple[ModelField, ...]]:
    """The models that a form or a command line can name: those without an array."""
    return {kind: fields for kind, fields in MODEL_FIELDS.items() if all(field.kind != "array" for field in fields)}


def fields_of(kind: str) -> Mapping[str, ModelField]:
    """The fields of a kind of model by name."""
    return {field.name: field for field in MODEL_FIELDS[kind]}


DECAYS = (
    ModelField(
        "weight_decay",
        "scale",
        "Weight decay on W (regularized model).",
        or_zero=True,
        label="weight decay λW",
        start=0.005,
    ),
    ModelField(
        "feature_decay",
        "scale",
        "Weight decay on H (regularized model).",
        or_zero=True,
        label="feature decay λH",
        start=0.005,
    ),
    ModelField(
        "bias_decay",
        "scale",
        "Weight decay on the bias; 0: a free bias; not given: no bias.",
        None,
        or_zero=True,
        or_none=True,
        label="bias decay λb",
        start=0.01,
    ),
)
declare_model(
    "regularized",
    LOSS,
    *SIZES,
    *DECAYS,
    ModelField(
        "features",
        "choice",
        "Features: free (default), or nonnegative as after a ReLU (regularized model).",
        "free",
        choices=("free", "nonnegative"),
        label="features",
        quiet=True,
    ),
    words="weight decay (regularised)",
)
declare_model("normalized", LOSS, *SIZES, TEMPERATURE, words="unit norms (normalised)")
declare_model("contrastive", *SIZES, replace(TEMPERATURE, page=(0.0, 50.0)), words="contrastive, no classifier")
declare_model(
    "regression",
    ModelField("targets", "array", "Targets Y, N rows of t numbers."),
    SIZES[2],
    replace(DECAYS[0], words="Weight decay on W, positive.", or_zero=False),
    replace(DECAYS[1], words="Weight decay on H, positive.", or_zero=False),
    DECAYS[2],
)
