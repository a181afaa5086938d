"""``neuralcollapse measure``: neural collapse of features in files."""

import math
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from ._app import Flag, app, print_json

if TYPE_CHECKING:
    from ..metrics import CollapseReport
    from ..metrics.settings import Settings


@app.command
def measure(
    *files: str,
    json: Flag = False,
    all: Flag = False,
    layers: Flag = False,
    out: Path | None = None,
    metrics: str = "core",
    intervals: float | None = None,
    groups: int = 20,
    engine: Literal["local", "ray"] = "local",
    workers: int | None = None,
    keep: Path | None = None,
    num_classes: Annotated[int | None, Parameter(name="--classes")] = None,
    passes: int | None = None,
    global_mean: Literal["samples", "classes"] = "samples",
    present_only: Flag = False,
    min_samples: int = 1,
    ignore_label: int = -100,
    memory_limit: str = "1GiB",
    precision: Literal["float64", "float32", "float16", "bfloat16"] | None = None,
    memory: Annotated[float | None, Parameter(show=False)] = None,
) -> None:
    """Measure neural collapse of the features in files.

    Files are .npz, .safetensors, .parquet or .pt with the arrays features (N, d) and labels (N,), and may hold
    weight (K, d), bias (K,) and out_of_distribution (M, d); or .npy files FEATURES LABELS [WEIGHT [BIAS]]; or
    saved class statistics. Several files, a folder or a pattern are shards of one data set. Labels are integers or
    text. Files may be larger than memory.

    **Try:**

    ```
    neuralcollapse measure features.npz
    neuralcollapse measure shards/ --intervals .95
    neuralcollapse measure features.npy labels.npy weight.npy --json
    neuralcollapse measure layers.safetensors --layers --out report.html
    ```

    Parameters
    ----------
    files
        Files, folders or patterns.
    json
        Print one JSON object: the metrics by name, null with an entry in "reasons" where one does not apply.
    all
        Print a table of every metric that was measured, besides the four gauges.
    layers
        Measure every array named features.NAME in one file, one layer each, instead of features.
    out
        Also write the report as an HTML page.
    metrics
        core, all, or names of metrics, separated by commas.
    intervals
        The level of confidence intervals, such as .95.
    groups
        Groups of samples that the intervals come from.
    engine
        Processes of this machine, or a Ray cluster.
    workers
        How many processes; by default one per processor, for more than one file.
    keep
        A folder for the statistics of finished files: the same command goes on from it.
    num_classes
        The number of classes; by default the rows of weight, else the highest label and one.
    passes
        1 for the d x d scatter matrix, 2 for projections on the class means; the cheaper by default.
    global_mean
        The mean of all samples, or the mean of the class means.
    present_only
        Measure the classes that have samples as if there were no others.
    min_samples
        Measure the classes with at least so many samples as if there were no others.
    ignore_label
        The label of samples to leave out.
    memory_limit
        Bytes that intermediate matrices may take, such as 4GB, 500MB or 1GiB.
    precision
        The type that the features were rounded to, where that is coarser than the type they are stored in: features of
        a run in bfloat16 that were saved as float32, say. Directions below its rounding do not count.
    """  # noqa: D413
    from ..metrics import measure_files
    from ..metrics.precision import precision_named
    from ..metrics.selection import Selection
    from ..metrics.settings import Settings
    from ._output.progress import FilesBar

    if not files:
        raise ValueError("measure needs a file: .npz, .safetensors, .parquet, .pt, .npy, or a folder of them")
    names = [name.strip() for name in metrics.split(",") if name.strip()]
    limit = _bytes_in_words(memory_limit) if memory is None else _gigabytes(memory)
    rounded = precision_named(precision)
    if layers:
        for option, given in (("--keep", keep), ("--workers", workers), ("--engine ray", engine == "ray" or None)):
            if given is not None:
                raise ValueError(f"{option} is for shards, not for --layers of one file")
        chosen = Selection(present_only, min_samples)
        settings = Settings(
            names,
            passes,
            global_mean,
            ignore_label,
            limit,
            chosen,
            intervals=intervals,
            groups=groups,
            precision=rounded,
        )
        reports = _measure_layers(files, num_classes, settings)
    else:
        with FilesBar() as shown:
            report = measure_files(
                list(files),
                engine=engine,
                workers=workers,
                num_classes=num_classes,
                metrics=names,
                passes=passes,
                global_mean=global_mean,
                present_only=present_only,
                min_samples=min_samples,
                ignore_label=ignore_label,
                intervals=intervals,
                groups=groups,
                memory_limit=limit,
                precision=rounded,
                out=keep,
                progress=shown,
            )
        reports = {"": report}
    if out is not None:
        from ..web.report import write_measured

        write_measured(reports, out)
    if json:
        print_json({"layers": {n: r.to_dict() for n, r in reports.items()}} if layers else reports[""].to_dict())
    else:
        _print_reports(reports, all, out)


def _bytes_in_words(text: str) -> int:
    """A number of bytes, perhaps with a unit."""
    from .._support.checks import real

    found = re.fullmatch(r"\s*([0-9.eE+-]+?)\s*([kKMGT]?)(i?)[bB]?\s*", text)
    try:
        number = float(found[1]) if found else math.nan
    except ValueError:
        number = math.nan
    if found is None or math.isnan(number):
        raise ValueError(f"--memory-limit must be a number of bytes, such as 4GB, 500MB or 1GiB, got {text!r}")
    size = number * (1024 if found[3] else 1000) ** " KMGT".index(found[2].upper() or " ")
    return int(real("--memory-limit", size, minimum=0.0, maximum=1e18))


def _gigabytes(memory: float) -> int:
    """What --memory, the name up to 0.1, meant."""
    sys.stderr.write("neuralcollapse: --memory is called --memory-limit now and takes bytes or 4GB; it goes with 0.3\n")
    return _bytes_in_words(f"{memory}GB")


def _print_reports(reports: "dict[str, CollapseReport]", everything: bool, out: Path | None) -> None:
    from rich.text import Text

    from ..metrics import metric_table, summary
    from ._output.terminal import say_next, terminal

    console = terminal()
    for name, report in reports.items():
        if name:
            console.print(Text(name, style="bold underline"))
        console.print(summary(report, console.width))
        if everything:
            console.print(metric_table(report, console.width))
    if out is not None:
        say_next(f"open {out} in a browser")
    elif not everything:
        say_next("the same command with --all (every metric), --intervals .95 or --out report.html (a page)")


def _measure_layers(
    files: tuple[str, ...], num_classes: int | None, settings: "Settings"
) -> "dict[str, CollapseReport]":
    from ..metrics import open_arrays
    from ..metrics.files.measure import measure_shard
    from ..metrics.files.shards import layers_in

    if len(files) != 1:
        raise ValueError(f"--layers takes one file, got {len(files)}")
    layers = layers_in(Path(files[0]))
    if not layers:
        held = ", ".join(open_arrays(files[0]).keys())
        raise ValueError(f"{files[0]}: --layers needs arrays named features.NAME (it holds: {held})")
    return {name: measure_shard(shard, None, None, settings, num_classes) for name, shard in layers.items()}
