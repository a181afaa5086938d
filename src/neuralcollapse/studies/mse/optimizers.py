"""Figure 3 of the mse paper: collapse whatever the optimizer, and the cosine margins that come with it."""

from itertools import combinations

from .._results import Results
from .._study import studies
from .._twins import MARGIN_METRICS, Optimizers

CLEAR = 0.02
"""Test accuracies that differ by less say nothing about order: two deviations of 5,000 samples."""


@studies.add("mse/optimizers")
class MSEOptimizers(Optimizers):
    """SGD, Adam and L-BFGS with the vanilla squared error."""

    figures = ("3",)
    question = "Under the squared error, do features collapse whatever the optimizer, and do margins follow accuracy?"
    loss = "squared-error"
    data = ("CIFAR10",)
    paper_lbfgs_rate = 0.01
    collapse = {"nc1": 0.1, "nc2": 0.25, "nc3": 0.25}
    keep_features = True
    measured_metrics = MARGIN_METRICS
    claim = (
        "With SGD, Adam and L-BFGS alike NC1 ends below 0.1 and NC2 and NC3 below 0.25, while test accuracies differ "
        "by a point or more; of two optimizers whose test accuracies differ by two points or more, the better one "
        "has the larger mean cosine margin on the training set."
    )
    costs = {"smoke": "2 s", "desk": "3 min of one core", "paper": "12 GPU hours"}
    setting = {
        "smoke": "A small MLP on 120 embedded digits, 3 epochs (L-BFGS: 1).",
        "desk": "A 4 x 256 MLP with batch norm on 2,000 CIFAR10 images of 16 x 16 instead of ResNet18 on all of them; "
        "100 epochs, ten times the paper's weight decay. L-BFGS sees all images at once and makes 20 iterations "
        "in each of 20 epochs.",
        "paper": "ResNet18 (stem with stride and pooling) on CIFAR10 without augmentation, 200 epochs; L-BFGS with up "
        "to 20 iterations on each batch of 2048.",
    }

    def further(self, results: Results) -> tuple[bool, str]:
        accuracy, margin = results.final("accuracy", "test"), results.final("cosine_margin")
        pairs = [(i, j) for i, j in combinations(range(len(results)), 2) if abs(accuracy[i] - accuracy[j]) >= CLEAR]
        ordered = sum((accuracy[i] > accuracy[j]) == (margin[i] > margin[j]) for i, j in pairs)
        listed = ", ".join(f"{e.labels['optimizer']} {value:.2f}" for e, value in zip(results, margin, strict=True))
        words = f" Mean cosine margins: {listed}; {ordered} of {len(pairs)} clear pairs are ordered like test accuracy."
        return ordered == len(pairs), words
