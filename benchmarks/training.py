"""The training loop against a bare hand-written one, the cost of measuring, and the effect of layout and precision.

    python benchmarks/training.py [--seconds 20] [--collapse]

Rivals are measured in turns in one run, by processor time where one thread does the work, so that a busy machine does
not decide; the best time of each counts. ``--collapse`` also trains the default plan
(embedded digits) until train accuracy is 100 % and nc1 < 0.1, then to its end.
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
from _tables import Tables

import neuralcollapse as nc
from neuralcollapse.training import Plan, train
from neuralcollapse.training._distributed import Team
from neuralcollapse.training._measure import measure_split
from neuralcollapse.training._trainer import Trainer

CPU = torch.device("cpu")


Clock = Callable[[], float]


def in_turns(rivals: dict[str, Callable[[], object]], budget: float, clock: Clock) -> dict[str, list[float]]:
    """Times of each rival, one after the other, until the budget is used."""
    times: dict[str, list[float]] = {name: [] for name in rivals}
    for function in rivals.values():
        function()
    begin = time.perf_counter()
    while time.perf_counter() - begin < budget or len(next(iter(times.values()))) < 3:
        for name, function in rivals.items():
            start = clock()
            function()
            times[name].append(clock() - start)
    return times


def make_trainer(plan: Plan) -> Trainer:
    data = nc.data.load(plan.data, per_class=plan.per_class)
    model = nc.models.create(plan.model, data.image_shape, data.num_classes, plan.head, plan.seed)
    if plan.channels_last:
        model.to(memory_format=torch.channels_last)
    return Trainer(plan, model, data, Team(), CPU)


def our_epoch(trainer: Trainer) -> None:
    trainer.epoch = 0
    trainer.run_epoch(lambda progress: None)


def bare_epoch(trainer: Trainer) -> Callable[[], None]:
    """What one would write by hand: normalised images in memory, shuffled, one SGD step a batch."""
    plan, split = trainer.plan, trainer.data.train
    model = nc.models.create(plan.model, split.image_shape, split.num_classes, plan.head, plan.seed)
    layout = torch.channels_last if plan.channels_last else torch.contiguous_format
    model.to(memory_format=layout)
    images, labels = split.batch(torch.arange(len(split)))
    images = images.contiguous(memory_format=layout)
    loss = torch.nn.CrossEntropyLoss()
    rate, decay = plan.learning_rate, plan.weight_decay
    optimizer = torch.optim.SGD(model.parameters(), lr=rate, momentum=0.9, weight_decay=decay)
    size = -(-len(split) // trainer.steps)

    def epoch() -> None:
        model.train()
        for positions in torch.randperm(len(split)).split(size):
            optimizer.zero_grad(set_to_none=True)
            loss(model(images[positions]), labels[positions]).backward()
            optimizer.step()

    return epoch


def compare(title: str, plan: Plan, budget: float) -> list[str]:
    trainer = make_trainer(plan)
    measure = lambda: measure_split(plan, trainer.model, trainer.data.train, Team(), CPU)  # noqa: E731
    rivals = {"ours": lambda: our_epoch(trainer), "bare": bare_epoch(trainer), "measure": measure}
    times = in_turns(rivals, budget, time.process_time)
    best = {name: min(values) for name, values in times.items()}
    pairs = [ours / bare for ours, bare in zip(times["ours"], times["bare"], strict=True)]
    rate = len(trainer.data.train) / best["ours"]
    ratios = (best["ours"] / best["bare"], statistics.median(pairs), best["measure"] / best["ours"])
    return [title, f"{rate:,.0f}", *(f"{ratio:.2f}" for ratio in ratios)]


def effects(plan: Plan, budget: float) -> list[list[str]]:
    variants = {
        "channels_last": plan,
        "contiguous": plan.model_copy(update={"channels_last": False}),
        "bfloat16": plan.model_copy(update={"precision": "bfloat16"}),
    }
    trainers = {name: make_trainer(variant) for name, variant in variants.items()}
    rivals = {name: (lambda trainer=trainer: our_epoch(trainer)) for name, trainer in trainers.items()}

    def two_threads() -> None:
        torch.set_num_threads(2)
        try:
            our_epoch(trainers["channels_last"])
        finally:
            torch.set_num_threads(1)

    times = in_turns({**rivals, "two threads": two_threads}, budget, time.perf_counter)
    base = min(times["channels_last"])
    return [[name, f"{min(values) / base:.2f}x"] for name, values in times.items()]


def collapse() -> None:
    begin = time.perf_counter()
    reached: list[str] = []

    def watch(row: dict) -> None:
        if row["split"] == "train" and row["accuracy"] == 1.0 and row["nc1"] < 0.1 and not reached:
            reached.append(f"epoch {row['epoch']}, {time.perf_counter() - begin:.0f} s")

    with tempfile.TemporaryDirectory() as folder:
        run = train(Plan(), Path(folder) / "run", on_measure=watch)
        last = run.final()
    print(f"digits, default plan: collapsed at {reached[0] if reached else 'never'}")
    numbers = ", ".join(f"{name} {last[name]:.4f}" for name in ("accuracy", "nc1", "nc2", "nc3"))
    print(f"at its end, after {time.perf_counter() - begin:.0f} s: {numbers}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=20.0, help="for each comparison")
    parser.add_argument("--collapse", action="store_true", help="also train the default plan to its end")
    parser.add_argument("--json", type=Path, help="keep the tables in this file (evidence/bench/training.json)")
    options = parser.parse_args()
    torch.set_num_threads(1)
    digits = Plan(data="digits", model="resnet8:width=16", batch_size=128, epochs=1000, schedule="constant")
    nets = ("resnet8:width=16", "resnet18:width=8", "mlp:width=256,depth=4")
    rows = [compare(f"`{net}`", digits.model_copy(update={"model": net}), options.seconds) for net in nets]
    tables = Tables()
    columns = ["net", "images a second", "ours / bare, best epochs", "ours / bare, median of pairs"]
    tables.add("loop", "An epoch of 1,500 digits against a bare loop", [*columns, "all metrics, in epochs"], rows)
    rows = effects(digits.model_copy(update={"per_class": 30}), options.seconds)
    if options.json:
        tables.save(options.json)
    # Wall-clock time, which a busy machine spoils: shown and not kept.
    Tables().add("effects", "Memory layout, precision and threads, wall-clock time", ["variant", "time"], rows)
    if options.collapse:
        collapse()


if __name__ == "__main__":
    main()
