"""No figure of a page is from a hand: it comes from evidence, or from a test that computes it, or from the code."""

import re
from pathlib import Path

import pytest

import neuralcollapse as nc

HOME = Path(__file__).parents[2]
PAGES = sorted((HOME / "docs").glob("*.md"))
MADE = re.compile(r"<!-- ([\w-]+): made by `make results` -->\n.*?<!-- end of \1 -->", re.DOTALL)
MADE_WHOLE = ("results.md", "gallery.md")
# What only a measurement can say: how fast, how large, how accurate, how many times.
MEASURED = re.compile(
    r"(?<![\w.=<>≥≤/-])\d[\d,]*(?:\.\d+)?(?:e-?\d+)? ?"
    r"(?:%|x\b(?! \d)|times (?:as|faster|slower)|ms\b|µs\b|MB\b|seconds\b|s of\b|images a second)"
)
# Limits and levels, which are chosen and not measured.
CHOSEN = {
    "explorer.md": {"200 MB"},
    "studies.md": {"95 %"},
    "reliability.md": {"20 seconds"},
    "metrics.md": {"1 %"},
}


def text_without_figures(page):
    """Prose and tables, without code and without what ``make results`` writes."""
    text = MADE.sub("", page.read_text(encoding="utf-8"))
    return re.sub(r"`[^`]*`|\$[^$]*\$", "", re.sub(r"```.*?```", "", text, flags=re.DOTALL))


@pytest.mark.parametrize("page", [page for page in PAGES if page.name not in MADE_WHOLE], ids=lambda page: page.name)
def test_measured_figures_are_made(page):
    found = {match.group() for match in MEASURED.finditer(text_without_figures(page))}
    assert found <= CHOSEN.get(page.name, set()), "a figure by hand: put it into evidence/, or take it out"


def test_every_number_of_the_theory_is_in_a_test_that_computes_it():
    tests = "".join(path.read_text(encoding="utf-8") for path in (HOME / "tests").rglob("*.py")).replace("_", "")
    prose, _, statements = (HOME / "docs" / "theory.md").read_text(encoding="utf-8").partition("## Statements of")
    assert statements
    numbers = set(re.findall(r"(?<![\w.])\d+\.\d+", re.sub(r"`[^`]*`|\]\([^)]*\)", "", prose)))
    assert len(numbers) > 30
    assert [number for number in numbers if number.rstrip("0") not in tests] == []


def test_sizes_of_data_sets_are_those_of_the_code():
    page = (HOME / "docs" / "data.md").read_text(encoding="utf-8")
    for name, kind in nc.data.sources.items():
        source = kind()
        row = next(line for line in page.splitlines() if line.startswith(f"| `{name}` |"))
        assert f" {source.num_classes} |" in row
        if name != "synthetic":
            assert f"| {'x'.join(map(str, source.image_shape))} | {source.train_size:,} / {source.test_size:,} |" in row


def test_defaults_of_a_plan_are_those_of_the_code():
    page = (HOME / "docs" / "training.md").read_text(encoding="utf-8")
    plan = nc.training.Plan()
    line = next(row for row in page.splitlines() if row.startswith("| `epochs`, `batch_size`"))
    assert f"| {plan.epochs}, {plan.batch_size}, none |" in line
    line = next(row for row in page.splitlines() if row.startswith("| `weight_decay`"))
    assert [float(text) for text in line.split("|")[2].split(",")] == [
        plan.weight_decay, plan.feature_decay, plan.bias_decay,
    ]  # fmt: skip
    fields = set(
        re.findall(r"`(\w+)`", " ".join(row.split("|")[1] for row in page.splitlines() if row.startswith("| `")))
    )
    assert set(nc.training.Plan.model_fields) <= fields
