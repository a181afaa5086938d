"""Optimizers by name, each a function of parameter groups and learning rate."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import normalize
from torch.optim import LBFGS, SGD, Adam, AdamW, Optimizer

from .._support.checks import describe, flag, integer, real
from .._support.registry import Registry

__all__ = ["RiemannianSGD", "WholeBatchLBFGS", "create_optimizer", "evaluations_per_step", "optimizers"]

Groups = list[dict[str, Any]]

optimizers: Registry[Callable[..., Optimizer]] = Registry("optimizer")

LBFGS_ITERATIONS = 20


def create_optimizer(spec: str, groups: Groups, learning_rate: float) -> Optimizer:
    """The optimizer named by ``spec``, such as ``"sgd:momentum=0.9"``; a group may have ``sphere=True``.

    SGD, Adam and AdamW are fused: one pass over memory for all of a step's arithmetic. On the CPU PyTorch 2.13 reads
    gradient and weight side by side as they lie in memory, so a gradient must lie as its weight does, which the loop
    sees to.
    """
    name, arguments = optimizers.parse(spec)
    for key in ("groups", "learning_rate"):
        if key in arguments:
            raise ValueError(f"optimizer {spec!r}: {key} is a field of its own")
    return optimizers[name](groups=groups, learning_rate=learning_rate, **arguments)


def evaluations_per_step(spec: str) -> float:
    """How often the optimizer named by ``spec`` evaluates the objective on each batch, at most, to foretell its time.

    >>> evaluations_per_step("sgd:momentum=0.9"), evaluations_per_step("lbfgs:iterations=8")
    (1.0, 10.0)
    """
    name, arguments = optimizers.parse(spec)
    if optimizers[name] is not lbfgs:
        return 1.0
    # PyTorch's L-BFGS stops a batch at a quarter more evaluations than iterations.
    return 1.25 * integer("iterations", arguments.get("iterations", LBFGS_ITERATIONS), minimum=1)


@optimizers.add("sgd")
def sgd(groups: Groups, learning_rate: float, momentum: float = 0.9, nesterov: bool = False) -> Optimizer:
    """Stochastic gradient descent (all papers: momentum .9)."""
    speed = real("momentum", momentum, minimum=0.0, below=1.0)
    return SGD(groups, lr=learning_rate, momentum=speed, nesterov=flag("nesterov", nesterov), fused=True)


@optimizers.add("adam")
def adam(groups: Groups, learning_rate: float, beta1: float = 0.9, beta2: float = 0.999) -> Optimizer:
    """Adam with decay in the gradient (geometric, mse: lr 1e-3, batch 64)."""
    return Adam(groups, lr=learning_rate, betas=_betas(beta1, beta2), fused=True)


@optimizers.add("adamw")
def adamw(groups: Groups, learning_rate: float, beta1: float = 0.9, beta2: float = 0.999) -> Optimizer:
    """Adam with decoupled decay."""
    return AdamW(groups, lr=learning_rate, betas=_betas(beta1, beta2), fused=True)


@optimizers.add("lbfgs")
def lbfgs(
    groups: Groups,
    learning_rate: float,
    history: int = 10,
    iterations: int = LBFGS_ITERATIONS,
    line_search: str = "strong-wolfe",
    keep: bool = False,
    statistics: str = "step",
) -> Optimizer:
    """L-BFGS, ``iterations`` on each batch (geometric: lr .1, batch 2048).

    The loop gives it one objective a batch. By default it forgets the history when the batch changes (a batch that is
    the whole training set without augmentation is one objective for the whole run), and the running statistics of batch
    norm see each batch once. The released code does neither: ``keep=True,statistics=evaluation``.

    Args:
        groups: Parameter groups.
        learning_rate: First step length.
        history: Pairs of steps and gradient changes that are kept.
        iterations: Iterations on each batch.
        line_search: ``"strong-wolfe"``, or ``"none"``: steps of the learning rate, PyTorch's own default.
        keep: Whether the history goes on from batch to batch.
        statistics: Batch norm sees the batch once a ``"step"``, or at every ``"evaluation"`` of the objective.

    """
    searches = {"strong-wolfe": "strong_wolfe", "none": None}
    if line_search not in searches and line_search is not None:
        raise ValueError(f"line_search must be strong-wolfe or none, got {describe(line_search)}")
    if statistics not in ("step", "evaluation"):
        raise ValueError(f"statistics must be step or evaluation, got {describe(statistics)}")
    parameters = [parameter for group in groups for parameter in group["params"]]
    optimizer = WholeBatchLBFGS(
        parameters,
        lr=learning_rate,
        max_iter=integer("iterations", iterations, minimum=1),
        history_size=integer("history", history, minimum=1),
        line_search_fn=searches.get(line_search or "none"),
    )
    optimizer.keeps_history = flag("keep", keep)
    optimizer.statistics_at_evaluations = statistics == "evaluation"
    return optimizer


class WholeBatchLBFGS(LBFGS):
    """PyTorch's L-BFGS and what a loop over batches does with it."""

    keeps_history = False
    """Whether curvature of one batch is used on the next."""
    statistics_at_evaluations = False
    """Whether running statistics of batch norm move at every evaluation of the objective."""


@optimizers.add("riemannian-sgd")
def riemannian_sgd(groups: Groups, learning_rate: float, momentum: float = 0.9) -> Optimizer:
    """Gradient descent on the product of spheres for the rows of a normalised head, SGD for everything else."""
    return RiemannianSGD(groups, learning_rate, real("momentum", momentum, minimum=0.0, below=1.0))


class RiemannianSGD(Optimizer):
    """SGD with momentum whose groups with ``sphere=True`` move along unit spheres, row by row.

    There the gradient is projected on the tangent space, the step is retracted by normalising the row, and the
    momentum is carried along by projecting it on the new tangent space. Those groups have no decay.
    """

    def __init__(self, groups: Groups, learning_rate: float, momentum: float):
        super().__init__(groups, {"lr": learning_rate, "momentum": momentum, "weight_decay": 0.0, "sphere": False})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """One step; ``closure``, when given, computes the gradients first and returns the objective."""
        value = None
        if closure is not None:
            with torch.enable_grad():
                value = closure()
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self._move(parameter, parameter.grad, group)
        return value

    def _move(self, parameter: Tensor, gradient: Tensor, group: dict[str, Any]) -> None:
        sphere = group["sphere"]
        slope = _tangent(gradient, parameter) if sphere else gradient + group["weight_decay"] * parameter
        velocity = self.state[parameter].get("velocity")
        velocity = slope.clone() if velocity is None else velocity.mul_(group["momentum"]).add_(slope)
        parameter.add_(velocity, alpha=-group["lr"])
        if sphere:
            parameter.copy_(normalize(parameter, dim=1))
            velocity = _tangent(velocity, parameter)
        self.state[parameter]["velocity"] = velocity


def _tangent(vectors: Tensor, rows: Tensor) -> Tensor:
    return vectors - (vectors * rows).sum(1, keepdim=True) * rows


def _betas(beta1: float, beta2: float) -> tuple[float, float]:
    return real("beta1", beta1, minimum=0.0, below=1.0), real("beta2", beta2, minimum=0.0, below=1.0)
