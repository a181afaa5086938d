"""One look everywhere: a loss has its colour and its mark in every picture, and a number reads the same."""

import json
import re
import shutil
import subprocess
from importlib import resources
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.colors import to_rgb

from neuralcollapse import losses
from neuralcollapse._support.theme import CLASSES, LOSSES, SERIES, look_of, number, series_colour, series_mark
from neuralcollapse.studies.pictures import colour, figure, heat_map, marker, save_picture, styled
from neuralcollapse.web.theme import DARK, DARK_OF, LIGHT, style_sheet

pytestmark = pytest.mark.unchecked

HEX = re.compile(r"#[0-9a-fA-F]{6}\b")


def luminance(colour):
    parts = [x / 12.92 if x <= 0.04045 else ((x + 0.055) / 1.055) ** 2.4 for x in to_rgb(colour)]
    return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]


def contrast(one, other):
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def test_every_loss_has_a_look_of_its_own():
    built_in = {"cross-entropy", "focal", "label-smoothing", "squared-error", "supervised-contrastive"}
    assert built_in <= set(LOSSES) <= set(losses.losses)
    assert len({look.colour for look in LOSSES.values()}) == len(LOSSES)
    assert len({look.mark for look in LOSSES.values()}) == len(LOSSES)
    for spec in ("ce", "cross-entropy", "focal:gamma=2", "mse:alpha=5", "ls", "sc:temperature=2"):
        kind = type(losses.get(spec))
        assert look_of(spec) == next(LOSSES[name] for name, entry in losses.losses.items() if entry is kind)
    assert series_colour("focal:gamma=2", ["adam", "focal:gamma=2"]) == colour("focal") == LOSSES["focal"].colour
    assert series_mark("mse").matplotlib == marker("squared-error:target=2")
    assert series_colour("adam", ["sgd", "adam"]) == SERIES[1]


def test_no_class_has_the_colour_of_a_loss():
    for shade in CLASSES:
        for look in LOSSES.values():
            assert np.linalg.norm(np.subtract(to_rgb(shade), to_rgb(look.colour))) > 0.12, (shade, look)


@pytest.mark.parametrize("scheme", [LIGHT, DARK], ids=["light", "dark"])
def test_words_can_be_read(scheme):
    for ink in ("ink", "soft", "accent", "good", "bad", "open"):
        for ground in ("page", "card"):
            assert contrast(scheme[ink], scheme[ground]) >= 4.5, (ink, ground)
    assert contrast(scheme["accent-ink"], scheme["accent"]) >= 4.5
    for tone in ("good", "bad", "open"):
        assert contrast(scheme[tone], scheme[f"{tone}-ground"]) >= 4.5, tone


def test_lines_can_be_seen_in_the_dark_and_in_the_light():
    for shade in (*CLASSES, *(look.colour for look in LOSSES.values())):
        assert contrast(DARK_OF[shade], DARK["card"]) >= 3, shade
    for shade in CLASSES:
        assert contrast(shade, LIGHT["card"]) >= 3, shade


def test_the_pages_name_no_colours_of_their_own():
    sheet = style_sheet()
    used = set()
    for part in ("explorer/static", "report/page"):
        for file in (Path(str(resources.files("neuralcollapse.web"))) / part).rglob("*"):
            if file.name.endswith((".css", ".js", ".html", ".jinja")):
                text = file.read_text(encoding="utf-8")
                assert not HEX.search(text), (file.name, HEX.search(text))
                used |= set(re.findall(r"var\(--([\w-]+)", text))
    used |= {f"k{place}" for place in range(10)}
    own = {"text", "display", "code", "least", "p-ffffff", "k"}  # of the report's letters and drawings
    assert used - own <= set(re.findall(r"--([\w-]+):", sheet))


def test_no_colour_is_written_twice_in_the_package():
    root = Path(str(resources.files("neuralcollapse")))
    homes = {root / "_support" / "theme.py", root / "web" / "theme.py"}
    for file in root.rglob("*.py"):
        if file not in homes:
            assert not HEX.search(file.read_text(encoding="utf-8")), file


def test_numbers_read_the_same_in_python_and_on_the_page():
    generator = np.random.default_rng(0)
    values = [0.0, 1.0, -2.0, 0.5, 9999.99, 99999.9, 12345, 10000, 250, 1e5, 0.001, 0.00099999, 1e-9, -1e-300, None]
    values += (generator.normal(size=300) * 10.0 ** generator.integers(-12, 8, 300)).tolist()
    asked = [[value, digits] for value in values for digits in (2, 3, 4, 6, 10)]
    node = shutil.which("node")
    if node is None:
        pytest.skip("there is no node on this machine")
    numbers = resources.files("neuralcollapse.web.explorer") / "static" / "page" / "numbers.js"
    script = Path(__file__).parent / "explorer" / "show.mjs"
    command = [node, "--no-warnings", "--experimental-default-type=module", str(script), str(numbers)]
    done = subprocess.run(command, input=json.dumps(asked), capture_output=True, text=True, timeout=120, check=True)
    expected = [number(value, digits) for value, digits in asked]
    assert json.loads(done.stdout) == expected


def test_a_number_is_the_number():
    raised = str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789")
    generator = np.random.default_rng(1)
    for value in (generator.normal(size=300) * 10.0 ** generator.integers(-12, 8, 300)).tolist():
        front, _, power = number(value).partition("×10")
        back = float(front.replace("−", "-").replace(",", "")) * 10.0 ** int(power.translate(raised) or 0)
        assert back == pytest.approx(value, rel=6e-4)


def test_text_in_a_heat_map_can_be_read_where_all_values_are_equal():
    with styled():
        _, axes = figure()
        heat_map(axes[0, 0], np.full((2, 2), 100.0), ["a", "b"], ["c", "d"], title="", limits=(0.0, 100.0))
        image = axes[0, 0].images[0]
        ground = mpl.colormaps["viridis"](image.norm(100.0))
    assert all(contrast(text.get_color(), ground) > 4.5 for text in axes[0, 0].texts)


def test_smoke_pictures_say_so_and_epochs_are_whole(tmp_path):
    sizes = {}
    for smoke in (False, True):
        with styled():
            picture, axes = figure()
            axes[0, 0].plot([1, 2, 3], [0.5, 0.55, 0.6])
            axes[0, 0].set_yscale("log")
            axes[0, 0].set_xlabel("epoch")
        save_picture(picture, tmp_path / str(smoke), smoke=smoke)
        picture.canvas.draw()
        assert [text.get_text() for text in picture.texts] == (["smoke"] if smoke else [])
        ticks = [label.get_text() for label in axes[0, 0].get_xticklabels()]
        assert all(float(text) == int(float(text)) for text in ticks if text)
        ticks = [label.get_text() for label in axes[0, 0].get_yticklabels()]
        assert any(ticks)
        assert not any("times" in text or "10^" in text for text in ticks)
        sizes[smoke] = (tmp_path / f"{smoke}.svg").stat().st_size
    assert sizes[True] > sizes[False]
