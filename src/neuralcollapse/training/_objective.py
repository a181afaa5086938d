"""The objective of one batch: mean loss, and decay where the plan puts it.

With H the features of all N training samples before any normalisation, W and b the classifier,
``decay_on="features"`` trains loss + weight_decay/2 |W|^2 + feature_decay/2 |H|^2 + bias_decay/2 |b|^2
(geometric, eq. 4), with |H|^2 estimated by N/B times its sum over the batch of B samples.
``decay_on="parameters"`` leaves decay to the optimizer, except for L-BFGS, which has none: there it is part of the
objective.
"""

from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor

from .. import losses
from ..models import Classifier
from ._distributed import Team
from .plan import Plan

__all__ = ["Objective", "autocast"]


def autocast(plan: Plan, device: torch.device) -> AbstractContextManager:
    """Forward passes in the plan's precision."""
    if plan.precision == "float32":
        return nullcontext()
    return torch.autocast(device.type, dtype=torch.bfloat16)


class Objective:
    """Computes this process's share of the objective; the shares sum to the objective of the whole batch."""

    def __init__(self, plan: Plan, model: Classifier, team: Team, device: torch.device, train_size: int):
        self.plan, self.model, self.team, self.device = plan, model, team, device
        self.loss = losses.get(plan.loss)
        self.train_size = train_size
        self.in_objective = plan.optimizer.partition(":")[0] == "lbfgs"

    def __call__(self, images: Tensor, labels: Tensor, batch_size: int) -> tuple[Tensor, Tensor]:
        """Objective and loss shares of ``images`` out of a batch of ``batch_size`` over all processes."""
        with autocast(self.plan, self.device):
            features = self.model.encoder(images)
            logits = self.model.head(features)
        loss = self.loss(logits.float(), labels)
        if self.team.size > 1:
            loss = loss * (len(labels) / batch_size)
        if self.plan.decay_on == "parameters" and not self.in_objective:
            return loss, loss.detach()
        return loss + self._decay(features.float(), batch_size), loss.detach()

    def _decay(self, features: Tensor, batch_size: int) -> Tensor:
        plan, head = self.plan, self.model.head
        total = torch.zeros((), device=features.device)
        if plan.decay_on == "features":
            if plan.feature_decay:
                total = total + plan.feature_decay / 2 * (self.train_size / batch_size) * features.square().sum()
            shared = plan.weight_decay / 2 * head.weight.square().sum() if head.weight.requires_grad else 0.0
            if head.bias is not None and plan.bias_decay:
                shared = shared + plan.bias_decay / 2 * head.bias.square().sum()
            return total + shared / self.team.size
        squares = sum(parameter.square().sum() for parameter in self.model.parameters())
        return total + plan.weight_decay / 2 * squares / self.team.size
