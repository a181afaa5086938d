"""Figures 5 and 10 of the geometric paper: a head fixed to a simplex ETF, and features of dimension K."""

from .._plans import METRICS
from .._study import studies
from .._twins import DATA, PAPER_NET, FixedHead


@studies.add("geometric/fixed-etf")
class GeometricFixedETF(FixedHead):
    """Cross-entropy on MNIST and CIFAR10."""

    figures = ("5", "10")
    question = "What is lost when the classifier is fixed to a simplex ETF and the features have dimension K?"
    loss = "cross-entropy"
    settings = {
        "smoke": {"digits": {"data": "digits"}},
        "desk": {name: {"data": source} for name, source in DATA["desk"].items()},
        "paper": {
            **{name: {"data": source, "model": PAPER_NET} for name, source in DATA["paper"].items()},
            "CIFAR10, augmented": {"data": "cifar10", "augment": True},
        },
    }
    collapse = {"nc1": 0.1, "nc3": 0.2}
    keep_features = False
    measured_metrics = METRICS
    claim = ""
    costs = {"smoke": "3 s", "desk": "7 min of one core", "paper": "2 GPU days"}
    setting = {
        "smoke": "A small MLP on 120 embedded digits, 3 epochs.",
        "desk": "",
        "paper": "",
    }
