"""Two processes take the steps that one takes with the whole batch."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from neuralcollapse.training._distributed import Team, with_synchronised_batch_norm

SCRIPT = Path(__file__).with_name("two_processes.py")


def free_port() -> int:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        return server.getsockname()[1]


def run(folder: Path, processes: int) -> None:
    folder.mkdir()
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    if processes > 1:
        environment |= {"WORLD_SIZE": str(processes), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    running = [
        subprocess.Popen(
            [sys.executable, str(SCRIPT), str(folder)],
            env={**environment, "RANK": str(rank)} if processes > 1 else environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(processes)
    ]
    try:
        for process in running:
            output, _ = process.communicate(timeout=240)
            assert process.returncode == 0, output
    finally:
        for process in running:
            process.kill()
            process.wait()


def test_two_processes_equal_one(tmp_path):
    """Losses of the first 50 steps to 1e-5, and the measured collapse."""
    run(tmp_path / "one", 1)
    run(tmp_path / "two", 2)
    for name in ("resnet", "features", "contrastive"):
        one, two = (json.loads((tmp_path / who / name / "losses.json").read_text()) for who in ("one", "two"))
        assert len(one["losses"]) >= 50
        assert two["losses"][:50] == pytest.approx(one["losses"][:50], abs=1e-5)
        assert len(one["history"]) == len(two["history"])
        for alone, together in zip(one["history"], two["history"], strict=True):
            assert alone.keys() == together.keys()
            for key, value in alone.items():
                assert together[key] == (pytest.approx(value, rel=2e-3) if isinstance(value, float) else value)
        environment = json.loads((tmp_path / "two" / name / "environment.json").read_text())
        assert environment["processes"] == 2
        assert "synchronised" in environment["batch_norm"]


def test_a_team_of_one_does_nothing():
    team = Team()
    assert team.leads
    assert torch.equal(team.share(torch.arange(5)), torch.arange(5))
    assert torch.equal(Team(1, 2).share(torch.arange(5)), torch.tensor([1, 3]))


@pytest.fixture
def alone(tmp_path):
    """A process group of one process."""
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/meet", rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


@pytest.mark.parametrize("shape", [(8, 3), (8, 3, 5, 4)])
def test_synchronised_batch_norm_is_batch_norm_in_a_team_of_one(alone, shape):
    generator = torch.Generator().manual_seed(0)
    original = nn.BatchNorm1d(3) if len(shape) == 2 else nn.BatchNorm2d(3)
    other = nn.BatchNorm1d(3) if len(shape) == 2 else nn.BatchNorm2d(3)
    replaced = with_synchronised_batch_norm(nn.Sequential(other))
    assert nn.Sequential(original).state_dict().keys() == replaced.state_dict().keys()
    for _ in range(3):
        inputs = torch.randn(shape, generator=generator, requires_grad=True)
        weights = torch.randn(shape, generator=generator)
        found, expected = replaced(inputs), original(inputs)
        torch.testing.assert_close(found, expected)
        gradient = torch.autograd.grad((found * weights).sum(), inputs)[0]
        torch.testing.assert_close(gradient, torch.autograd.grad((expected * weights).sum(), inputs)[0])
    torch.testing.assert_close(replaced[0].running_var, original.running_var)
    torch.testing.assert_close(replaced.eval()(inputs), original.eval()(inputs))
