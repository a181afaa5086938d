"""What the closed forms say about a run: the training loss at the global minimum of the matching model."""

import json
from pathlib import Path

from safetensors import SafetensorError, safe_open

from .. import losses
from ..losses import LogitLoss
from ..models import heads
from ..training import Plan, Run
from ..ufm import NormalizedUFM, RegularizedUFM

__all__ = ["closed_form_loss", "minimum_loss"]


def closed_form_loss(run: Run) -> float | None:
    """The loss alone, without decay, at the global minimum; None where no closed form is known.

    A normalised head: the minimum of the normalised model (Yaras et al. 2022, Theorem 1 and its kin for other
    losses). Decay on (W, H, b): the loss at the minimum of the regularised model with the run's constants (Zhu et al.
    2021, Theorem 3.1).
    """
    plan = run.plan
    sizes = _sizes(run.folder)
    if sizes is None or plan.imbalance is not None or plan.random_labels:
        return None
    return minimum_loss(plan, *sizes)


def minimum_loss(plan: Plan, num_classes: int, per_class: int, dim: int) -> float | None:
    """As :func:`closed_form_loss`, from the sizes."""
    loss = losses.get(plan.loss)
    if not isinstance(loss, LogitLoss):
        return None
    name, options = heads.parse(plan.head)
    try:
        if heads[name] is heads["normalized"]:
            temperature = float(str(options.get("temperature", 1.0)))
            return NormalizedUFM(loss, num_classes, 1, dim, temperature).optimum().value
        decays = plan.decays_per_loss(num_classes * per_class)
        if heads[name] is not heads["linear"] or decays is None or not decays[0] or not decays[1]:
            return None
        # The optimal logits depend on n and the decay of H through their product only: one sample a class will do.
        problem = RegularizedUFM(loss, num_classes, 1, dim, decays[0], per_class * decays[1], decays[2])
        point = problem.optimum().point
    except NotImplementedError:
        return None
    logits = point.H @ point.classifier.T + (0.0 if point.b is None else point.b)
    return float(loss(logits, problem.labels))


def _sizes(folder: Path) -> tuple[int, int, int] | None:
    """Classes, samples a class and feature dimension; None if the run does not say, or the classes differ in size."""
    try:
        facts = json.loads((folder / "data.json").read_text(encoding="utf-8"))
        classes, samples = int(facts["num_classes"]), int(facts["sizes"]["train"])
        with safe_open(str(folder / "model.safetensors"), framework="pt") as file:
            name = next(key for key in set(file.keys()) if key.startswith("head.") and key.endswith("weight"))
            dim = file.get_slice(name).get_shape()[1]
    except (OSError, ValueError, KeyError, TypeError, StopIteration, SafetensorError):
        return None
    return (classes, samples // classes, dim) if samples % classes == 0 else None
