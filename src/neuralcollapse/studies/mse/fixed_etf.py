"""Figure 5 of the mse paper: a head fixed to a simplex ETF, and features of dimension K."""

from .._plans import METRICS
from .._study import studies
from .._twins import DATA, FixedHead


@studies.add("mse/fixed-etf")
class MSEFixedETF(FixedHead):
    """Vanilla squared error on CIFAR10."""

    figures = ("5",)
    question = "Under the squared error, what is lost with a classifier fixed to a simplex ETF and d = K?"
    loss = "squared-error"
    settings = {
        "smoke": {"digits": {"data": "digits"}},
        "desk": {"CIFAR10": {"data": DATA["desk"]["CIFAR10"]}},
        "paper": {"CIFAR10, augmented": {"data": "cifar10", "augment": True}},
    }
    collapse = {"nc1": 0.1, "nc3": 0.2}
    keep_features = True
    measured_metrics = (*METRICS, "cosine_margin")
    claim = ""
    costs = {"smoke": "3 s", "desk": "4 min of one core", "paper": "16 GPU hours"}
    setting = {
        "smoke": "A small MLP on 120 embedded digits, 3 epochs.",
        "desk": "",
        "paper": "",
    }
