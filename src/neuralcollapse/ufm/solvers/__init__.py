"""Ways down: the loop, the histories, and one file a method in ``methods``.

A method is an iterator of states (:class:`~neuralcollapse.ufm.solvers.method.Method`); starting, stopping,
recording and saving are shared.
"""

from ..results import Trace
from . import methods as methods
from .loop import Iterate, solve
from .method import Method, solver_methods

__all__ = ["Iterate", "Method", "Trace", "solve", "solver_methods"]
