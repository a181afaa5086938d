"""A short attack in the suite; ``make attack`` is the long one."""

import pytest

from attack.attack import attack

pytestmark = pytest.mark.unchecked


def test_nothing_bad_comes_of_a_short_attack():
    lines: list[str] = []
    tallies = attack(40.0, seed=7, say=lines.append)
    assert not [line for tally in tallies.values() for line in tally.bad], lines
    assert all(tally.tried for tally in tallies.values())
