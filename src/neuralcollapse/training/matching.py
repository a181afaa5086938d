"""A trained net beside the unconstrained feature model that matches its plan: same loss, head, decays and classes."""

import json
import math
from collections.abc import Sequence
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from .. import losses
from .._support.files import JSONObject
from ..losses import LogitLoss
from ..models import Classifier, LinearHead, NormalizedHead, create_head
from ..ufm import NormalizedUFM, RegularizedUFM
from .plan import Plan
from .run import Run

__all__ = ["closed_form_loss", "compare_with_theory", "matching_model"]


def matching_model(plan: Plan, counts: Sequence[int], dim: int) -> RegularizedUFM | NormalizedUFM | None:
    """The model whose free features stand for those of a net that is trained by ``plan``; None where there is none.

    A normalised head without a bias has the normalised model (Yaras et al. 2022); a learned linear head with decay on
    (W, H, b), both decays positive, the regularised one (Zhu et al. 2021). Fixed heads, heads whose rows are kept at
    norm one with free features, decay on all parameters and losses of features have none.

    >>> plan = Plan(head="normalized:temperature=5", loss="ce")
    >>> matching_model(plan, [20, 20, 20], dim=8)
    NormalizedUFM(loss='cross-entropy', num_classes=3, per_class=20, dim=8, temperature=5.0)

    Args:
        plan: what is trained.
        counts: samples of each class.
        dim: dimension of the features.

    """
    loss = losses.get(plan.loss)
    if not isinstance(loss, LogitLoss):
        return None
    head = create_head(plan.head, dim, len(counts))
    if isinstance(head, NormalizedHead) and head.bias is None:
        return NormalizedUFM(loss, len(counts), counts, dim, head.temperature)
    decays = plan.decays_per_loss(sum(counts))
    if not isinstance(head, LinearHead) or head.unit_rows or decays is None or not decays[0] or not decays[1]:
        return None
    bias_decay = None if head.bias is None else decays[2]
    return RegularizedUFM(loss, len(counts), counts, dim, decays[0], decays[1], bias_decay)


def closed_form_loss(run: Run) -> float | None:
    """The training loss alone, without decay, at the global minimum of the matching model.

    None where no model matches, where no minimum is known in closed form, where classes differ in size, or where the
    run does not say its sizes.
    """
    counts, dim = _sizes_of_run(run)
    if not counts or run.plan.imbalance is not None or run.plan.random_labels:
        return None
    # The optimal logits depend on n and the decay of H through their product only: one sample a class will do.
    model = matching_model(run.plan, counts, dim)
    if model is None:
        return None
    try:
        if isinstance(model, NormalizedUFM):
            return NormalizedUFM(model.loss, len(counts), 1, dim, model.temperature).optimum().value
        decays = (model.weight_decay, counts[0] * model.feature_decay, model.bias_decay)
        small = RegularizedUFM(model.loss, len(counts), 1, dim, *decays)
        point = small.optimum().point
    except NotImplementedError:
        return None
    logits = point.H @ point.classifier.T + (0.0 if point.b is None else point.b)
    return float(small.loss(logits, small.labels))


def compare_with_theory(
    plan: Plan, model: Classifier, features: Tensor, logits: Tensor, labels: Tensor
) -> JSONObject | None:
    """Predicted and measured sizes under (W, H, b) decay, or ``None`` where the model makes no prediction.

    ``feature_norm`` is the root mean square norm of a feature; ``logit_scale`` is the mean over samples of
    z_true minus the mean of the other logits. The net's features are outputs of a ReLU, so their mean is not zero as in
    the model: ``centred_feature_norm`` leaves it out.
    """
    counts = torch.bincount(labels, minlength=model.num_classes).tolist()
    problem = matching_model(plan, counts, model.feature_dim) if len(set(counts)) == 1 else None
    if not isinstance(problem, RegularizedUFM):
        return None
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


def _sizes_of_run(run: Run) -> tuple[list[int], int]:
    """Samples of each class and the feature dimension; no classes if the run does not say, or they differ in size."""
    folder: Path = run.folder
    try:
        facts = json.loads((folder / "data.json").read_text(encoding="utf-8"))
        classes, samples = int(facts["num_classes"]), int(facts["sizes"]["train"])
        with safe_open(str(folder / "model.safetensors"), framework="pt") as file:
            name = next(key for key in set(file.keys()) if key.startswith("head.") and key.endswith("weight"))
            dim = file.get_slice(name).get_shape()[1]
        unequal = samples % classes != 0 or "class_sizes" in (run.done or {})
    except (OSError, ValueError, KeyError, TypeError, StopIteration, SafetensorError):
        return [], 0
    return ([], 0) if unequal else ([samples // classes] * classes, dim)
