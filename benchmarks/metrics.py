"""Time, memory and error of nc1..nc4 against two usual ways and against the limit of the machine.

    python benchmarks/metrics.py [--quick] [--cpu] [--sizes 50000x2048x100,...] [--json evidence/bench/metrics.json]

``--cpu`` runs everything on one thread and counts processor seconds, which is fair on a busy machine. "core" and
"all" are the groups of metrics of that name. A stream of language-model size goes through ``ClassStatistics`` and
through a plain float64 ``index_add_`` of means and squares.

Rivals, run in turn with ours in one process (the minimum of several rounds counts):

(a) direct: class means, then the d x d within-class covariance of all centred features, and pinv of S_B;
(b) accumulate: a stream of batches through a one-hot product for the means and a d x d accumulator, then
    pinv, the way of the public library for the purpose (a stand-in written for this file);
(c) limit: one product of the features with a d x min(K-1, d) matrix and two reads of the features.

All of them take float32 features; errors of nc1 are against float64 arithmetic on the same features, and
against 60 digits for a small case near collapse.
"""

import argparse
import json
import math
import os
import sys
import threading
import time
from pathlib import Path

if "--cpu" in sys.argv:
    # Before any library reads it: LAPACK of scipy has threads of its own.
    os.environ["OMP_NUM_THREADS"] = "1"

import torch
from _tables import machine

import neuralcollapse as nc

sys.path.append(str(Path(__file__).resolve().parent.parent / "evidence"))
from figures import SIZES_COLUMNS, cells_of_sizes

SIZES = [
    (50_000, 512, 10),
    (50_000, 512, 100),
    (50_000, 2048, 100),
    (50_000, 512, 1000),
    (50_000, 512, 10_000),
]
QUICK = [(5_000, 256, 10), (5_000, 512, 50), (5_000, 64, 200)]
NAMES = ("nc1", "nc2", "nc3", "nc4_bias")
BATCH = 512


def make(samples, dim, classes, spread=0.3, offset=1.0, seed=0):
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(samples) % classes
    labels = labels[torch.randperm(samples, generator=generator)]
    means = torch.randn(classes, dim, generator=generator) + offset * torch.randn(dim, generator=generator)
    features = torch.empty(samples, dim)
    for rows in torch.arange(samples).split(8192):
        noise = spread * torch.randn(len(rows), dim, generator=generator)
        features[rows] = means[labels[rows]] + noise
    return (
        features,
        labels,
        torch.randn(classes, dim, generator=generator),
        torch.randn(classes, generator=generator),
    )


def geometry_terms(means, centre, weight, bias):
    """nc2, nc3 and nc4 as the scripts compute them, in the precision they have."""
    count = means.shape[0]
    ideal = (torch.eye(count) - 1 / count) / math.sqrt(count - 1)
    centred = means - centre
    gram, cross = weight @ weight.T, weight @ centred.T
    first = torch.norm(gram / torch.norm(gram) - ideal)
    second = torch.norm(cross / torch.norm(cross) - ideal)
    return float(first), float(second), float(torch.norm(weight @ centre + bias))


def direct(features, labels, weight, bias):
    count = weight.shape[0]
    sums = torch.zeros_like(weight).index_add_(0, labels, features)
    means = sums / torch.bincount(labels, minlength=count)[:, None]
    centre = features.mean(0)
    difference = features - means[labels]
    within = difference.T @ difference / len(features)
    centred = means - centre
    between = centred.T @ centred / count
    nc1 = float(torch.trace(within @ torch.linalg.pinv(between))) / count
    return nc1, *geometry_terms(means, centre, weight, bias)


def accumulate(features, labels, weight, bias):
    count, dim = weight.shape
    sums, numbers = torch.zeros(count, dim), torch.zeros(count, dtype=torch.int64)
    classes = torch.arange(count)
    for rows, targets in zip(features.split(BATCH), labels.split(BATCH), strict=True):
        members = targets[:, None] == classes
        numbers += members.sum(0)
        sums += members.T.to(rows.dtype) @ rows
    means = sums / numbers[:, None]
    centre = means.mean(0)
    total = torch.zeros(dim, dim)
    for rows, targets in zip(features.split(BATCH), labels.split(BATCH), strict=True):
        members = targets[:, None] == classes
        numbers += members.sum(0)
        difference = rows - means[targets]
        total += difference.T @ difference
    centred = means - centre
    between = centred.T @ centred / count
    nc1 = float(torch.trace((total / len(features)) @ torch.linalg.pinv(between))) / count
    return nc1, *geometry_terms(means, centre, weight, bias)


def limit(features, labels, weight, bias, matrix):
    features.sum()
    features.sum()
    return (features @ matrix)[0, 0]


def ours(features, labels, weight, bias):
    return nc.measure(features, labels, weight, bias, metrics=NAMES).nc1


def margins(features, labels, weight, bias):
    return nc.measure(features, labels, weight, bias, metrics=(*NAMES, "nc4_mismatch", "cosine_margin")).nc1


def core(features, labels, weight, bias):
    return nc.measure(features, labels, weight, bias).nc1


def everything(features, labels, weight, bias):
    return nc.measure(features, labels, weight, bias, metrics="all").nc1


def streamed(features, labels, weight, bias):
    """Batches through ClassStatistics in float64: two passes for few classes, else one."""
    count, dim = weight.shape
    passes = 1 if 2 * (count - 1) >= dim else 2
    statistics = nc.ClassStatistics(count, dim, passes=passes)
    step = 4096
    for rows, targets in zip(features.split(step), labels.split(step), strict=True):
        statistics.update(rows, targets)
    if passes == 1:
        return statistics.report(weight, bias, metrics=NAMES).nc1
    second = statistics.second_pass(weight, bias, metrics=NAMES)
    for rows, targets in zip(features.split(step), labels.split(step), strict=True):
        second.update(rows, targets)
    return second.report().nc1


def truth(features, labels, count):
    """nc1 in float64, chunk by chunk, from the definition on the span of the means."""
    dim = features.shape[1]
    sums = torch.zeros(count, dim, dtype=torch.float64)
    for rows, targets in zip(features.split(4096), labels.split(4096), strict=True):
        sums.index_add_(0, targets, rows.double())
    numbers = torch.bincount(labels, minlength=count).double()
    means = sums / numbers[:, None]
    centred = means - (numbers / numbers.sum()) @ means
    _, values, directions = torch.linalg.svd(centred, full_matrices=False)
    kept = values > 1e-12 * values[0]
    scaled = directions[kept].T / values[kept]
    total = 0.0
    for rows, targets in zip(features.split(4096), labels.split(4096), strict=True):
        total += float(((rows.double() - means[targets]) @ scaled).square().sum())
    return total / len(features)


def timed(clock, function, *arguments):
    start = clock()
    value = function(*arguments)
    return clock() - start, value


def resident():
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    return 0


def peak_extra(function, *arguments):
    """Resident bytes above the level before the call, sampled every millisecond."""
    function(*arguments)
    before, peak, done = resident(), 0, threading.Event()

    def watch():
        nonlocal peak
        while not done.wait(0.001):
            peak = max(peak, resident())

    thread = threading.Thread(target=watch)
    thread.start()
    function(*arguments)
    done.set()
    thread.join()
    return max(0, peak - before)


def row(size, clock, rounds, slow_rounds):
    _, dim, classes = size
    data = make(*size)
    matrix = torch.randn(dim, min(classes - 1, dim))
    tasks = {"limit": (limit, (*data, matrix)), "ours": (ours, data), "streamed": (streamed, data)}
    slow = {
        "direct": (direct, data),
        "accumulate": (accumulate, data),
        "margins": (margins, data),
        "core": (core, data),
    }
    # Certified distances between a thousand classes take minutes: not a matter of measuring features.
    if classes <= 100:
        slow["all"] = (everything, data)
    best, value = {}, {}
    for number in range(rounds):
        for name, (function, arguments) in {**tasks, **(slow if number < slow_rounds else {})}.items():
            seconds, value[name] = timed(clock, function, *arguments)
            best[name] = min(best.get(name, math.inf), seconds)
    memory = peak_extra(ours, *data)
    exact = truth(data[0], data[1], classes)
    nc1 = {
        name: result[0] if isinstance(result, tuple) else result for name, result in value.items() if name != "limit"
    }
    return best, {name: abs(v / exact - 1) for name, v in nc1.items()}, memory


def stream(clock, classes=50_257, dim=768, batch=8192, batches=6):
    """Tokens a second of ``ClassStatistics.update`` and of a plain float64 ``index_add_``, labels as in text."""
    generator = torch.Generator().manual_seed(0)
    share = 1 / torch.arange(1, classes + 1).double()
    labels = [torch.multinomial(share, batch, replacement=True, generator=generator) for _ in range(batches)]
    features = [torch.randn(batch, dim, generator=generator) for _ in range(2)] * (batches // 2)
    statistics = nc.ClassStatistics(classes, dim, passes=2)
    sums, squares = (torch.zeros(classes, dim, dtype=torch.float64) for _ in range(2))

    def ours():
        for rows, targets in zip(features, labels, strict=True):
            statistics.update(rows, targets)

    def plain():
        for rows, targets in zip(features, labels, strict=True):
            double = rows.double()
            sums.index_add_(0, targets, double)
            squares.index_add_(0, targets, double.square())

    best = {"ours": math.inf, "index_add_": math.inf}
    for _ in range(3):
        for name, function in (("ours", ours), ("index_add_", plain)):
            best[name] = min(best[name], timed(clock, function)[0])
    speeds = {name: batch * batches / seconds for name, seconds in best.items()}
    ratio = speeds["ours"] / speeds["index_add_"]
    print(f"\nstream of {classes} classes in {dim} dimensions, batches of {batch}: {speeds['ours']:,.0f} tokens/s, "
          f"index_add_ {speeds['index_add_']:,.0f}, {ratio:.1f}x")  # fmt: skip
    return {"classes": classes, "dim": dim, "batch": batch, "tokens_per_second": speeds, "ratio": ratio}


def near_collapse():
    """Errors of nc1 against 60 digits, float32 features with an offset 30 times the scale of the means."""
    import mpmath

    print("\nnear collapse: (60, 6, 4), float32, offset 30; relative error of nc1 against 60 digits\n")
    print("| spread | ours | (a) direct | (b) accumulate |\n|---|---|---|---|")
    found = []
    for spread in (1e-2, 1e-4, 1e-6):
        features, labels, weight, bias = make(60, 6, 4, spread=spread, offset=30.0)
        with mpmath.workdps(60):
            rows = [mpmath.matrix([mpmath.mpf(v) for v in r]) for r in features.double().tolist()]
            y = labels.tolist()
            means = [sum((rows[i] for i in range(60) if y[i] == k), mpmath.zeros(6, 1)) / y.count(k) for k in range(4)]
            centre = sum(rows, mpmath.zeros(6, 1)) / 60
            M = mpmath.matrix(4, 6)
            for k in range(4):
                M[k, :] = (means[k] - centre).T
            values, vectors = mpmath.eigsy(M * M.T)
            exact = mpmath.mpf(0)
            for i in range(1, 4):
                direction = M.T * vectors[:, i] / values[i]
                exact += sum(((rows[j] - means[y[j]]).T * direction)[0] ** 2 for j in range(60)) / 60
            exact = float(exact)
        values = [ours(features, labels, weight, bias), direct(features, labels, weight, bias)[0]]
        values.append(accumulate(features, labels, weight, bias)[0])
        errors = [abs(value / exact - 1) for value in values]
        print(f"| {spread:g} | " + " | ".join(f"{error:.1e}" for error in errors) + " |")
        found.append({"spread": spread, "errors": dict(zip(("ours", "direct", "accumulate"), errors, strict=True))})
    return found


def print_row(cells):
    print("| " + " | ".join(cells) + " |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="small sizes, a few seconds")
    parser.add_argument("--sizes", help="SAMPLESxDIMxCLASSES, separated by commas")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    parser.add_argument("--cpu", action="store_true", help="one thread, processor seconds")
    options = parser.parse_args()
    started = time.perf_counter(), time.process_time()
    clock = time.process_time if options.cpu else time.perf_counter
    if options.cpu:
        torch.set_num_threads(1)
    sizes = QUICK if options.quick else SIZES
    if options.sizes:
        sizes = [tuple(int(part) for part in text.split("x")) for text in options.sizes.split(",")]
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads; "
          f"{'processor ' if options.cpu else ''}seconds, minimum of several rounds\n")  # fmt: skip
    print_row(SIZES_COLUMNS)
    print("|" + "---|" * len(SIZES_COLUMNS))
    rows = []
    for size in sizes:
        large = size[0] * size[1] > 2e7
        best, error, memory = row(size, clock, 3 if large else 7, 1 if size[2] >= 10_000 else 2)
        sizes_of = dict(zip(("samples", "dim", "classes"), size, strict=True))
        rows.append({**sizes_of, "seconds": best, "errors": error, "memory": memory})
        print_row(cells_of_sizes(rows[-1]))
    near = near_collapse()
    streams = stream(clock, *((2000, 64, 1024, 4) if options.quick else ()))
    small = stream(clock, *((2000, 64, 256, 16) if options.quick else (50_257, 768, 2048, 24)))
    took = {"seconds": time.perf_counter() - started[0], "processor_seconds": time.process_time() - started[1]}
    print(f"\nall of this took {took['seconds']:.0f} s, {took['processor_seconds']:.0f} s of processor time")
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        result = {"machine": machine("processor" if options.cpu else "wall-clock"), "sizes": rows}
        result |= {"near": near, "stream": streams, "small_stream": small, "took": took}
        options.json.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
