"""Damaged files of a run: seen, said, and made again, so that a resumed run ends as an undisturbed one."""

import json
import random

import pytest
import torch

from neuralcollapse.training import Plan, Run, train

PLAN = Plan(
    data="synthetic:num_classes=4,dim=8,per_class=30",
    model="mlp:width=12,depth=2",
    epochs=5,
    batch_size=32,
    validation=0.2,
    measure=(1, 2, 5),
    metrics=("nc1", "nc2"),
)


class StopError(Exception):
    pass


def start(folder, epoch=3):
    def stop(progress):
        if progress.epoch == epoch and progress.step == 2:
            raise StopError

    with pytest.raises(StopError):
        train(PLAN, folder, on_step=stop, checkpoint_seconds=0.0)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return train(PLAN, tmp_path_factory.mktemp("whole") / "run")


FILES = ("metrics.jsonl", "plan.json", "data.json", "done.json", "model.safetensors", "checkpoints/best.safetensors")


def assert_same(run: Run, whole: Run) -> None:
    for name in FILES:
        assert (run.folder / name).read_bytes() == (whole.folder / name).read_bytes(), name


def damages():
    def lose(path):
        path.unlink()

    def empty(path):
        path.write_bytes(b"")

    def zeros(path):
        path.write_bytes(b"\0" * path.stat().st_size)

    def flip(path):
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 1
        path.write_bytes(bytes(content))

    def cut(path):
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])

    return [lose, empty, zeros, flip, cut]


@pytest.mark.parametrize("damage", damages(), ids=lambda f: f.__name__)
@pytest.mark.parametrize("name", ["metrics.jsonl", "checkpoints/best.safetensors", "data.json", "environment.json"])
def test_an_interrupted_run_survives_damage(name, damage, tmp_path, whole):
    start(tmp_path / "run")
    damage(tmp_path / "run" / name)
    lines = []
    run = train(PLAN, tmp_path / "run", resume=True, message=lines.append)
    assert_same(run, whole)
    if not (name == "environment.json" and damage.__name__ == "flip"):  # where a version's digit may be what changed
        words = ("damaged", "this run began with")
        assert any(word in line for line in lines[:-1] for word in words), lines


@pytest.mark.parametrize("damage", damages(), ids=lambda f: f.__name__)
@pytest.mark.parametrize("name", ["metrics.jsonl", "model.safetensors", "checkpoints/best.safetensors", "done.json"])
def test_a_finished_run_survives_damage(name, damage, tmp_path, whole):
    train(PLAN, tmp_path / "run")
    damage(tmp_path / "run" / name)
    lines = []
    run = train(PLAN, tmp_path / "run", resume=True, message=lines.append)
    assert_same(run, whole)
    if name != "done.json" or damage.__name__ != "lose":  # without it the run is just not finished
        assert "is damaged" in lines[0]


@pytest.mark.parametrize("content", ['{"digest":"x","body":null}', "[]", '{"digest": 3}', "[" * 5000, "null", "\xff"])
def test_a_checkpoint_that_is_none_is_skipped_with_a_line(content, tmp_path, whole):
    start(tmp_path / "run")
    last = max((tmp_path / "run/checkpoints").glob("[0-9]*.json"))
    last.write_bytes(content.encode("latin-1"))
    lines = []
    assert_same(train(PLAN, tmp_path / "run", resume=True, message=lines.append), whole)
    assert f"checkpoint {last.stem} is damaged" in lines[0]


def test_random_damage_anywhere_in_a_run_changes_nothing_in_its_end(tmp_path, whole):
    random_ = random.Random(0)
    for trial in range(12):
        folder = tmp_path / str(trial)
        start(folder, epoch=random_.choice([1, 2, 4]))
        files = [path for path in folder.rglob("*") if path.is_file() and path.name != "plan.json"]
        for path in random_.sample(files, 2):
            random_.choice(damages())(path)
        assert_same(train(PLAN, folder, resume=True), whole)


def test_other_threads_and_versions_are_said(tmp_path):
    start(tmp_path / "run")
    path = tmp_path / "run/environment.json"
    facts = json.loads(path.read_text())
    facts["versions"]["torch"] = "1.0"
    path.write_text(json.dumps(facts))
    lines = []
    torch.set_num_threads(2)
    try:
        train(PLAN, tmp_path / "run", resume=True, message=lines.append)
    finally:
        torch.set_num_threads(1)
    assert "began with 1 threads, torch 1.0: its last bits may differ" in lines[0]


def test_reading_a_damaged_run_names_the_file(tmp_path, whole):
    train(PLAN, tmp_path / "run")
    run = Run.open(tmp_path / "run")
    for name, read in (
        ("model.safetensors", run.model),
        ("done.json", lambda: run.done),
        ("metrics.jsonl", lambda: run.history),
    ):
        path = tmp_path / "run" / name
        content = path.read_bytes()
        path.write_bytes(b"[" * 5000 + b"\n\xffx\n" + content[: len(content) // 2])
        with pytest.raises(ValueError, match=name.replace(".", r"\.")):
            read()
        path.write_bytes(content)
    assert run.done["epochs"] == 5
    with (tmp_path / "run/metrics.jsonl").open("a") as file:
        file.write('{"epoch": 9, "spl')  # a killed writer's last line
    assert len(run.history) == 9


def test_two_runs_into_one_folder(tmp_path):
    refused = []

    def again(progress):
        if not refused:
            with pytest.raises(ValueError, match="is writing here") as caught:
                train(PLAN, tmp_path / "run", resume=True)
            refused.append(str(caught.value))

    train(PLAN, tmp_path / "run", on_step=again)
    assert len(refused) == 1
    assert len(Run.open(tmp_path / "run").history) == 9


@pytest.mark.parametrize("device", ["cuda", "cuda:99", "mps", "meta", "abacus", "cpu:3", "xpu"])
def test_a_device_that_is_not_here_is_named_with_those_that_are(device, tmp_path):
    if torch.cuda.is_available():
        pytest.skip("this machine has CUDA")
    with pytest.raises(ValueError, match=f"device must be .*, got '{device}'; this machine has cpu"):
        train(PLAN.model_copy(update={"device": device}), tmp_path / "run")
    assert not (tmp_path / "run").exists()
