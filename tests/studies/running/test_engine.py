"""Cells are run once, whoever asks; failures and deaths are told apart; nothing depends on the engine."""

import dataclasses
import fcntl
import json
import multiprocessing
import os
import random
import signal
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from neuralcollapse.studies import Calculation, Evidence, Planned, Train, Variation, first_steps, query, run_studies
from neuralcollapse.studies._running.cell_folder import run_cell
from neuralcollapse.studies._running.forecast import CellProgress, Forecast
from neuralcollapse.studies._running.store import Store
from neuralcollapse.studies._variation import parse_settings
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


# time -----------------------------------------------------------------------------------------------------------------


def test_processor_time_is_summed_over_sessions(tmp_path):
    """A cell that is interrupted keeps the time that it had told; the clock may run ahead of a busy processor."""
    cell, store = Slow(), Store(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        run_cell(cell, store.cell(cell), None)
    first = store.progress(cell)
    assert first.cpu_seconds > 0.1
    assert first.fraction == 0.5
    run_cell(cell, store.cell(cell), None)
    assert store.finished(cell)
    assert store.cpu_seconds(cell) > first.cpu_seconds + 1.0
    assert store.seconds(cell) > first.seconds + 1.0


def test_a_cell_that_was_killed_while_it_was_marked_keeps_its_time(tmp_path, monkeypatch):
    """Its seconds are written and its progress is gone; the mark of a whole result is not there yet."""
    cell, store = train_cell(epochs=20), Store(tmp_path)

    def killed(*arguments):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("neuralcollapse.studies._running.cell_folder.mark_as_whole", killed)
        with pytest.raises(KeyboardInterrupt):
            run_cell(cell, store.cell(cell), None)
    assert not store.finished(cell)
    told = store.cpu_seconds(cell), store.seconds(cell)
    run_cell(cell, store.cell(cell), None)
    assert store.finished(cell)
    assert (store.cpu_seconds(cell), store.seconds(cell)) >= told


@dataclasses.dataclass(frozen=True)
class Slow(Calculation):
    """Works for a second and a half, and is interrupted the first time."""

    name: str = "geometric/bound"

    def run(self, folder, *, root, report):
        mark, began = folder / "begun", time.process_time()
        while time.process_time() - began < 1.5:
            report(0.5)
        if not mark.exists():
            mark.touch()
            raise KeyboardInterrupt
        (folder / "result.json").write_text('{"a": 1}')


@dataclasses.dataclass(frozen=True)
class Unreadable(Calculation):
    def read(self, folder):
        raise ValueError("never")


def cells_of(*seconds, seeds=3):
    """Families of cells that guess so many seconds, three seeds each."""
    return [Guessed("x", {"seconds": length, "seed": seed}) for length in seconds for seed in range(seeds)]


@dataclasses.dataclass(frozen=True)
class Guessed(Calculation):
    def guess(self):
        return self.arguments["seconds"]


def test_the_longest_cells_begin_first():
    cells = cells_of(1, 5, 3)
    assert [cell.guess() for cell in Forecast(cells, 2).longest_first(cells)] == [5] * 3 + [3] * 3 + [1] * 3
    forecast = Forecast(cells, 2)
    forecast.learn(cells[0], 100.0)  # what has run is known, whatever it guessed
    forecast.learn(cells[3], 5.0)
    assert [cell.guess() for cell in forecast.longest_first(cells)] == [1] * 3 + [3] * 3 + [5] * 3


def test_time_left_follows_from_families_that_have_run():
    cells = cells_of(1, 5, 3)
    forecast = Forecast(cells, 2)
    assert forecast.left({}) is None
    forecast.learn(cells[0], 10.0)  # ten times the guess: all guesses are scaled
    assert forecast.left({}) == pytest.approx((2 * 10 + 3 * 50 + 3 * 30) / 2)
    # The second family is half done after 40 seconds; the third is guessed by what the others took: 90 for 6.
    expected = (2 * 10 + 40 + 2 * 80 + 3 * 3 * 90 / 6) / 2
    assert forecast.left({cells[3].key: CellProgress(0.5, 40.0)}) == pytest.approx(expected)


@pytest.mark.parametrize("workers", [1, 2, 5])
def test_time_left_is_right_within_a_factor_of_two(workers):
    """A simulated run whose cells take times that their guesses do not know."""
    draw = random.Random(workers)
    cells = cells_of(*(draw.uniform(1, 100) for _ in range(12)))
    pace = {cell.family: draw.uniform(2, 4) for cell in cells}
    length = {cell.key: cell.guess() * pace[cell.family] for cell in cells}
    forecast = Forecast(cells, workers)
    queue, running, now, said = forecast.longest_first(cells), [], 0.0, []
    while queue or running:
        while queue and len(running) < workers:
            running.append((queue.pop(0), now))
        first, began = min(running, key=lambda pair: pair[1] + length[pair[0].key])
        until = began + length[first.key]
        step = (until - now) / 3
        for _ in range(3):
            now += step
            under_way = {c.key: CellProgress((now - b) / length[c.key], now - b) for c, b in running}
            said.append((now, forecast.left(under_way)))
        running.remove((first, began))
        forecast.learn(first, length[first.key])
    for moment, left in said:
        if left is not None and moment < 0.95 * now:
            assert 0.5 < left / (now - moment) < 2


def test_the_guess_of_a_net_grows_with_its_work():
    small, wide, long = train_cell(), train_cell(model="mlp:width=512,depth=4"), train_cell(epochs=20)
    assert small.guess() < wide.guess()
    assert long.guess() - 0.5 == pytest.approx(10 * (small.guess() - 0.5))
    assert solve_cell(max_iter=10).guess() < solve_cell(max_iter=1000).guess()
    # L-BFGS evaluates its objective many times a batch, so that its cells come first.
    many = train_cell(optimizer="lbfgs:iterations=20")
    assert many.guess() - 0.5 == pytest.approx(25 * (small.guess() - 0.5))


def test_a_guess_counts_the_channels_and_the_size_that_are_asked_for():
    def guess(data):
        return Train(Plan(data=data, model="mlp:width=64,depth=1")).guess() - 0.5

    overhead = 2e-5 / (2e-5 + 3 / 4e10 * 2 * 784 * 64)
    thrice, quarter = guess("mnist:channels=3") / guess("mnist"), guess("mnist:size=14") / guess("mnist")
    assert thrice == pytest.approx(3 - 2 * overhead, rel=0.02)
    assert quarter == pytest.approx((1 + 3 * overhead) / 4, rel=0.02)


def test_only_cells_under_way_are_asked_how_far_they_are(tmp_path, monkeypatch):
    """With thousands of small cells the questions would cost as much as a worker."""
    asked = []
    progress = Store.progress
    monkeypatch.setattr(Store, "progress", lambda self, cell: (asked.append(cell.key), progress(self, cell))[1])
    cells = [train_cell(epochs=1200), *(solve_cell(seed) for seed in range(60))]
    Small(*cells).run("desk", tmp_path, workers=1, on_status=lambda status: None)
    assert len(set(asked)) <= 4


# variations -----------------------------------------------------------------------------------------------------------


class Seeded(Small):
    def cells(self, profile):
        for seed in self.seeds(profile):
            yield Planned(solve_cell(seed), {"what": "solve", "seed": seed})
            yield Planned(train_cell(seed=seed), {"what": "net", "seed": seed})

    def evidence(self, results):
        return {"all": Evidence.exact(True)}


def test_variations_are_kept_apart_and_marked(tmp_path):
    plain, varied = Seeded(), Seeded().vary({"epochs": 1}, (3,))
    outcomes = run_studies([plain.vary(seeds=(3,)), varied], "desk", tmp_path, engine="inline")
    assert [outcome.folder.name for outcome in outcomes] == ["small+seeds=3", "small+epochs=1+seeds=3"]
    facts = json.loads((outcomes[1].folder / "study.json").read_text())
    assert facts["id"] == "test/small"
    assert facts["variation"] == {"settings": {"epochs": 1}, "seeds": [3]}
    assert [cell["spec"].get("plan", {}).get("epochs") for cell in facts["cells"]] == [None, 1]
    assert len(list((tmp_path / "cells").iterdir())) == 3  # the solve is shared
    assert query(tmp_path, "select count(*) from cells where study = 'test/small+epochs=1+seeds=3'").rows == [(2,)]


def test_measured_epochs_follow_the_number_of_epochs():
    study = Small(train_cell(epochs=1000, measure=(1, 2, 100, 900, 1000)))
    (entry,) = study.vary({"epochs": 50}).planned("desk")
    assert (entry.cell.plan.epochs, entry.cell.plan.measure) == (50, (1, 5, 45, 50))
    (entry,) = study.vary({"measure": (25, 50), "epochs": 50}).planned("desk")
    assert entry.cell.plan.measure == (25, 50)
    (entry,) = Small(train_cell(epochs=10, measure="every")).vary({"epochs": 5}).planned("desk")
    assert entry.cell.plan.measure == "every"


class Widths(Small):
    """Compares nets of two widths, and two starts."""

    def cells(self, profile):
        for width in (4, 8):
            yield Planned(train_cell(model=f"mlp:width={width},depth=1"), {"width": width})
        for seed in self.seeds(profile):
            yield Planned(solve_cell(seed), {"seed": seed})

    def evidence(self, results):
        return {"all": Evidence.exact(True)}


def test_a_setting_that_makes_compared_cells_equal_is_refused():
    """Otherwise results of one net would stand under the names of two."""
    with pytest.raises(ValueError, match=r"compares cells by their model; of 5 different ones 4 would be left"):
        Widths().vary({"model": "mlp:width=8,depth=2"}).planned("desk")
    assert len(Widths().vary({"loss": "focal:gamma=2"}).planned("desk")) == 5


def test_a_study_with_seeds_takes_its_own_as_well():
    plain = Widths()
    own = plain.seeds("desk")
    assert plain.vary(seeds=own).planned("desk") == plain.planned("desk")


def test_settings_reach_every_kind_of_cell():
    settings = {"max_iter": 7, "dim": 6, "method": "lbfgs"}
    (entry,) = Small(solve_cell()).vary(settings).planned("desk")
    assert (entry.cell.options["max_iter"], entry.cell.problem.dim, entry.cell.method) == (7, 6, "lbfgs")
    (entry,) = Small(calculation_cell()).vary({"points": 7}).planned("desk")
    assert entry.cell.arguments["points"] == 7
    (entry,) = Small(train_cell()).vary({"loss": "focal:gamma=2"}).planned("desk")
    assert entry.cell.plan.loss == "focal:gamma=2"


@pytest.mark.parametrize(
    ("make", "complaint"),
    [
        (
            lambda: Small(solve_cell()).vary({"epoch": 3}).planned("desk"),
            "no cell of study test/small",
        ),
        (lambda: Small(train_cell()).vary({"epochs": -3}).planned("desk"), "epochs"),
        (lambda: Small(solve_cell()).vary(seeds=(1, 2)).planned("desk"), "has no seeds to choose"),
        (lambda: Seeded().vary(seeds=(1, 1)), "seeds must be different"),
        (lambda: Seeded().vary({"seed": 4}).planned("desk"), "compares values of seed"),
        (lambda: parse_settings(["epochs"]), "takes NAME=VALUE"),
        (lambda: parse_settings(["a=1", "a=2"]), "given twice"),
    ],
)
def test_variations_that_cannot_be(make, complaint):
    with pytest.raises(ValueError, match=complaint):
        make()


def test_settings_that_are_no_texts_are_named():
    with pytest.raises(TypeError, match="texts must be strings NAME=VALUE, got 2"):
        parse_settings([2, 2])
    assert parse_settings(["a=" + "-" * 100_000 + "1"])["a"].startswith("---")


@given(st.dictionaries(st.sampled_from(["data", "epochs", "loss"]), st.text(max_size=80) | st.integers(), min_size=1))
def test_slugs_are_names_of_folders(settings):
    slug = Variation(settings).slug
    assert len(slug) < 90
    assert "/" not in slug
    assert slug.isascii()


def test_the_slug_tells_variations_apart():
    assert Variation({"data": "a/b"}).slug != Variation({"data": "a b"}).slug


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
