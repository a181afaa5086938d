"""What the benchmark of the solvers measures, a function a table."""

import math
import multiprocessing
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
from _rivals import jax_lbfgs, pymanopt_times, scipy_lbfgs, scipy_newton, torch_lbfgs, torch_steps
from _tables import Tables

from neuralcollapse.ufm import NormalizedUFM, RegularizedUFM, methods, solve, solve_many

TABLES = Tables()


def shown(seconds: float) -> str:
    return "not reached" if math.isinf(seconds) else f"{seconds:.3g}"


# Rivals


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


def compiled(sizes: list[tuple[int, int, int]], repeats: int) -> None:
    """Against an L-BFGS that JAX compiles as a whole; its compilation is not counted."""
    rows = []
    for size in sizes:
        problem = RegularizedUFM("ce", *size, weight_decay=5e-4, feature_decay=5e-4)
        try:
            rival = jax_lbfgs(problem)
        except ImportError:
            print("compiled: JAX and optax are not installed (pip install neuralcollapse[bench]); left out", flush=True)
            return
        best = dict.fromkeys(("JAX", "trust-region", "lbfgs", "reduced"), (math.inf, math.inf))
        for _ in range(repeats):
            best["JAX"] = min(best["JAX"], rival())
            for method in ("trust-region", "lbfgs", "reduced"):
                begin = time.process_time()
                trace = solve(problem, method, problem.random_point(0), tol=1e-8, max_iter=5000, record=())
                best[method] = min(best[method], (time.process_time() - begin, trace.gradient_norm))
        theirs, norm = best.pop("JAX")
        cells = [f"{shown(seconds)} ({theirs / seconds:.2g}x)" for seconds, _ in best.values()]
        rows.append(["K = {}, n = {}, d = {}".format(*size), f"{shown(theirs)} ({norm:.0e})", *cells])
    title = "Regularised cross-entropy to a gradient norm of 1e-8: seconds (the rival's over ours)"
    columns = ["problem", "optax.lbfgs, compiled by JAX (norm reached)", "trust-region", "lbfgs", "reduced"]
    TABLES.add("compiled", title, columns, rows)


# Growth, memory, histories, batches


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
    peak = peak_memory()
    answer.put(peak - before)


def peak_memory() -> int:
    """Bytes at the peak of this process alone: that of ``getrusage`` begins with its parent's."""
    status = Path("/proc/self/status")
    for line in status.read_text().splitlines() if status.exists() else ():
        if line.startswith("VmHWM:"):
            return 1024 * int(line.split()[1])
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


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
        peak = peak_memory() / 2**30
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
