"""The rule that makes verdicts, against intervals by hand and against properties that every rule of its kind has."""

import math
import statistics

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from neuralcollapse.studies import (
    Above,
    Agrees,
    AtLeast,
    AtMost,
    Below,
    Between,
    Claim,
    Evidence,
    Holds,
    Limit,
    conclude,
    judge,
)
from neuralcollapse.studies.claims import Part

pytestmark = pytest.mark.unchecked

LIMITS = [AtMost(1.0), AtLeast(1.0), Below(1.0), Above(1.0), Between(-1.0, 1.0)]
INSIDE = {
    AtMost: lambda x: x <= 1,
    AtLeast: lambda x: x >= 1,
    Below: lambda x: x < 1,
    Above: lambda x: x > 1,
    Between: lambda x: -1 <= x <= 1,
}
numbers = st.floats(-10, 10).map(lambda x: round(x, 2))


SMALL = AtMost(1.0)


def claim(limit: Limit = SMALL, **changes) -> Claim:
    return Claim("name", "It is small.", "Figure 1", limit, **changes)


def verdict(limit, evidence, **changes) -> str:
    return judge(claim(limit, **changes), evidence).verdict


# Intervals ----------------------------------------------------------------------------------------------------------


def test_students_interval_by_the_book():
    """Values 1, 2, 3, 4: mean 2.5, deviation 1.2910, t(.975; 3) = 3.1824, so 2.5 +- 2.0543."""
    found = Evidence([1, 2, 3, 4])
    assert (found.measured, found.low, found.high) == pytest.approx((2.5, 0.44573, 4.55427), abs=1e-5)


def test_wilsons_interval_by_the_book():
    """8 of 10, z = 1.95996: centre (0.8 + z^2/20)/(1 + z^2/10) = 0.7166, half width 0.2268."""
    found = Evidence.share(8, 10)
    assert (found.measured, found.low, found.high) == pytest.approx((0.8, 0.4902, 0.9433), abs=1e-4)
    assert Evidence.share(10, 10).high == 1
    assert judge(claim(AtLeast(0.5)), Evidence.share(0, 0)).verdict == "underpowered"


@pytest.mark.parametrize("values", [[], [0.5], [math.nan, 0.1, 0.2], [math.inf, 0.1, 0.2], [math.inf, -math.inf]])
@pytest.mark.parametrize("limit", [*LIMITS, Agrees(1.0)])
def test_one_seed_or_no_number_decides_nothing(values, limit):
    part = judge(claim(limit), Evidence(values))
    assert part.verdict == "underpowered"
    assert part.why


def test_seeds_that_all_never_get_there_decide():
    never = Evidence([math.inf] * 3)
    assert [verdict(limit, never) for limit in (AtMost(1.0), Below(1.0), Agrees(1.0))] == ["contradicted"] * 3
    assert verdict(AtLeast(1.0), never) == "holds"
    assert judge(claim(), never).measured is None  # JSON has no infinity


# The rule -----------------------------------------------------------------------------------------------------------


@given(st.lists(numbers, min_size=2, max_size=6), st.sampled_from(LIMITS))
@example([1.0, 1.0], AtMost(1.0))
@example([1.0, 1.0], Below(1.0))
def test_the_whole_interval_decides(values, limit):
    """By the definition: every point of a fine grid over the interval (and its ends) inside, or every one outside."""
    found = Evidence(values)
    grid = [found.low + (found.high - found.low) * step / 200 for step in range(200)] + [found.high]
    grid += [edge for edge in (-1.0, 1.0) if found.low <= edge <= found.high]
    inside = [INSIDE[type(limit)](x) for x in grid]
    expected = "holds" if all(inside) else "contradicted" if not any(inside) else "underpowered"
    assert verdict(limit, found) == expected


@given(st.lists(numbers, min_size=2, max_size=6), st.sampled_from([*LIMITS, Agrees(1.0)]), st.booleans())
def test_a_contradiction_needs_its_floor_and_the_smoke_profile_decides_nothing(values, limit, empty):
    free = verdict(limit, Evidence(values))
    below, above = Evidence(values, floor_met=False), Evidence(values, floor_met=True)
    floored = claim(limit, floor="every net fits", empty_below_floor=empty)
    assert judge(floored, above).verdict == free
    assert judge(floored, below).verdict == ("holds" if free == "holds" and not empty else "underpowered")
    assert judge(floored, above, "smoke").verdict == "underpowered"
    assert judge(floored, above, failed="A cell failed.").verdict == "underpowered"


@given(numbers, st.floats(0, 5))
def test_agreement_up_to_noise(measured, noise):
    assume(abs(abs(measured) - 0.5 - noise) > 1e-6)
    assume(abs(noise - 1.0) > 1e-6)
    found = verdict(Agrees(0.5), Evidence.interval(measured, measured - noise, measured + noise))
    if abs(measured) > 0.5 + noise:
        assert found == "contradicted"
    else:
        assert found == ("holds" if noise <= 1.0 else "underpowered")


@given(numbers, st.floats(0, 0.99))
def test_a_gain_is_no_loss(lost, noise):
    assume(abs(abs(lost) - 0.5 - noise) > 1e-6)
    limit, found = Agrees(0.5, one_sided=True), Evidence.interval(lost, lost - noise, lost + noise)
    assert verdict(limit, found) == ("contradicted" if lost > 0.5 + noise else "holds")
    assert limit.words("points") == "at most 0.5 points lost, resolved to 1 points"


def test_numbers_that_differ_by_factors_have_geometric_means():
    found = Evidence([0.1, 0.5, 0.5], log_scale=True)
    assert found.measured == pytest.approx(0.025 ** (1 / 3))
    logarithms = Evidence([math.log(0.1), math.log(0.5), math.log(0.5)])
    assert (found.low, found.high) == pytest.approx((math.exp(logarithms.low), math.exp(logarithms.high)))
    assert 0 < found.low < 0.1 < 1 < found.high  # a mean of the numbers themselves: -.21 to .94
    edge = Evidence([10.0, 10.0, 10.0], log_scale=True)
    assert (edge.low, edge.measured, edge.high) == (10.0, 10.0, 10.0)
    assert math.isnan(Evidence([5.0], log_scale=True).low)
    assert math.isnan(Evidence([5.0, math.nan], log_scale=True).measured)
    with pytest.raises(ValueError, match="must be positive, got 0"):
        Evidence([0.0, 1.0], log_scale=True)


def test_a_part_keeps_the_number_of_each_seed():
    assert judge(claim(AtMost(1.0)), Evidence([0.5, math.inf, math.nan])).values == (0.5, None, None)
    assert judge(claim(AtMost(1.0)), Evidence.interval(0.5, 0.4, 0.6)).values == ()


def test_the_longer_side_of_an_interval_is_its_noise():
    limit = Agrees(0.5)
    for low, high in ((-2.0, 0.1), (-0.1, 2.0)):
        assert verdict(limit, Evidence.interval(0.0, low, high)) == "underpowered"
    assert verdict(limit, Evidence.interval(1.2, 0.3, 1.3)) == "holds"
    assert verdict(limit, Evidence.interval(1.2, 1.1, 1.3)) == "contradicted"


@given(st.lists(numbers, min_size=2, max_size=6), st.floats(0.1, 10))
def test_verdicts_do_not_depend_on_the_unit(values, factor):
    """Ten times the values and ten times the limit: the same verdict, away from the edge."""
    found = Evidence(values)
    assume(min(abs(end - 1.0) for end in (found.low, found.high)) > 1e-6)
    scaled = Evidence([factor * value for value in values])
    assert verdict(AtMost(1.0), found) == verdict(AtMost(factor), scaled)


def test_an_exact_yes_or_no():
    assert verdict(Holds(), Evidence.exact(True)) == "holds"
    assert verdict(Holds(), Evidence.exact(False)) == "contradicted"
    assert verdict(Holds(), Evidence.exact(math.nan)) == "underpowered"
    assert verdict(AtMost(1.0), Evidence.exact(1.0)) == "holds"
    with pytest.raises(ValueError, match="a yes or no"):
        verdict(Holds(), Evidence([1.0, 1.0]))


def test_why_says_what_would_decide():
    part = judge(claim(decides_at="ten seeds", floor="every net fits"), Evidence([5, 5.1], floor_met=False, why="5."))
    assert part.why == "5. The floor is not met: every net fits. It would be decided by ten seeds."
    assert judge(claim(), None).why == "It was not measured."


# Misuse -------------------------------------------------------------------------------------------------------------


def test_floor_and_evidence_must_fit():
    with pytest.raises(ValueError, match="must say floor_met"):
        judge(claim(floor="every net fits"), Evidence([1, 2]))
    with pytest.raises(ValueError, match="names no floor"):
        judge(claim(), Evidence([1, 2], floor_met=True))


@pytest.mark.parametrize(
    ("make", "complaint"),
    [
        (lambda: claim(kind="theirs"), "kind must be 'paper' or 'ours', got 'theirs'"),
        (lambda: claim(0.1), "limit must be a Limit"),
        (lambda: claim(empty_below_floor=True), "needs a floor"),
        (lambda: Between(2, 1), "least must be at most"),
        (lambda: Evidence.interval(3, 1, 2), "must lie in its interval"),
        (lambda: Evidence.share(3, 2), "count must be from 0"),
        (lambda: conclude([]), "at least one claim"),
    ],
)
def test_one_line_for_bad_input(make, complaint):
    with pytest.raises((ValueError, TypeError), match=complaint):
        make()


# A study's verdict --------------------------------------------------------------------------------------------------

ORDER = ("contradicted", "underpowered", "holds")
rulings = st.sampled_from(ORDER)


def part(kind: str, ruling: str) -> Part:
    return Part("name", "It is.", "Figure 1", kind, ruling, 1.0, 1.0, 1.0, "at most 1", None, None, "")


@given(st.lists(st.tuples(st.sampled_from(["paper", "ours"]), rulings), min_size=1))
def test_the_worst_of_the_papers_parts_decides(kinds):
    parts = conclude([part(kind, ruling) for kind, ruling in kinds])
    deciding = [one for one in parts if one.decides]
    assert len(deciding) == 1
    counted = [ruling for kind, ruling in kinds if kind == "paper"] or [ruling for _, ruling in kinds]
    assert deciding[0].verdict == min(counted, key=ORDER.index)


def test_the_files_keys():
    keys = {"name", "says", "source", "kind", "verdict", "measured", "low", "high", "limit"}
    found = judge(claim(AtMost(1.0), unit="points"), Evidence([0.5, 0.6], table=[{"a": 1}]))
    assert set(found.to_dict()) == keys | {"why", "floor", "erratum", "decides", "values"}
    assert found.limit == "at most 1 points"
    assert found.measured == pytest.approx(statistics.fmean([0.5, 0.6]))
    assert found.table == ({"a": 1},)
