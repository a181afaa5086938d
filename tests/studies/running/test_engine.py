"""Cells are run once, whoever asks; failures and deaths are told apart; nothing depends on the engine."""

import dataclasses
import fcntl
import json
import multiprocessing
import os
import signal
from pathlib import Path

import pytest

from neuralcollapse.studies import Calculation, Train, first_steps, query, run_studies
from neuralcollapse.studies._running.store import Store
from neuralcollapse.training import Plan
from small_study import Deadly, Small, calculation_cell, solve_cell, train_cell

pytestmark = pytest.mark.unchecked

TIMES = ("seconds.json", "timing.json", "environment.json")


def timeless(path: Path) -> bytes:
    """What a file holds, without the time that a study took."""
    lines = path.read_bytes().splitlines()
    return b"\n".join(line for line in lines if path.name != "study.json" or b"cpu_minutes" not in line)


def contents(folder):
    """All files but those that tell times, and the index."""
    paths = (path for path in sorted(folder.rglob("*")) if path.is_file())
    kept = (path for path in paths if path.name not in (*TIMES, ".lock") and "index" not in path.parts)
    return {str(path.relative_to(folder)): timeless(path) for path in kept}


def test_each_kind_of_cell_runs_and_is_read_back(tmp_path):
    cells = solve_cell(), train_cell(), calculation_cell()
    outcome = Small(*cells).run("desk", tmp_path, engine="inline")
    assert outcome.verdict == "holds"
    assert outcome.headline.why == "3 cells ran."
    facts = json.loads((tmp_path / "test" / "small" / "study.json").read_text())
    assert [cell["kind"] for cell in facts["cells"]] == ["solve", "train", "calculation"]
    assert [cell["key"] for cell in facts["cells"]] == [cell.key for cell in cells]
    for kind, magic in (("svg", b"<?xml"), ("pdf", b"%PDF"), ("png", b"\x89PNG")):
        assert (tmp_path / "test" / "small" / f"figure.{kind}").read_bytes().startswith(magic)


def test_a_rerun_runs_nothing_and_changes_nothing(tmp_path):
    study = Small(solve_cell(0), train_cell())
    study.run("desk", tmp_path, engine="inline")
    before = contents(tmp_path)
    marks = {path: path.stat().st_mtime_ns for path in tmp_path.glob("cells/*/*")}
    seen = []
    study.run("desk", tmp_path, engine="inline", on_status=seen.append)
    assert [(status.done, status.cells) for status in seen] == [(2, 2)]
    assert contents(tmp_path) == before
    assert marks == {path: path.stat().st_mtime_ns for path in tmp_path.glob("cells/*/*")}


def test_studies_share_cells_and_workers_do_not_matter(tmp_path):
    first, second = Small(solve_cell(0), solve_cell(1)), Small(solve_cell(1), solve_cell(2), name="test/other")
    run_studies([first, second], "desk", tmp_path / "two", workers=2)
    assert len(list((tmp_path / "two" / "cells").iterdir())) == 3
    run_studies([second, first], "desk", tmp_path / "one", workers=1)
    assert contents(tmp_path / "one") == contents(tmp_path / "two")


def test_keys_follow_the_plan_and_not_the_labels():
    assert solve_cell(0).key == solve_cell(0).key != solve_cell(1).key
    assert solve_cell(0, tol=1e-3).key != solve_cell(0).key
    assert train_cell(seed=1).key != train_cell().key != dataclasses.replace(train_cell(), features=True).key
    # results of earlier versions are found again: fields that plans got since do not count where they are not given
    plan = {"data": "digits", "model": "mlp:width=8,depth=1", "epochs": 2}
    assert Train(Plan(**plan)).key == "bf69a499bb5f1fa7" != Train(Plan(**plan, intervals=0.9)).key


def test_a_failed_cell_leaves_the_others_alone(tmp_path):
    broken = train_cell(data="mnist")
    outcome = Small(solve_cell(), broken).run("desk", tmp_path, root=tmp_path / "nowhere", engine="inline")
    assert outcome.verdict == "underpowered"
    assert list(outcome.failures) == ["cell=1"]
    assert "mnist" in outcome.failures["cell=1"]
    facts = json.loads((outcome.folder / "study.json").read_text())
    assert [cell["error"] is None for cell in facts["cells"]] == [True, False]
    store = Store(tmp_path)
    assert store.finished(solve_cell())
    assert not store.finished(broken)


def test_a_killed_worker_loses_no_cell(tmp_path):
    cells = [train_cell(seed=seed, epochs=60) for seed in range(3)]
    killed = []

    def kill_one(status):
        children = multiprocessing.active_children()
        if not killed and any(path.is_dir() for path in tmp_path.glob("cells/*/run")):
            os.kill(children[0].pid, signal.SIGKILL)
            killed.append(children[0].pid)

    outcome = Small(*cells).run("desk", tmp_path, workers=1, on_status=kill_one)
    assert killed
    assert outcome.verdict == "holds"


def test_a_cell_that_kills_its_worker_is_named(tmp_path):
    deadly, fine = Deadly("geometric/bound", {}), [solve_cell(seed) for seed in range(5)]
    outcome = Small(deadly, *fine).run("desk", tmp_path, workers=1)
    assert outcome.failures == {"cell=0": "its process was killed (out of memory?)"}
    assert all(Store(tmp_path).finished(cell) for cell in fine)


def test_an_interrupted_cell_goes_on_or_starts_over_to_the_same_result(tmp_path):
    cell = train_cell(epochs=30, measure="every")
    whole = Small(cell)
    whole.run("desk", tmp_path / "whole", workers=1)

    def interrupt(status):
        if list(part.glob("cells/*/run/checkpoints/*")):
            raise KeyboardInterrupt

    for name, resume in (("on", True), ("over", False)):
        part = tmp_path / name
        with pytest.raises(KeyboardInterrupt):
            whole.run("desk", part, workers=1, on_status=interrupt)
        assert not (part / "test").exists()
        whole.run("desk", part, workers=1, resume=resume)
        assert contents(part) == contents(tmp_path / "whole")


@pytest.mark.parametrize("file", ["cell.json", "result.json", "trace/history.jsonl"])
def test_a_damaged_result_is_run_again_and_said_so(tmp_path, file):
    study = Small(calculation_cell(), solve_cell(0))
    study.run("desk", tmp_path, engine="inline")
    whole = contents(tmp_path)
    damaged = Store(tmp_path).cell(calculation_cell() if file == "result.json" else solve_cell(0))
    broken = damaged / file
    assert broken.is_file()
    broken.write_text("{}")
    said = []
    outcome = study.run("desk", tmp_path, engine="inline", on_status=lambda status: said.append(status.note))
    assert outcome.verdict == "holds"
    notes = [note for note in said if note]
    assert len(notes) == 1
    assert "run again" in notes[0]
    assert str(damaged) in notes[0]
    assert contents(tmp_path) == whole


def test_a_changed_digit_in_a_result_is_noticed(tmp_path):
    study = Small(calculation_cell(), train_cell())
    study.run("desk", tmp_path, engine="inline")
    whole = contents(tmp_path)
    for file in (Store(tmp_path).cell(calculation_cell()) / "result.json", *tmp_path.glob("cells/*/run/metrics.jsonl")):
        text = file.read_text()
        place = max(index for index, letter in enumerate(text) if letter.isdigit())
        file.write_text(text[:place] + str((int(text[place]) + 1) % 10) + text[place + 1 :])
        said = []
        study.run("desk", tmp_path, engine="inline", on_status=lambda status, said=said: said.append(status.note))
        assert any("damaged" in note for note in said if note)
        assert contents(tmp_path) == whole


@dataclasses.dataclass(frozen=True)
class Unreadable(Calculation):
    def read(self, folder):
        raise ValueError("never")


def test_a_result_that_cannot_be_read_twice_is_a_failure(tmp_path):
    outcome = Small(solve_cell(), Unreadable("geometric/bound", calculation_cell().arguments)).run(
        "desk", tmp_path, engine="inline"
    )
    assert outcome.verdict == "underpowered"
    assert outcome.failures == {"cell=1": "its result cannot be read (never)"}


def test_broken_files_of_another_study_do_not_end_a_run(tmp_path):
    Small(solve_cell(1), name="test/other").run("desk", tmp_path, engine="inline")
    Small(solve_cell(2), name="test/third").run("desk", tmp_path, engine="inline")
    (tmp_path / "test" / "other" / "study.json").write_text('{"id": "test/ot')
    (Store(tmp_path).cell(solve_cell(2)) / "trace" / "history.jsonl").write_text("[]")
    said = []
    for nonsense in ("{}", "[]", "null", '{"parts": 3}', "[" * 100_000):
        (tmp_path / "test" / "fourth").mkdir(exist_ok=True)
        (tmp_path / "test" / "fourth" / "study.json").write_text(nonsense)
        said.clear()
        outcome = Small(solve_cell(0)).run("desk", tmp_path, engine="inline", on_status=said.append)
        assert outcome.verdict == "holds"
        assert sum("left out of the index" in (status.note or "") for status in said) == 3
    assert [row[0] for row in query(tmp_path, "select study from studies order by study").rows] == [
        "test/small",
        "test/third",
    ]


def test_a_study_that_cannot_judge_its_results_does_not_end_a_run(tmp_path):
    class Broken(Small):
        def evidence(self, results):
            return {"all": results[0].value["nothing"]}

    both = [Broken(solve_cell(), name="test/broken"), Small(solve_cell())]
    broken, fine = run_studies(both, "desk", tmp_path, engine="inline")
    assert fine.verdict == "holds"
    assert broken.verdict == "underpowered"
    assert "the study itself" in broken.failures
    facts = json.loads((tmp_path / "test" / "broken" / "study.json").read_text())
    assert "Error" in facts["failures"]["the study itself"]
    assert "cannot judge" in facts["parts"][0]["why"]
    assert "cells failed" not in facts["parts"][0]["why"]
    assert "failures" in json.loads((tmp_path / "test" / "small" / "study.json").read_text())


def test_one_run_at_a_time_in_a_folder(tmp_path):
    with (tmp_path / ".lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(ValueError, match="is writing here"):
            Small(solve_cell()).run("desk", tmp_path)


def test_bad_names_are_refused_before_anything_is_written(tmp_path):
    with pytest.raises(ValueError, match=r"unknown profile 'dsk'; did you mean 'desk'"):
        Small(solve_cell()).run("dsk", tmp_path / "out")
    with pytest.raises(ValueError, match="unknown engine 'spark'"):
        Small(solve_cell()).run("desk", tmp_path / "out", engine="spark")
    with pytest.raises(ValueError, match="same labels"):
        Small().run("desk", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_first_steps_of_each_kind():
    study = Small(solve_cell(), train_cell(epochs=10**6), calculation_cell())
    said = dict(first_steps(study, "desk", 2))
    assert list(said) == ["cell=0", "cell=1", "cell=2"]
    assert said["cell=1"].startswith("loss ")
    assert said["cell=1"].count(",") == 1


def test_ray_gives_the_same_files(tmp_path):
    pytest.importorskip("ray", reason="Ray is not installed")
    study = Small(solve_cell(0), train_cell(), train_cell(data="mnist"))
    local = study.run("desk", tmp_path / "local", root=tmp_path / "nowhere", workers=2)
    there = study.run("desk", tmp_path / "ray", root=tmp_path / "nowhere", workers=2, engine="ray")
    assert there.parts == local.parts
    assert list(there.failures) == ["cell=2"]
    first, second = contents(tmp_path / "local"), contents(tmp_path / "ray")
    kept = {name for name in first if train_cell(data="mnist").key not in name}
    assert {name: first[name] for name in kept} == {name: second[name] for name in kept}
