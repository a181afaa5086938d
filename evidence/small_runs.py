"""Run what the pages on nets and training quote, in two or three minutes, and write it to evidence/small/.

python evidence/small_runs.py [NAME ...]      all of it, or some: parameters, dead-units, ...
"""

import json
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

import neuralcollapse as nc
from neuralcollapse.studies.losses._nets import spread_ratio
from neuralcollapse.training import Plan, train

SMALL = Path(__file__).resolve().parent / "small"
WIDTHS = (0.25, 0.5, 1, 2)
FEATURE_DECAYS = (4e-4, 2e-4, 1e-4)
RANDOM_WIDTHS = (4, 8, 64, 256)
DEAD_UNITS = {"model": "mlp:width=64,depth=4", "loss": "squared-error", "learning_rate": 0.2, "epochs": 40}
DECAY = {"model": "mlp:width=64,depth=3", "per_class": 50, "epochs": 200, "weight_decay": 0.01, "bias_decay": 0.01}
RANDOM = {"per_class": 50, "epochs": 300, "weight_decay": 1e-3, "random_labels": True}


def parameters() -> dict[str, Any]:
    """Parameters of the papers' nets."""
    full = nc.models.resnet18(num_classes=10)
    fixed = nc.models.resnet18(num_classes=10, feature_dim=10, head="etf")
    trainable = [nc.models.parameter_count(net).trainable for net in (full, fixed)]
    wide = {
        str(width): nc.models.parameter_count(nc.models.wide_resnet50(width=width, num_classes=100)).trainable
        for width in WIDTHS
    }
    return {"saved_by_fixed_head": 1 - trainable[1] / trainable[0], "wide_resnet50": wide}


def dead_units() -> dict[str, Any]:
    """Training accuracy under a fixed head, one unit a class against classes spread over all units."""
    frames = {}
    for frame in ("canonical", "auto"):
        plan = Plan(head=f"etf:frame={frame}", metrics=("nc1",), measure=[DEAD_UNITS["epochs"]], **DEAD_UNITS)
        with tempfile.TemporaryDirectory() as folder:
            run = train(plan, folder)
            net, data = run.model(), nc.data.load("digits")
            images, labels = data.train.batch(torch.arange(len(data.train)))
            with torch.no_grad():
                right = net(images).argmax(1) == labels
            shares = [float(right[labels == label].double().mean()) for label in range(data.num_classes)]
        frames[frame] = {"accuracy": float(right.double().mean()), "classes_lost": sum(share == 0 for share in shares)}
    return {"plan": DEAD_UNITS, "frames": frames}


def feature_decay() -> dict[str, Any]:
    """Sizes of W, H and the logits that the model predicts, and those of trained nets."""
    rows = []
    for decay in FEATURE_DECAYS:
        plan = Plan(decay_on="features", feature_decay=decay, metrics=("nc1",), measure=[DECAY["epochs"]], **DECAY)
        with tempfile.TemporaryDirectory() as folder:
            done = train(plan, folder).done
        assert done is not None
        rows.append({"feature_decay": decay, **done["theory"]})
    return {"plan": DECAY, "rows": rows}


def random_labels() -> dict[str, Any]:
    """Nets of four widths on digits whose labels are drawn at random."""
    rows = []
    for width in RANDOM_WIDTHS:
        model = f"mlp:width={width},depth=4"
        with tempfile.TemporaryDirectory() as folder:
            last = train(Plan(model=model, metrics=("nc1",), measure=[RANDOM["epochs"]], **RANDOM), folder).final()
        rows.append({"width": width, "accuracy": last["accuracy"], "nc1": last["nc1"]})
    return {"plan": RANDOM, "rows": rows}


def few_samples() -> dict[str, Any]:
    """NC1 quotients of few samples in many dimensions, plain and with the noise of the means taken off."""
    classes, dim, per_class, sigma, trials = 10, 100, 20, 0.5, 20
    generator = torch.Generator().manual_seed(0)
    plain, debiased, truth = [], [], []
    for _ in range(trials):
        means = torch.randn(classes, dim, generator=generator, dtype=torch.float64) / dim**0.5
        labels = torch.arange(classes).repeat_interleave(per_class)
        noise = sigma * torch.randn(len(labels), dim, generator=generator, dtype=torch.float64)
        report = nc.measure(means[labels] + noise, labels, metrics=["nc1_quotient", "nc1_quotient_debiased"])
        plain.append(report.nc1_quotient)
        debiased.append(report.nc1_quotient_debiased)
        truth.append(dim * sigma**2 / float((means - means.mean(0)).square().sum(1).mean()))
    sizes = {"classes": classes, "dim": dim, "per_class": per_class, "sigma": sigma, "trials": trials}
    average = {"truth": truth, "plain": plain, "debiased": debiased}
    return {"sizes": sizes, **{name: sum(values) / trials for name, values in average.items()}}


def bootstrap() -> dict[str, Any]:
    """How often the interval of a ratio of spreads holds the true one: four losses, normal noise, few seeds."""
    small, large, noise, trials = np.array([0, 0.8, 1.6, 2.4]), np.array([0, 0.3, 0.6, 0.9]), 0.4, 200
    draw = np.random.default_rng(0)
    truth, held = np.ptp(large) / np.ptp(small), {}
    for count in (3, 4):
        inside = 0
        for _ in range(trials):
            sides = (
                {str(i): mean + noise * draw.standard_normal(count) for i, mean in enumerate(means)}
                for means in (small, large)
            )
            _, low, high = spread_ratio(*sides, draws=400)
            inside += low <= truth <= high
        held[str(count)] = inside / trials
    return {"small": small.tolist(), "large": large.tolist(), "noise": noise, "trials": trials, "held": held}


RUNS: dict[str, Callable[[], dict[str, Any]]] = {
    "parameters": parameters,
    "dead-units": dead_units,
    "feature-decay": feature_decay,
    "random-labels": random_labels,
    "few-samples": few_samples,
    "bootstrap": bootstrap,
}


def main() -> None:
    """Run, write, say so."""
    torch.set_num_threads(1)
    for name in sys.argv[1:] or RUNS:
        path = SMALL / f"{name}.json"
        path.write_text(json.dumps(RUNS[name](), indent=1) + "\n", encoding="utf-8")
        sys.stdout.write(f"wrote evidence/small/{path.name}\n")


if __name__ == "__main__":
    main()
