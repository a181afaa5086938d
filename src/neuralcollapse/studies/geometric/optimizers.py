"""Figures 3, 6 and 7 of the geometric paper: collapse whatever the optimizer."""

from .._plans import METRICS
from .._study import studies
from .._twins import Optimizers


@studies.add("geometric/optimizers")
class GeometricOptimizers(Optimizers):
    """SGD, Adam and L-BFGS with cross-entropy."""

    figures = ("3", "6", "7")
    question = "Do the last-layer features collapse whatever the optimizer, and do the nets generalise alike?"
    loss = "cross-entropy"
    data = ("MNIST", "CIFAR10")
    paper_lbfgs_rate = 0.1
    collapse = {"nc1": 0.1, "nc2": 0.2, "nc3": 0.2, "nc4_bias": 0.2}
    spread = 0.01
    keep_features = False
    measured_metrics = METRICS
    claim = (
        "With SGD, Adam and L-BFGS alike NC1 ends below 0.1 and NC2, NC3 and NC4 below 0.2, while test accuracies on "
        "CIFAR10 differ by a point or more."
    )
    costs = {"smoke": "2 s", "desk": "8 min", "paper": "1 GPU day"}
    setting = {
        "smoke": "A small MLP on 120 embedded digits, 3 epochs (L-BFGS: 1).",
        "desk": "",
        "paper": "",
    }
