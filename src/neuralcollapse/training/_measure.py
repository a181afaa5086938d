"""Loss, accuracy and every neural-collapse metric of a model on a split, streamed and summed over processes."""

from collections.abc import Iterator

import torch
from torch import Tensor

from .. import losses
from .._support.files import JSONObject
from ..data import Split
from ..metrics.inputs import NonFiniteError
from ..metrics.processes import MeasuringTeam
from ..metrics.recorder import Recorder
from ..metrics.settings import Settings
from ..models import Classifier
from ._checkpoints import TrainingStopped
from ._distributed import Team, gathered
from ._objective import autocast
from .plan import Plan

__all__ = ["FeatureBatch", "features_of", "measure_split"]

BATCH = 512
MEMORY = 2**29

FeatureBatch = tuple[Tensor, Tensor, Tensor]
"""Features, logits and labels of some samples, on the CPU."""


@torch.no_grad()
def measure_split(plan: Plan, model: Classifier, split: Split, team: Team, device: torch.device) -> JSONObject:
    """``loss``, ``accuracy`` and the metrics of the plan by name, in evaluation mode; the mode is restored.

    With ``plan.intervals`` also ``intervals``, pairs by name.

    Features of up to 512 MB are kept for the metrics that look at them twice; beyond that the model runs twice.
    """
    before = model.training
    model.eval()
    try:
        return _measured_row(plan, model, split, team, device)
    except NonFiniteError as error:
        raise TrainingStopped(f"training diverged: {error}") from error
    finally:
        model.train(before)


def _measured_row(plan: Plan, model: Classifier, split: Split, team: Team, device: torch.device) -> JSONObject:
    loss_of = losses.get(plan.loss)
    recorder = _recorder(plan, model, team)
    sums = torch.zeros(3, dtype=torch.float64)
    for features, logits, labels in features_of(plan, model, split, team, device):
        right, count = (logits.argmax(1) == labels).sum(), torch.tensor(len(labels))
        if loss_of.takes == "features":  # of all processes' samples, a share each
            rows, classes = gathered(model.projected(features.to(device)), labels.to(device), team)
            loss = loss_of(rows, classes).cpu() * len(classes) / team.size
        else:
            loss = loss_of(logits, labels) * count if len(labels) else torch.zeros(())
        sums += torch.stack([loss.double(), right.double(), count])
        if len(labels):
            recorder.add(features, labels)
    team.sum(sums)
    if recorder.finish_first_pass():
        for features, _, labels in features_of(plan, model, split, team, device):
            if len(labels):
                recorder.add_again(features, labels)
    report = recorder.report()
    loss, right, count = sums.tolist()
    row = {"loss": loss / count, "accuracy": right / count, **report.values}
    if plan.intervals is not None:
        row["intervals"] = {name: list(bounds) for name, bounds in report.intervals.items()}
    return row


def _recorder(plan: Plan, model: Classifier, team: Team) -> Recorder:
    """Where features go: the same recorder as :func:`neuralcollapse.measure_model` has."""
    # Features come in float32, with the digits that the forward passes have.
    precision = torch.float32 if plan.precision == "float32" else torch.bfloat16
    settings = Settings(
        plan.metrics, ignore_label=None, memory_limit=MEMORY, intervals=plan.intervals, precision=precision
    )
    together = MeasuringTeam(None, team.size > 1)
    weight, bias, dim = model.head.weight, model.head.bias, model.feature_dim
    return Recorder(settings, model.num_classes, weight, bias, dim=dim, team=together, repeatable=True)


def features_of(
    plan: Plan, model: Classifier, split: Split, team: Team, device: torch.device
) -> Iterator[FeatureBatch]:
    """Batches of features as they enter the classifier, logits and labels, of this process's share of the split."""
    layout = torch.channels_last if plan.channels_last else torch.contiguous_format
    for block in torch.arange(len(split)).split(BATCH):
        positions = team.share(block)
        images, labels = split.batch(positions)
        with autocast(plan, device):
            features = model.features(images.to(device, memory_format=layout))
        logits = torch.nn.functional.linear(features.float(), model.head.weight, model.head.bias)
        yield features.float().cpu(), logits.cpu(), labels
