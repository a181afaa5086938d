"""The index says what the run directories say, and queries see nothing else."""

import json

import duckdb
import pytest

from neuralcollapse._support.files import UNFINISHED
from neuralcollapse.cli import main
from neuralcollapse.studies import query, run_studies
from neuralcollapse.studies._running.index import _write_table
from neuralcollapse.training import Run
from small_study import Small, calculation_cell, solve_cell, train_cell

pytestmark = pytest.mark.unchecked


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    folder = tmp_path_factory.mktemp("it's a folder")
    broken = train_cell(data="mnist")
    studies = [Small(solve_cell(), train_cell(), calculation_cell()), Small(train_cell(), broken, name="test/two")]
    run_studies(studies, "desk", folder, engine="inline", root=folder / "nowhere")
    return folder


def test_runs_hold_the_last_values_of_each_run(results):
    folder = results / "cells" / train_cell().key / "run"
    last = Run.open(folder).final("test")
    asked = "select accuracy, nc1, step from runs where study = 'test/small' and split = 'test'"
    assert query(results, asked).rows == [(last["accuracy"], last["nc1"], 2)]


def test_metrics_hold_the_whole_history(results):
    history = Run.open(results / "cells" / train_cell().key / "run").history
    asked = "select value from metrics where study = 'test/small' and metric = 'nc1' and kind_of_cell = 'train'"
    with pytest.raises(ValueError, match="kind_of_cell"):
        query(results, asked)
    asked = (
        "select value from metrics join cells using (study, cell) where study = 'test/small' and metric = 'nc1' "
        "and kind = 'train' order by step, split = 'test'"
    )
    assert [row[0] for row in query(results, asked).rows] == [row["nc1"] for row in history]


def test_cells_and_studies(results):
    assert query(results, "select study, verdict from studies order by study").rows == [
        ("test/small", "holds"),
        ("test/two", "underpowered"),
    ]
    assert query(results, "select count(*) from cells where error is not null").rows == [(1,)]


def test_a_bare_condition_is_asked_of_the_runs(results):
    found = query(results, "split = 'train' and data = 'digits'")
    assert len(found.rows) == 2
    assert "nc1" in found.columns


def test_any_parquet_reader_can_use_the_index(results):
    file = str(results / "index" / "cells.parquet")
    with duckdb.connect(":memory:") as database:
        assert database.execute("select count(*) from read_parquet(?)", [file]).fetchall() == [(5,)]


@pytest.mark.parametrize("asked", ["select * from '/etc/passwd'", "select * from read_csv('/etc/passwd')"])
def test_queries_see_no_file(results, asked):
    with pytest.raises(ValueError, match="query: "):
        query(results, asked)


def test_queries_write_nothing(results, capsys):
    assert main(["results", "drop table runs", "--out", str(results)]) == 2
    assert "query: " in capsys.readouterr().err


def test_the_command_exports_and_prints(results, tmp_path, capsys):
    for name in ("runs.csv", "runs.parquet"):
        assert main(["results", "split = 'train'", "--out", str(results), "--export", str(tmp_path / name)]) == 0
    assert (tmp_path / "runs.csv").read_text().startswith("study,profile,label")
    capsys.readouterr()
    assert main(["results", "select 1 as one", "--out", str(results), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == [{"one": 1}]


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [(["--export", "x.xlsx"], "must end in .csv or .parquet"), (["--out", "nowhere"], "holds no results")],
)
def test_one_line_for_bad_input(results, arguments, complaint, capsys):
    assert (
        main(["results", "--out", str(results), *arguments] if "--out" not in arguments else ["results", *arguments])
        == 2
    )
    error = capsys.readouterr().err
    assert complaint in error
    assert error.count("\n") == 1


def test_an_index_that_is_broken_is_named(results, tmp_path):
    (tmp_path / "index").mkdir()
    for name in ("studies", "cells", "metrics"):
        (tmp_path / "index" / f"{name}.parquet").write_bytes(b"PAR1 not really")
    with pytest.raises(ValueError, match=r"studies\.parquet: not readable"):
        query(tmp_path)


@pytest.mark.parametrize("name", ["a.parquet", "a.csv"])
def test_what_a_kill_leaves_of_a_table_is_removed_by_its_name(tmp_path, name):
    seen = []

    def rows():
        yield {"x": 1}
        seen.extend(path.name for path in tmp_path.iterdir())

    _write_table(tmp_path / name, {"x": "INTEGER"}, rows())
    assert seen
    assert all(UNFINISHED.fullmatch(left) for left in seen)
    assert [path.name for path in tmp_path.iterdir()] == [name]
