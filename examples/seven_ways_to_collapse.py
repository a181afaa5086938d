"""One net, one plan, seven losses and heads: how far does each collapse?

    python examples/seven_ways_to_collapse.py                            a quick look
    python examples/seven_ways_to_collapse.py --full --picture nc.svg    what docs/training.md shows

Both train on the embedded digits; ``--full`` takes a few minutes of one thread. Finished runs in ``--out`` are not
repeated.
"""

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from neuralcollapse.training import Plan, Run, train

CASES = {
    "cross-entropy": {},
    "focal, gamma 3": {"loss": "focal:gamma=3"},
    "label smoothing .1": {"loss": "label-smoothing:alpha=0.1"},
    "squared error": {"loss": "squared-error"},
    "fixed ETF": {"head": "etf"},
    "d = K": {"model": "resnet8:width=8,feature_dim=10"},
    "normalised, tau 10": {"head": "normalized:temperature=10"},
}
METRICS = ("nc1", "nc2", "nc3")
HEADER = "| case | nc1 | nc2 | nc3 | nc1 falls by | train | test | seconds |\n|---|---|---|---|---|---|---|---|"
NOTHING = 1e-12
SHARED = {"model": "resnet8:width=8", "learning_rate": 0.1, "schedule": "cosine", "weight_decay": 5e-3}
FULL = {"epochs": 100}
QUICK = {"per_class": 20, "test_per_class": 10, "epochs": 5}


def plan_of(case: dict, full: bool) -> Plan:
    """The plan of one case: all cases share everything else."""
    return Plan(metrics=METRICS, **SHARED | (FULL if full else QUICK) | case)


def run_case(name: str, plan: Plan, out: Path) -> tuple[Run, float]:
    """The run and its seconds of processor time, from ``out`` if it is there."""
    folder = out / name.translate(str.maketrans(" .=", "---", ","))
    clock = folder / "seconds.json"
    begin = time.process_time()
    run = train(plan, folder, resume=True, checkpoint_seconds=600)
    if not clock.exists():
        clock.write_text(json.dumps(time.process_time() - begin))
    return run, json.loads(clock.read_text())


def facts_of(run: Run, seconds: float) -> dict[str, Any]:
    """First and last value of each metric, accuracies and processor seconds."""
    first, last = next(row for row in run.history if row["split"] == "train"), run.final()
    accuracies = {split: run.final(split)["accuracy"] for split in ("train", "test")}
    return {
        "first": {key: first[key] for key in METRICS},
        "last": {key: last[key] for key in METRICS},
        "accuracy": accuracies,
        "seconds": seconds,
    }


def table_row(name: str, facts: dict[str, Any]) -> str:
    """The facts of a case as a line of Markdown."""
    first, last = facts["first"], facts["last"]
    changes = [f"{first[key]:.2g} → {last[key]:.2g}" if first[key] > NOTHING else "0 (fixed)" for key in METRICS]
    accuracies = [f"{100 * value:.4g} %" for value in facts["accuracy"].values()]
    cells = [name, *changes, f"{first['nc1'] / last['nc1']:.3g}", *accuracies, f"{facts['seconds']:.0f}"]
    return "| " + " | ".join(cells) + " |"


def draw(runs: dict[str, Run], path: Path) -> None:
    """One panel a metric, one line a case, told apart by colour and dashes."""
    import matplotlib as mpl

    mpl.use("agg")
    from matplotlib import pyplot as plt
    from matplotlib.ticker import LogLocator, NullLocator

    mpl.rcParams["svg.fonttype"] = "none"
    mpl.rcParams["svg.hashsalt"] = "neuralcollapse"
    # Okabe and Ito's; the first four are those that these losses have in every picture.
    colours = ["#0072B2", "#009E73", "#E69F00", "#D55E00", "#56B4E9", "#000000", "#CC79A7"]
    dashes = ["-", "--", "-.", ":", "-", "--", "-."]
    figure, panels = plt.subplots(1, 3, figsize=(9.6, 3.4), layout="constrained")
    for panel, metric in zip(panels, METRICS, strict=True):
        for (name, run), colour, dash in zip(runs.items(), colours, dashes, strict=True):
            epochs, values = run.curve(metric)
            shown = [value if value is not None and value > NOTHING else None for value in values]
            panel.plot(epochs, shown, dash, color=colour, label=name, linewidth=1.6)
        panel.set(title=metric, xlabel="epoch", xscale="log", yscale="log")
        for axis in (panel.xaxis, panel.yaxis):
            axis.set_major_locator(LogLocator(subs=(1.0, 3.0)))
            axis.set_minor_locator(NullLocator())
            axis.set_major_formatter("{x:g}")
        panel.grid(alpha=0.3)
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=4, frameon=False)
    figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None, dpi=150)


def main() -> None:
    """Train, print the table, draw."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--full", action="store_true", help="all digits and 100 epochs instead of a quick look")
    parser.add_argument("--out", help="folder of the runs (default: one that is deleted)")
    parser.add_argument("--only", choices=list(CASES), help="train this case only")
    parser.add_argument("--picture", type=Path, help="file to draw to, .svg or .png")
    parser.add_argument("--json", type=Path, help="file for the table's figures")
    options = parser.parse_args()
    torch.set_num_threads(1)
    runs: dict[str, Run] = {}
    facts: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory() as temporary:
        out = Path(options.out or temporary)
        print(HEADER)
        for name, case in CASES.items():
            if options.only in (None, name):
                runs[name], seconds = run_case(name, plan_of(case, options.full), out)
                facts[name] = facts_of(runs[name], seconds)
                print(table_row(name, facts[name]), flush=True)
        if options.picture:
            draw(runs, options.picture)
        if options.json:
            plan = plan_of({}, options.full).model_dump(include={"data", "model", "epochs", *SHARED})
            options.json.write_text(json.dumps({"plan": plan, "cases": facts}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
