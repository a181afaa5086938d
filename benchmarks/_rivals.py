"""The rivals of the solvers: Pymanopt, scipy and torch.optim with autograd, and a compiled L-BFGS of JAX."""

import contextlib
import importlib
import math
import os
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from neuralcollapse import losses
from neuralcollapse.ufm import NormalizedUFM, RegularizedUFM


class ReachedError(Exception):
    """Raised out of a rival's cost function when it is near enough."""


def pymanopt_times(
    problem: NormalizedUFM, backend: str, optimizer: str, gaps: list[float], limit: float
) -> list[float]:
    """Seconds to each gap; infinite where ``limit`` seconds did not do."""
    import pymanopt
    from pymanopt.manifolds import Oblique, Product
    from pymanopt.optimizers import ConjugateGradient, SteepestDescent, TrustRegions

    point, best, labels = problem.random_point(0), problem.optimum().value, problem.labels
    manifold = Product([Oblique(problem.dim, problem.num_classes), Oblique(problem.dim, problem.num_samples)])
    times = [math.inf] * len(gaps)
    begin = 0.0

    def watch(value: float) -> None:
        now = time.process_time() - begin
        for index, gap in enumerate(gaps):
            if value - best <= gap and math.isinf(times[index]):
                times[index] = now
        if not math.isinf(times[-1]) or now > limit:
            raise ReachedError

    if backend == "torch":

        @pymanopt.function.pytorch(manifold)
        def cost(W, H):
            value = torch.nn.functional.cross_entropy(problem.temperature * (H.T @ W), labels)
            watch(float(value.detach()))
            return value

    else:
        anp: Any = importlib.import_module("autograd.numpy")
        from autograd.tracer import getval

        picks = np.arange(problem.num_samples), labels.numpy()

        @pymanopt.function.autograd(manifold)
        def cost(W, H):
            logits = problem.temperature * anp.dot(H.T, W)
            top = anp.max(getval(logits), axis=1, keepdims=True)
            total = anp.log(anp.sum(anp.exp(logits - top), axis=1)) + top[:, 0]
            value = anp.mean(total - logits[picks])
            inner = value
            while not isinstance(inner, float | np.floating | np.ndarray):
                inner = getval(inner)
            watch(float(inner))
            return value

    kinds = {"SD": SteepestDescent, "CG": ConjugateGradient, "TR": TrustRegions}
    engine = kinds[optimizer](
        max_iterations=10**6, max_time=10**6, min_gradient_norm=1e-15, min_step_size=1e-30, verbosity=0
    )
    start = [np.ascontiguousarray(point.classifier.T.numpy()), np.ascontiguousarray(point.H.T.numpy())]
    begin = time.process_time()
    with contextlib.suppress(ReachedError):
        engine.run(pymanopt.Problem(manifold, cost), initial_point=start)
    return times


def torch_objective(problem: RegularizedUFM) -> Callable[[torch.Tensor, torch.Tensor], torch.Tensor]:
    loss, labels = losses.CrossEntropy(), problem.labels

    def objective(W: torch.Tensor, H: torch.Tensor) -> torch.Tensor:
        penalty = problem.weight_decay / 2 * W.square().sum() + problem.feature_decay / 2 * H.square().sum()
        return loss(H @ W.T, labels) + penalty

    return objective


def leaves(problem: RegularizedUFM) -> tuple[torch.Tensor, torch.Tensor]:
    point = problem.random_point(0)
    assert point.W is not None
    return point.W.clone().requires_grad_(), point.H.clone().requires_grad_()


def scipy_problem(problem: RegularizedUFM):
    objective, (W, H) = torch_objective(problem), leaves(problem)
    start = torch.cat([W.detach().reshape(-1), H.detach().reshape(-1)]).numpy()
    split = W.numel()

    def blocks(x: np.ndarray) -> tuple[torch.Tensor, torch.Tensor]:
        flat = torch.from_numpy(x.copy())
        return flat[:split].view_as(W).requires_grad_(), flat[split:].view_as(H).requires_grad_()

    def value_and_gradient(x: np.ndarray) -> tuple[float, np.ndarray]:
        variables = blocks(x)
        value = objective(*variables)
        gradients = torch.autograd.grad(value, variables)
        return float(value.detach()), torch.cat([g.reshape(-1) for g in gradients]).numpy()

    def product(x: np.ndarray, v: np.ndarray) -> np.ndarray:
        variables = blocks(x)
        gradients = torch.autograd.grad(objective(*variables), variables, create_graph=True)
        directions = blocks(v)
        inner = torch.stack([(g * d.detach()).sum() for g, d in zip(gradients, directions, strict=True)]).sum()
        return torch.cat([h.reshape(-1) for h in torch.autograd.grad(inner, variables)]).numpy()

    return start, value_and_gradient, product


def scipy_lbfgs(problem: RegularizedUFM) -> tuple[float, float]:
    from scipy.optimize import minimize

    start, function, _ = scipy_problem(problem)
    begin = time.process_time()
    # Its test is on the largest entry: this is the norm asked for, or a little less.
    options = {"maxiter": 20_000, "maxfun": 40_000, "gtol": 1e-8 / math.sqrt(len(start)) * 3, "ftol": 0.0}
    found = minimize(function, start, jac=True, method="L-BFGS-B", options=options)
    return time.process_time() - begin, float(np.linalg.norm(found.jac))


def scipy_newton(problem: RegularizedUFM) -> tuple[float, float]:
    from scipy.optimize import minimize

    start, function, product = scipy_problem(problem)
    begin = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = minimize(
            function,
            start,
            jac=True,
            hessp=product,
            method="trust-ncg",
            options={"gtol": 1e-8, "maxiter": 500},
        )
    return time.process_time() - begin, float(np.linalg.norm(found.jac))


def torch_lbfgs(problem: RegularizedUFM) -> tuple[float, float]:
    objective, variables = torch_objective(problem), leaves(problem)
    # Its test is on the largest entry: this is the norm asked for, or a little less.
    entries = sum(variable.numel() for variable in variables)
    optimizer = torch.optim.LBFGS(
        variables,
        max_iter=5000,
        max_eval=10_000,
        history_size=10,
        line_search_fn="strong_wolfe",
        tolerance_grad=1e-8 / math.sqrt(entries) * 3,
        tolerance_change=0,
    )

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        value = objective(*variables)
        value.backward()
        return value

    begin = time.process_time()
    optimizer.step(closure)
    seconds = time.process_time() - begin
    closure()
    return seconds, math.hypot(*(float(v.grad.norm()) for v in variables if v.grad is not None))


def torch_steps(problem: RegularizedUFM, kind: str, steps: int) -> tuple[float, float]:
    objective, variables = torch_objective(problem), leaves(problem)
    optimizer = torch.optim.SGD(variables, lr=1.0) if kind == "gd" else torch.optim.Adam(variables, lr=0.01)
    begin = time.process_time()
    norm = math.inf
    for _ in range(steps):
        optimizer.zero_grad()
        objective(*variables).backward()
        norm = math.hypot(*(float(v.grad.norm()) for v in variables if v.grad is not None))
        if norm <= 1e-8:
            break
        optimizer.step()
    return time.process_time() - begin, norm


def jax_lbfgs(problem: RegularizedUFM) -> Callable[[], tuple[float, float]]:
    """optax's L-BFGS to a gradient norm of 1e-8, compiled as a whole on one thread; ImportError without JAX.

    What is returned solves from the start once more and says how long it took, without the compilation.
    """
    os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1")
    import jax
    import jax.numpy as jnp
    import optax

    jax.config.update("jax_enable_x64", True)
    labels, total = jnp.asarray(problem.labels.numpy()), problem.num_samples
    decays = problem.weight_decay / 2, problem.feature_decay / 2

    def objective(parameters):
        W, H = parameters
        logits = jax.nn.log_softmax(H @ W.T)
        return -logits[jnp.arange(total), labels].mean() + decays[0] * (W**2).sum() + decays[1] * (H**2).sum()

    optimizer = optax.lbfgs(memory_size=10)
    value_and_gradient = optax.value_and_grad_from_state(objective)

    def going_on(carried):
        _, state, iteration = carried
        gradient = optax.tree_utils.tree_get(state, "grad")
        return (iteration == 0) | ((optax.tree_utils.tree_norm(gradient) > 1e-8) & (iteration < 5000))

    def step(carried):
        parameters, state, iteration = carried
        value, gradient = value_and_gradient(parameters, state=state)
        updates, state = optimizer.update(gradient, state, parameters, value=value, grad=gradient, value_fn=objective)
        return optax.apply_updates(parameters, updates), state, iteration + 1

    @jax.jit
    def run(parameters):
        found, _, _ = jax.lax.while_loop(going_on, step, (parameters, optimizer.init(parameters), 0))
        return found, optax.tree_utils.tree_norm(jax.grad(objective)(found))

    point = problem.random_point(0)
    start = jnp.asarray(point.classifier.numpy()), jnp.asarray(point.H.numpy())
    jax.block_until_ready(run(start))

    def once() -> tuple[float, float]:
        begin = time.process_time()
        _, norm = jax.block_until_ready(run(start))
        return time.process_time() - begin, float(norm)

    return once
