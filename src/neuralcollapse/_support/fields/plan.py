"""The one table of a plan's fields: name, type, range, default and words.

Plans and their files, the options of ``neuralcollapse train`` and its help all follow from it. It needs no torch, so
that ``--help`` is quick.
"""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from ..checks import LARGEST_COUNT, LARGEST_WIDTH

__all__ = ["Init", "PlanFields", "RandomLabels"]

Init = Literal["kaiming-fan-out", "torch"]
"""The rule by which convolutions start."""
RandomLabels = bool | Literal["independent"]
"""Whether labels are random; ``True`` gives classes of equal size, ``"independent"`` draws each label by itself."""

MOST_EPOCHS = 10**7


class PlanFields(BaseModel):
    """The fields of a plan, each with its words below it."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, use_attribute_docstrings=True)

    data: str = "digits"
    """Data set of `neuralcollapse data list`, perhaps with a size: mnist:size=14."""
    per_class: int | None = Field(None, ge=1, le=LARGEST_COUNT)
    """Training samples of each class; all, if not given."""
    test_per_class: int | None = Field(None, ge=1, le=LARGEST_COUNT)
    """Test samples of each class; all, if not given."""
    validation: float = Field(0.0, ge=0, lt=1)
    """Fraction of the training set to hold out; its accuracy chooses the best checkpoint."""
    imbalance: str | None = None
    """What makes the classes unequal, such as exponential:ratio=100."""
    random_labels: RandomLabels = False
    """Give the training images labels at random: true for classes of equal size, independent to draw each by itself."""
    augment: bool = False
    """Random crop with padding 4 and horizontal flip."""
    shuffle: bool = True
    """Whether each epoch has an order of its own; otherwise all have that of the data set."""

    model: str = "resnet8"
    """A net, perhaps with its sizes: resnet18:width=8 or mlp:depth=4."""
    init: Init = "kaiming-fan-out"
    """How convolutions start: Kaiming's rule with fan-out (geometric, mse), or PyTorch's own (losses, normalized)."""
    head: str = "linear"
    """The last layer: linear, etf or normalized:temperature=5."""

    loss: str = "cross-entropy"
    """A loss on logits, such as focal:gamma=3, label-smoothing:alpha=0.1 or squared-error; or supervised-contrastive,
    which trains the encoder alone. Then cross-entropy trains the head on features that it does not change, so that
    accuracies and metrics with a classifier have one."""
    loss_scale: float = Field(1.0, gt=0)
    """The objective has this times the loss: 2/K makes the squared error a mean over classes, as in nn.MSELoss."""
    views: Literal[1, 2] = 1
    """Augmented views of each image in a batch, for a loss on features."""
    projection: int | None = Field(None, ge=1, le=LARGEST_WIDTH)
    """Outputs of a projection between the encoder and a loss on features; none, if not given."""

    optimizer: str = "sgd"
    """The optimizer: sgd, adam, adamw, lbfgs or riemannian-sgd, with parameters after a colon."""
    learning_rate: float = Field(0.05, gt=0)
    """Learning rate at the start."""
    schedule: str = "milestones"
    """Learning rate over the epochs: milestones, step:every=40, cosine:period=200 or constant."""
    epochs: int = Field(200, ge=1, le=MOST_EPOCHS)
    """Epochs in all."""
    batch_size: int = Field(128, ge=2, le=LARGEST_COUNT)
    """Samples a step, over all processes."""
    clip_gradient: float | None = Field(None, gt=0)
    """Largest norm of the gradient; any, if not given."""

    decay_on: Literal["parameters", "features"] = "parameters"
    """Weight decay on all parameters; or on (W, H, b), as in the theory."""
    weight_decay: float = Field(5e-3, ge=0)
    """On all parameters, or on W: adds weight_decay/2 |.|^2 to the objective."""
    feature_decay: float = Field(0.0, ge=0)
    """On H, the N features before any normalisation: adds feature_decay/2 |H|^2."""
    feature_decay_over: Literal["set", "batch", "unit"] = "set"
    """|H|^2 of the whole set, estimated from the batch; of the batch alone, as the normalized paper's code has it; or
    of the batch's features scaled to norm one, as the geometric paper's code has it, which has no gradient."""
    bias_decay: float = Field(0.0, ge=0)
    """On b: adds bias_decay/2 |b|^2."""

    precision: Literal["float32", "bfloat16"] = "float32"
    """Type of the net's products; bfloat16 is slow on most CPUs."""
    channels_last: bool = True
    """Whether images lie in memory with their channels last."""
    device: str = "auto"
    """Where to train: auto, cpu, cuda or cuda:N."""
    seed: int = Field(0, ge=0, le=2**63 - 1)
    """Seed of everything random."""

    measure: Literal["log", "every"] | tuple[int, ...] = "log"
    """Epochs after which loss, accuracy and neural collapse are measured: log (log-spaced), every, or a list such as
    1,10,100."""
    metrics: tuple[str, ...] | None = None
    """Names of the metrics to measure, such as nc1 nc2; those of the core, if not given."""
    intervals: float | None = Field(None, gt=0, lt=1)
    """The level of confidence intervals of the metrics, such as 0.95; a row then has them under ``intervals``. None,
    if not given."""
