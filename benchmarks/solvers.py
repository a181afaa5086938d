"""Solvers against their rivals: the same start, interleaved in one run, the minimum of several, as ratios.

    python benchmarks/solvers.py            all but the largest problem
    python benchmarks/solvers.py --quick    small sizes, in a minute or so
    python benchmarks/solvers.py --large    the K = 1000, n = 50, d = 1024 problem besides
    python benchmarks/solvers.py --only starts    the problems of the tests from 100 starts by every method

Everything runs on one thread, and times are those of the processor, not of the clock: the machine may be
shared. Pymanopt's time is taken when its cost function is first called at a point within the gap: what it
does afterwards (in the same iteration) is not counted.
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import argparse
import contextlib
import math
import multiprocessing
import resource
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from _tables import Tables

from neuralcollapse import losses
from neuralcollapse.ufm import NormalizedUFM, RegularizedUFM, methods, solve, solve_many

torch.set_num_threads(1)


# Tables


TABLES = Tables()


def shown(seconds: float) -> str:
    return "not reached" if math.isinf(seconds) else f"{seconds:.3g}"


# Rivals on the normalised model


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
        import autograd.numpy as anp
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
    start = [np.ascontiguousarray(point.W.T.numpy()), np.ascontiguousarray(point.H.T.numpy())]
    begin = time.process_time()
    with contextlib.suppress(ReachedError):
        engine.run(pymanopt.Problem(manifold, cost), initial_point=start)
    return times


def our_times(problem: NormalizedUFM, method: str, gaps: list[float]) -> list[float]:
    times = []
    start = problem.random_point(0)
    for gap in gaps:
        begin = time.process_time()
        trace = solve(problem, method, start, tol=0.0, gap=gap, max_iter=20_000, record=())
        assert trace.value - problem.optimum().value <= gap, trace.message
        times.append(time.process_time() - begin)
    return times


def normalized(sizes: tuple[int, int, int], repeats: int, limits: dict[str, float], backends: list[str]) -> None:
    problem = NormalizedUFM("ce", *sizes)
    gaps = [1e-6, 1e-10]
    ours = ["gradient-descent", "conjugate-gradient", "trust-region", "lbfgs", "reduced"]
    rivals = [(backend, kind) for backend in backends for kind in ("SD", "CG", "TR")]
    best: dict[object, list[float]] = {key: [math.inf] * 2 for key in [*ours, *rivals]}
    our_times(NormalizedUFM("ce", 4, 3, 6), "trust-region", [1e-3])
    for repeat in range(repeats):
        for rival in rivals:
            if repeat and best[rival][-1] > 10:
                continue
            found = pymanopt_times(problem, *rival, gaps, limits[rival[1]])
            best[rival] = [min(pair) for pair in zip(best[rival], found, strict=True)]
            for method in ours:
                best[method] = [min(pair) for pair in zip(best[method], our_times(problem, method, gaps), strict=True)]
    pairs = {
        "gradient-descent": "SD",
        "conjugate-gradient": "CG",
        "trust-region": "TR",
        "lbfgs": "TR",
        "reduced": "TR",
    }
    rows = []
    for method, kind in pairs.items():
        for backend in backends:
            theirs = best[backend, kind]
            cells = []
            for mine, other in zip(best[method], theirs, strict=True):
                bound = f"> {limits[kind]:g}" if math.isinf(other) else shown(other)
                ratio = limits[kind] / mine if math.isinf(other) else other / mine
                cells += [shown(mine), bound, f"{'> ' if math.isinf(other) else ''}{ratio:.0f}x"]
            rows.append([method, f"pymanopt {kind}, {backend}", *cells])
    title = "Normalised cross-entropy, K = {}, n = {}, d = {}: seconds to a gap".format(*sizes)
    columns = ["ours", "rival", "1e-6: ours", "rival's", "ratio", "1e-10: ours", "rival's", "ratio"]
    TABLES.add("normalized", title, columns, rows)


# Rivals on the regularised model


def regularized(sizes: tuple[int, int, int], repeats: int) -> None:
    problem = RegularizedUFM("ce", *sizes, weight_decay=5e-4, feature_decay=5e-4)
    rivals: dict[str, Callable[[RegularizedUFM], tuple[float, float]]] = {
        "scipy L-BFGS-B, autograd": scipy_lbfgs,
        "scipy trust-ncg, autograd": scipy_newton,
        "torch.optim.LBFGS": torch_lbfgs,
        "GD, rate 1, autograd (1,000 steps)": lambda p: torch_steps(p, "gd", 1000),
        "Adam, rate 0.01, autograd (1,000 steps)": lambda p: torch_steps(p, "adam", 1000),
    }
    ours = ["trust-region", "lbfgs", "conjugate-gradient", "gradient-descent", "reduced"]
    best = dict.fromkeys([*ours, *rivals], (math.inf, math.inf))
    for _ in range(repeats):
        for name, rival in rivals.items():
            best[name] = min(best[name], rival(problem))
            for method in ours:
                begin = time.process_time()
                trace = solve(problem, method, problem.random_point(0), tol=1e-8, max_iter=5000, record=())
                best[method] = min(best[method], (time.process_time() - begin, trace.gradient_norm))
    mine = best["trust-region"][0]
    rows = [[name, shown(seconds), f"{norm:.1e}", f"{seconds / mine:.2g}x"] for name, (seconds, norm) in best.items()]
    title = "Regularised cross-entropy, K = {}, n = {}, d = {}: seconds to a gradient norm of 1e-8".format(*sizes)
    TABLES.add("regularized", title, ["solver", "seconds", "gradient norm reached", "times our trust region"], rows)


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
        inner = sum((g * d.detach()).sum() for g, d in zip(gradients, directions, strict=True))
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


# Growth and memory


def growth(base: tuple[int, int, int], repeats: int) -> None:
    """Time an iteration over a decade of each size."""
    rows = []
    for method, iterations in (("gradient-descent", 6), ("conjugate-gradient", 4), ("trust-region", 3)):
        for name, index in (("K at fixed N", 0), ("n", 1), ("d", 2)):
            cells = []
            for factor in (1, 3, 10):
                sizes = list(base)
                sizes[index] *= factor
                if index == 0:
                    sizes[1] = max(1, base[1] // factor)
                problem = NormalizedUFM("ce", *sizes)
                start = problem.random_point(0)
                seconds = math.inf
                for _ in range(repeats):
                    begin = time.process_time()
                    trace = solve(problem, method, start, tol=0.0, max_iter=iterations, record=())
                    seconds = min(seconds, (time.process_time() - begin) / trace.iterations)
                cells.append(seconds)
            rows.append([method, name, f"{1e3 * cells[0]:.3g} ms", *(f"{cell / cells[0]:.2g}x" for cell in cells[1:])])
    title = "Time an iteration when one size grows, from K = {}, n = {}, d = {} (K at fixed N)".format(*base)
    TABLES.add("growth", title, ["method", "size that grows", "at first", "3 times", "10 times"], rows)


def measure_memory(sizes: tuple[int, int, int], method: str, iterations: int, answer) -> None:
    """Peak resident memory of a solve beyond the problem and its start; in a fresh process."""
    torch.set_num_threads(1)
    problem = NormalizedUFM("ce", *sizes)
    start = problem.random_point(0)
    solve(NormalizedUFM("ce", 4, 3, 6), method, max_iter=3, record=())
    with open("/proc/self/statm") as file:
        before = int(file.read().split()[1]) * resource.getpagesize()
    solve(problem, method, start, tol=0.0, max_iter=iterations, record=())
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    answer.put(peak - before)


def memory(sizes: tuple[int, int, int], methods: list[str], iterations: int) -> None:
    classes, per_class, dim = sizes
    point = 8 * (classes + classes * per_class) * dim
    logits = 8 * classes * per_class * classes
    context = multiprocessing.get_context("spawn")
    rows = []
    for method in methods:
        answer = context.Queue()
        process = context.Process(target=measure_memory, args=(sizes, method, iterations, answer))
        process.start()
        used = answer.get()
        process.join()
        rows.append([method, f"{used / 2**20:.0f} MB", f"{used / point:.1f}"])
    title = "Peak memory beyond the start, K = {}, n = {}, d = {}".format(*sizes)
    TABLES.add(
        "memory",
        f"{title} (point {point / 2**20:.0f} MB, logits {logits / 2**20:.0f} MB)",
        ["method", "peak", "copies of the point"],
        rows,
    )


def recording(sizes: tuple[int, int, int], repeats: int) -> None:
    """What a history costs: whole solves with and without, interleaved."""
    records = {"default": ("value", "nc1", "accuracy"), "all": ("value", "nc1", "nc2", "nc3", "accuracy")}
    problem = NormalizedUFM("ce", *sizes)
    start = problem.random_point(0)
    rows = []
    for method in ("gradient-descent", "conjugate-gradient", "trust-region", "lbfgs"):
        best = dict.fromkeys(("none", *records), math.inf)
        for _ in range(repeats):
            for name in best:
                begin = time.process_time()
                solve(problem, method, start, tol=1e-8, max_iter=5000, record=records.get(name, ()))
                best[name] = min(best[name], time.process_time() - begin)
        cells = (f"{100 * (best[name] / best['none'] - 1):+.0f} %" for name in records)
        rows.append([method, shown(best["none"]), *cells])
    title = "Whole solves to a gradient norm of 1e-8 with a history, K = {}, n = {}, d = {}".format(*sizes)
    TABLES.add(
        "recording",
        title,
        ["method", "seconds without", "value, nc1, accuracy", "value, nc1, nc2, nc3, accuracy"],
        rows,
    )


def batch(sizes: tuple[int, int, int], trials: int, repeats: int) -> None:
    """Many trials as one tensor against one after the other, interleaved; the largest difference of final values."""
    problems = {
        "normalised cross-entropy": NormalizedUFM("ce", *sizes),
        "regularised cross-entropy": RegularizedUFM("ce", *sizes, 5e-3, 5e-3),
        "regularised focal, gamma = 3, with a bias": RegularizedUFM("focal:gamma=3", *sizes, 1e-3, 1e-3, 1e-3),
    }
    rows = []
    for label, problem in problems.items():
        for method in ("gradient-descent", "conjugate-gradient", "lbfgs"):
            solve_many(problem, range(10), method, batched=True)
            best = [math.inf, math.inf]
            apart, together = [], []
            for _ in range(repeats):
                begin = time.process_time()
                apart = [solve(problem, method, seed=seed) for seed in range(trials)]
                middle = time.process_time()
                together = solve_many(problem, range(trials), method, batched=True)
                best = [min(best[0], middle - begin), min(best[1], time.process_time() - middle)]
            off = max(abs(one.value - other.value) for one, other in zip(apart, together, strict=True))
            rows.append([label, method, shown(best[0]), shown(best[1]), f"{best[0] / best[1]:.1f}x", f"{off:.0e}"])
    title = "{} trials of K = {}, n = {}, d = {} to a gradient norm of 1e-8".format(trials, *sizes)
    columns = ["problem", "method", "one after the other, s", "one batch, s", "ratio", "difference of values"]
    TABLES.add("batch", title, columns, rows)


def starts(count: int) -> None:
    """The problems of the tests from ``count`` random starts by every method: excess over the closed form."""
    sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
    from solver_problems import PROBLEMS, from_many_starts

    rows = []
    for label, problem in PROBLEMS.items():
        for method in methods(problem):
            found = from_many_starts(label, method, count)
            rows.append([label, method, f"{found['highest']:.1e}"])
            print("  ", *rows[-1], flush=True)
    TABLES.add(
        "starts", f"Largest excess over the closed form from {count} starts", ["problem", "method", "excess"], rows
    )


def large() -> None:
    """50,000 samples in 1,000 classes: to a gap of 1e-6."""
    problem = NormalizedUFM("ce", 1000, 50, 1024)
    start, best = problem.random_point(0), problem.optimum().value
    rows = []
    for method in ("reduced", "conjugate-gradient"):
        begin = time.process_time()
        trace = solve(problem, method, start, tol=0.0, gap=1e-6, max_iter=200, record=())
        seconds = time.process_time() - begin
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        cells = [
            method,
            f"{seconds:.0f}",
            str(trace.iterations),
            f"{trace.value - best:.1e}",
            f"{peak:.1f} GB",
        ]
        rows.append(cells)
        print("  ", *cells, flush=True)
    TABLES.add(
        "large",
        "Normalised cross-entropy, K = 1000, n = 50, d = 1024, to a gap of 1e-6 (one thread)",
        ["method", "seconds", "iterations", "gap", "peak memory so far"],
        rows,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="small sizes only")
    parser.add_argument("--large", action="store_true", help="the largest problem besides")
    parts = ["normalized", "regularized", "growth", "memory", "recording", "batch", "starts", "large"]
    parser.add_argument("--only", choices=parts)
    parser.add_argument("--json", type=Path, help="keep the tables in this file (evidence/bench/solvers.json)")
    chosen = parser.parse_args()

    def wanted(name: str) -> bool:
        return chosen.only in (None, name)

    limits = {"SD": 150.0, "CG": 60.0, "TR": 60.0}
    if wanted("normalized"):
        normalized((10, 5, 32), 3 if chosen.quick else 7, limits, ["torch", "autograd"])
        if not chosen.quick:
            normalized((100, 30, 110), 2, limits, ["torch"])
    if wanted("regularized"):
        regularized((10, 20, 20) if chosen.quick else (10, 100, 20), 2 if chosen.quick else 3)
    if wanted("growth"):
        growth((10, 20, 32) if chosen.quick else (20, 100, 64), 2)
    if wanted("memory"):
        ways = ["gradient-descent", "conjugate-gradient", "adam", "trust-region", "lbfgs", "reduced"]
        for sizes in [(20, 100, 128)] if chosen.quick else [(100, 300, 110), (10, 5000, 128)]:
            memory(sizes, ways, 6)
        if chosen.large:
            memory((1000, 50, 1024), ["reduced", "conjugate-gradient"], 2)
    if wanted("recording"):
        recording((10, 5, 32), 5 if chosen.quick else 15)
        if not chosen.quick:
            recording((50, 20, 64), 5)
    if wanted("batch"):
        batch((10, 5, 32), 40 if chosen.quick else 100, 2)
    if chosen.only == "starts":
        starts(5 if chosen.quick else 100)
    if chosen.large or chosen.only == "large":
        large()
    if chosen.json:
        TABLES.save(chosen.json)


if __name__ == "__main__":
    main()
