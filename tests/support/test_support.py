import json
import os
import stat
import subprocess
import sys
import threading

import pytest
import torch

from neuralcollapse._support import checks
from neuralcollapse._support.files import atomic_write, write_json, write_text
from neuralcollapse._support.machine import running_ray, torch_threads
from neuralcollapse._support.registry import Registry, Spec, load_folders


def test_atomic_write_replaces_whole_files(tmp_path):
    path = tmp_path / "a" / "file.txt"
    write_text(path, "one")
    write_text(path, "two\n")
    assert path.read_text() == "two\n"
    mask = os.umask(0)
    os.umask(mask)
    assert stat.S_IMODE(path.stat().st_mode) == 0o666 & ~mask
    assert [p.name for p in path.parent.iterdir()] == ["file.txt"]


WITHOUT_LOCKS = """
import sys
sys.modules["fcntl"] = sys.modules["resource"] = None
import torch
import neuralcollapse as nc
features, labels = torch.randn(40, 3), torch.arange(40) % 2
nc.measure(features, labels).save("report.json")
assert nc.CollapseReport.load("report.json").nc1 > 0
plan = nc.training.Plan(data="digits", per_class=5, test_per_class=5, model="mlp:width=8,depth=1", epochs=1)
assert nc.training.train(plan, "run").done
"""


def test_systems_without_unix_modules_can_use_it(tmp_path):
    """Windows has neither fcntl nor resource."""
    done = subprocess.run([sys.executable, "-c", WITHOUT_LOCKS], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["report.json", "run"]
    assert not [path for path in (tmp_path / "run").iterdir() if "lock" in path.name]


def test_a_failed_write_changes_nothing(tmp_path):
    path = tmp_path / "file.json"
    write_json(path, {"a": 1})

    def fail(temporary):
        temporary.write_text("part")
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space left"):
        atomic_write(path, fail)
    with pytest.raises(ValueError, match="Out of range float"):
        write_json(path, {"a": float("nan")})
    assert json.loads(path.read_text()) == {"a": 1}
    assert list(tmp_path.iterdir()) == [path]


def test_readers_never_see_a_part(tmp_path):
    path = tmp_path / "file.json"
    write_json(path, [0] * 20000)
    stop = threading.Event()
    seen = []

    def read():
        while not stop.is_set():
            seen.append(len(set(json.loads(path.read_text()))))

    reader = threading.Thread(target=read)
    reader.start()
    for value in range(20):
        write_json(path, [value] * 20000)
    stop.set()
    reader.join()
    assert seen
    assert set(seen) == {1}


def test_threads_come_back():
    before = torch.get_num_threads()
    seen = []

    def fail():
        with torch_threads(3):
            seen.append(torch.get_num_threads())
            raise RuntimeError("inside")

    with pytest.raises(RuntimeError, match="inside"):
        fail()
    assert seen == [3]
    assert torch.get_num_threads() == before


def test_registry_refuses_doubles_and_lists_in_order():
    registry = Registry("thing")
    registry.add("b", "bee")(dict)
    registry.add("a")(list)
    with pytest.raises(ValueError, match="thing 'bee' is registered twice"):
        registry.add("bee")(dict)
    assert list(registry) == ["a", "b"]
    assert len(registry) == 2
    assert "bee" in registry
    assert registry["bee"] is dict


@pytest.mark.unchecked
@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: checks.integer("n", True), TypeError, "n must be an integer, got True"),
        (lambda: checks.integer("n", 5, maximum=4), ValueError, "n must be at most 4, got 5"),
        (lambda: checks.real("x", "1"), TypeError, "x must be a real number, got '1'"),
        (lambda: checks.real("x", 2, maximum=1), ValueError, "x must be at most 1, got 2"),
        (lambda: checks.flag("f", 1), TypeError, "f must be True or False, got 1"),
        (lambda: Registry("t").parse(3), TypeError, "a t is named by a string"),
    ],
)
def test_checks_name_the_argument(call, error, text):
    with pytest.raises(error, match=text):
        call()


@pytest.mark.parametrize(
    ("limits", "inside", "outside"),
    [
        ({"minimum": 1}, 1, 0.99),
        ({"maximum": 1}, 1, 1.01),
        ({"above": 1}, 1.01, 1),
        ({"below": 1}, 0.99, 1),
    ],
)
def test_limits_are_closed_or_open_as_their_names_say(limits, inside, outside):
    assert checks.real("rate", inside, **limits) == inside
    with pytest.raises(ValueError, match=r"rate must be .* 1, got"):
        checks.real("rate", outside, **limits)


def test_integers_are_those_that_arrays_can_hold():
    for largest in (2**63 - 1, 1 - 2**63):
        assert checks.integer("seed", largest) == largest
    for beyond, words in ((2**63, "at most 9223372036854775807"), (-(2**63), "at least -9223372036854775807")):
        with pytest.raises(ValueError, match=f"seed must be {words}, got"):
            checks.integer("seed", beyond)


def test_a_value_is_described_in_sixty_characters():
    assert checks.describe("a" * 58) == repr("a" * 58)
    assert checks.describe("a" * 59) == "'" + "a" * 56 + "..."


def test_commas_inside_brackets_and_quotes_do_not_separate():
    spec = Spec.parse("logit-adjusted:loss='focal:gamma=2,x=1',prior=(0.9, 0.1),tau=[1,[2,3]],plain=a")
    assert spec.arguments == {"loss": "focal:gamma=2,x=1", "prior": (0.9, 0.1), "tau": [1, [2, 3]], "plain": "a"}


def test_workers_are_not_for_a_cluster_that_is_there(monkeypatch):
    pytest.importorskip("ray")
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:1")
    with pytest.raises(ValueError, match="the cluster of RAY_ADDRESS has its own"), running_ray("engine", 2):
        raise AssertionError("it was started")


def test_a_folder_of_entries_is_found_without_being_named(tmp_path, monkeypatch):
    for folder in ("", "first", "_hidden"):
        (tmp_path / "grown" / folder).mkdir(parents=True, exist_ok=True)
        (tmp_path / "grown" / folder / "__init__.py").write_text("")
        (tmp_path / "grown" / folder / "entry.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    load_folders("grown", [str(tmp_path / "grown")])
    assert {name for name in sys.modules if name.startswith("grown.")} == {"grown.first", "grown.first.entry"}
