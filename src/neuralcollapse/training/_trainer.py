"""The training loop: what happens between two checkpoints."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ..data import CropFlip, DataSet
from ..data.subsets import stream
from ..models import Classifier, NormalizedHead
from ._checkpoints import TrainingStopped, like
from ._distributed import SynchronisedBatchNorm, Team
from ._objective import TrainingObjective
from .optimizers import WholeBatchLBFGS, create_optimizer
from .plan import Plan
from .schedules import create_schedule

__all__ = ["Progress", "Trainer"]

BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, SynchronisedBatchNorm)


@dataclass(frozen=True)
class Progress:
    """Where a run is, once a step."""

    epoch: int
    """Finished epochs."""
    epochs: int
    step: int
    """Finished steps of the next epoch."""
    steps: int
    loss: Tensor
    """Loss of the last batch, over all processes."""


class Trainer:
    """A model in training. Its whole state is weights, optimizer state and position: everything random is drawn anew
    from (seed, epoch, step), so a resumed run repeats exactly what an undisturbed one does.
    """

    def __init__(self, plan: Plan, model: Classifier, data: DataSet, team: Team, device: torch.device):
        self.plan, self.model, self.data, self.team, self.device = plan, model, data, team, device
        self.objective = TrainingObjective(plan, model, team, device, len(data.train))
        self.optimizer = create_optimizer(plan.optimizer, self._groups(), plan.learning_rate)
        self.schedule = create_schedule(plan.schedule)
        self.augment = CropFlip() if plan.augment else None
        self.steps = math.ceil(len(data.train) / plan.batch_size)
        self.parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        self.layout = torch.channels_last if plan.channels_last else torch.contiguous_format
        self.epoch = 0
        self.step = 0

    def _groups(self) -> list[dict]:
        decay = self.plan.weight_decay if self.plan.decay_on == "parameters" else 0.0
        head = self.model.head
        sphere = [head.weight] if isinstance(head, NormalizedHead) else []
        others = [p for p in self.model.parameters() if not any(p is row for row in sphere)]
        groups: list[dict] = [{"params": others, "weight_decay": decay}]
        if sphere:
            groups.append({"params": sphere, "weight_decay": 0.0, "sphere": True})
        return groups

    # one epoch --------------------------------------------------------------------------------------------------

    def run_epoch(self, after_step: Callable[[Progress], None]) -> None:
        """Go on to the end of the epoch from wherever the trainer is."""
        rate = self.schedule(self.epoch, self.plan.epochs, self.plan.learning_rate)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.model.train()
        total = torch.zeros((), device=self.device)
        for images, labels, size in self._batches():
            loss = self._step(images, labels, size)
            total += loss
            self.step += 1
            after_step(Progress(self.epoch, self.plan.epochs, self.step, self.steps, loss))
        if not bool(torch.isfinite(total)):
            raise TrainingStopped(
                f"training diverged: the loss is not finite in epoch {self.epoch + 1}; lower the learning rate"
            )
        self.epoch += 1
        self.step = 0

    def _batches(self) -> Iterator[tuple[Tensor, Tensor, int]]:
        """The process's own share of the remaining batches of the epoch, whose sizes differ by at most one."""
        size = len(self.data.train)
        order = torch.arange(size)
        if self.plan.shuffle:
            order = torch.randperm(size, generator=stream(self.plan.seed, f"order {self.epoch}"))
        for step, positions in enumerate(order.tensor_split(self.steps)):
            if step < self.step:
                continue
            if self.plan.views > 1:  # views of an image are samples of the batch
                positions = positions.repeat(self.plan.views)
            draws = None
            if self.augment is not None:  # drawn for the whole batch: the same for any number of processes
                generator = stream(self.plan.seed, f"augment {self.epoch} {step}")
                draws = self.augment.draw(len(positions), generator)
                draws = draws.select(self.team.share(torch.arange(len(positions))))
            images, labels = self.data.train.batch(self.team.share(positions), self.augment, draws=draws)
            yield (
                images.to(self.device, memory_format=self.layout),
                labels.to(self.device),
                len(positions),
            )

    def _step(self, images: Tensor, labels: Tensor, size: int) -> Tensor:
        if isinstance(self.optimizer, WholeBatchLBFGS):
            return self._lbfgs_step(self.optimizer, images, labels, size)
        _, loss = self._gradient(images, labels, size)
        if self.plan.clip_gradient is not None:
            nn.utils.clip_grad_norm_(self.parameters, self.plan.clip_gradient)
        for parameter in self.parameters:  # fused steps read both as they lie in memory
            if parameter.grad is not None and parameter.grad.stride() != parameter.stride():
                parameter.grad = like(parameter.grad, parameter)
        self.optimizer.step()
        self.model.head.after_step()
        return loss

    def _gradient(self, images: Tensor, labels: Tensor, size: int) -> tuple[Tensor, Tensor]:
        """Objective and loss of the whole batch; leaves the gradient in the parameters."""
        self.optimizer.zero_grad(set_to_none=True)
        objective, loss = self.objective(images, labels, size)
        objective.backward()
        if self.team.size == 1:
            return objective.detach(), loss
        gradients = [p.grad if p.grad is not None else torch.zeros_like(p) for p in self.parameters]
        ends = torch.stack([objective.detach(), loss])
        flat = self.team.sum(torch.cat([*(gradient.reshape(-1) for gradient in gradients), ends]))
        start = 0
        for parameter, gradient in zip(self.parameters, gradients, strict=True):
            parameter.grad = flat[start : start + gradient.numel()].view(gradient.shape).to(gradient).clone()
            start += gradient.numel()
        return flat[-2], flat[-1]

    def _lbfgs_step(self, optimizer: WholeBatchLBFGS, images: Tensor, labels: Tensor, size: int) -> Tensor:
        """Minimise over one fixed batch; running statistics of batch norm see it once, after the step.

        When the batch is the whole training set, they become its statistics at the new weights.
        """
        whole = self.steps == 1 and self.augment is None
        if not whole and not optimizer.keeps_history:
            optimizer.state.clear()  # curvature of another batch is that of another function
        norms = [module for module in self.model.modules() if isinstance(module, BATCH_NORMS)]
        if optimizer.statistics_at_evaluations:
            norms = []
        momenta = [norm.momentum or 0.0 for norm in norms]
        for norm in norms:
            norm.momentum = 0.0
        first: list[Tensor] = []

        def closure() -> Tensor:
            objective, loss = self._gradient(images, labels, size)
            for parameter in self.parameters:  # the optimizer strings gradients together, which needs rows in order
                if parameter.grad is not None:
                    parameter.grad = parameter.grad.contiguous()
            first.append(loss)
            return objective

        try:
            optimizer.step(closure)  # pyright: ignore[reportArgumentType]
            for norm, momentum in zip(norms, momenta, strict=True):
                norm.momentum = 1.0 if whole else momentum
            if norms:
                with torch.no_grad():
                    self.objective(images, labels, size)
        finally:
            for norm, momentum in zip(norms, momenta, strict=True):
                norm.momentum = momentum
        return first[0]

    # state ------------------------------------------------------------------------------------------------------

    def state(self) -> dict:
        """Weights and optimizer state, for a checkpoint."""
        return {"model": dict(self.model.state_dict()), "optimizer": self.optimizer.state_dict()}

    def restore(self, state: dict, epoch: int, step: int) -> None:
        """Go back to a checkpoint; memory layouts come back too, since they decide how sums are rounded."""
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        for parameter, entries in self.optimizer.state.items():
            for name, value in entries.items():
                if isinstance(value, Tensor):
                    entries[name] = like(value, parameter)
        self.epoch, self.step = epoch, step
