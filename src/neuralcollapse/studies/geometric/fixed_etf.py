"""Figures 5 and 10 of the geometric paper: a head fixed to a simplex ETF, and features of dimension K."""

from .._common.fixed_heads import FixedHead, accuracy_claims, saving_claim
from .._common.geometric_and_mse import DESK_MNIST
from .._study import studies

SOURCE = "Appendix B.3, Figures 5 and 10"


@studies.add("geometric/fixed-etf")
class GeometricFixedETF(FixedHead):
    """Cross-entropy on MNIST and CIFAR10."""

    figures = ("5", "10")
    question = "What is lost when the classifier is fixed to a simplex ETF and the features have dimension K?"
    loss = "cross-entropy"
    claims = (
        *accuracy_claims(
            "A fixed classifier and d = K reach the same test accuracy as the fully trained classifier with d > K.",
            "They reach the same training accuracy.",
            SOURCE,
        ),
        saving_claim("abstract and Section 4.3, by its count on ResNet18", "paper"),
        saving_claim("our count for the ResNet50 of the released figures", "ours", "resnet50"),
    )
    paper_values = {"saved-resnet18": "over 20 % of memory on ResNet18"}
    rows = {
        "smoke": {"digits": {"data": "digits"}},
        "desk": {"MNIST": {"data": "MNIST", **DESK_MNIST}, "CIFAR10": {"data": "CIFAR10"}},
        "paper": {
            "MNIST": {"data": "MNIST"},
            "CIFAR10": {"data": "CIFAR10"},
            "CIFAR10, augmented": {"data": "CIFAR10", "model": "resnet18:width=64", "augment": True},
            "MNIST, 3x3 stem": {"data": "MNIST", "model": "resnet18:width=64"},
            "CIFAR10, ResNet50": {"data": "CIFAR10", "model": "resnet50:width=64", "augment": True},
        },
    }
    margins = False
    costs = {"smoke": "3 s", "desk": "24 min of one core", "paper": "15 GPU days"}
    setting = {
        "smoke": "A small MLP on 120 embedded digits, 3 epochs.",
        "desk": "A 4 x 256 MLP with batch norm on 10,000 MNIST images of 14 x 14 (80 epochs) and 2,000 CIFAR10 images "
        "of 16 x 16 (400 epochs) instead of ResNet18 on whole sets, 8,000 test images; cosine annealing, ten times the "
        "paper's weight decay. The ETF lies in random directions of wide features; with d = K, in the coordinates.",
        "paper": "ResNet18 on MNIST (as 3 x 32 x 32) and CIFAR10 without augmentation (Figure 10: stem with stride and "
        "pooling), on CIFAR10 with it and on MNIST with the 3 x 3 stem (Figure 5), and ResNet50 (d = 2048 and 10) on "
        "CIFAR10 with augmentation, which the released figures have beside them. The ETF lies in the first K "
        "coordinates.",
    }
    provenance = {
        "rates, momentum, decay, schedule, 200 epochs": "text",
        "data without augmentation (Figure 10)": "text",
        "stems, MNIST as 3 x 32 x 32, initialisation": "code",
        "ResNet50 with d = 2048 and 10, its augmentation": "code",
        "coordinates of the fixed ETF, the first K": "code",
        "three seeds": "guess",
    }
