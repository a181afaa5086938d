"""Losses: a callable for training, and all that is known of it for theory.

Every public module of this folder is one loss that registers itself; adding a loss is adding a file.
"""

from .._support.checks import describe
from .._support.registry import load_entries
from ._base import Curve, Linearization, LogitLoss, Loss, MarginOptimum, Transition, registry

load_entries(__name__, list(__path__))

from .cross_entropy import CrossEntropy  # noqa: E402
from .focal import Focal  # noqa: E402
from .label_smoothing import LabelSmoothing  # noqa: E402
from .squared_error import SquaredError  # noqa: E402
from .supervised_contrastive import SupervisedContrastive  # noqa: E402

__all__ = [
    "CrossEntropy",
    "Curve",
    "Focal",
    "LabelSmoothing",
    "Linearization",
    "LogitLoss",
    "Loss",
    "MarginOptimum",
    "SquaredError",
    "SupervisedContrastive",
    "Transition",
    "get",
    "logit_loss",
    "registry",
]


def get(spec: str | Loss) -> Loss:
    """The loss named by ``"name"`` or ``"name:parameter=value,..."``; a loss passes through.

    >>> get("focal:gamma=2")
    Focal(gamma=2.0)
    >>> get("ce")
    CrossEntropy()
    """
    if isinstance(spec, Loss):
        return spec
    loss = registry.create(spec)
    assert isinstance(loss, Loss)
    return loss


def logit_loss(loss: object) -> LogitLoss:
    """``loss``, or the one that its string names, if it is a loss on logits."""
    found = get(loss) if isinstance(loss, str) else loss
    if not isinstance(found, LogitLoss):
        raise TypeError(f"loss must be a loss on logits (or its name), got {describe(found)}")
    return found
