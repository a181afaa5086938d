"""Gloo runs of ``measure_model`` on models that lie on two processes: ``python sharded_worker.py DIRECTORY``."""

import json
import sys
from pathlib import Path

import torch
from torch import distributed, nn
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import neuralcollapse as nc
from ranks import fork_ranks

K, D, N = 5, 6, 64
METRICS = ["nc1", "cdnv", "nc2", "nc3", "nc4_mismatch", "nc4_bias"]
WAYS = ["flat", "flat by name", "original", "nested", "stream", "second kind", "adapted"]


class Adapted(nn.Module):
    """A linear layer with a low-rank update."""

    def __init__(self, layer):
        super().__init__()
        self.base_layer, self.down, self.up = layer, nn.Linear(D, 2, bias=False), nn.Linear(2, K, bias=False)

    def forward(self, x):
        return self.base_layer(x) + self.up(self.down(x))


class Net(nn.Module):
    def __init__(self, adapted=False):
        super().__init__()
        torch.manual_seed(7)
        self.body = nn.Sequential(nn.Linear(4, D), nn.Tanh())
        self.head = nn.Linear(D, K)
        if adapted:
            self.head = Adapted(self.head)

    def forward(self, x):
        return self.head(self.body(x))


def data():
    return torch.randn(N, 4, generator=torch.Generator().manual_seed(8)), torch.arange(N) % K


def run(rank, world, folder):
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=world)
    dataset, result = TensorDataset(*data()), {}
    loader = DataLoader(dataset, 8, sampler=DistributedSampler(dataset, shuffle=True, seed=1))

    def flat(model, **options):
        return FullyShardedDataParallel(model, device_id=torch.device("cpu"), **options)

    def keep(name, model, **options):
        report = nc.measure_model(model, loader, metrics=METRICS, **options)
        result[name] = report.to_dict()

    keep("flat", flat(Net()))
    keep("flat by name", flat(Net()), layer="head")
    keep("original", flat(Net(), use_orig_params=True))
    nested = Net()
    nested.head = flat(nested.head)
    keep("nested", flat(nested))
    keep("stream", flat(Net(), use_orig_params=True), memory_limit=0, passes=2)
    second = Net()
    fully_shard(second.head)
    keep("second kind", fully_shard(second))
    keep("adapted", fully_shard(Net(adapted=True)))
    distributed.destroy_process_group()
    (folder / f"{rank}.json").write_text(json.dumps(result))


if __name__ == "__main__":
    fork_ranks(run, 2, Path(sys.argv[1]))
