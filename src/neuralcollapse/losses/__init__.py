"""Losses: a callable for training, and all that is known of it for theory.

Every public module of this folder is one loss that registers itself; adding a loss is adding a file.
"""

from collections.abc import Callable

from torch import Tensor

from .._support.checks import describe
from .._support.public import explain_calls
from .._support.registry import load_entries
from .._support.renamed import warn_renamed
from ._base import Curve, FunctionLoss, LogitLoss, Loss, MarginOptimum, Transition, losses
from ._linearization import Linearization
from ._softmax import SmoothedCrossEntropy
from ._stack import LossStack

load_entries(__name__, list(__path__))

from .cross_entropy import CrossEntropy  # noqa: E402
from .focal import Focal  # noqa: E402
from .label_smoothing import LabelSmoothing  # noqa: E402
from .logit_adjusted import LogitAdjusted  # noqa: E402
from .squared_error import SquaredError  # noqa: E402
from .supervised_contrastive import SupervisedContrastive  # noqa: E402
from .vector_scaling import VectorScaling  # noqa: E402

__all__ = [
    "CrossEntropy",
    "Curve",
    "Focal",
    "FunctionLoss",
    "LabelSmoothing",
    "Linearization",
    "LogitAdjusted",
    "LogitLoss",
    "Loss",
    "LossLike",
    "LossStack",
    "MarginOptimum",
    "SmoothedCrossEntropy",
    "SquaredError",
    "SupervisedContrastive",
    "Transition",
    "VectorScaling",
    "get",
    "logit_loss",
    "losses",
]


LossLike = LogitLoss | str | Callable[[Tensor, Tensor], Tensor]
"""What models take for a loss: the loss, its string form, or a function of (logits, labels)."""


def get(spec: str | Loss) -> Loss:
    """The loss named by ``"name"`` or ``"name:parameter=value,..."``; a loss passes through.

    >>> get("focal:gamma=2")
    Focal(gamma=2.0)
    >>> get("ce")
    CrossEntropy()
    """
    if isinstance(spec, Loss):
        return spec
    loss = losses.create(spec)
    assert isinstance(loss, Loss)
    return loss


def logit_loss(loss: LossLike) -> LogitLoss:
    """``loss``, the one that its string names, or a function of (logits, labels) made into one, by autograd."""
    found = get(loss) if isinstance(loss, str) else loss
    if not isinstance(found, Loss) and callable(found):
        return FunctionLoss(found)
    if not isinstance(found, LogitLoss):
        raise TypeError(f"loss must be a loss on logits, its name or a function of both, got {describe(found)}")
    return found


def __getattr__(name: str):
    if name == "registry":
        warn_renamed("nc.losses.registry", "nc.losses.losses")
        return losses
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


explain_calls(__name__)
