"""The view "Collapse" in a browser: it moves by itself, can be touched, and ends in a certificate."""

import pytest

import neuralcollapse as nc
from web_browser import Watched

pytestmark = pytest.mark.unchecked

STEP = "Number(document.querySelector('.numbers dd').textContent)"


def numbers(page):
    names, values = page.locator(".numbers dt").all_inner_texts(), page.locator(".numbers dd").all_inner_texts()
    return dict(zip(names, values, strict=True))


def test_it_opens_moving_and_ends_proved(watched):
    page = watched.open()
    page.wait_for_function(f"() => {STEP} > 20")
    page.get_by_label("speed").evaluate("node => { node.value = 5; node.dispatchEvent(new Event('input')); }")
    page.wait_for_selector(".badge.good")
    assert "proved global minimum" in page.locator(".badge").inner_text()
    found = numbers(page)
    assert float(found["loss"]) == pytest.approx(
        nc.ufm.RegularizedUFM("ce", 4, 12, 3, 0.005, 0.005).optimum().value, rel=1e-3
    )
    assert found["accuracy"] == "100 %"


def test_the_saddle_is_named_and_left(watched):
    page = watched.open("tab=collapse&c.scene=saddle")
    page.wait_for_selector(".badge.bad")
    assert "strict saddle" in page.locator(".badge").inner_text()
    before = numbers(page)["loss"]
    page.get_by_role("button", name="Escape").click()
    page.wait_for_function(f"() => {STEP} > 30")
    assert float(numbers(page)["loss"]) < float(before)


def place_of_a_mean(page):
    """The page place of the first class's mean, as the view itself draws it."""
    return page.evaluate(
        """() => { const view = window.collapseView, item = view.stage.items.find((entry) => entry.kind === "mean");
        const at = view.stage.project(item.at), box = view.canvas.getBoundingClientRect();
        return [box.left + at.x, box.top + at.y]; }"""
    )


@pytest.mark.parametrize("hand", ["mouse", "keyboard"])
def test_a_class_can_be_dragged(watched, hand):
    page = watched.open("tab=collapse")
    page.wait_for_function(f"() => {STEP} > 60")
    page.get_by_role("button", name="Pause").click()
    mean = (
        "() => { const v = window.collapseView, d = v.problem.dim; return Array.from(v.descent.point.H.slice(0, d)); }"
    )
    before = page.evaluate(mean)
    if hand == "mouse":
        x, y = place_of_a_mean(page)
        page.mouse.move(x, y)
        page.mouse.down()
        page.mouse.move(x + 40, y + 30, steps=4)
        page.mouse.up()
    else:
        page.locator("canvas.stage").focus()
        page.keyboard.press("Shift+ArrowRight")
    after = page.evaluate(mean)
    assert sum(abs(a - b) for a, b in zip(after, before, strict=True)) > 0.05
    page.get_by_role("button", name="Play").click()
    page.wait_for_function(f"() => {STEP} > 120")


def test_it_is_fast_enough_with_two_hundred_samples(watched):
    page = watched.open("tab=collapse&c.classes=5&c.per_class=40&c.dim=4")
    page.wait_for_function(f"() => {STEP} > 5")
    # The work of a frame, not the rate of a busy machine: 30 frames a second leave 33 ms.
    median = page.evaluate(
        """() => { const view = window.collapseView, times = [];
        for (let i = 0; i < 60; i++) {
          const began = performance.now(); view.frame(); times.push(performance.now() - began); }
        return times.sort((a, b) => a - b)[30]; }"""
    )
    assert median < 33


def test_for_lectures_the_picture_is_saved_and_letters_grow(watched):
    page = watched.open("tab=collapse")
    page.wait_for_function(f"() => {STEP} > 5")
    with page.expect_download() as saved:
        page.get_by_role("button", name="Save picture").click()
    assert saved.value.suggested_filename.endswith(".png")
    assert saved.value.path().read_bytes()[:4] == b"\x89PNG"
    size = "parseFloat(getComputedStyle(document.querySelector('.scene-words')).fontSize)"
    before = page.evaluate(size)
    page.get_by_role("button", name="Large type").click()
    assert page.evaluate(size) > 1.2 * before
    assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")


def test_old_addresses_open_what_they_named(watched):
    page = watched.open("classes=5&dim=8")
    page.wait_for_selector("#panel-optimum:not([hidden])")
    page = watched.open("tab=landscape")
    page.wait_for_selector("#panel-landscape:not([hidden])")


def test_who_prefers_no_motion_gets_none(browser, server):
    watched = Watched(browser, server, motion="reduce")
    page = watched.open()
    page.wait_for_selector(".badge.open")
    page.wait_for_timeout(300)
    assert numbers(page)["step"] == "0"
    page.get_by_role("button", name="Step").click()
    assert numbers(page)["step"] == "1"
    watched.context.close()
    assert watched.troubles == []


def test_one_file_works_from_the_disk(browser, tmp_path):
    page_file = nc.explorer.write_static(tmp_path / "collapse.html")
    context = browser.new_context(viewport={"width": 360, "height": 800})
    page = context.new_page()
    page.set_default_timeout(200_000)
    troubles = []
    page.on("console", lambda m: troubles.append(m.text) if m.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: troubles.append(str(error)))
    page.goto(page_file.as_uri())
    page.wait_for_function(f"() => {STEP} > 10")
    page.get_by_role("button", name="Pause").click()
    assert "above the global minimum" in page.locator(".badge").inner_text()
    assert page.evaluate("() => document.documentElement.scrollWidth <= document.documentElement.clientWidth")
    page.get_by_role("button", name="5. More classes").click()
    assert "scene=codes" in page.evaluate("() => location.hash")
    context.close()
    assert troubles == []
