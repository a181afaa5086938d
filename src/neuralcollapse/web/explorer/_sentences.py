"""The sentences that go with the numbers."""

import shlex

from ..._support.model_fields import MODEL_FIELDS
from ...losses import LogitLoss
from ...ufm import NormalizedUFM, Problem, RegularizedUFM

__all__ = ["command", "dimension_sentence", "formula_sentence", "regime_sentence"]

REGIMES = {
    "zero": "The decays are so strong that classifier and features are zero: nothing is learned.",
    "neural collapse": (
        "Features of a class are equal, class means and classifier rows are parallel and form a simplex ETF: "
        "K vectors of equal length, all pairs with cosine −1/(K−1)."
    ),
    "neural collapse with a common direction": (
        "A simplex ETF plus one direction that all classes share, because the bias is too costly to carry the mean."
    ),
    "orthogonal frame": (
        "Without a bias the classes are orthogonal, not at a simplex: the squared error also asks for the mean logit."
    ),
    "low rank": "There are too few dimensions for a simplex ETF: the classes share a best projection on d dimensions.",
    "broken symmetry": "Only some classes are learned, and the bias prefers them: lower than any symmetric point.",
    "spread": (
        "The temperature is above the critical one: the best margin is smaller than the largest possible, and "
        "features of a class need not be equal."
    ),
    "equal classifiers": "Both classifier rows are equal: at this temperature it is best not to tell classes apart.",
}


def regime_sentence(problem: Problem, regime: str) -> str:
    """What a regime of a closed form means."""
    if not problem.has_classifier:
        return "Features of a class are equal, and the class means form a simplex ETF: all pairs with cosine −1/(K−1)."
    return REGIMES.get(regime, "")


def formula_sentence(problem: Problem) -> str:
    """How the value comes about."""
    if isinstance(problem, RegularizedUFM):
        known = f"s = √(n λW λH) = {problem.s:.4g}"
        if problem.loss.contrastive:
            return (
                f"The value is the least of ℓ(a) + (K−1) s a over margins a ≥ 0, with {known} and ℓ(a) the loss when "
                "the true logit leads all others by a. The decays enter through s alone."
            )
        return (
            f"The class logits are x (I − 11ᵀ/K) + w 11ᵀ/K; x, w and the bias minimise a quadratic in which the decays "
            f"enter through {known}."
        )
    if isinstance(problem, NormalizedUFM):
        if isinstance(problem.loss, LogitLoss) and problem.loss.contrastive:
            largest = problem.num_classes * problem.temperature / (problem.num_classes - 1)
            return (
                f"With rows of unit norm the margin a is at most K τ/(K−1) = {largest:.4g}. The value is the least of "
                "ℓ(a) up to there, ℓ(a) the loss when the true logit leads all others by a."
            )
        return (
            "With rows of unit norm the true logit is at most τ; what is missing to the target M costs "
            "α/2 (M − τ)², and nothing if τ ≥ M."
        )
    return (
        "The value is log(n−1 + n (K−1) exp(−K τ²/(K−1))): similarities are τ² within a class and as low as "
        "−τ²/(K−1) between classes."
    )


def dimension_sentence(problem: Problem) -> str:
    """What the number of dimensions does."""
    count, dim = problem.num_classes, problem.dim
    if dim >= count - 1:
        enough = f"A simplex ETF of {count} classes needs {count - 1} dimensions; d = {dim} is enough."
        if isinstance(problem, RegularizedUFM) and problem.loss.contrastive:
            enough += " The value is the same for every d from there on; below, a closed form is known only at zero."
        return enough
    return (
        f"A simplex ETF of {count} classes needs {count - 1} dimensions; d = {dim} is too few, so cosines of −1/(K−1) "
        "cannot all be had at once. The minimum can only rise as d falls."
    )


def command(verb: str, problem: Problem, **more: object) -> str:
    """The same on the command line."""
    fields, given = MODEL_FIELDS[problem.kind], problem.parameters()
    options: dict[str, object] = {} if "loss" in given else {"--loss": "sc"}
    options |= {field.option: given.get(field.name) for field in fields}
    options |= {f"--{name}": value for name, value in more.items()}
    words = ["neuralcollapse", verb]
    for name, value in options.items():
        if value is not None:
            text = ",".join(map(str, value)) if isinstance(value, list) else str(value)
            words += [name, f"{value:.12g}" if isinstance(value, float) else text]
    return shlex.join(words)
