"""The figures and tables of the papers as studies: a grid of runs, the claim in parts, one picture.

>>> import neuralcollapse as nc
>>> study = nc.studies.get("geometric/bound")
>>> study.paper, study.figures
('geometric', ('11',))

A study is one file in the folder of its paper; it registers itself in ``studies``. The folders ``imbalance`` and
``codes`` go beyond the four papers: there the statements are those of docs/theory.md and of the works it cites.
"""

from .._support.public import explain_calls
from .._support.registry import load_folders
from .._support.renamed import warn_renamed
from ._cells import Calculation, Cell, Solve, Train, calculations
from ._evidence import collect_evidence, plan_differs, tables_of_parts
from ._results import Planned, Result, Results
from ._running.engines import engines
from ._running.index import Answer, query
from ._running.outcome import StudyOutcome
from ._running.run import Status, first_steps, run_studies
from ._study import PROFILES, Profile, Study, check_profile, studies
from ._variation import Variation, parse_settings
from .claims import (
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
    Part,
    Ruling,
    conclude,
    judge,
)

load_folders(__name__, list(__path__))

__all__ = [
    "PROFILES",
    "Above",
    "Agrees",
    "Answer",
    "AtLeast",
    "AtMost",
    "Below",
    "Between",
    "Calculation",
    "Cell",
    "Claim",
    "Evidence",
    "Holds",
    "Limit",
    "Part",
    "Planned",
    "Profile",
    "Result",
    "Results",
    "Ruling",
    "Solve",
    "Status",
    "Study",
    "StudyOutcome",
    "Train",
    "Variation",
    "calculations",
    "check_profile",
    "collect_evidence",
    "conclude",
    "engines",
    "first_steps",
    "get",
    "judge",
    "parse_settings",
    "plan_differs",
    "query",
    "run_studies",
    "studies",
    "tables_of_parts",
]


def get(name: str) -> Study:
    """The study with this id; ValueError lists the known ones."""
    return studies[name]()


def __getattr__(name: str):
    if name == "Outcome":
        warn_renamed("nc.studies.Outcome", "nc.studies.StudyOutcome")
        return StudyOutcome
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


explain_calls(__name__)
