"""This working tree against an earlier commit of itself: the same tasks in two processes that take turns.

    python benchmarks/versions.py v0.1.0      any commit, tag or branch

What a task needs must exist in both versions. Times are those of the processor; the least of several counts.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
from _tables import Tables

HOME = Path(__file__).resolve().parent.parent
SOLVERS = ("gradient-descent", "conjugate-gradient", "trust-region", "lbfgs", "reduced")
LEAST_TURNS = 5


def tasks() -> dict[str, Callable[[], object]]:
    """What is timed, by its name in the table."""
    import neuralcollapse as nc

    torch.set_num_threads(1)
    draw = torch.Generator().manual_seed(0)

    def sample(count: int, dim: int, classes: int) -> tuple[torch.Tensor, ...]:
        labels = torch.arange(count) % classes
        means, noise = torch.randn(classes, dim, generator=draw), torch.randn(count, dim, generator=draw)
        classifier = torch.randn(classes, dim, generator=draw), torch.randn(classes, generator=draw)
        return means[labels] + 0.3 * noise, labels, *classifier

    wide, small, many = sample(20_000, 1024, 100), sample(4_000, 256, 50), sample(20_000, 128, 1000)

    def stream() -> object:
        statistics_of_classes = nc.ClassStatistics(100, 1024)
        for begin in range(0, 8192, 256):
            statistics_of_classes.update(wide[0][begin : begin + 256], wide[1][begin : begin + 256])
        return statistics_of_classes.report(*wide[2:])

    net = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 10))
    batches = [(torch.randn(128, 64, generator=draw), torch.arange(128) % 10) for _ in range(40)]
    spheres = nc.ufm.NormalizedUFM("ce", 10, 5, 32, temperature=1.0)
    free = nc.ufm.RegularizedUFM("ce", 10, 100, 20, weight_decay=5e-4, feature_decay=5e-4)
    large = nc.ufm.NormalizedUFM("ce", 100, 30, 110, temperature=1.0)
    optimum = free.optimum().point
    plan = nc.training.Plan(data="digits", model="mlp:width=64,depth=2", epochs=4, measure=(4,), metrics=("nc1",))

    def train() -> object:
        with tempfile.TemporaryDirectory() as folder:
            return nc.training.train(plan, Path(folder) / "run")

    found: dict[str, Callable[[], object]] = {
        "measure, 20,000 x 1,024, K = 100": lambda: nc.measure(*wide),
        "measure, 20,000 x 128, K = 1,000": lambda: nc.measure(*many),
        "measure, 4,000 x 256, K = 50, all metrics": lambda: nc.measure(*small, metrics="all"),
        "stream of 32 batches of 256 x 1,024": stream,
        "measure_model, 40 batches of 128": lambda: nc.measure_model(net, batches),
        "certify, K = 10, n = 100, d = 20": lambda: free.certify(optimum),
        "train, 4 epochs of digits": train,
        "trust-region, normalised, K = 100, n = 30, d = 110": lambda: nc.ufm.solve(large, "trust-region", seed=1),
    }
    for method in SOLVERS:
        found[f"{method}, normalised, K = 10, n = 5, d = 32"] = lambda m=method: nc.ufm.solve(spheres, m, seed=1)
        found[f"{method}, regularised, K = 10, n = 100, d = 20"] = lambda m=method: nc.ufm.solve(free, m, seed=1)
    for method in ("gradient-descent", "conjugate-gradient", "lbfgs"):
        found[f"batch of 50, {method}"] = lambda m=method: nc.ufm.solve_many(spheres, range(50), m, batched=True)
    return found


def serve() -> None:
    """Time the task that each line of the input names."""
    found = tasks()
    print(json.dumps(list(found)), flush=True)
    for line in sys.stdin:
        begin = time.process_time()
        found[line.rstrip("\n")]()
        print(time.process_time() - begin, flush=True)


class Version:
    """A process with the package of one tree."""

    def __init__(self, tree: Path) -> None:
        settings = {**os.environ, "PYTHONPATH": str(tree / "src"), "OMP_NUM_THREADS": "1"}
        command = [sys.executable, str(Path(__file__).resolve()), "--serve"]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=settings)
        self.tasks: list[str] = json.loads(self._answer())

    def seconds(self, task: str) -> float:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{task}\n")
        self.process.stdin.flush()
        return float(self._answer())

    def close(self) -> None:
        self.process.kill()
        self.process.wait()

    def _answer(self) -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit("versions: a process ended early; its error is above")
        return line


def compare(task: str, earlier: Version, now: Version, budget: float) -> list[str]:
    """A row of the table: both in turns, each first in half of them, after one turn that does not count."""
    times: dict[Version, list[float]] = {earlier: [], now: []}
    begin, turn = time.perf_counter(), 0
    while turn <= LEAST_TURNS or time.perf_counter() - begin < budget:
        for version in (earlier, now) if turn % 2 else (now, earlier):
            times[version].append(version.seconds(task))
        turn += 1
    before, after = times[earlier][1:], times[now][1:]
    median = statistics.median(after) / statistics.median(before)
    return [task, f"{min(before):.3g}", f"{min(after):.3g}", f"{min(after) / min(before):.3f}", f"{median:.3f}"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("commit", nargs="?", help="the earlier version")
    parser.add_argument("--seconds", type=float, default=4.0, help="for each task")
    parser.add_argument("--json", type=Path, help="keep the table in this file (evidence/bench/versions.json)")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve()
        return
    if options.commit is None:
        parser.error("name the commit to compare with")
    git = ["git", "-C", str(HOME)]
    name = subprocess.check_output([*git, "rev-parse", "--short", options.commit], text=True).strip()
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "tree"
        subprocess.run([*git, "worktree", "add", "--quiet", "--detach", str(tree), name], check=True)
        versions: list[Version] = []
        try:
            versions = [Version(tree), Version(HOME)]
            rows = [compare(task, *versions, options.seconds) for task in versions[1].tasks]
        finally:
            for version in versions:
                version.close()
            subprocess.run([*git, "worktree", "remove", "--force", str(tree)], check=True)
    torch.set_num_threads(1)  # as in both processes; the table says it
    tables = Tables()
    columns = ["task", f"{name}, s", "now, s", "now / then, least", "now / then, medians"]
    tables.add("versions", f"The package now and at {name}, processor seconds", columns, rows)
    if options.json:
        tables.save(options.json)


if __name__ == "__main__":
    main()
