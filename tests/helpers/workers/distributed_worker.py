"""Gloo runs of several ranks: ``python distributed_worker.py DIRECTORY WORLD...``."""

import json
import sys
from pathlib import Path

import torch
from torch import distributed

import neuralcollapse as nc
from neuralcollapse.metrics import NeuralCollapse
from ranks import fork_ranks

K, D, N = 7, 11, 400


def data():
    generator = torch.Generator().manual_seed(5)
    y = torch.randint(0, K, (N,), generator=generator)
    H = torch.randn(K, D, generator=generator)[y] + 1e-3 * torch.randn(N, D, generator=generator) + 30
    return H, y, torch.randn(K, D, generator=generator), torch.randn(K, generator=generator)


def shard(y, rank, world):
    """Uneven shards; the last rank misses classes 0 and 1; with four ranks, one has a single sample."""
    owner = torch.arange(N) % world
    owner[(owner == world - 1) & (y <= 1)] = 0
    owner[torch.arange(N) < 90] = 0
    if world == 4:
        mine = (owner == 2).nonzero().squeeze(1)
        owner[mine[1:]] = 1
    return (owner == rank).nonzero().squeeze(1)


def run(rank, world, folder):
    distributed.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=world)
    H, y, W, b = data()
    mine = shard(y, rank, world)
    calls = []
    plain = distributed.all_reduce
    distributed.all_reduce = lambda *args, **kwargs: (calls.append(1), plain(*args, **kwargs))[1]

    statistics = nc.ClassStatistics(K, D)
    statistics.update(H[mine], y[mine])
    statistics.all_reduce()
    reductions = len(calls)
    second = statistics.second_pass(W, b, metrics="all")
    second.update(H[mine], y[mine])
    second.all_reduce()

    two = nc.ClassStatistics(K, D, passes=2)
    two.update(H[mine], y[mine])
    two.all_reduce()
    again = two.second_pass(W, b, metrics=["nc1", "nc1_quotient"])
    again.update(H[mine], y[mine])
    again.all_reduce()

    metric = NeuralCollapse(K, D, metrics="all")
    metric.use_classifier(W, b)
    for index in mine.split(17):
        metric.update(H[index], y[index])
    computed = {name: float(value) for name, value in metric.compute().items()}
    local = int(metric.statistics().total)
    result = {
        "report": second.report().to_dict(),
        "two": again.report().to_dict(),
        "torchmetrics": computed,
        "torchmetrics_again": metric.report().to_dict(),
        "local": local,
        "share": len(mine),
        "reductions": reductions,
        "margins": len(second.report().cosine_margins),
    }
    (folder / f"{rank}.json").write_text(json.dumps(result))
    distributed.destroy_process_group()


UNEVEN = {"one": (1, {}), "two": (2, {}), "few": (1, {"min_samples": 5})}


def uneven_data():
    """Classes of 3 to 80 samples in 20 dimensions."""
    generator = torch.Generator().manual_seed(6)
    y = torch.repeat_interleave(torch.arange(K), torch.tensor([80, 30, 25, 15, 10, 6, 3]))
    y = y[torch.randperm(len(y), generator=generator)]
    H = torch.randn(K, 20, generator=generator)[y] + 0.2 * torch.randn(len(y), 20, generator=generator) + 5
    return H, y, torch.randn(K, 20, generator=generator), torch.randn(K, generator=generator)


def run_uneven(rank, world, folder):
    """The last rank has no data at all; class 6 is on rank 0 only."""
    distributed.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=world)
    H, y, W, b = uneven_data()
    owner = torch.arange(len(y)) % max(world - 1, 1)
    owner[y == 6] = 0
    mine = (owner == rank).nonzero().squeeze(1)
    result = {}
    for key, (passes, selection) in UNEVEN.items():
        statistics = nc.ClassStatistics(K, 20, passes=passes)
        if len(mine):
            statistics.update(H[mine], y[mine])
        statistics.all_reduce()
        second = statistics.second_pass(W, b, metrics="all", **selection)
        if len(mine):
            second.update(H[mine], y[mine])
        second.all_reduce()
        report = second.report()
        result[key] = report.to_dict()
        if key == "one":
            result |= {"margins": len(report.cosine_margins), "precision": str(statistics.precision)}
    (folder / f"{rank}.json").write_text(json.dumps(result))
    distributed.destroy_process_group()


if __name__ == "__main__":
    for name in sys.argv[2:]:
        world, work = int(name.removeprefix("uneven")), run_uneven if name.startswith("uneven") else run
        fork_ranks(work, world, Path(sys.argv[1]) / name)
