"""The time that cells take, how long a run will take, and which cells begin first."""

import dataclasses
import random
import time

import pytest

from neuralcollapse.studies import Calculation, Train
from neuralcollapse.studies._running.cell_folder import run_cell
from neuralcollapse.studies._running.forecast import CellProgress, Forecast
from neuralcollapse.studies._running.store import Store
from neuralcollapse.training import Plan
from small_study import Small, solve_cell, train_cell

pytestmark = pytest.mark.unchecked


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
