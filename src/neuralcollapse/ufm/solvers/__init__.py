"""Ways down: one public module a method, each registering itself; adding a method is adding a file.

A method is an iterator of states (:class:`~neuralcollapse.ufm.solvers._method.Method`); starting, stopping,
recording and saving are shared.
"""

from ..._support.registry import load_entries
from ._many import solve_many
from ._method import Method, methods_registry
from ._solve import Iterate, methods, solve
from ._trace import Trace

load_entries(__name__, list(__path__))

__all__ = ["Iterate", "Method", "Trace", "methods", "methods_registry", "solve", "solve_many"]
