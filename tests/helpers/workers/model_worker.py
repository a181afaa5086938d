"""Gloo runs of ``measure_model``: ``python model_worker.py DIRECTORY WORLD...``."""

import json
import sys
from pathlib import Path

import torch
from torch import distributed, nn
from torch.utils.data import BatchSampler, DataLoader, DistributedSampler, TensorDataset

import neuralcollapse as nc
from neuralcollapse.metrics import measure_layers
from ranks import fork_ranks

K, D, N = 5, 6, 103
METRICS = ["nc1", "nc1_quotient", "cdnv", "nc2", "nc3", "nc4_mismatch", "nc4_bias", "cosine_margin", "equinorm_means"]


def network():
    torch.manual_seed(7)
    return nn.Sequential(nn.Linear(4, D), nn.Tanh(), nn.Linear(D, K)).double()


def data():
    generator = torch.Generator().manual_seed(8)
    return torch.randn(N, 4, dtype=torch.float64, generator=generator), torch.arange(N) % K


def uneven(rank, world):
    """Shards by hand: the last rank has nothing, and class 0 is on rank 0 only."""
    x, y = data()
    if world == 1:
        return [(x, y)]
    owner = torch.arange(N) % max(1, world - 1)
    owner[y == 0] = 0
    mine = owner == rank
    return [(x[mine][part], y[mine][part]) for part in torch.arange(int(mine.sum())).split(9)]


def run(rank, world, folder):
    distributed.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=world)
    model, (x, y) = network(), data()
    dataset = TensorDataset(x, y)
    sampled = DataLoader(dataset, 8, sampler=DistributedSampler(dataset, shuffle=True, seed=1))
    result = {}

    def keep(name, report):
        result[name] = report.to_dict() | {"margins": len(report.cosine_margins)}

    keep("sampler", nc.measure_model(model, sampled, metrics=METRICS))
    batched = BatchSampler(DistributedSampler(dataset, shuffle=True, seed=1), 8, drop_last=False)
    keep("batch sampler", nc.measure_model(model, DataLoader(dataset, batch_sampler=batched), metrics=METRICS))
    keep("stream", nc.measure_model(model, sampled, metrics=METRICS, memory_limit=0))
    keep("shards", nc.measure_model(model, uneven(rank, world), metrics=METRICS, reduce=True))
    keep("shards stream", nc.measure_model(model, uneven(rank, world), metrics=METRICS, reduce=True, memory_limit=0))
    group = distributed.new_group(list(range(world)))
    keep("group", nc.measure_model(model, uneven(rank, world), metrics=METRICS, reduce=group))
    for name, limit in (("layers", 1 << 30), ("layers stream", 0)):
        options = {"metrics": ["nc1", "cdnv"], "memory_limit": limit}
        result[name] = [
            {layer: report.to_dict() for layer, report in found.items()}
            for found in (
                measure_layers(model, sampled, ["0", "1"], K, **options),
                measure_layers(model, uneven(rank, world), ["0", "1"], K, reduce=True, **options),
            )
        ]
    result["layers alone"] = measure_layers(model, sampled, ["1"], K, reduce=False)["1"].to_dict()
    grouped = nc.measure_model(model, sampled, metrics=METRICS, intervals=0.95, groups=4)
    result["intervals"] = {name: list(bounds) for name, bounds in grouped.intervals.items()}
    wrapped = nn.parallel.DistributedDataParallel(model)
    keep("wrapped", nc.measure_model(wrapped, sampled, metrics=METRICS))
    result["alone"] = nc.measure_model(model, sampled, metrics="nc1_quotient", reduce=False).to_dict()
    result["plain loader"] = nc.measure_model(model, DataLoader(dataset, 8), metrics="nc1_quotient").to_dict()
    bad = [(x[:20] * (torch.nan if rank == 0 else 1.0), y[:20])]
    try:
        nc.measure_model(model, bad, reduce=True)
    except ValueError as error:
        result["error"] = str(error)
    (folder / f"{rank}.json").write_text(json.dumps(result))
    distributed.destroy_process_group()


if __name__ == "__main__":
    for count in map(int, sys.argv[2:]):
        fork_ranks(run, count, Path(sys.argv[1]) / str(count))
