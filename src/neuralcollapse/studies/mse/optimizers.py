"""Figure 3 of the mse paper: collapse whatever the optimizer, and the cosine margins that come with it."""

from .._plans import METRICS
from .._study import studies
from .._twins import Optimizers


@studies.add("mse/optimizers")
class MSEOptimizers(Optimizers):
    """SGD, Adam and L-BFGS with the vanilla squared error."""

    figures = ("3",)
    question = "Under the squared error, do features collapse whatever the optimizer, and do margins follow accuracy?"
    loss = "squared-error"
    data = ("CIFAR10",)
    paper_lbfgs_rate = 0.01
    collapse = {"nc1": 0.1, "nc2": 0.2, "nc3": 0.2}
    spread = 0.01
    keep_features = True
    measured_metrics = (*METRICS, "cosine_margin")
    claim = ""
    costs = {"smoke": "2 s", "desk": "5 min", "paper": "12 GPU hours"}
    setting = {
        "smoke": "A small MLP on 120 embedded digits, 3 epochs (L-BFGS: 1).",
        "desk": "",
        "paper": "",
    }
