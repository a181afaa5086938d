"""What a paper says, one sentence at a time, and the rule that judges it.

A study states its claim in parts. To write one:

1. **List what the paper says**, one :class:`Claim` each, in its own words, with its source and its limit. The limit
   comes from the paper's numbers or words, never from a pilot run; an addition of our own is ``kind="ours"``, is shown
   and does not decide.
2. **Say what a contradiction presupposes** (``floor``): nets that do not fit their training set contradict nothing.
3. **Measure**: ``Study.evidence`` returns an :class:`Evidence` by the claim's name, one number a seed (over several
   settings: the worst of each seed). :func:`judge` does the rest, and is the only place where a verdict is made.
4. **Test** each part with results in which it is true and with results in which it is false.

>>> claim = Claim("on-par", "The fixed head costs no test accuracy.", "Section 4.3", Agrees(0.5), unit="points")
>>> part = judge(claim, Evidence([0.1, -0.2, 0.3], why="The heads differ by 0.07 points on average."))
>>> part.verdict, part.limit
('holds', 'within 0.5 points of 0, resolved to 1 points')
>>> judge(claim, Evidence([2.1, 1.9, 2.0])).verdict
'contradicted'
>>> judge(claim, Evidence([2.1])).verdict
'underpowered'
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

import numpy as np

from .._support.checks import describe
from .._support.files import JSONObject

__all__ = [
    "RULINGS",
    "Above",
    "Agrees",
    "AtLeast",
    "AtMost",
    "Below",
    "Between",
    "Claim",
    "Evidence",
    "Holds",
    "Limit",
    "Part",
    "Ruling",
    "conclude",
    "judge",
    "known",
]

Ruling = Literal["holds", "contradicted", "underpowered"]
RULINGS: tuple[Ruling, ...] = ("contradicted", "underpowered", "holds")
"""From the worst to the best: a study's verdict is the worst of its parts."""
LEVEL = 0.95


# Limits -------------------------------------------------------------------------------------------------------------


class Limit(ABC):
    """The values of a measured quantity for which a claim is true."""

    @abstractmethod
    def rule(self, measured: float, low: float, high: float) -> Ruling:
        """What the interval says: all of it inside, all of it outside, or neither."""

    @abstractmethod
    def words(self, unit: str = "") -> str:
        """The limit in a few words."""


def _decide(inside: bool, outside: bool) -> Ruling:
    return "holds" if inside else "contradicted" if outside else "underpowered"


def _with_unit(value: float, unit: str) -> str:
    return f"{value:g} {unit}".rstrip()


@dataclass(frozen=True)
class AtMost(Limit):
    """``x <= most``."""

    most: float

    def rule(self, measured: float, low: float, high: float) -> Ruling:
        return _decide(high <= self.most, low > self.most)

    def words(self, unit: str = "") -> str:
        return f"at most {_with_unit(self.most, unit)}"


@dataclass(frozen=True)
class AtLeast(Limit):
    """``x >= least``."""

    least: float

    def rule(self, measured: float, low: float, high: float) -> Ruling:
        return _decide(low >= self.least, high < self.least)

    def words(self, unit: str = "") -> str:
        return f"at least {_with_unit(self.least, unit)}"


@dataclass(frozen=True)
class Below(Limit):
    """``x < bound``."""

    bound: float

    def rule(self, measured: float, low: float, high: float) -> Ruling:
        return _decide(high < self.bound, low >= self.bound)

    def words(self, unit: str = "") -> str:
        return f"below {_with_unit(self.bound, unit)}"


@dataclass(frozen=True)
class Above(Limit):
    """``x > bound``."""

    bound: float

    def rule(self, measured: float, low: float, high: float) -> Ruling:
        return _decide(low > self.bound, high <= self.bound)

    def words(self, unit: str = "") -> str:
        return f"above {_with_unit(self.bound, unit)}"


@dataclass(frozen=True)
class Between(Limit):
    """``least <= x <= most``."""

    least: float
    most: float

    def __post_init__(self) -> None:
        if not self.least <= self.most:
            raise ValueError(f"least must be at most most = {self.most:g}, got {self.least:g}")

    def rule(self, measured: float, low: float, high: float) -> Ruling:
        return _decide(self.least <= low and high <= self.most, high < self.least or low > self.most)

    def words(self, unit: str = "") -> str:
        return f"{self.least:g} to {_with_unit(self.most, unit)}"


@dataclass(frozen=True)
class Agrees(Limit):
    """``|x| <= within`` up to the noise: for two things that a paper calls equal.

    True if ``x`` is within ``within`` plus the interval's half width of zero, false if it is further away, undecided if
    the half width exceeds ``resolution`` (twice ``within`` unless told otherwise), since noise would then hide a
    difference that matters. ``one_sided``: ``x`` is a loss, and a gain contradicts nothing.
    """

    within: float
    resolution: float | None = None
    one_sided: bool = False

    @property
    def finest(self) -> float:
        """The largest half width that decides."""
        return 2 * self.within if self.resolution is None else self.resolution

    def rule(self, measured: float, low: float, high: float) -> Ruling:
        if math.isinf(measured):
            return "contradicted"
        noise = max(high - measured, measured - low)
        apart = (measured if self.one_sided else abs(measured)) > self.within + noise
        return _decide(not apart and noise <= self.finest, apart)

    def words(self, unit: str = "") -> str:
        within, finest = _with_unit(self.within, unit), _with_unit(self.finest, unit)
        return f"{f'at most {within} lost' if self.one_sided else f'within {within} of 0'}, resolved to {finest}"


@dataclass(frozen=True)
class Holds(Limit):
    """An exact yes or no, for :meth:`Evidence.exact` alone."""

    def rule(self, measured: float, low: float, high: float) -> Ruling:
        return _decide(low == high == 1.0, low == high == 0.0)

    def words(self, unit: str = "") -> str:
        return "true"


# Claims and evidence ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Claim:
    """One thing that a paper says, and the limit that makes it true."""

    name: str
    """A short key, unique in its study."""
    says: str
    """The claim, in one sentence."""
    source: str
    """Where: figure, table or section."""
    limit: Limit
    kind: Literal["paper", "ours"] = "paper"
    """``"ours"``: an addition that does not decide the study's verdict."""
    floor: str | None = None
    """What must be true of the runs for a contradiction, such as "every net fits 99 % of its training set"."""
    decides_at: str = ""
    """Where it may stay undecided: the size that would decide it."""
    erratum: int | None = None
    """The number of the erratum where theory corrects the paper."""
    unit: str = ""
    """Of the measured quantity."""
    empty_below_floor: bool = False
    """Whether the claim says nothing below the floor, so that it cannot hold there either (equal nets at chance)."""

    def __post_init__(self) -> None:
        if self.kind not in ("paper", "ours"):
            raise ValueError(f"kind must be 'paper' or 'ours', got {describe(self.kind)}")
        if not isinstance(self.limit, Limit):
            raise TypeError(f"limit must be a Limit such as AtMost(0.1), got {describe(self.limit)}")
        if self.empty_below_floor and self.floor is None:
            raise ValueError(f"claim {self.name!r}: empty_below_floor needs a floor")


@dataclass(frozen=True)
class Evidence:
    """What was measured for one claim: a number for each seed, from which comes the interval.

    The interval is Student's at 95 % for the mean over the seeds; one seed has none. See :meth:`exact` for statements
    without noise, :meth:`interval` for a bootstrap or a standard error of the study's own, :meth:`share` for counts.
    """

    values: Sequence[float]
    """One a seed."""
    floor_met: bool | None = None
    """Whether the runs do what ``Claim.floor`` asks; needed exactly where the claim has one."""
    why: str = ""
    """What was found, in a sentence with its numbers."""
    table: Sequence[Mapping[str, Any]] = ()
    """Rows of a sensitivity table: how the figure depends on choices that the paper leaves open."""
    log_scale: bool = field(default=False, kw_only=True)
    """For positive values that differ by factors: the geometric mean, and Student's interval of the logarithms."""
    measured: float = field(default=math.nan, kw_only=True)
    low: float = field(default=math.nan, kw_only=True)
    high: float = field(default=math.nan, kw_only=True)
    is_exact: bool = field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        values = tuple(float(value) for value in self.values)
        object.__setattr__(self, "values", values)
        if self.log_scale and any(value <= 0 for value in values):
            raise ValueError(f"values on a logarithmic scale must be positive, got {min(values):g}")
        if values:
            ends = _student_of_logarithms(values) if self.log_scale else _student(values)
            for name, value in zip(("measured", "low", "high"), ends, strict=True):
                object.__setattr__(self, name, value)

    @classmethod
    def exact(
        cls,
        value: float | bool,
        *,
        floor_met: bool | None = None,
        why: str = "",
        table: Sequence[Mapping[str, Any]] = (),
    ) -> "Evidence":
        """A quantity without noise: theory, a grid, a count of parameters; True and False for :class:`Holds`."""
        number = float(value)
        return cls((), floor_met, why, table, measured=number, low=number, high=number, is_exact=not math.isnan(number))

    @classmethod
    def interval(
        cls,
        measured: float,
        low: float,
        high: float,
        *,
        floor_met: bool | None = None,
        why: str = "",
        table: Sequence[Mapping[str, Any]] = (),
    ) -> "Evidence":
        """A figure with an interval of the study's own at 95 %."""
        if not (low <= measured <= high or any(map(math.isnan, (low, measured, high)))):
            raise ValueError(f"measured = {measured:g} must lie in its interval, got {low:g} to {high:g}")
        return cls((), floor_met, why, table, measured=float(measured), low=float(low), high=float(high))

    @classmethod
    def share(
        cls,
        count: int,
        total: int,
        *,
        floor_met: bool | None = None,
        why: str = "",
        table: Sequence[Mapping[str, Any]] = (),
    ) -> "Evidence":
        """The share ``count / total`` of independent trials, with Wilson's interval."""
        from scipy.stats import binomtest

        if not 0 <= count <= total:
            raise ValueError(f"count must be from 0 to total = {total}, got {count}")
        if total == 0:
            return cls.interval(math.nan, math.nan, math.nan, floor_met=floor_met, why=why, table=table)
        ends = binomtest(count, total).proportion_ci(LEVEL, method="wilson")
        share = count / total
        low, high = min(ends.low, share), max(ends.high, share)
        return cls.interval(share, low, high, floor_met=floor_met, why=why, table=table)


def _student(values: Sequence[float]) -> tuple[float, float, float]:
    """Mean and Student's interval; NaN where there is none. Seeds that all never got there: infinite, all of it."""
    from scipy.stats import t

    array = np.asarray(values, dtype=np.float64)
    if np.isinf(array).any():
        same = array.size > 1 and bool((array == array[0]).all())
        ends = float(array[0]) if same else math.nan
        return ends, ends, ends
    mean = float(array.mean())
    if array.size < 2:
        return mean, math.nan, math.nan
    half = float(t.ppf((1 + LEVEL) / 2, array.size - 1) * array.std(ddof=1) / math.sqrt(array.size))
    return mean, mean - half, mean + half


def _student_of_logarithms(values: Sequence[float]) -> tuple[float, float, float]:
    """To twelve digits, so that equal numbers at a limit stay at it."""
    measured, low, high = (float(f"{end:.12g}") for end in np.exp(_student(list(np.log(values)))))
    return measured, low, high


# Judgement ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Part:
    """A claim with its verdict, as ``study.json`` has it."""

    name: str
    says: str
    source: str
    kind: Literal["paper", "ours"]
    verdict: Ruling
    measured: float | None
    low: float | None
    high: float | None
    limit: str
    floor: str | None
    erratum: int | None
    why: str
    values: tuple[float | None, ...] = ()
    """One a seed, where the interval comes from the seeds alone."""
    decides: bool = False
    """Whether this is the part that decides the study's verdict."""
    table: tuple[Mapping[str, Any], ...] = ()

    def to_dict(self) -> JSONObject:
        """As JSON, without the sensitivity table."""
        return {name: value for name, value in asdict(self).items() if name != "table"}


def judge(claim: Claim, evidence: Evidence | None, profile: str = "desk", failed: str = "") -> Part:
    """The verdict on one claim.

    *holds* if the whole interval is inside the limit; *contradicted* if it is wholly outside and the floor, if the
    claim has one, is met; *underpowered* otherwise, and always at the smoke profile, without an interval, without a
    number, and where the study ``failed``, for the reason that this says.
    """
    if evidence is None:
        reason = failed or "It was not measured."
        return _part_of(claim, Evidence(()), "underpowered", _with_what_decides(reason, claim))
    if (claim.floor is None) != (evidence.floor_met is None):
        missing = "names a floor, so its evidence must say floor_met" if claim.floor else "names no floor"
        raise ValueError(f"claim {claim.name!r} {missing}, got floor_met = {evidence.floor_met}")
    if isinstance(claim.limit, Holds) and not (evidence.is_exact or math.isnan(evidence.measured)):
        raise ValueError(f"claim {claim.name!r} is a yes or no: its evidence must be Evidence.exact(True or False)")
    verdict, reason = _verdict(claim, evidence, profile, failed)
    return _part_of(
        claim, evidence, verdict, _with_what_decides(reason, claim) if verdict == "underpowered" else reason
    )


def _verdict(claim: Claim, evidence: Evidence, profile: str, failed: str) -> tuple[Ruling, str]:
    if failed:
        return "underpowered", failed
    if profile == "smoke":
        return "underpowered", "The smoke profile is too small to decide."
    if math.isnan(evidence.measured):
        return "underpowered", "It is not a number in every run."
    if math.isnan(evidence.low) or math.isnan(evidence.high):
        return "underpowered", "One seed has no interval."
    limit = claim.limit.words(claim.unit)
    ruling = claim.limit.rule(evidence.measured, evidence.low, evidence.high)
    if ruling == "underpowered":
        return ruling, f"The interval does not decide ({limit})."
    if evidence.floor_met is False and (ruling == "contradicted" or claim.empty_below_floor):
        return "underpowered", f"The floor is not met: {claim.floor}."
    return ruling, ""


def _with_what_decides(reason: str, claim: Claim) -> str:
    return f"{reason} It would be decided by {claim.decides_at.rstrip('.')}." if claim.decides_at else reason


def _part_of(claim: Claim, evidence: Evidence, verdict: Ruling, reason: str) -> Part:
    return Part(
        name=claim.name,
        says=claim.says,
        source=claim.source,
        kind=claim.kind,
        verdict=verdict,
        measured=known(evidence.measured),
        low=known(evidence.low),
        high=known(evidence.high),
        limit=claim.limit.words(claim.unit),
        floor=claim.floor,
        erratum=claim.erratum,
        why=" ".join(filter(None, (evidence.why, reason))),
        values=tuple(known(value) for value in evidence.values),
        table=tuple(evidence.table),
    )


def known(value: float) -> float | None:
    """The number for a file or a table; None where it is not finite."""
    return float(value) if math.isfinite(value) else None


def conclude(parts: Sequence[Part]) -> tuple[Part, ...]:
    """The parts with the deciding one marked: the first of the worst verdict among the paper's parts.

    A study without any part of a paper's is decided by its own.
    """
    if not parts:
        raise ValueError("a study needs at least one claim")
    eligible = [part for part in parts if part.kind == "paper"] or list(parts)
    deciding = min(eligible, key=lambda part: RULINGS.index(part.verdict))
    return tuple(replace(part, decides=part is deciding) for part in parts)
