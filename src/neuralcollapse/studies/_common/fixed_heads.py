"""What the studies of fixed classifiers share: learned heads against simplex ETFs, wide features against d = K."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Literal

from ...models import create, parameter_count
from ...training import Plan
from .._cells import Train
from .._results import Planned, Results
from .._study import Profile, Study
from ..claims import Agrees, AtLeast, Claim, Evidence
from ..pictures import Figure
from .geometric_and_mse import (
    CLASSES,
    CODE,
    MARGIN_METRICS,
    TEXT,
    PlanChanges,
    as_in_text,
    collapse_claims,
    collapse_evidence,
    draw_rows,
    net_plan,
)
from .seeds import agreement, fits, points

__all__ = [
    "ON_PAR",
    "SMALL_FIXED",
    "WIDE",
    "FixedHead",
    "Row",
    "accuracy_claim",
    "accuracy_claims",
    "saved_parameters",
    "saving_claim",
]

ON_PAR, NOT_WORSE = Agrees(0.5), Agrees(0.5, one_sided=True)
"""Points within which two accuracies are the same, up to two standard errors; where a gain is as good."""
WIDE, SMALL_FIXED = "learned, wide", "fixed ETF, d = K"
FIXED: Mapping[Profile, str] = {"smoke": "etf", "desk": "etf", "paper": "etf:frame=canonical"}
"""The head: at paper size in the first K coordinates, as in the released code; else spread over wide features."""
Row = Mapping[str, Any]
"""What one row of the study is: ``data`` (a name of ``DATA``) and changes of its plan."""


def accuracy_claims(test: str, train: str, source: str, limit: Agrees = ON_PAR) -> tuple[Claim, ...]:
    """Test and training accuracies agree with those of the learned head on wide features; all four nets collapse."""
    return (
        accuracy_claim("test", test, source, limit),
        Claim("train", train, source, limit, unit="points", decides_at="more seeds"),
        *collapse_claims(("nc1", "nc3"), "for learned and fixed heads, wide features and d = K", source),
    )


def accuracy_claim(name: str, says: str, source: str, limit: Agrees, kind: Literal["paper", "ours"] = "paper") -> Claim:
    """Test accuracies against the learned head on wide features."""
    return Claim(
        name,
        says,
        source,
        limit,
        kind=kind,
        floor="the learned head on wide features fits 99 % of its training set",
        empty_below_floor=True,
        decides_at="more seeds",
        unit="points",
    )


def saving_claim(source: str, kind: Literal["paper", "ours"], net: str = "resnet18") -> Claim:
    """A fifth of the parameters is saved."""
    return Claim(
        f"saved-{net}",
        f"A fixed classifier with d = K saves more than 20 % of the parameters of {net.replace('resnet', 'ResNet')}.",
        source,
        AtLeast(0.2),
        kind=kind,
        unit="share of the trainable parameters",
    )


class FixedHead(Study):
    """Learned against fixed heads, wide features against d = K."""

    loss: ClassVar[str]
    rows: ClassVar[Mapping[Profile, Mapping[str, Row]]]
    """By profile and name of the row."""
    code: ClassVar[PlanChanges | None] = None
    """What the released code changes at paper size; those cells are a variant."""
    limit: ClassVar[Agrees] = ON_PAR
    """Whether a gain in accuracy is as good as none, as the limits of the claims have it."""
    margins: ClassVar[bool]

    def cells(self, profile: Profile) -> Iterator[Planned]:
        variants = {TEXT: {}} if self.code is None or profile != "paper" else {TEXT: {}, CODE: self.code}
        for seed in self.seeds(profile):
            for name, row in self.rows[profile].items():
                for fixed in (False, True):
                    for small in (False, True):
                        for variant, changes in variants.items():
                            plan = self._plan(profile, {**row, **changes, "seed": seed}, fixed, small)
                            head = f"{'fixed ETF' if fixed else 'learned'}, {'d = K' if small else 'wide'}"
                            labels = {"data": name, "head": head, "fixed": fixed, "small": small, "seed": seed}
                            if profile == "paper":
                                labels["variant"] = variant
                            yield Planned(Train(plan, features=True), labels)

    def _plan(self, profile: Profile, row: Row, fixed: bool, small: bool) -> Plan:
        changes = {name: value for name, value in row.items() if name != "data"}
        changes |= {"metrics": MARGIN_METRICS, "head": FIXED[profile] if fixed else "linear"}
        plan = net_plan(profile, row["data"], self.loss, **changes)
        return plan.model_copy(update={"model": f"{plan.model},feature_dim={CLASSES}"}) if small else plan

    def evidence(self, results: Results) -> Mapping[str, Evidence]:
        mine = as_in_text(results)
        found = {
            "test": self.lost(mine, "test", floor_met=fits(mine.where(head=WIDE))),
            "train": self.lost(mine, "train"),
            **collapse_evidence(mine, ("nc1", "nc3"), "head"),
        }
        for claim in self.claims:
            net = claim.name.removeprefix("saved-")
            if net != claim.name:
                saved, full, less = saved_parameters(net)
                why = f"{full:,} trainable parameters become {less:,}, with 3 x 32 x 32 images and {CLASSES} classes."
                found[claim.name] = Evidence.exact(saved, why=why)
        return found

    def lost(
        self, results: Results, split: str, *, floor_met: bool | None = None, heads: Sequence[str] | None = None
    ) -> Evidence:
        """Points that some heads lose against the learned one on wide features: by default all others."""
        lost = {}
        for data in results.labels("data"):
            full = points(results.where(data=data, head=WIDE), split)
            for head in heads or [head for head in results.labels("head") if head != WIDE]:
                lost[f"{data}, {head}"] = full - points(results.where(data=data, head=head), split)
        return agreement(lost, self.limit, floor_met=floor_met)

    def table(self, results: Results) -> list[dict[str, Any]]:
        rows = super().table(results)
        for row, entry in zip(rows, results, strict=True):
            row["trainable_parameters"] = parameter_count(entry.value.model()).trainable
            row["numerical_rank"] = entry.value.final("train")["numerical_rank"]
            row["cosine_margin"] = entry.value.final("train")["cosine_margin"]
        return rows

    def draw(self, results: Results) -> Figure:
        return draw_rows(as_in_text(results), "head", ("nc1", "nc3"), self.margins)


def saved_parameters(net: str) -> tuple[float, int, int]:
    """The share of trainable parameters that a fixed ETF with d = K saves at the paper's size, and both counts."""

    def count(economical: bool) -> int:
        spec = f"{net}:width=64" + (f",feature_dim={CLASSES}" if economical else "")
        return parameter_count(create(spec, (3, 32, 32), CLASSES, head="etf" if economical else "linear")).trainable

    full, less = count(False), count(True)
    return 1 - less / full, full, less
