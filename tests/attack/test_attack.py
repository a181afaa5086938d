"""A short attack in the suite; ``make attack`` is the long one."""

import pytest

from attack.__main__ import attack
from attack.arguments import MADE
from attack.calls import LEFT_OUT, targets
from attack.lines import LEFT_OUT as LINES_LEFT_OUT
from attack.lines import commands

pytestmark = pytest.mark.unchecked


@pytest.mark.parametrize(("part", "trials"), [("lines", 60), ("calls", 25), ("damage", 78), ("kills", 5)])
def test_nothing_bad_comes_of_a_short_attack(part, trials):
    tally = attack(part, 7, range(trials), seconds=60.0)
    assert not tally.bad, tally.bad
    assert tally.tried


def test_every_public_function_and_command_is_attacked():
    """The tables are made by looking at the package: a few that must be there, and none that is left out in vain."""
    assert {"ufm.solve", "metrics.measure", "losses.Focal", "ufm.RegularizedUFM.certify"} <= set(targets())
    assert len(targets()) > 200
    assert all(targets()[name].arguments() is not None for name in targets())
    assert {("train",), ("study", "run"), ("measure",)} <= set(commands())
    assert {" ".join(path) for path in commands()} > set(LINES_LEFT_OUT)
    assert not set(LEFT_OUT) & set(targets())
    assert all(make() for make in MADE.values())
