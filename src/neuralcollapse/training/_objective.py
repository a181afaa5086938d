"""The objective of one batch: mean loss times the plan's scale, and decay where the plan puts it.

With H the features of all N training samples before any normalisation, W and b the classifier,
``decay_on="features"`` trains loss + weight_decay/2 |W|^2 + feature_decay/2 |H|^2 + bias_decay/2 |b|^2
(geometric, eq. (3)), with |H|^2 estimated by N/B times its sum over the batch of B samples; ``feature_decay_over`` has
the variants of the released code. ``decay_on="parameters"`` leaves decay to the optimizer, except for L-BFGS, which has
none: there it is part of the objective.

A loss on features (supervised contrastive) sees the batch as a whole, also when several processes hold it; the
cross-entropy of the head on detached features comes beside it and moves nothing but the head.
"""

from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, normalize

from .. import losses
from .._support.registry import Spec
from ..models import Classifier
from ._distributed import Team, gathered
from .plan import Plan

__all__ = ["TrainingObjective", "autocast"]


def autocast(plan: Plan, device: torch.device) -> AbstractContextManager:
    """Forward passes in the plan's precision."""
    if plan.precision == "float32":
        return nullcontext()
    return torch.autocast(device.type, dtype=torch.bfloat16)


class TrainingObjective:
    """Computes this process's share of the objective; the shares sum to the objective of the whole batch."""

    def __init__(self, plan: Plan, model: Classifier, team: Team, device: torch.device, train_size: int):
        self.plan, self.model, self.team, self.device = plan, model, team, device
        self.loss = losses.get(plan.loss)
        self.train_size = train_size
        self.in_objective = Spec.name_of(plan.optimizer) == "lbfgs"

    def __call__(self, images: Tensor, labels: Tensor, batch_size: int) -> tuple[Tensor, Tensor]:
        """Shares of objective and loss of ``images`` out of a batch of ``batch_size`` over all processes."""
        with autocast(self.plan, self.device):
            features = self.model.encoder(images)
            if self.loss.takes == "features":
                logits = self.model.head(features.detach())
                projected = self.model.projected(self.model.head.prepare(features))
            else:
                logits, projected = self.model.head(features), None
        share = len(labels) / batch_size if self.team.size > 1 else 1.0
        if projected is None:
            loss = self.loss(logits.float(), labels) * share
            objective = self.plan.loss_scale * loss
        else:
            loss = self._of_features(projected.float(), labels)
            objective = self.plan.loss_scale * loss + cross_entropy(logits.float(), labels) * share
        if self.plan.decay_on == "parameters" and not self.in_objective:
            return objective, loss.detach()
        return objective + self._decay(features.float(), batch_size), loss.detach()

    def _of_features(self, projected: Tensor, labels: Tensor) -> Tensor:
        """The loss of all processes' rows, one share for each process."""
        rows, classes = gathered(projected, labels, self.team)
        return self.loss(rows, classes) / self.team.size

    def _decay(self, features: Tensor, batch_size: int) -> Tensor:
        plan, head = self.plan, self.model.head
        total = torch.zeros((), device=features.device)
        if plan.decay_on == "features":
            if plan.feature_decay:
                total = total + plan.feature_decay / 2 * self._squares(features, batch_size)
            shared = plan.weight_decay / 2 * head.weight.square().sum() if head.weight.requires_grad else 0.0
            if head.bias is not None and plan.bias_decay:
                shared = shared + plan.bias_decay / 2 * head.bias.square().sum()
            return total + shared / self.team.size
        squares = sum(parameter.square().sum() for parameter in self.model.parameters())
        return total + plan.weight_decay / 2 * squares / self.team.size

    def _squares(self, features: Tensor, batch_size: int) -> Tensor:
        if self.plan.feature_decay_over == "unit":
            return normalize(features).square().sum()
        share = self.train_size / batch_size if self.plan.feature_decay_over == "set" else 1.0
        return share * features.square().sum()
