"""The page in a browser: every view opens, nothing is asked of other hosts, and what is shown is what was computed."""

from dataclasses import replace
from urllib.parse import urlsplit

import numpy as np
import pytest

from neuralcollapse._support.fields.models import MODEL_FIELDS, MODEL_WORDS, ModelField, declare_model
from neuralcollapse.ufm import NormalizedUFM, RegularizedUFM, problems
from web_browser import Watched

pytestmark = pytest.mark.unchecked

TABS = ("collapse", "network", "optimum", "solve", "landscape", "results")


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (360, "dark")])
def test_every_tab_opens_and_fits(browser, server, width, scheme):
    watched = Watched(browser, server, width, scheme)
    page = watched.open()
    for tab in TABS:
        page.click(f"#tab-{tab}")
        page.wait_for_selector(f"#panel-{tab}:not([hidden])")
        watched.settle()
        assert page.locator("[role=tabpanel]:visible").count() == 1
        assert page.locator("[role=alert]:visible").count() == 0
        assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth"), tab
    page.click("#tab-landscape")
    page.wait_for_selector("#phases-b .plotly")
    assert page.locator("#panel-landscape .main-svg:visible").count() >= 4
    watched.context.close()
    assert watched.troubles == []
    assert {host for host in watched.hosts if host} == {urlsplit(server.url).netloc}


def test_a_slider_changes_the_number(watched):
    page = watched.open("loss=cross-entropy&classes=4&per_class=10&dim=8&weight_decay=0.005&feature_decay=0.005")
    value = page.locator("#optimum-value")
    value.wait_for()
    first = RegularizedUFM("ce", 4, 10, 8, 0.005, 0.005).optimum().value
    assert float(value.inner_text()) == pytest.approx(first, rel=1e-9)
    slider = page.get_by_role("slider", name="classes K")
    slider.focus()
    page.keyboard.press("ArrowRight")
    page.wait_for_function(
        "before => document.querySelector('#optimum-value').textContent !== before", arg=f"{first:.10g}"
    )
    second = RegularizedUFM("ce", 5, 10, 8, 0.005, 0.005).optimum().value
    assert float(value.inner_text()) == pytest.approx(second, rel=1e-9)
    assert "classes=5" in page.url
    page.reload()
    value.wait_for()
    assert float(value.inner_text()) == pytest.approx(second, rel=1e-9)
    assert page.get_by_role("spinbutton", name="classes K").input_value() == "5"


def test_no_closed_form_is_a_sentence(watched):
    page = watched.open("classes=6&dim=3")
    page.wait_for_selector("#optimum-facts :text('No closed form is known')")
    assert page.locator("#optimum-value").inner_text().startswith("≥")
    assert page.locator("#optimum-gram").is_hidden()


def test_bad_input_is_shown_and_leaves(browser, server):
    """The browser itself logs the refused request, so messages are not checked here."""
    watched = Watched(browser, server)
    page = watched.open("classes=1")
    page.wait_for_selector("#optimum-error:visible")
    assert "classes must be at least 2" in page.locator("#optimum-error").inner_text()
    page.get_by_role("spinbutton", name="classes K").fill("3")
    page.wait_for_selector("#optimum-value")
    page.wait_for_selector("#optimum-error", state="hidden")
    watched.context.close()


def test_a_solve_ends_with_a_certificate(watched):
    page = watched.open("tab=solve&classes=3&per_class=4&dim=5")
    page.click("#run")
    page.wait_for_selector("#verdict")
    assert page.locator("#verdict").inner_text() == "global minimum"
    watched.settle()
    assert page.locator("#solve-view svg circle").count() > 3 + 12
    assert page.locator("#panel-solve .main-svg:visible").count() >= 4
    page.get_by_role("slider", name="iteration", exact=True).fill("0")
    assert "iteration 0" in page.locator("#solve-view").inner_text()
    page.get_by_role("spinbutton", name="classes K").fill("4")
    page.wait_for_selector("#solve-facts.stale")


def test_tabs_work_from_the_keyboard(watched):
    page = watched.open()
    page.focus("#tab-collapse")
    page.keyboard.press("ArrowRight")
    page.wait_for_selector("#panel-network:not([hidden])")
    page.keyboard.press("ArrowRight")
    page.wait_for_selector("#panel-optimum:not([hidden])")
    page.keyboard.press("End")
    page.wait_for_selector("#panel-results:not([hidden])")
    page.go_back()
    page.wait_for_selector("#panel-optimum:not([hidden])")
    watched.settle()


def test_the_picture_turns(watched):
    page = watched.open("tab=optimum")
    picture = page.locator("#optimum-view svg")
    picture.wait_for()
    before = picture.inner_html()
    picture.focus()
    page.keyboard.press("ArrowLeft")
    assert picture.inner_html() != before
    watched.settle()


def test_results_are_text_not_markup(watched):
    page = watched.open("tab=results")
    page.click("text=geometric/bound")
    page.wait_for_selector("#results-study img")
    assert page.evaluate("document.querySelector('#results-study img').decode().then(() => true)")
    assert "Is <b>it</b> so?" in page.locator("#results-study").inner_text()
    assert "<i>ce</i>" in page.locator("#results-study table").last.inner_text()
    assert "study=geometric" in page.url


def features_of_three_classes(seed=0):
    generator = np.random.default_rng(seed)
    labels = np.repeat(np.arange(3), 20)
    return generator.normal(size=(3, 5))[labels] + 0.1 * generator.normal(size=(60, 5)), labels


def test_a_dropped_file_becomes_gauges_and_pictures(watched, tmp_path):
    features, labels = features_of_three_classes()
    np.savez(tmp_path / "<b>f.npz", features=features, labels=labels)
    page = watched.open("tab=data")  # what the view was called
    page.set_input_files("#file", tmp_path / "<b>f.npz")
    page.wait_for_selector("#gauges")
    text = page.locator("#network-report").inner_text()
    assert "<b>f.npz" in text
    assert page.locator(".gauge").count() == 4
    assert page.locator(".gauge .yours").count() >= 2
    assert page.locator(".gauge .interval").count() >= 1
    page.click("#network-all summary")
    assert "nc1_quotient" in page.locator("#metrics").inner_text()
    watched.settle()
    assert page.locator("#network-report .main-svg:visible").count() >= 3
    before = page.evaluate("document.querySelector('.network-stage').toDataURL()")
    page.locator(".network-stage").focus()
    page.keyboard.press("ArrowLeft")
    assert page.evaluate("document.querySelector('.network-stage').toDataURL()") != before


def test_several_shards_are_one_network(watched, tmp_path):
    features, labels = features_of_three_classes()
    for part in range(2):
        np.savez(tmp_path / f"{part}.npz", features=features[part::2], labels=labels[part::2])
    page = watched.open("tab=network")
    page.set_input_files("#file", [tmp_path / "0.npz", tmp_path / "1.npz"])
    page.wait_for_selector("#gauges")
    text = page.locator("#network-report").inner_text()
    assert "2 files" in text
    assert "60 samples, 3 classes, 5 dimensions" in text


def test_the_sample_takes_one_click(watched):
    page = watched.open("tab=network")
    page.click("#sample")
    page.wait_for_selector("#gauges")
    places = "[...document.querySelectorAll('.gauge .yours')].map(node => parseFloat(node.style.left))"
    after = page.evaluate(places)
    slider = page.get_by_role("slider", name="time")
    slider.fill("0")
    assert "before training" in page.locator("#network-report").inner_text()
    before = page.evaluate(places)
    assert all(new > old + 20 for new, old in zip(after, before, strict=True))
    assert page.evaluate("document.activeElement.id") in ("network-title", "network-time")


def test_a_study_opens_where_one_looks(watched):
    page = watched.open("tab=results")
    page.click("text=geometric/bound")
    page.wait_for_selector("#study-title")
    page.wait_for_function("() => document.activeElement.id === 'study-title'")
    place = page.evaluate("() => document.getElementById('study-title').getBoundingClientRect().top")
    assert 0 <= place < 800


def test_both_landscapes_share_one_ball(watched):
    page = watched.open("tab=landscape")
    for side in "ab":
        page.wait_for_selector(f"#slice-{side} .plotly .nsewdrag")
    watched.settle()
    starts = "[...'ab'].map(side => document.querySelector(`#slice-${side} .chart`).data[3].x[0])"
    before = page.evaluate(starts)
    assert before[0] == before[1]
    box = page.locator("#slice-a .plotly .nsewdrag").first.bounding_box()
    page.mouse.click(box["x"] + 0.8 * box["width"], box["y"] + 0.3 * box["height"])
    page.wait_for_function(f"before => {starts}[0] !== before", arg=before[0])
    after = page.evaluate(starts)
    assert after[0] == after[1]
    values = "document.querySelector('#slice-a .chart').data[2]"
    assert page.evaluate(f"{values}.x.at(-1)") != page.evaluate(f"{values}.x[0]")


def test_a_click_on_a_phase_goes_to_collapse(watched):
    page = watched.open("tab=landscape")
    page.wait_for_selector("#phases-b .plotly .nsewdrag")
    watched.settle()
    page.locator("#phases-b").scroll_into_view_if_needed()
    box = page.locator("#phases-b .plotly .nsewdrag").first.bounding_box()
    page.mouse.click(box["x"] + 0.3 * box["width"], box["y"] + 0.4 * box["height"])
    page.wait_for_selector("#panel-collapse:not([hidden])")
    assert "c.weight_decay=" in page.url


@pytest.fixture
def toy():
    """A model that only its own folder knows, with fields of every kind that no other has; taken away afterwards."""
    declare_model(
        "toy",
        *MODEL_FIELDS["normalized"],
        ModelField("stretch", "scale", "Stretch.", label="stretch s", page=(0.0, 9.0), slider=(0.5, 5), start=1.5),
        ModelField("sense", "choice", "Sense.", "left", choices=("left", "right"), label="sense"),
        ModelField("shear", "scale", "Shear.", None, or_none=True, label="shear", slider=(0.25, 5)),
        words="a toy",
    )

    class ToyUFM(NormalizedUFM):
        kind = "toy"

        def __init__(self, loss, num_classes, per_class, dim, temperature=1.0, stretch=1.0, sense="left", shear=None):
            super().__init__(loss, num_classes, per_class, dim, temperature)
            self.stretch, self.sense, self.shear = stretch, sense, shear

        def optimum(self):
            found = super().optimum()
            shift = self.stretch + (4.0 if self.sense == "right" else 0.0) + (self.shear or 0.0)
            return replace(found, value=found.value + shift)

    problems.add("toy")(ToyUFM)
    yield ToyUFM
    del MODEL_FIELDS["toy"], MODEL_WORDS["toy"]
    problems._entries.pop("toy")


@pytest.mark.usefixtures("toy")
def test_a_model_that_is_added_shows_up_with_its_own_fields(watched):
    page = watched.open("tab=optimum")
    shown = page.locator("#optimum-value")
    shown.wait_for()
    assert not page.get_by_role("spinbutton", name="stretch s").is_visible()
    page.get_by_label("Constraint").select_option(label="a toy")
    least = NormalizedUFM("ce", 4, 10, 8, 2.0).optimum().value

    def reads(value):
        page.wait_for_function(
            "value => Math.abs(Number(document.querySelector('#optimum-value')?.textContent) - value) < 1e-6", arg=value
        )

    reads(least + 1.5)
    assert page.get_by_role("slider", name="stretch s").get_attribute("max") == "5"
    page.get_by_role("spinbutton", name="stretch s").fill("2")
    reads(least + 2)
    page.get_by_label("sense").select_option("right")
    reads(least + 6)
    page.locator("select", has=page.locator("option", has_text="not given")).select_option(label="given")
    reads(least + 6.25)
    page.reload()
    reads(least + 6.25)


def test_features_may_be_non_negative(watched):
    page = watched.open("tab=optimum&classes=3&per_class=5&dim=6&features=nonnegative")
    page.locator("#optimum-value").wait_for()
    value = RegularizedUFM("ce", 3, 5, 6, 0.005, 0.005, features="nonnegative").optimum().value
    assert float(page.locator("#optimum-value").inner_text()) == pytest.approx(value, rel=1e-9)
    assert value > RegularizedUFM("ce", 3, 5, 6, 0.005, 0.005).optimum().value * 1.01
    page.get_by_label("features", exact=True).select_option("free")
    page.wait_for_function("() => !location.hash.includes('features')")
