"""The simplex-encoded-labels interpolation: the geometry of vanishing decay, for any counts."""

import torch
from jaxtyping import Float
from numpy.typing import ArrayLike
from torch import Generator, Tensor

from .._support.checks import describe, integer
from .._support.numerics import svd
from .simplex import embed

__all__ = ["seli"]

PositiveNumbers = ArrayLike | Tensor


def seli(
    counts: PositiveNumbers,
    dim: int | None = None,
    multiplicative: PositiveNumbers | None = None,
    margins: PositiveNumbers | None = None,
    seed: int | Generator | None = None,
) -> tuple[Float[Tensor, "K d"], Float[Tensor, "K d"]]:
    """Classifier W and class means M of least norm with delta_k z_kk - delta_j z_kj >= m_k (Thrampoulidis et al. 2022).

    With q proportional to 1/delta and of unit norm, Pi = I - qq' and E = diag(n m^2/delta^2),

        W W' = (Pi E Pi)^(1/2),   M M' = diag(m/delta) (Pi E Pi)^(+1/2) diag(m/delta),   M W' = diag(m/delta) Pi:

    the minimiser of |W|^2 + sum_k n_k |m_k|^2, and the limit of the regularised optimum as its decays vanish (reached
    only logarithmically). Equal counts give a simplex ETF, and so does the classifier for m_k ~ n_k^(-1/2).

    >>> weight, means = seli([20, 7, 3])
    >>> (means @ weight.T).round(decimals=6)[0].tolist()
    [0.666667, -0.333333, -0.333333]
    >>> weight.shape, means.shape
    (torch.Size([3, 2]), torch.Size([3, 2]))

    Args:
        counts: n_k > 0, samples of each class; only their ratios matter for the shape.
        dim: dimension d >= K - 1 of the vectors; None for K - 1.
        multiplicative: delta_k > 0 of class-dependent temperatures and vector scaling; None for ones.
        margins: m_k > 0 of label-dependent margins; None for ones.
        seed: None for one fixed choice of axes, else a Haar-random one.

    Raises:
        ValueError: if a number is not positive and finite, sizes differ, or ``dim < K - 1``.

    """
    numbers = _positive("counts", counts, None)
    classes = len(numbers)
    if classes < 2:
        raise ValueError(f"counts must name at least 2 classes, got {classes}")
    size = classes - 1 if dim is None else integer("dim", dim, minimum=1)
    if size < classes - 1:
        raise ValueError(f"dim must be at least the number of classes - 1 = {classes - 1}, got {size}")
    ones = torch.ones(classes, dtype=torch.float64)
    delta = ones if multiplicative is None else _positive("multiplicative", multiplicative, classes)
    stretch = (ones if margins is None else _positive("margins", margins, classes)) / delta
    direction = 1 / delta
    direction /= direction.norm()
    # sqrt(E) Pi = A S B' has the roots of Pi E Pi as singular values, with all their digits.
    root = numbers.sqrt() * stretch
    projected = torch.diag(root) - torch.outer(root * direction, direction)
    _, singular, right = svd(projected)
    basis, singular = right[: classes - 1].T, singular[: classes - 1]
    frame = embed(torch.eye(classes - 1, dtype=torch.float64), size, seed)
    weight = (basis * singular.sqrt()) @ frame
    means = stretch[:, None] * ((basis / singular.sqrt()) @ frame)
    return weight, means


def _positive(name: str, values: PositiveNumbers, length: int | None) -> Tensor:
    try:
        numbers = torch.as_tensor(values, dtype=torch.float64, device="cpu").detach()
    except (TypeError, ValueError, RuntimeError) as error:
        raise TypeError(f"{name} must be a list, array or tensor of numbers, got {describe(values)}") from error
    if numbers.ndim != 1 or (length is not None and len(numbers) != length):
        wanted = "one number a class" if length is None else f"{length} numbers, one a class"
        raise ValueError(f"{name} must be {wanted}, got {describe(values)}")
    if not bool((torch.isfinite(numbers) & (numbers > 0)).all()):
        raise ValueError(f"{name} must be positive and finite, got {describe(values)}")
    return numbers
