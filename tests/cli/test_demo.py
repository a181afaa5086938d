"""``neuralcollapse demo`` at its smallest size, and the page that it writes."""

import json

import pytest

from neuralcollapse.cli import main
from neuralcollapse.studies import studies
from neuralcollapse.studies.demo import Demo

pytestmark = pytest.mark.unchecked


def test_demo_writes_its_page_and_reuses_its_cells(capsys, tmp_path):
    out = tmp_path / "demo"
    arguments = ["demo", "--profile", "smoke", "--workers", "1", "--out", str(out)]
    assert main(arguments) == 0
    said, aside = capsys.readouterr()
    assert "next: neuralcollapse" in aside
    for words in (
        "CE",
        "FL",
        "LS",
        "MSE",
        "certified",
        "underpowered",
        str(out / "report.html"),
    ):
        assert words in said, words
    page = (out / "report.html").read_text(encoding="utf-8")
    for words in (
        "Watch a network collapse",
        "NC1",
        "NC2",
        "NC3",
        "NC4",
        "global minimum",
        "neuralcollapse demo --out",
    ):
        assert words in page, words
    rows = json.loads((out / Demo.id / "table.json").read_text(encoding="utf-8"))
    assert [row["certificate"] for row in rows] == ["global minimum"] * 4
    assert max(row["certified_gap"] for row in rows) < 1e-8
    times = {path: path.stat().st_mtime_ns for path in out.glob("cells/*/cell.json")}
    assert len(times) == 8
    assert main(arguments) == 0
    assert times == {path: path.stat().st_mtime_ns for path in out.glob("cells/*/cell.json")}
    assert main(["report", str(out), "--out", str(tmp_path / "again.html")]) == 0
    capsys.readouterr()


def test_the_demo_is_not_one_of_the_papers_studies():
    assert Demo.id not in studies


def test_the_watched_classes_are_kept_in_their_exact_shape(tmp_path):
    import torch

    from neuralcollapse.frames import simplex_etf
    from neuralcollapse.studies.demo import _in_three_dimensions

    means = torch.randn(4, 12, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    found = _in_three_dimensions([mean.repeat(5, 1) for mean in means], means)
    shape = torch.tensor(found["means"], dtype=torch.float64)
    torch.testing.assert_close(torch.tensor(found["classifier"], dtype=torch.float64), shape, atol=2e-3, rtol=0)
    true, drawn = torch.pdist(means), torch.pdist(shape)
    torch.testing.assert_close(drawn / drawn.norm(), true / true.norm(), atol=1e-3, rtol=0)
    corners = simplex_etf(4, 12, seed=1)
    drawn = torch.tensor(_in_three_dimensions([row.repeat(5, 1) for row in corners], corners)["means"])
    torch.testing.assert_close(drawn.double(), simplex_etf(4, 3), atol=1e-3, rtol=0)
