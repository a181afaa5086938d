"""The page: what is in it, that text from files stays text, and what happens to files that cannot be read."""

import html.parser
import itertools
import json
import re
import shutil

import pytest
import torch

import neuralcollapse as nc
from neuralcollapse.cli import main
from neuralcollapse.web.report._find import _places
from neuralcollapse.web.report._numbers import duration, shown
from neuralcollapse.web.report._parts import table_of
from neuralcollapse.web.report._svg import inline_svg
from report_results import NASTY, make_part, make_run, make_solve, make_study

pytestmark = pytest.mark.unchecked

SVG = '<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" viewBox="0 0 10 10">{}</svg>'


class Page(html.parser.HTMLParser):
    """Elements, ids, headings and the text outside scripts."""

    def __init__(self, text):
        super().__init__()
        self.ids, self.headings, self.links, self.addresses, self.scripts = [], [], [], [], []
        self.words = ""
        self.inside = None
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        given = dict(attributes)
        self.ids += [given["id"]] if "id" in given else []
        self.headings += [int(tag[1])] if re.fullmatch("h[1-6]", tag) else []
        self.links += [given["href"]] if tag == "a" else []
        self.addresses += [given[name] for name in ("src", "href", "srcset", "poster") if given.get(name)]
        self.inside = tag if tag in ("script", "style") else self.inside
        if tag == "script":
            self.scripts.append("")

    def handle_endtag(self, tag):
        self.inside = None if tag == self.inside else self.inside

    def handle_data(self, data):
        if self.inside == "script":
            self.scripts[-1] += data
        elif self.inside is None:
            self.words += data


@pytest.fixture(scope="module")
def everything(tmp_path_factory):
    """Two studies, a run beside its theory, a normalised run and a solve, as one page."""
    home = tmp_path_factory.mktemp("report")
    make_study(home / "results")
    against = [make_part(verdict="contradicted", measured=None)]
    make_study(home / "results", "mse/other", interactive=False, verdict="contradicted", parts=against)
    make_run(home / "plain", decay_on="features", weight_decay=0.01, feature_decay=1e-3)
    make_run(home / "ball", head="normalized:temperature=5", loss="focal:gamma=2")
    make_solve(home / "trace")
    folders = [home / name for name in ("results", "plain", "ball", "trace")]
    return nc.report.write(folders, home / "report.html").read_text(encoding="utf-8")


def test_the_page_says_what_it_should(everything):
    page = Page(everything)
    for words in ("geometric paper, figure 11, table 2", "contradicted", "98.33 %", "1.5×10⁻⁶", "12,345", "2.0 min"):
        assert words in page.words, words
    assert "neuralcollapse study run geometric/bound --profile smoke --out" in page.words
    assert "Theory beside measurement" in page.words
    assert "closed form" in page.words
    assert "global minimum" in page.words
    assert "ValueError" in page.words


def test_a_long_claim_wraps_and_its_formulas_have_signs(tmp_path):
    claim = make_part(
        says="No value of xi(rho) is below that of the global minimum, relative to it.", low=0.5, high=0.5
    )
    make_study(tmp_path / "results", parts=[claim])
    page = nc.report.write([tmp_path / "results"], tmp_path / "report.html").read_text(encoding="utf-8")
    assert '<th scope="row" class="long">No value of ξ(ρ) is below' in page
    assert "0.5 to 0.5" not in page


def test_a_variation_is_marked_and_its_command_repeats_it(tmp_path):
    varied = {"settings": {"epochs": 50, "loss": "focal:gamma=2"}, "seeds": [1, 2]}
    make_study(tmp_path / "results", variation=varied, sensitivity={"distance": [{"start": "small", "ratio": 0.7321}]})
    page = Page(nc.report.write([tmp_path / "results"], tmp_path / "report.html").read_text(encoding="utf-8"))
    assert "geometric/bound (epochs=50, loss=focal:gamma=2, seeds=1,2)" in page.words
    assert "--profile smoke --set epochs=50 --set loss=focal:gamma=2 --seeds 1,2 --out" in page.words
    assert "0.7321" in page.words


def test_our_own_parts_and_errata_are_marked(tmp_path):
    parts = [make_part(), make_part(name="extra", says="More.", kind="ours", decides=False, erratum=9)]
    make_study(tmp_path / "results", parts=parts)
    page = Page(nc.report.write([tmp_path / "results"], tmp_path / "report.html").read_text(encoding="utf-8"))
    assert "More. (ours)" in page.words
    assert "(erratum 9)" in page.words


def test_text_from_files_stays_text(everything):
    page = Page(everything)
    assert page.words.count(NASTY) > 8
    assert not any("window.broken" in script and '"data"' not in script for script in page.scripts)
    assert NASTY not in "".join(page.scripts)


def test_the_page_is_one_file_with_plotly_once(everything):
    page = Page(everything)
    assert all(address.startswith(("#", "data:")) for address in page.addresses)
    assert sum(len(script) > 1_000_000 for script in page.scripts) == 1
    assert "default-src 'none'" in everything
    assert "@import" not in everything.partition("</style>")[0]


def test_ids_are_unique_and_links_arrive(everything):
    page = Page(everything)
    assert len(page.ids) == len(set(page.ids))
    assert {link[1:] for link in page.links} <= set(page.ids)
    used = set(re.findall(r'href="#([^"]+)"', everything)) | set(re.findall(r"url\(#([^)]+)\)", everything))
    assert {name for name in used if name.startswith("s")} <= set(page.ids)


def test_headings_are_in_order(everything):
    levels = Page(everything).headings
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in itertools.pairwise(levels))


def test_without_charts_there_is_no_plotly(tmp_path):
    make_study(tmp_path / "results", interactive=False)
    path = nc.report.write(tmp_path / "results", tmp_path / "report.html")
    assert path.stat().st_size < 200_000


@pytest.mark.parametrize(
    ("body", "forbidden"),
    [
        ("<script>alert(1)</script><path d='M0 0'/>", "alert"),
        ("<style>*{color:red}</style><path d='M0 0'/>", "color:red"),
        ("<path d='M0 0' onclick='alert(1)'/>", "alert"),
        ("<image xlink:href='https://example.org/a.png'/>", "example.org"),
        ("<use xlink:href='javascript:alert(1)'/>", "alert"),
        ("<path d='M0 0' style='fill: url(https://example.org/a)'/>", "example.org"),
        ("<foreignObject><p>hello</p></foreignObject>", "hello"),
        ("<text>&lt;script&gt;</text>", "<script>"),
    ],
)
def test_only_the_drawing_of_a_picture_is_taken(body, forbidden):
    assert forbidden not in inline_svg(SVG.format(body), "p", "label")


def test_ids_of_pictures_are_made_unique():
    body = '<defs><path id="glyph" d="M0 0"/><clipPath id="c"/></defs><use xlink:href="#glyph" clip-path="url(#c)"/>'
    first, second = (inline_svg(SVG.format(body), prefix, "a < b") for prefix in ("one", "two"))
    assert 'id="one-glyph"' in first
    assert 'href="#one-glyph"' in first
    assert "url(#one-c)" in first
    assert 'aria-label="a &lt; b"' in first
    assert not set(re.findall(r'id="([^"]+)"', first)) & set(re.findall(r'id="([^"]+)"', second))


def test_pictures_follow_the_pages_colours_but_letters_on_cells_do_not():
    body = (
        '<path d="M0 0" style="fill: #ffffff"/><path d="M0 0" style="stroke: #0072b2; fill: none"/>'
        '<g style="fill: #ffffff"><path d="M0 0"/></g><path d="M0 0" style="stroke: #000000"/>'
        '<path d="M0 0" style="fill: #440154"/>'
    )
    drawn = inline_svg(SVG.format(body), "p", "label")
    assert "fill: var(--p-ffffff, #ffffff)" in drawn
    assert "stroke: var(--p-0072b2, #0072b2)" in drawn
    assert '<g style="fill: #ffffff">' in drawn
    assert "stroke: currentColor" in drawn
    assert "fill: #440154" in drawn


def test_numbers_are_for_people():
    values = [0.0, -0.5, 1e-9, 123456.0, 2_000_000, True, float("nan"), [1, 2], None, 1 / 3]
    expected = ["0", "−0.5", "1×10⁻⁹", "1.235×10⁵", "2,000,000", "yes", "–", "1, 2", "–", "0.3333"]
    assert [shown(value) for value in values] == expected
    assert [duration(seconds) for seconds in (None, 0.21, 5, 40, 90, 7200)] == [
        "–",
        "0.2 s",
        "5.0 s",
        "40 s",
        "1.5 min",
        "2.0 h",
    ]


def test_tables_take_rows_of_different_columns():
    table = table_of("t", [{"a": 1, "b": "x"}, {"a": 2.5, "c": None}])
    assert table is not None
    assert table.headings == ["a", "b", "c"]
    assert table.rows == [["1", "x", "–"], ["2.5", "–", "–"]]
    assert list(table.numeric[:2]) == [True, False]
    assert table_of("t", []) is None


def test_a_run_measured_on_other_data_alone_has_no_curves(tmp_path):
    folder = make_run(tmp_path / "run")
    row = {"epoch": 1, "split": "elsewhere", "loss": 1.0, "accuracy": 0.5}
    (folder / "metrics.jsonl").write_text(json.dumps(row) + "\n", encoding="utf-8")
    assert 'class="result"' in nc.report.write(folder, tmp_path / "report.html").read_text(encoding="utf-8")


def test_an_unfinished_run_says_so(tmp_path):
    make_run(tmp_path / "run")
    (tmp_path / "run" / "done.json").unlink()
    (tmp_path / "run" / "metrics.jsonl").write_text("", encoding="utf-8")
    text = nc.report.write(tmp_path / "run", tmp_path / "report.html").read_text(encoding="utf-8")
    assert "not finished" in text
    assert "Nothing yet" in text


def _broken(tmp_path):
    """(arguments, part of the message) of calls that cannot work."""
    empty = tmp_path / "empty"
    empty.mkdir()
    yield (empty,), "holds no results"
    yield (tmp_path / "nowhere",), "no such folder"
    yield (), "DIR is missing"
    for file, content, words in (
        ("study.json", "{", "not readable as JSON"),
        ("study.json", "[]", "holds a list"),
        ("study.json", '{"id": "x"}', "lacks paper"),
        ("figure.svg", "<svg", "not an SVG picture"),
        ("figure.svg", "<html/>", "not an SVG picture"),
        ("figure.svg", None, "figure.svg: missing"),
        ("figure.json", '{"data": 1, "layout": {}}', "not a plotly figure"),
        ("table.json", "{}", "holds a dict"),
        ("timing.json", "nonsense", "not readable as JSON"),
    ):
        folder = make_study(tmp_path / f"broken{len(list(tmp_path.iterdir()))}")
        if content is None:
            (folder / file).unlink()
        else:
            (folder / file).write_text(content, encoding="utf-8")
        yield (folder,), words
    folder = make_study(tmp_path / "verdict", verdict="perhaps")
    yield (folder,), "verdict 'perhaps'"
    folder = make_study(tmp_path / "cells", cells=[{}])
    yield (folder,), "not the outcome of a study"
    folder = make_solve(tmp_path / "trace")
    (folder / "history.jsonl").write_text("{", encoding="utf-8")
    yield (folder,), "not a saved trace"
    folder = make_run(tmp_path / "run")
    (folder / "metrics.jsonl").write_text('{"epoch": 1}\n', encoding="utf-8")
    yield (folder,), "metrics.jsonl"
    row = {"epoch": 1, "split": "train", "loss": "small", "accuracy": 1}
    (folder / "metrics.jsonl").write_text(json.dumps(row) + "\n", encoding="utf-8")
    yield (folder,), f"{folder}: not what a training leaves"
    (folder / "metrics.jsonl").write_text("", encoding="utf-8")
    (folder / "done.json").write_text('{"theory": {"predicted": {}}}', encoding="utf-8")
    yield (folder,), f"{folder}: not what a training leaves"
    (folder / "done.json").write_text('{"theory": null, "checksum": "0"}', encoding="utf-8")
    yield (folder,), "done.json: cannot be used"
    (folder / "plan.json").write_text('{"epochs": 0}', encoding="utf-8")
    yield (folder,), "plan.json"


def test_what_cannot_be_read_is_one_line_and_exit_code_2(tmp_path, capsys):
    out = tmp_path / "out" / "report.html"
    for folders, words in _broken(tmp_path):
        assert main(["report", *map(str, folders), "--out", str(out)]) == 2, words
        captured = capsys.readouterr()
        assert captured.out == ""
        assert captured.err.count("\n") == 1
        assert words in captured.err, captured.err
        assert not out.exists()


def test_the_command_names_file_and_size(tmp_path, capsys):
    folder = make_study(tmp_path / "results")
    out = tmp_path / "new" / "page.html"
    assert main(["report", str(folder), "--out", str(out)]) == 0
    assert re.search(r"wrote .*page.html \(\d\.\d MB\)", capsys.readouterr().out.replace("\n", ""))
    assert main(["report", str(folder), "--out", str(tmp_path)]) == 2
    assert "is a folder" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("problem", "words"),
    [
        (nc.ufm.RegressionUFM([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]], 3, 0.1, 0.1), "3 targets of 2 numbers, d = 3?"),
        (nc.ufm.RegularizedUFM("ce", 3, [2, 1, 1], 4, 0.0, 0.01), "K = 3, n = 2, 1, 1, d = 4?"),
    ],
)
def test_solves_of_every_model_are_shown(tmp_path, problem, words):
    """Those without classes, too, and those whose minimum is not attained."""
    nc.ufm.solve(problem, max_iter=5).save(tmp_path / "trace")
    text = nc.report.write(tmp_path / "trace", tmp_path / "report.html").read_text(encoding="utf-8")
    assert f"global minimum of the {problem.kind} model with {words}" in text


def test_a_page_of_reports_takes_reports(tmp_path):
    report = nc.measure(torch.eye(4).repeat(2, 1), torch.arange(4).repeat(2))
    text = nc.report.write_measured({"": report}, tmp_path / "r.html").read_text(encoding="utf-8")
    assert "<h2>" not in text
    for wrong in (report, [report], {"a": 3}):
        with pytest.raises(TypeError, match="reports must be reports by name, got"):
            nc.report.write_measured(wrong, tmp_path / "r.html")
    with pytest.raises(TypeError, match="out must be the path of a file, got 3"):
        nc.report.write_measured({"": report}, 3)


def test_a_solve_of_which_nothing_was_recorded_has_no_curves(tmp_path):
    nc.ufm.solve(nc.ufm.NormalizedUFM("ce", 3, 2, 4), record=()).save(tmp_path / "trace")
    assert 'class="result"' in nc.report.write(tmp_path / "trace", tmp_path / "r.html").read_text(encoding="utf-8")


def test_folders_given_twice_appear_once(tmp_path):
    make_study(tmp_path / "results")
    folders = [tmp_path / "results", tmp_path / "results" / "geometric" / "bound"]
    text = nc.report.write(folders, tmp_path / "report.html").read_text(encoding="utf-8")
    assert text.count('<section class="result"') == 1


def test_many_runs_below_one_folder(tmp_path):
    for seed in range(2):
        make_run(tmp_path / "runs" / f"seed{seed}", seed=seed, metrics=("nc1",))
    text = nc.report.write(tmp_path / "runs", tmp_path / "report.html").read_text(encoding="utf-8")
    assert json.dumps("NC1: variability")[1:-1] in text
    assert text.count('<section class="result"') == 2


def test_a_folder_that_holds_results_of_every_kind_shows_all_of_them(tmp_path):
    home = tmp_path / "all"
    make_study(home / "results", interactive=False)
    make_study(home, "mse/other", interactive=False)
    make_study(home, "single", interactive=False)
    run, trace = make_run(home / "run", metrics=("nc1",)), make_solve(home / "a trace")
    for number in range(2):
        shutil.copytree(trace, home / "many" / f"trial-{number}")
    (home / "many" / "plan.json").write_text("{}", encoding="utf-8")
    places = [place for place, _ in _places(home)]
    trials = [home / "many" / f"trial-{number}" for number in range(2)]
    studies = [home / name for name in ("mse/other", "results/geometric/bound", "single")]
    assert places == [*studies, run, trace, *trials]
    text = nc.report.write(home, tmp_path / "report.html").read_text(encoding="utf-8")
    assert text.count('<section class="result"') == len(places)
