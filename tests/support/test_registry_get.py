"""``get`` of every registry is that of a mapping."""

import pytest

from neuralcollapse import losses
from neuralcollapse._support.registry import Registry
from neuralcollapse.metrics import METRICS
from neuralcollapse.ufm import problems


@pytest.mark.parametrize("registry", [METRICS, losses.registry, problems])
def test_get_returns_the_default_for_an_unknown_name(registry):
    known = next(iter(registry))
    assert registry.get(known) is registry[known]
    assert registry.get("no such name") is None
    assert registry.get("no such name", 3) == 3
    with pytest.raises(ValueError, match="unknown"):
        registry["no such name"]


def test_get_knows_aliases_and_unlisted_names():
    shapes = Registry("shape")
    shapes.add("box", "b", listed=False)(int)
    assert shapes.get("b") is int
    assert shapes.get("box", float) is int
