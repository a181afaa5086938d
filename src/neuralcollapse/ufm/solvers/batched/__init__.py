"""Many trials of one problem as one tensor.

Small problems spend most of a solve on the overhead of small operations, which a batch pays once for all trials. Each
trial keeps a step length, a history and an end of its own; its numbers depend on its own start alone.
"""

from .solve import batch_pays, obstacle, solve_batch

__all__ = ["batch_pays", "obstacle", "solve_batch"]
