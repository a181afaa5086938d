"""What the chosen metrics need, and which part of it takes a second look at the samples."""

from collections.abc import Iterable

from .definitions._registry import Metric

__all__ = ["needs_again", "needs_of"]


def needs_of(chosen: Iterable[Metric]) -> frozenset[str]:
    """The needs of all chosen metrics."""
    return frozenset(need for metric in chosen for need in metric.needs)


def needs_again(needs: frozenset[str], *, classifier: bool, scatter: bool) -> frozenset[str]:
    """The needs that are left for a second look, once means and variances are there.

    ``classifier`` says whether there is one to decide; ``scatter`` whether the d x d scatter is there, too.
    """
    left = needs & {"ranks"}
    if classifier:
        left |= needs & {"decisions", "margins"}
    if not scatter:
        left |= needs & {"projection"}
    return left
