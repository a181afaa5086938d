"""The sentences that go with the numbers."""

import shlex

from ..._support.fields.models import MODEL_FIELDS
from ...losses import CrossEntropy, SquaredError
from ...ufm import NormalizedUFM, Optimum, Problem, Regime, RegularizedUFM

__all__ = ["command", "dimension_sentence", "formula_sentence", "regime_sentence"]

REGIMES: dict[Regime, str] = {
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
    "orthogonal features": (
        "Features are not negative, so those of different classes are orthogonal: each class has an axis of its own, "
        "and its classifier row points along it and away from the others."
    ),
    "imbalanced collapse": (
        "Features of a class are equal and all classes are told apart; their sizes decide about lengths and angles."
    ),
    "minority collapse": "Some classes are not told apart: they have too few samples for these decays.",
    "convex program": "No closed form is known here: the minimum comes from a convex program with a certificate.",
    "fixed head": "The classifier is a given frame, and features of a class are equal and parallel to its row.",
    "shrunken targets": "The predictions are the targets with shorter principal parts, by what the decays cost.",
    "interpolation": "The targets are within reach of unit rows: every logit is at its target.",
    "polygon": "The classes are at the corners of a regular polygon, the best arrangement known in the plane.",
    "cross-polytope": (
        "There are twice as many classes as dimensions: pairs of opposite vectors, orthogonal to all other pairs, are "
        "the best arrangement known."
    ),
    "orthogonal simplices": (
        "There are too few dimensions for one simplex: the classes form several, each in dimensions of its own."
    ),
    "equal classifiers": "Both classifier rows are equal: at this temperature it is best not to tell classes apart.",
}


def regime_sentence(problem: Problem, regime: Regime) -> str:
    """What a regime of a closed form means."""
    if not problem.has_classifier:
        return "Features of a class are equal, and the class means form a simplex ETF: all pairs with cosine −1/(K−1)."
    if regime.startswith("orthogonal simplices"):  # the sizes follow
        regime = "orthogonal simplices"
    return REGIMES.get(regime, "")


def formula_sentence(problem: Problem, optimum: Optimum | None) -> str:
    """How the value comes about; nothing where no short sentence says it."""
    if isinstance(problem, RegularizedUFM):
        return _regularized_formula(problem, optimum)
    if not problem.balanced:
        return ""
    if not isinstance(problem, NormalizedUFM):
        return (
            "The value is log(n−1 + n (K−1) exp(−K τ²/(K−1))): similarities are τ² within a class and as low as "
            "−τ²/(K−1) between classes."
        )
    if problem.loss.depends_on_margins:
        if optimum is not None and problem.dim < problem.num_classes - 1:
            return "The value is the loss at this arrangement, with τ times the cosines of its rows as logits."
        largest = problem.num_classes * problem.temperature / (problem.num_classes - 1)
        return (
            f"With rows of unit norm the margin a is at most K τ/(K−1) = {largest:.4g}. The value is the least of "
            "ℓ(a) up to there, ℓ(a) the loss when the true logit leads all others by a."
        )
    if isinstance(problem.loss, SquaredError):
        return (
            "With rows of unit norm the true logit is at most τ; what is missing to the target M costs "
            "α/2 (M − τ)², and nothing if τ ≥ M."
        )
    return ""


def _regularized_formula(problem: RegularizedUFM, optimum: Optimum | None) -> str:
    loss = problem.loss
    if problem.nonnegative:
        alone = isinstance(loss, CrossEntropy) and loss.class_weights is None and not problem.has_bias
        return (
            "Every class pays alone: the value is the sum over classes of the least of "
            "(n_k/N) log(1 + (K−1) e⁻ˣ) + μ √(n_k (K−1)/K) x over x ≥ 0, with μ = √(λW λH) = "
            f"{problem.mu:.4g}."
            if alone
            else ""
        )
    if not problem.balanced:
        return ""
    if optimum is not None and optimum.regime == "broken symmetry":
        return "The value is the lowest of points at which some classes are learned and others are not, by search."
    known = f"s = √(n λW λH) = {problem.s:.4g}"
    if loss.depends_on_margins:
        return (
            f"The value is the least of ℓ(a) + (K−1) s a over margins a ≥ 0, with {known} and ℓ(a) the loss when "
            "the true logit leads all others by a. The decays enter through s alone."
        )
    if isinstance(loss, SquaredError):
        return (
            f"The class logits are x (I − 11ᵀ/K) + w 11ᵀ/K; x, w and the bias minimise a quadratic in which the decays "
            f"enter through {known}."
        )
    return ""


def dimension_sentence(problem: Problem) -> str:
    """What the number of dimensions does."""
    count, dim = problem.num_classes, problem.dim
    if isinstance(problem, RegularizedUFM) and problem.nonnegative:
        enough = "is enough" if dim >= count else "is too few. The minimum can only rise as d falls"
        return f"Orthogonal features of {count} classes need {count} dimensions; d = {dim} {enough}."
    if dim >= count - 1:
        enough = f"A simplex ETF of {count} classes needs {count - 1} dimensions; d = {dim} is enough."
        if isinstance(problem, RegularizedUFM) and problem.balanced and problem.loss.depends_on_margins:
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
