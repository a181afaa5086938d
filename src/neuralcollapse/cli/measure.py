"""``neuralcollapse measure``: neural collapse of features in a file."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from ._app import app, print_json

if TYPE_CHECKING:
    from ..metrics import CollapseReport

PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Neural collapse</title>
<style>
body {{ font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 70rem; padding: 0 1rem; }}
table {{ border-collapse: collapse; }}
td, th {{ border-bottom: 1px solid #ddd; padding: .25rem .7rem; text-align: left; }}
td:nth-child(3), td:nth-child(4) {{ text-align: right; white-space: nowrap; }}
</style></head><body>
{body}
</body></html>
"""


@app.command
def measure(
    *files: Path,
    json: Annotated[bool, Parameter(negative="")] = False,
    layers: Annotated[bool, Parameter(negative="")] = False,
    out: Path | None = None,
    metrics: str | None = None,
    classes: int | None = None,
    passes: int | None = None,
    global_mean: Literal["samples", "classes"] = "samples",
    present_only: Annotated[bool, Parameter(negative="")] = False,
    ignore_label: int = -100,
    memory: float = 1.0,
) -> int:
    """Measure neural collapse of the features in a file.

    A .npz or .safetensors file holds the arrays features (N, d) and labels (N,), and may hold weight (K, d),
    bias (K,) and out_of_distribution (M, d). In place of it, .npy files: FEATURES LABELS [WEIGHT [BIAS]].
    Files may be larger than memory.

    Examples:

        neuralcollapse measure features.npz
        neuralcollapse measure features.npy labels.npy weight.npy --json
        neuralcollapse measure layers.safetensors --layers --out report.html

    Parameters
    ----------
    files
        One .npz or .safetensors file, or .npy files in the order features, labels, weight, bias.
    json
        Print one JSON object: the metrics by name, null with an entry in "reasons" where one does not apply.
    layers
        Measure every array named features.NAME in the file, one layer each, instead of features.
    out
        Also write the report as an HTML page.
    metrics
        Names of metrics, separated by commas; all by default.
    classes
        The number of classes; by default the rows of weight, else the highest label and one.
    passes
        1 for the d x d scatter matrix, 2 for projections on the class means; the cheaper by default.
    global_mean
        The mean of all samples, or the mean of the class means.
    present_only
        Measure the classes that have samples as if there were no others.
    ignore_label
        The label of samples to leave out.
    memory
        Gigabytes that intermediate matrices may take.
    """  # noqa: D406, D407, D412, D413
    from contextlib import nullcontext

    from rich.console import Console

    from .._support.checks import real
    from ..metrics import measure as measure_features
    from ._terminal import terminal

    arrays = _arrays(files)
    options: dict[str, Any] = {
        "num_classes": classes,
        "metrics": None if metrics is None else [name.strip() for name in metrics.split(",") if name.strip()],
        "passes": passes,
        "global_mean": global_mean,
        "present_only": present_only,
        "ignore_label": ignore_label,
        "memory_limit": int(real("--memory", memory, minimum=0.0) * 1e9),
    }
    names = _layers(arrays, files[0]) if layers else {"": "features"}
    for needed in ("labels", *names.values()):
        if needed not in arrays:
            raise ValueError(f"{files[0]}: no array {needed!r} (it holds: {', '.join(arrays) or 'nothing'})")
    reports: dict[str, CollapseReport] = {}
    status = Console(stderr=True).status("measuring") if Console(stderr=True).is_terminal else nullcontext()
    with status:
        for name, key in names.items():
            last = not layers
            reports[name] = measure_features(
                arrays[key],
                arrays["labels"],
                arrays.get("weight") if last else None,
                arrays.get("bias") if last else None,
                out_of_distribution=arrays.get("out_of_distribution") if last else None,
                **options,
            )
    if out is not None:
        _write_page(out, reports)
    if json:
        print_json({"layers": {n: r.to_dict() for n, r in reports.items()}} if layers else reports[""].to_dict())
        return 0
    console = terminal()
    for name, report in reports.items():
        if name:
            console.print(name, style="bold")
        console.print(report)
    return 0


def _arrays(files: tuple[Path, ...]) -> dict[str, Any]:
    from ..metrics._files import open_arrays

    if not files:
        raise ValueError(
            "measure needs a file: one .npz or .safetensors, or .npy files FEATURES LABELS [WEIGHT [BIAS]]"
        )
    single = [file for file in files if file.suffix.lower() == ".npy"]
    if not single and len(files) == 1:
        return dict(open_arrays(files[0]))
    if len(single) != len(files) or not 2 <= len(files) <= 4:
        raise ValueError(
            "measure takes one .npz or .safetensors file, or two to four .npy files "
            "FEATURES LABELS [WEIGHT [BIAS]], got " + " ".join(str(file) for file in files)
        )
    names = ("features", "labels", "weight", "bias")
    return {name: open_arrays(file)["array"] for name, file in zip(names, files, strict=False)}


def _layers(arrays: dict[str, Any], file: Path) -> dict[str, str]:
    prefix = "features."
    found = {name.removeprefix(prefix): name for name in arrays if name.startswith(prefix) and name != prefix}
    if not found:
        raise ValueError(f"{file}: --layers needs arrays named features.NAME (it holds: {', '.join(arrays)})")
    return found


def _write_page(out: Path, reports: "dict[str, CollapseReport]") -> None:
    import html

    from .._support.files import write_text

    parts = []
    for name, report in reports.items():
        if name:
            parts.append(f"<h2>{html.escape(name)}</h2>")
        parts.append(report._repr_html_())
    write_text(out, PAGE.format(body="\n".join(parts)))
