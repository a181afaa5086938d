"""The unconstrained feature models: values, derivatives, closed-form optima, certificates, solvers."""

from .._support.public import explain_calls
from .contrastive import ContrastiveUFM
from .distance import optimum_means, optimum_weight
from .normalized import NormalizedUFM
from .normalized.optimum import critical_temperature
from .point import Point, load_point, save_point
from .problem import Problem, ProblemLinearization, problems
from .regression import CriticalPoint, RegressionUFM
from .regularized import RegularizedUFM
from .regularized.fixed_head import fixed_head_optimum
from .results import Certificate, Optimum, Outcome, Regime, Trace, Verdict
from .solvers import Iterate, solve
from .solvers.loop import methods
from .solvers.many import solve_many

__all__ = [
    "Certificate",
    "ContrastiveUFM",
    "CriticalPoint",
    "Iterate",
    "NormalizedUFM",
    "Optimum",
    "Outcome",
    "Point",
    "Problem",
    "ProblemLinearization",
    "Regime",
    "RegressionUFM",
    "RegularizedUFM",
    "Trace",
    "Verdict",
    "critical_temperature",
    "fixed_head_optimum",
    "load_point",
    "methods",
    "optimum_means",
    "optimum_weight",
    "problems",
    "save_point",
    "solve",
    "solve_many",
]

explain_calls(__name__)
