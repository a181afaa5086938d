"""What a study is: a question, a grid of cells, the paper's claims in parts, and one picture."""

import copy
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from .._support.checks import describe
from .._support.files import JSONObject
from .._support.registry import Registry, unknown_name
from ..training import Run
from ..ufm import Trace
from ._results import Planned, Results
from ._variation import Variation
from .claims import Claim, Evidence, Part, conclude, judge
from .pictures import Figure

if TYPE_CHECKING:
    from plotly.graph_objects import Figure as PlotlyFigure

    from ._running.outcome import StudyOutcome

__all__ = ["PROFILES", "Profile", "Study", "check_profile", "studies"]

Profile = Literal["smoke", "desk", "paper"]
PROFILES: tuple[Profile, ...] = ("smoke", "desk", "paper")


class Study(ABC):
    """One figure or table of the papers, or one statement beyond them. Subclasses say what; :meth:`run` does it.

    A subclass registers itself with ``@studies.add("paper/name")`` in a file of its own.
    """

    id: ClassVar[str]
    """``paper/name``, set by the registry."""
    figures: ClassVar[tuple[str, ...]]
    """Numbers of the paper's figures ("3") and tables ("table 2"); beyond the four papers, the statement's name."""
    question: ClassVar[str]
    claims: ClassVar[tuple[Claim, ...]]
    """What the paper says, in parts (and what we add); see :mod:`neuralcollapse.studies.claims`."""
    costs: ClassVar[Mapping[str, str]]
    """Time by profile, such as ``{"smoke": "5 s", "desk": "10 min", "paper": "2 GPU days"}``."""
    setting: ClassVar[Mapping[str, str]] = {}
    """By profile, in a sentence or two, what is run and how it differs from the paper."""
    provenance: ClassVar[Mapping[str, Literal["text", "code", "guess"]]] = {}
    """Where each setting of the paper profile comes from: the paper's text, its released code, or our guess."""
    paper_values: ClassVar[Mapping[str, str]] = {}
    """The paper's own numbers, by the name of the claim that they belong to, as it prints them."""
    final_seeds: ClassVar[Mapping[str, tuple[int, ...]]] = {"smoke": (0,), "desk": (10, 11, 12), "paper": (0, 1, 2)}
    """Seeds by profile. Pilots use seeds below 10; the desk runs that are reported use seeds that no pilot saw."""

    variation: Variation | None = None
    """Set by :meth:`vary`: what is not as the study has it."""

    def __repr__(self) -> str:
        return f"Study({self.name!r})"

    @property
    def paper(self) -> str:
        """The paper's short name."""
        return self.id.partition("/")[0]

    @property
    def name(self) -> str:
        """The id, and what varies: where the outcome lies."""
        return self.id if self.variation is None else f"{self.id}+{self.variation.slug}"

    def vary(self, settings: Mapping[str, Any] | None = None, seeds: Iterable[int] | None = None) -> "Study":
        """The study with other settings or seeds; its results are kept apart from the plain ones."""
        varied = copy.copy(self)
        varied.variation = Variation(dict(settings or {}), None if seeds is None else tuple(seeds))
        return varied

    @abstractmethod
    def cells(self, profile: Profile) -> Iterable[Planned]:
        """The grid."""

    def seeds(self, profile: Profile) -> tuple[int, ...]:
        """The seeds that :meth:`cells` repeats its grid for."""
        if self.variation is not None and self.variation.seeds is not None:
            return self.variation.seeds
        return self.final_seeds[profile]

    def plain(self) -> "Study":
        """The study without its variation."""
        plain = copy.copy(self)
        plain.variation = None
        return plain

    def _with_other_seeds(self) -> "Study":
        """The study with seeds that :meth:`seeds` does not have."""
        assert self.variation is not None
        assert self.variation.seeds is not None
        return self.vary(seeds=(max(self.variation.seeds) + 1,))

    @abstractmethod
    def evidence(self, results: Results) -> Mapping[str, Evidence]:
        """What the results say about each of :attr:`claims`, by name."""

    def parts(self, results: Results, failed: str = "") -> tuple[Part, ...]:
        """The verdict on each claim; the one that decides for the study is marked.

        ``failed`` says why nothing can be decided, such as cells without a result.
        """
        found = {} if failed else dict(self.evidence(results))
        unknown = sorted(set(found) - {claim.name for claim in self.claims})
        if unknown:
            raise ValueError(f"study {self.id} gives evidence for {', '.join(unknown)}, which it does not claim")
        return conclude([judge(claim, found.get(claim.name), results.profile, failed) for claim in self.claims])

    @abstractmethod
    def draw(self, results: Results) -> Figure:
        """The picture."""

    def table(self, results: Results) -> list[dict[str, Any]]:
        """The numbers behind the picture, one row a line; by default the final values of each cell."""
        return [{**entry.labels, **_summary(entry.value)} for entry in results]

    def interactive(self, results: Results) -> "PlotlyFigure | None":
        """A plotly figure for the report, where turning or zooming helps; None otherwise."""
        return None

    def run(self, profile: Profile = "desk", out: str = "results", **options: Any) -> "StudyOutcome":
        """Run the cells that are not there yet, check the claim, and write picture and verdict to ``out/ID``.

        ``options`` are those of :func:`neuralcollapse.studies.run_studies`.
        """
        from ._running.run import run_studies

        return run_studies([self], profile, out, **options)[0]

    def trains_nets(self, profile: Profile) -> bool:
        """Whether any of its cells trains a net."""
        return any(entry.cell.kind == "train" for entry in self.cells(profile))

    def planned(self, profile: Profile) -> list[Planned]:
        """The checked grid."""
        planned = list(self.cells(check_profile(profile)))
        if self.variation is not None:
            if self.variation.seeds is not None and planned == list(self._with_other_seeds().cells(profile)):
                raise ValueError(f"--seeds: study {self.id} has no seeds to choose at profile {profile}")
            planned = self.variation.apply(self.id, planned)
        names = [entry.name for entry in planned]
        if not planned or len(set(names)) != len(names):
            raise ValueError(f"study {self.id} has no cells, or two with the same labels, at profile {profile}")
        return planned


class _Studies(Registry[type[Study]]):
    def add(self, name: str, *aliases: str, **more: Any) -> Any:
        register = super().add(name, *aliases, **more)

        def with_id(study: type[Study]) -> type[Study]:
            study.id = name
            return register(study)

        return with_id


studies: _Studies = _Studies("study")


def check_profile(profile: str) -> Profile:
    """``profile`` if it is one."""
    for known in PROFILES:
        if profile == known:
            return known
    if not isinstance(profile, str):
        raise TypeError(f"profile must be a string, got {describe(profile)}")
    raise unknown_name("profile", profile, list(PROFILES))


SUMMARY = ("nc1", "nc2", "nc3", "nc4_mismatch")


def _summary(value: Run | Trace | JSONObject) -> JSONObject:
    if isinstance(value, Run):
        train, test = value.final("train"), value.final("test")
        facts = {"train_loss": train["loss"], "train_accuracy": train["accuracy"], "test_accuracy": test["accuracy"]}
        return {**facts, **{name: train[name] for name in SUMMARY if name in train}}
    if isinstance(value, Trace):
        last = {name: column[-1] for name, column in value.history.items() if name not in ("iteration", "seconds")}
        return {"outcome": value.outcome, "iterations": value.iterations, **last}
    return {name: entry for name, entry in value.items() if not isinstance(entry, list | dict)}
