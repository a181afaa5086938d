"""Claims are shown with signs: no sentence of a study keeps the ASCII name of a letter, an order or a power of ten."""

import re

import pytest

from neuralcollapse import studies
from neuralcollapse._support.notation import typeset, typeset_fields

LEFT = re.compile(r"\b(xi|rho|psi|phi|tau|theta|lambda|sqrt)\b|[<>!]=|\de-\d|\^\d")


@pytest.mark.parametrize("name", list(studies.studies))
def test_every_sentence_of_a_study_is_typeset(name: str) -> None:
    study = studies.get(name)
    words = [study.question, *(claim.says for claim in study.claims)]
    words += [claim.limit.words(claim.unit) for claim in study.claims]
    for text in words:
        assert not LEFT.search(typeset(text)), typeset(text)


@pytest.mark.parametrize(
    "text", ["focal:gamma=3", "squared-error:alpha=5,target=3", "trust-region", "CIFAR-10", "alphabet"]
)
def test_names_that_are_typed_stay(text: str) -> None:
    assert typeset(text) == text


def test_only_named_texts_change() -> None:
    assert typeset_fields({"says": "tau", "id": "tau", "limit": None}, "says", "limit") == {
        "says": "τ",
        "id": "tau",
        "limit": None,
    }
