"""A trained net beside the unconstrained feature model with the same decay."""

import math
from typing import Any

import torch
from torch import Tensor

from .. import losses
from ..losses import LogitLoss
from ..models import Classifier
from ..ufm import RegularizedUFM
from .plan import Plan

__all__ = ["compare_with_theory"]


def compare_with_theory(
    plan: Plan, model: Classifier, features: Tensor, logits: Tensor, labels: Tensor
) -> dict[str, Any] | None:
    """Predicted and measured sizes under (W, H, b) decay, or ``None`` where the model makes no prediction.

    ``feature_norm`` is the root mean square norm of a feature; ``logit_scale`` is the mean over samples of
    z_true minus the mean of the other logits. The net's features are outputs of a ReLU, so their mean is not zero as in
    the model: ``centred_feature_norm`` leaves it out.
    """
    loss = losses.get(plan.loss)
    counts = torch.bincount(labels, minlength=model.num_classes)
    fixed = not model.head.weight.requires_grad
    balanced = bool((counts == counts[0]).all())
    decays = plan.decays_per_loss(len(labels))
    if decays is None or not decays[0] or not decays[1] or fixed or not balanced:
        return None
    if not isinstance(loss, LogitLoss):
        return None
    weight_decay, feature_decay, bias_decay = decays
    problem = RegularizedUFM(
        loss,
        model.num_classes,
        per_class=int(counts[0]),
        dim=model.feature_dim,
        weight_decay=weight_decay,
        feature_decay=feature_decay,
        bias_decay=None if model.head.bias is None else bias_decay,
    )
    try:
        optimum = problem.optimum()
    except NotImplementedError:
        return None
    rows = features.double()
    true = logits.double().gather(1, labels[:, None]).squeeze(1)
    others = (logits.double().sum(1) - true) / (model.num_classes - 1)
    weight = model.head.weight.detach().cpu().double()
    return {
        "predicted": {
            "regime": optimum.regime,
            "weight_norm": optimum.weight_norm,
            "feature_norm": optimum.feature_norm,
            "logit_scale": optimum.logit_scale,
        },
        "measured": {
            "weight_norm": float(weight.square().sum(1).mean().sqrt()),
            "feature_norm": math.sqrt(float(rows.square().sum(1).mean())),
            "centred_feature_norm": math.sqrt(float((rows - rows.mean(0)).square().sum(1).mean())),
            "logit_scale": float((true - others).mean()),
        },
    }
