"""Plans that several studies share, so that equal cells are run once, and the two readings of the papers' settings."""

from typing import Any

from ...training import Plan
from .._results import Results

__all__ = ["CODE", "METRICS", "TEXT", "as_in_text", "desk_plan", "paper_plan", "smoke_plan"]

METRICS = ("nc1", "nc2", "nc3", "nc4_bias", "nc4_mismatch")
TEXT, CODE = "text", "released code"
"""Values of the label ``variant``, at paper size where a paper's text and its released code differ."""


def smoke_plan(**changes: Any) -> Plan:
    """A second of training on the embedded digits: shows that the path works, decides nothing."""
    settings = {"data": "digits", "per_class": 12, "test_per_class": 8, "model": "mlp:width=32,depth=2"}
    return Plan(**{**settings, "epochs": 3, "batch_size": 32, "metrics": METRICS, **changes})


def desk_plan(**changes: Any) -> Plan:
    """A narrow ResNet on 2,000 MNIST images of 14 x 14: a minute or two on one core, deep collapse.

    Ten times the papers' weight decay: so small a net on so few steps needs more of it to collapse in the time.
    """
    settings = {"data": "mnist:size=14", "per_class": 200, "test_per_class": 200, "model": "resnet8:width=16"}
    return Plan(**{**settings, "epochs": 100, "batch_size": 128, "metrics": METRICS, **changes})


def paper_plan(**changes: Any) -> Plan:
    """The setting that the papers share: ResNet18 on CIFAR-10, SGD, 200 epochs, a tenth of the rate every 40."""
    settings = {"data": "cifar10", "model": "resnet18:width=64", "schedule": "step:every=40", "epochs": 200}
    return Plan(**{**settings, "batch_size": 128, "weight_decay": 5e-4, "metrics": METRICS, **changes})


def as_in_text(results: Results) -> Results:
    """The runs with the settings of the paper's text: those with the released code's are shown and decide nothing."""
    return results.select(lambda entry: entry.labels.get("variant", TEXT) == TEXT)
