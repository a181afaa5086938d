"""Figures 3, 6 and 7 of the geometric paper: collapse whatever the optimizer."""

from .._plans import METRICS
from .._study import studies
from .._twins import Optimizers


@studies.add("geometric/optimizers")
class GeometricOptimizers(Optimizers):
    """SGD, Adam and L-BFGS with cross-entropy.

    NC4, |b + W h_G|, counts also the part along the vector of ones, which cross-entropy does not see: only weight decay
    takes it away, and Adam's scaling of single entries puts some of it back.
    """

    figures = ("3", "6", "7")
    question = "Do the last-layer features collapse whatever the optimizer, and do the nets generalise alike?"
    loss = "cross-entropy"
    data = ("MNIST", "CIFAR10")
    paper_lbfgs_rate = 0.1
    collapse = {"nc1": 0.1, "nc2": 0.25, "nc3": 0.25, "nc4_bias": 0.5}
    keep_features = False
    measured_metrics = METRICS
    claim = (
        "With SGD, Adam and L-BFGS alike NC1 ends below 0.1, NC2 and NC3 below 0.25 and NC4 (the bias) below 0.5, "
        "while test accuracies on CIFAR10 differ by a point or more."
    )
    costs = {"smoke": "2 s", "desk": "5 min of one core", "paper": "1 GPU day"}
    setting = {
        "smoke": "A small MLP on 120 embedded digits, 3 epochs (L-BFGS: 1).",
        "desk": "A 4 x 256 MLP with batch norm on 2,000 images of MNIST (14 x 14) and of CIFAR10 (16 x 16) instead of "
        "ResNet18 on whole sets; 100 epochs, ten times the paper's weight decay. L-BFGS sees all images at once and "
        "makes 20 iterations in each of 20 epochs.",
        "paper": "ResNet18 (stem with stride and pooling) on MNIST and CIFAR10 without augmentation, 200 epochs; "
        "L-BFGS with up to 20 iterations on each batch of 2048.",
    }
