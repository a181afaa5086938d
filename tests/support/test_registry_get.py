"""Every registry has a name and a kind of its own, and ``get`` of it is that of a mapping."""

import re
from pathlib import Path

import pytest

import neuralcollapse
from neuralcollapse import losses
from neuralcollapse._support.registry import Registry
from neuralcollapse.metrics import METRICS
from neuralcollapse.ufm import problems


@pytest.mark.parametrize("registry", [METRICS, losses.losses, problems])
def test_get_returns_the_default_for_an_unknown_name(registry):
    known = next(iter(registry))
    assert registry.get(known) is registry[known]
    assert registry.get("no such name") is None
    assert registry.get("no such name", 3) == 3
    with pytest.raises(ValueError, match="unknown"):
        registry["no such name"]


def test_every_registry_is_called_by_a_plural_and_has_a_kind_of_its_own():
    named = {}
    for file in Path(neuralcollapse.__file__).parent.rglob("*.py"):
        found = re.findall(r'^(\w+): .*= Registry\("(.*)"\)$', file.read_text(encoding="utf-8"), re.MULTILINE)
        named |= dict(found)
    assert len(named) == 12
    assert all(name.lower().endswith("s") for name in named)
    assert len(set(named.values())) == len(named)


def test_get_knows_aliases_and_unlisted_names():
    shapes = Registry("shape")
    shapes.add("box", "b", listed=False)(int)
    assert shapes.get("b") is int
    assert shapes.get("box", float) is int
