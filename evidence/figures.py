"""Figures of small runs and benchmarks as the sentences and tables that pages show."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from neuralcollapse._support.fields.models import MODEL_FIELDS, ModelField, models_by_fields

EVIDENCE = Path(__file__).resolve().parent


def _read(name: str) -> dict[str, Any]:
    return json.loads((EVIDENCE / f"{name}.json").read_text(encoding="utf-8"))


def _table(columns: list[str], rows: list[list[str]]) -> str:
    lines = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)])


def _percent(share: float) -> str:
    return f"{100 * share:.3g} %"


def parameters() -> str:
    """docs/models.md: sizes of the papers' nets."""
    facts = _read("small/parameters")
    wide = ", ".join(f"{count / 1e6:.1f} M for w = {width}" for width, count in facts["wide_resnet50"].items())
    return (
        f"With d = K = 10 and a fixed head, ResNet18 has {_percent(facts['saved_by_fixed_head'])} fewer trainable "
        "parameters; the geometric paper reports over 20 % less memory. "
        f"Parameters of `wide_resnet50(width=w)` with 100 classes: {wide}."
    )


def dead_units() -> str:
    """docs/models.md: classes lost under a fixed head."""
    facts = _read("small/dead-units")
    plan, canonical, auto = facts["plan"], facts["frames"]["canonical"], facts["frames"]["auto"]
    return (
        f"On the embedded digits (`{plan['model']}`, {plan['loss']}, rate {plan['learning_rate']}, {plan['epochs']} "
        f"epochs) the canonical frame ends at {_percent(canonical['accuracy'])} training accuracy, with "
        f"{canonical['classes_lost']} classes lost; `frame=auto` at {_percent(auto['accuracy'])}, with "
        f"{auto['classes_lost']} lost."
    )


def seven_ways() -> str:
    """docs/training.md: seven losses and heads."""
    facts = _read("small/seven-ways")
    plan, rows = facts["plan"], []
    for name, case in facts["cases"].items():
        first, last = case["first"], case["last"]
        changes = [f"{first[key]:.2g} → {last[key]:.2g}" if first[key] > 1e-12 else "0 (fixed)" for key in first]
        accuracies = [_percent(case["accuracy"][split]) for split in ("train", "test")]
        rows.append([name, *changes, f"{first['nc1'] / last['nc1']:.3g}", *accuracies, f"{case['seconds']:.0f}"])
    columns = ["case", "nc1", "nc2", "nc3", "nc1 falls by", "train", "test", "seconds"]
    return (
        f"The embedded digits, `{plan['model']}`, rate {plan['learning_rate']}, {plan['schedule']}, weight decay "
        f"{plan['weight_decay']}, {plan['epochs']} epochs; one seed. Arrows go from the first epoch to the last; "
        f"processor seconds on one thread of a busy machine.\n\n{_table(columns, rows)}"
    )


def feature_decay() -> str:
    """docs/training.md: a net beside the model with the same decays."""
    facts = _read("small/feature-decay")
    plan = facts["plan"]
    rows = [
        [f"{row['feature_decay']:g}"]
        + [f"{row['predicted'][key]:.3g}, {row['measured'][key]:.3g}" for key in ("weight_norm", "feature_norm")]
        + [f"{row['predicted']['logit_scale']:.3g}, {row['measured']['logit_scale']:.3g}"]
        for row in facts["rows"]
    ]
    columns = ["feature decay", *(f"{name} predicted, measured" for name in ("\\|w\\|", "\\|h\\|", "logit scale"))]
    return (
        f"{10 * plan['per_class']} digits, `{plan['model']}`, {plan['epochs']} epochs, weight and bias decay "
        f"{plan['weight_decay']}:\n\n{_table(columns, rows)}"
    )


def random_labels() -> str:
    """docs/training.md: nets that fit labels drawn at random."""
    facts = _read("small/random-labels")
    rows = [[str(row["width"]), _percent(row["accuracy"]), f"{row['nc1']:.2g}"] for row in facts["rows"]]
    plan = facts["plan"]
    return (
        f"{10 * plan['per_class']} digits, MLP with 4 hidden layers, weight decay {plan['weight_decay']}, "
        f"{plan['epochs']} epochs:\n\n{_table(['width', 'train accuracy', 'nc1'], rows)}"
    )


def few_samples() -> str:
    """docs/metrics.md: how few samples flatter the plug-in metrics."""
    facts = _read("small/few-samples")
    sizes = facts["sizes"]
    return (
        f"{sizes['per_class']} samples a class of {sizes['classes']} classes in {sizes['dim']} dimensions at σ = "
        f"{sizes['sigma']} have `nc1_quotient` {facts['plain']:.1f} and `nc1_quotient_debiased` "
        f"{facts['debiased']:.1f}, where the distribution has {facts['truth']:.1f} "
        f"(means over {sizes['trials']} draws)."
    )


def attack() -> str:
    """docs/reliability.md: the last long attack."""
    facts = _read("attack")
    kinds = [name for name, entry in facts.items() if isinstance(entry, dict) and "tried" in entry]
    rows = []
    for name in kinds:
        entry = facts[name]
        ended = ", ".join(f"{end}: {n:,}" for end, n in entry["ended"].items())
        limits = [f"{entry['longest_seconds']:g}", f"{entry['largest_gigabytes']:g}"]
        which = [entry["version"], str(entry["seed"])]
        rows.append([name, *which, f"{entry['tried']:,}", ended, str(len(entry["bad"])), *limits])
    heads = ["attack", "version", "seed", "tried", "how they ended", "bad", "longest, CPU seconds"]
    heads += ["largest process, GB"]
    found = [f"- {name}, `{' '.join(line.split())[:160]}`" for name in kinds for line in facts[name]["bad"]]
    return _table(heads, rows) + ("\n\nBad:\n\n" + "\n".join(found) if found else "")


def bench(name: str) -> str:
    """The tables of a benchmark, under its machine."""
    if not (EVIDENCE / "bench" / f"{name}.json").is_file():
        return f"Not run yet: `python benchmarks/{name}.py --json evidence/bench/{name}.json`, then `make results`."
    facts = _read(f"bench/{name}")
    parts = [_machine(facts["machine"]), ""]
    for entry in (one for tables in facts["tables"].values() for one in tables):
        parts += [f"#### {entry['title']}", "", _table(entry["columns"], entry["rows"]), ""]
    return "\n".join(parts)


def bench_metrics() -> str:
    """docs/metrics.md: nc1 to nc4 against two usual ways and the limit of the machine."""
    facts = _read("bench/metrics")
    stream, small = facts["stream"], facts["small_stream"]
    speeds = stream["tokens_per_second"]
    wide = max((row for row in facts["sizes"] if "all" in row["seconds"]), key=lambda row: row["dim"])
    return (
        f"{_machine(facts['machine'])}\n\n{_table(SIZES_COLUMNS, [cells_of_sizes(row) for row in facts['sizes']])}\n\n"
        f"The nc4 of these ratios is `nc4_bias`, which costs nothing beyond the class means. Against nc1..nc4 with the "
        f"decisions of `nc4_mismatch` and the margins, core takes "
        f"{wide['seconds']['core'] / wide['seconds']['margins']:.1f} times as long at d = {wide['dim']}, and all "
        f"{wide['seconds']['all'] / wide['seconds']['margins']:.1f} times.\n\n"
        f"A stream of {stream['classes']} classes in {stream['dim']} dimensions, batches of {stream['batch']} float32 "
        f"rows: {speeds['ours']:,.0f} rows a second through `ClassStatistics.update`, "
        f"{speeds['index_add_']:,.0f} through a float64 `index_add_` of sums and squares "
        f"({stream['ratio']:.1f} times as fast). In batches of {small['batch']}: {small['ratio']:.1f} times as fast."
    )


def bench_near() -> str:
    """docs/metrics.md: what is left of nc1 close to collapse."""
    rows = [
        [f"{row['spread']:g}", *(f"{row['errors'][name]:.0e}" for name in ("ours", "direct", "accumulate"))]
        for row in _read("bench/metrics")["near"]
    ]
    return _table(["spread", "ours", "(a)", "(b)"], rows)


SIZES_COLUMNS = [
    *("N, d, K", "(c) limit", "ours", "/ limit", "(a)", "/ ours", "(b)", "/ ours", "streamed", "with margins"),
    *("core", "/ ours", "all", "/ ours", "memory", "error ours", "error (a)", "error (b)"),
]


def cells_of_sizes(row: dict[str, Any]) -> list[str]:
    """A row under ``SIZES_COLUMNS``, on the page as while the benchmark runs."""
    best, error, ours = row["seconds"], row["errors"], row["seconds"]["ours"]
    found = [", ".join(str(row[name]) for name in ("samples", "dim", "classes"))]
    found += [f"{best['limit']:.3f}", f"{ours:.3f}", f"{ours / best['limit']:.2f}"]
    for name in ("direct", "accumulate"):
        found += [f"{best[name]:.2f}", f"{best[name] / ours:.1f}x"]
    found += [f"{best['streamed']:.2f}", f"{best['margins']:.2f}"]
    for name in ("core", "all"):
        found += [f"{best[name]:.2f}", f"{best[name] / ours:.1f}x"] if name in best else ["-", "-"]
    found.append(f"{row['memory'] / 2**20:.0f} MB")
    return found + [f"{error[name]:.0e}" for name in ("ours", "direct", "accumulate")]


def _machine(facts: dict[str, Any]) -> str:
    return (
        f"{facts['seconds'].capitalize()} seconds on {facts['threads']} thread{'s' * (facts['threads'] > 1)} of "
        f"{facts['cores']} cores "
        f"({facts['processor']}), torch {facts['torch']}."
    )


def model_fields() -> str:
    """docs/theory.md: the fields that name a model, from the one table of them."""
    fields: dict[tuple[str, str], tuple[ModelField, list[str]]] = {}
    for kind, declared in MODEL_FIELDS.items():
        for field in declared:
            fields.setdefault((field.name, _takes(field)), (field, []))[1].append(kind)
    offered = set(models_by_fields())
    rows = [
        [
            f"`{name}`",
            f"`--{field.flag.replace('_', '-')}`" if offered & set(kinds) else "",
            ", ".join(kinds),
            takes,
            "required" if field.required else f"`{field.default}`",
            field.words.rstrip("."),
        ]
        for (name, takes), (field, kinds) in fields.items()
    ]
    return _table(["field", "option", "models", "takes", "default", "what it is"], rows)


def _takes(field: ModelField) -> str:
    """The range of a field, in words."""
    if field.kind == "choice":
        return " or ".join(f"`{choice}`" for choice in field.choices)
    kinds = {
        "loss": "a loss, or its name",
        "array": "a matrix of numbers",
        "integer": f"a whole number from {field.minimum}",
        "counts": f"a whole number from {field.minimum}, or one a class",
        "scale": "a number from 0" if field.or_zero else "a number above 0",
    }
    return kinds[field.kind] + (", or `None`" if field.or_none else "")


BLOCKS: dict[str, Callable[[], str]] = {
    "model-fields": model_fields,
    "parameters": parameters,
    "dead-units": dead_units,
    "seven-ways": seven_ways,
    "feature-decay": feature_decay,
    "random-labels": random_labels,
    "few-samples": few_samples,
    "attack": attack,
    "bench-metrics": bench_metrics,
    "bench-near": bench_near,
    "bench-solvers": lambda: bench("solvers"),
    "bench-training": lambda: bench("training"),
    "bench-browser": lambda: bench("browser"),
    "bench-versions": lambda: bench("versions"),
}
"""What pages have between marks, by name."""
