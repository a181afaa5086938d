"""Figures 5 and 10 of the geometric paper: a head fixed to a simplex ETF, and features of dimension K."""

from .._plans import METRICS
from .._study import studies
from .._twins import DATA, MLP, PAPER_NET, FixedHead


@studies.add("geometric/fixed-etf")
class GeometricFixedETF(FixedHead):
    """Cross-entropy on MNIST and CIFAR10."""

    figures = ("5", "10")
    question = "What is lost when the classifier is fixed to a simplex ETF and the features have dimension K?"
    loss = "cross-entropy"
    settings = {
        "smoke": {"digits": {}},
        "desk": {"MNIST": {}, "CIFAR10": {"data": DATA["desk"]["CIFAR10"], **MLP}},
        "paper": {
            **{name: {"data": source, "model": PAPER_NET} for name, source in DATA["paper"].items()},
            "CIFAR10, augmented": {"data": "cifar10", "augment": True},
        },
    }
    keep_features = False
    measured_metrics = METRICS
    costs = {"smoke": "3 s", "desk": "9 min of one core", "paper": "2 GPU days"}
    setting = {
        "smoke": "A small MLP on 120 embedded digits, 3 epochs.",
        "desk": "ResNet8 of width 16 on 2,000 MNIST images of 14 x 14 and a 4 x 256 MLP with batch norm on 2,000 "
        "CIFAR10 images of 16 x 16, instead of ResNet18 on whole sets; 100 epochs, ten times the paper's weight decay.",
        "paper": "ResNet18 on MNIST and CIFAR10 without augmentation (stem with stride and pooling) and on "
        "CIFAR10 with it.",
    }
