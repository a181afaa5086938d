"""The page in a real browser: no errors, no requests, nothing wider than the window, every figure drawn."""

import shutil

import pytest

import neuralcollapse as nc
from report_results import make_run, make_solve, make_study
from web_browser import ARGUMENTS

sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")

pytestmark = pytest.mark.unchecked

NAMES = ("chromium", "chromium-browser", "google-chrome")
PATIENCE = 120_000
"""Milliseconds; plotly.js alone is five megabytes, and the machine may be busy."""


@pytest.fixture(scope="module")
def browser():
    executable = next(filter(None, map(shutil.which, NAMES)), None)
    if executable is None:
        pytest.skip(f"no browser: none of {', '.join(NAMES)} is installed")
    with sync_api.sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=executable, args=ARGUMENTS, timeout=PATIENCE)
        yield chromium
        chromium.close()


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    home = tmp_path_factory.mktemp("browser")
    make_study(home / "results")
    make_study(home / "results", "mse/other", interactive=False)
    make_run(home / "run")
    make_solve(home / "trace")
    return nc.report.write([home / name for name in ("results", "run", "trace")], home / "report.html")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 360])
def test_the_page_in_a_browser(browser, report, width, scheme):
    page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
    page.set_default_timeout(PATIENCE)
    said, asked = [], []
    page.on("console", lambda message: said.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("request", lambda request: asked.append(request.url))
    page.goto(report.as_uri(), timeout=PATIENCE)
    for chart in page.locator(".chart").all():
        chart.scroll_into_view_if_needed()
        chart.and_(page.locator(".drawn")).wait_for()
    for fold in page.locator("details").all():
        fold.evaluate("fold => { fold.open = true }")
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    marks = page.evaluate(
        "[...document.querySelectorAll('.chart')].map(c => c.querySelectorAll('path.js-line').length)"
    )
    assert len(marks) > 5
    assert all(marks)
    sizes = "[...document.querySelectorAll('figure')].map(f => [f.offsetWidth, f.offsetHeight])"
    assert all(wide > 200 and high > 100 for wide, high in page.evaluate(sizes))
    assert page.evaluate("window.broken") is None
    page.emulate_media(media="print")
    drawings = "[...document.querySelectorAll('.drawing > svg')].map(s => s.getBoundingClientRect().height)"
    assert all(height > 100 for height in page.evaluate(drawings))
    assert page.evaluate("[...document.querySelectorAll('.charts')].every(c => c.offsetHeight === 0)")
    assert said == []
    assert [url for url in asked if not url.startswith(("data:", "blob:"))] == [report.as_uri()]
    page.close()


def test_the_page_without_scripts(browser, report):
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(report.as_uri(), timeout=PATIENCE)
    for drawing in page.locator(".drawing > svg").all():
        assert drawing.bounding_box()["height"] > 100
    context.close()


def opened(browser, report, **options):
    page = browser.new_page(viewport={"width": 1280, "height": 900}, **options)
    page.set_default_timeout(PATIENCE)
    page.goto(report.as_uri(), timeout=PATIENCE)
    return page


def test_the_contents_stay_and_say_where_one_is(browser, report):
    page = opened(browser, report, reduced_motion="reduce")
    links = page.locator(".contents a")
    assert links.count() == page.locator("section.result").count() == 4
    links.nth(2).click()
    page.wait_for_selector(".contents a:nth-of-type(3)[aria-current]")
    assert 0 <= page.evaluate("document.querySelector('.contents').getBoundingClientRect().top") < 5
    assert page.locator(".contents [aria-current]").count() == 1
    page.close()


def test_the_filter_leaves_what_was_asked_for(browser, report):
    page = opened(browser, report)
    page.get_by_role("searchbox").fill("mse/other")
    assert page.locator("section.result:visible").count() == 1
    assert page.locator(".summary tbody tr:visible").count() == 1
    assert page.locator(".filter output").inner_text() == "1 of 4"
    page.get_by_role("searchbox").fill("")
    page.get_by_role("button", name="holds").click()
    words = page.locator(".summary tbody tr:visible .badge").all_inner_texts()
    assert words
    assert all("holds" in word for word in words if "smoke" not in word)
    page.get_by_role("button", name="holds").click()
    assert page.locator("section.result:visible").count() == 4
    page.close()


def test_every_picture_has_a_thumbnail_that_shows_it(browser, report):
    page = opened(browser, report)
    boxes = "[...document.querySelectorAll('.thumbnail use')].map(use => use.getBBox().width)"
    sizes = page.evaluate(boxes)
    assert len(sizes) == 4
    assert all(size > 10 for size in sizes)
    page.close()


def test_what_is_pointed_at_in_one_chart_is_shown_in_its_neighbours(browser, report):
    page = opened(browser, report)
    charts = page.locator("section.result:has(.charts.count3) .charts").first.locator(".chart.own")
    for chart in charts.all():
        chart.scroll_into_view_if_needed()
        chart.and_(page.locator(".drawn")).wait_for()
    box = charts.first.locator(".nsewdrag").bounding_box()
    page.mouse.move(box["x"] + 0.7 * box["width"], box["y"] + 0.5 * box["height"], steps=3)
    for place in range(charts.count()):
        charts.nth(place).locator(".hoverlayer .legend, .hoverlayer .hovertext, .hoverlayer .axistext").first.wait_for()
    page.mouse.move(2, 2)
    page.wait_for_function("() => !document.querySelector('.hoverlayer .legend, .hoverlayer .hovertext')")
    page.close()
