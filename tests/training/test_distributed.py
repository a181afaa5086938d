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

from neuralcollapse.cli import main
from neuralcollapse.training import Plan, Run
from neuralcollapse.training._distributed import Team, with_synchronised_batch_norm
from neuralcollapse.training._train import _check_shares

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


# faults --------------------------------------------------------------------------------------------------------------

THREE = Path(__file__).with_name("three_processes.py")
SMALL = ["--model", "mlp:width=8,depth=2", "--epochs", "3", "--measure", "1,3", "--data"]
TWO = "synthetic:num_classes=2,dim=4,per_class=15"


def three(fault: str, *arguments: str) -> tuple[list[int], list[str]]:
    """Exit codes and what was written to stderr, by rank."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "WORLD_SIZE": "3", "MASTER_ADDR": "127.0.0.1"}
    environment["MASTER_PORT"] = str(free_port())
    command = [sys.executable, str(THREE), fault, *SMALL, *arguments]
    running = [
        subprocess.Popen(command, env={**environment, "RANK": str(rank)}, stderr=subprocess.PIPE, text=True)
        for rank in range(3)
    ]
    try:
        errors = [process.communicate(timeout=200)[1] for process in running]
    finally:
        for process in running:
            process.kill()
            process.wait()
    return [process.returncode for process in running], errors


def test_a_split_smaller_than_the_number_of_processes_is_measured(tmp_path):
    """Two test samples on three processes: the third has none."""
    codes, errors = three("", TWO, "--test-per-class", "1", "--out", str(tmp_path / "few"))
    assert codes == [0, 0, 0], errors
    rows = Run.open(tmp_path / "few").history
    assert [row["split"] for row in rows] == ["train", "test"] * 2
    assert rows[-1]["accuracy"] in (0.0, 0.5, 1.0)


def test_a_batch_smaller_than_the_number_of_processes_is_refused():
    plan = Plan(batch_size=2)
    with pytest.raises(ValueError, match=r"3 processes need batches of at least 3 samples, but .* the smallest has 2"):
        _check_shares(plan, 30, Team(1, 3))
    _check_shares(plan, 30, Team(1, 2))
    with pytest.raises(ValueError, match="the smallest has 2"):
        _check_shares(Plan(batch_size=3), 5, Team(0, 3))


def test_processes_with_different_plans_are_refused_at_once(tmp_path):
    codes, errors = three("seed", TWO, "--out", str(tmp_path / "mixed"))
    assert codes == [2, 2, 2]
    assert all("the plan differs between processes: that of rank 1 is not that of rank 0" in error for error in errors)
    assert not (tmp_path / "mixed").exists()


def test_a_killed_process_ends_the_others_with_a_line_and_the_run_goes_on(tmp_path):
    codes, errors = three("kill", TWO, "--out", str(tmp_path / "killed"))
    assert codes[:2] == [1, -9]
    assert codes[2] in (1, -6)  # the library may abort where its peer is gone in the middle of a transfer
    assert "stopped: another process of this run has ended" in errors[0].splitlines()[-1]
    assert not any("Traceback" in error for error in errors)
    assert main(["train", *SMALL, TWO, "--out", str(tmp_path / "killed"), "--resume"]) == 0
    assert len(Run.open(tmp_path / "killed").history) == 4
