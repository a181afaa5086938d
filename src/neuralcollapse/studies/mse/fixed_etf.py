"""Figure 5 of the mse paper: a head fixed to a simplex ETF, and features of dimension K."""

from .._study import studies
from .._twins import DATA, MARGIN_METRICS, MLP, FixedHead


@studies.add("mse/fixed-etf")
class MSEFixedETF(FixedHead):
    """Vanilla squared error on CIFAR10."""

    figures = ("5",)
    question = "Under the squared error, what is lost with a classifier fixed to a simplex ETF and d = K?"
    loss = "squared-error"
    settings = {
        "smoke": {"digits": {}},
        "desk": {"CIFAR10": {"data": DATA["desk"]["CIFAR10"], **MLP}},
        "paper": {"CIFAR10": {"data": "cifar10", "augment": True}},
    }
    keep_features = True
    measured_metrics = MARGIN_METRICS
    costs = {"smoke": "3 s", "desk": "2 min of one core", "paper": "16 GPU hours"}
    setting = {
        "smoke": "A small MLP on 120 embedded digits, 3 epochs.",
        "desk": "A 4 x 256 MLP with batch norm on 2,000 CIFAR10 images of 16 x 16 instead of ResNet18 on all of them; "
        "100 epochs, no augmentation, ten times the paper's weight decay.",
        "paper": "ResNet18 on CIFAR10 with augmentation.",
    }
