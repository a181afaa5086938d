"""The unconstrained feature models: values, derivatives, closed-form optima, certificates, solvers."""

from ._problem import Problem, ProblemLinearization, problems
from .certificate import Certificate, Verdict
from .contrastive import ContrastiveUFM
from .distance import optimum_means, optimum_weight
from .normalized import NormalizedUFM
from .optima.fixed_head import fixed_head_optimum
from .optima.normalized import critical_temperature
from .optimum import Optimum
from .point import Point, load_point, save_point
from .regression import CriticalPoint, RegressionUFM
from .regularized import RegularizedUFM
from .solvers import Iterate, Trace, methods, solve, solve_many

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
