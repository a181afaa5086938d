"""Killed, damaged, out of room: a resumed run ends in the same bits as an undisturbed one."""

import errno
import gzip
import os
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from neuralcollapse.training import Plan, Progress, Run, TrainingStopped, checkpoint_path, train
from neuralcollapse.training import _checkpoints as state_module
from neuralcollapse.training._checkpoints import pack, unpack

SCRIPT = Path(__file__).with_name("kill_and_resume.py")
PLAN = Plan(
    data="synthetic:num_classes=4,dim=8,per_class=30",
    model="mlp:width=12,depth=2",
    epochs=6,
    batch_size=32,
    measure=(1, 3, 6),
    metrics=("nc1", "nc2"),
)


class InterruptError(Exception):
    pass


def same(one: Run, two: Run) -> None:
    assert (one.folder / "metrics.jsonl").read_bytes() == (two.folder / "metrics.jsonl").read_bytes()
    first, second = one.model().state_dict(), two.model().state_dict()
    assert first.keys() == second.keys()
    assert all(torch.equal(first[name], second[name]) for name in first)


def interrupted(plan: Plan, folder: Path, epoch: int, step: int, **options) -> None:
    """Train until a moment in the middle of an epoch."""

    def stop(progress: Progress) -> None:
        if (progress.epoch, progress.step) == (epoch, step):
            raise InterruptError

    with pytest.raises(InterruptError):
        train(plan, folder, on_step=stop, checkpoint_seconds=0.0, **options)


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"augment": True},
        {"optimizer": "adam", "learning_rate": 1e-3},
        {"optimizer": "lbfgs:iterations=4", "learning_rate": 0.1},
        {"optimizer": "lbfgs:iterations=4", "learning_rate": 0.1, "batch_size": 120},
        {"optimizer": "riemannian-sgd", "head": "normalized"},
        {"model": "resnet8:width=3", "data": "digits", "per_class": 6, "schedule": "cosine:period=2"},
    ],
)
def test_resuming_in_the_middle_of_an_epoch_is_exact(tmp_path, fields):
    plan = PLAN.model_copy(update=fields)
    whole = train(plan, tmp_path / "whole")
    steps = 1 if plan.batch_size == 120 else 2
    interrupted(plan, tmp_path / "part", 2, steps)
    interrupted(plan, tmp_path / "part", 4, 1, resume=True)
    lines = []
    part = train(plan, tmp_path / "part", resume=True, message=lines.append)
    same(whole, part)
    assert len(lines) == 1
    assert lines[0].startswith("going on from epoch 4")


def test_killed_twenty_times_it_ends_in_the_same_bits(tmp_path):
    """kill -9 while caching data, inside epochs, in checkpoints and in metrics."""
    random = np.random.default_rng(0)
    root = tmp_path / "data"
    (root / "MNIST/raw").mkdir(parents=True)
    for prefix, count in (("train", 400), ("t10k", 50)):
        images = random.integers(0, 256, (count, 28, 28), dtype=np.uint8)
        labels = (np.arange(count) % 10).astype(np.uint8)
        for name, magic, array in (("images-idx3", 0x803, images), ("labels-idx1", 0x801, labels)):
            header = struct.pack(f">I{array.ndim}I", magic, *array.shape)
            path = root / f"MNIST/raw/{prefix}-{name}-ubyte.gz"
            path.write_bytes(gzip.compress(header + array.tobytes(), 1, mtime=0))
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    for out, kills in (("killed", "20"), ("whole", "0")):
        command = [sys.executable, str(SCRIPT), str(root), str(tmp_path / out), kills, "1"]
        answer = subprocess.run(command, capture_output=True, text=True, timeout=250, env=environment)
        assert answer.returncode == 0, answer.stdout + answer.stderr
        assert answer.stdout.strip() == kills
    killed, whole = Run.open(tmp_path / "killed"), Run.open(tmp_path / "whole")
    same(killed, whole)
    assert killed.done == whole.done
    best = [run.model("best").state_dict() for run in (killed, whole)]
    assert all(torch.equal(best[0][name], best[1][name]) for name in best[0])
    assert not list(killed.folder.rglob("*.tmp"))


def test_the_last_checkpoints_are_kept_however_many_digits_they_have(tmp_path):
    places = [(999_999, 0), (999_999, 99_999_999), (999_999, 100_000_000), (1_000_000, 0), (1_000_000, 7)]
    for epoch, step in places:
        state_module.write_checkpoint(tmp_path, state_module.Checkpoint(epoch, step, {}), keep=2)
        newest = state_module.latest(tmp_path, print)
        assert newest is not None
        assert (newest.epoch, newest.step) == (epoch, step)
    assert set(tmp_path.glob("*.json")) == {checkpoint_path(tmp_path, epoch, step) for epoch, step in places[-2:]}


@pytest.mark.parametrize("damage", ["truncate", "flip", "state", "missing"])
def test_a_damaged_checkpoint_is_noticed_and_the_one_before_is_used(tmp_path, damage):
    whole = train(PLAN, tmp_path / "whole")
    interrupted(PLAN, tmp_path / "part", 3, 2)
    newest = sorted((tmp_path / "part/checkpoints").glob("0*.safetensors"))[-1]
    content = bytearray(newest.read_bytes())
    if damage == "truncate":
        newest.write_bytes(content[: len(content) // 2])
    elif damage == "flip":
        content[-7] ^= 4
        newest.write_bytes(content)
    elif damage == "state":
        state = newest.with_suffix(".json")
        state.write_text(state.read_text().replace("epoch", "epoxh", 1))
    else:
        newest.unlink()
    lines: list[str] = []
    part = train(PLAN, tmp_path / "part", resume=True, message=lines.append)
    assert lines[0].startswith(f"checkpoint {newest.stem} is damaged (")
    assert lines[0].endswith("using the one before it")
    same(whole, part)


def test_with_every_checkpoint_damaged_it_starts_again(tmp_path):
    whole = train(PLAN, tmp_path / "whole")
    interrupted(PLAN, tmp_path / "part", 3, 2)
    for path in (tmp_path / "part/checkpoints").glob("0*.safetensors"):
        path.write_bytes(b"")
    lines: list[str] = []
    same(whole, train(PLAN, tmp_path / "part", resume=True, message=lines.append))
    assert lines[-1] == "going on from the start"


@pytest.mark.parametrize("nth", [1, 4, 9])
def test_a_full_disk_stops_with_a_message_and_a_resumable_state(tmp_path, monkeypatch, nth):
    whole = train(PLAN, tmp_path / "whole")
    calls = 0
    original = state_module.write_bytes

    def full(path, content):
        nonlocal calls
        calls += 1
        if calls == nth:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        original(path, content)

    monkeypatch.setattr(state_module, "write_bytes", full)
    with pytest.raises(TrainingStopped, match="No space left on device; the last checkpoint is whole: make room"):
        train(PLAN, tmp_path / "part", checkpoint_seconds=0.0)
    same(whole, train(PLAN, tmp_path / "part", resume=True))


def test_a_full_disk_while_writing_metrics(tmp_path):
    if not Path("/dev/full").exists():
        pytest.skip("needs /dev/full")
    whole = train(PLAN, tmp_path / "whole")
    interrupted(PLAN, tmp_path / "part", 1, 2)
    metrics = tmp_path / "part/metrics.jsonl"
    content = metrics.read_bytes()

    def fill(progress: Progress) -> None:
        if progress.epoch == 2 and metrics.exists() and not metrics.is_symlink():
            metrics.unlink()
            metrics.symlink_to("/dev/full")

    with pytest.raises(TrainingStopped, match="No space left"):
        train(PLAN, tmp_path / "part", resume=True, on_step=fill)
    metrics.unlink()
    metrics.write_bytes(content)
    same(whole, train(PLAN, tmp_path / "part", resume=True))


def test_only_the_last_checkpoints_are_kept(tmp_path):
    run = train(PLAN, tmp_path / "run", keep=3, checkpoint_seconds=0.0)
    assert len(list((run.folder / "checkpoints").glob("0*.json"))) == 3
    assert len(list((run.folder / "checkpoints").glob("0*.safetensors"))) == 3


def test_state_is_packed_without_pickle():
    value = {"a": [1, 2.5, None, True, "x"], 3: (torch.arange(3), {"b": torch.zeros(2, 2)}), "empty": {}}
    tensors: dict[str, torch.Tensor] = {}
    found = unpack(pack(value, tensors), tensors)
    assert found["a"] == value["a"]
    assert isinstance(found[3], tuple)
    assert torch.equal(found[3][0], torch.arange(3))
    assert found["empty"] == {}
    with pytest.raises(TypeError, match="cannot hold a set"):
        pack({"a": {1}}, {})
