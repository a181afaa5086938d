"""The unconstrained feature models: values, derivatives, closed-form optima, certificates, solvers."""

from .._support.public import explain_calls
from .certificate import Certificate, Verdict
from .contrastive import ContrastiveUFM
from .distance import optimum_means, optimum_weight
from .normalized import NormalizedUFM
from .normalized.optimum import critical_temperature
from .optimum import Optimum
from .point import Point, load_point, save_point
from .problem import Problem, ProblemLinearization, problems
from .regression import CriticalPoint, RegressionUFM
from .regularized import RegularizedUFM
from .regularized.fixed_head import fixed_head_optimum
from .solvers import Iterate, Trace, solve, solve_many
from .solvers.loop import methods

__all__ = [
    "Certificate",
    "ContrastiveUFM",
    "CriticalPoint",
    "Iterate",
    "NormalizedUFM",
    "Optimum",
    "Point",
    "Problem",
    "ProblemLinearization",
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
