"""``neuralcollapse doctor``: what is installed, and whether it works here."""

from ._app import Flag, app, print_json

OPTIONAL = {
    "torchmetrics": "metric adapter",
    "lightning": "Lightning callback",
    "transformers": "Hugging Face callback",
    "tensorboard": "TensorBoard logging",
    "matplotlib": "pictures",
}


@app.command
def doctor(*, json: Flag = False) -> int:
    """Say which versions are installed, what is wrong with them, and whether a small solve checks out.

    Exit code 1 when something that is needed does not work; a warning alone leaves it at 0.

    **Try:**

    ```
    neuralcollapse doctor
    neuralcollapse doctor --json
    ```

    Parameters
    ----------
    json
        Print one JSON object instead of a table.

    """
    import os
    import platform
    from importlib import metadata

    import torch
    from rich.table import Table

    from .. import __version__
    from ._output.terminal import say_next, styled_text, terminal

    facts: dict[str, object] = {
        "neuralcollapse": __version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "cores": os.cpu_count(),
        "torch_threads": torch.get_num_threads(),
        "cuda": torch.cuda.is_available(),
    }
    for name in ("torch", "numpy", "scipy", "safetensors", "pydantic", "cyclopts", "rich"):
        facts[name] = metadata.version(name)
    optional: dict[str, str | None] = {}
    for name in OPTIONAL:
        try:
            optional[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            optional[name] = None
    problem, warnings = _self_check(), _warnings()
    data = os.environ.get("NEURALCOLLAPSE_DATA")
    if json:
        state = {"healthy": problem is None, "problem": problem, "warnings": warnings}
        print_json({**facts, "optional": optional, "data": data, **state})
        return 0 if problem is None else 1

    table = Table(title="neuralcollapse doctor", show_header=False)
    for name, value in facts.items():
        table.add_row(name, str(value))
    for name, version in optional.items():
        table.add_row(name, version or styled_text((f"not installed ({OPTIONAL[name]})", "dim")))
    table.add_row("NEURALCOLLAPSE_DATA", data or styled_text(("not set: only the embedded data sets", "dim")))
    console = terminal()
    console.print(table)
    for line in warnings:
        console.print(styled_text(("warning", "yellow"), f": {line}"))
    if problem is None:
        words = ": a small model was evaluated, certified and agrees with its closed form"
        console.print(styled_text(("healthy", "green"), words))
        say_next("neuralcollapse demo")
        return 0
    console.print(styled_text(("unhealthy", "red"), f": {problem}"))
    return 1


def _warnings() -> list[str]:
    """What is wrong with an installation though it may work: versions, threads, CUDA, a torchvision that breaks."""
    import importlib.util
    import os

    import torch

    from .._support.checks import one_line

    found = _unmet()
    threads, cores = torch.get_num_threads(), os.cpu_count() or 1
    if threads > cores:
        found.append(f"torch uses {threads} threads on {cores} cores: set OMP_NUM_THREADS={cores} or less")
    if torch.version.cuda is not None and not torch.cuda.is_available():
        found.append(f"this torch is built for CUDA {torch.version.cuda}, but finds no device: training uses the CPU")
    try:
        if importlib.util.find_spec("torchvision") is not None:
            importlib.import_module("torchvision")
    except Exception as error:
        found.append(
            f"torchvision does not fit torch {torch.__version__} ({one_line(error, 120)}): uninstall it, or install "
            "the one for this torch; torchmetrics and transformers import it"
        )
    return found


def _unmet() -> list[str]:
    """Requirements of this package that are missing or of another version than it asks for."""
    from importlib import metadata

    from packaging.requirements import Requirement

    found = []
    for text in metadata.requires("neuralcollapse") or []:
        wanted = Requirement(text)
        if wanted.marker is not None and not wanted.marker.evaluate({"extra": ""}):
            continue
        try:
            version = metadata.version(wanted.name)
        except metadata.PackageNotFoundError:
            found.append(f"{wanted.name} is not installed: this needs {wanted}")
            continue
        if not wanted.specifier.contains(version, prereleases=True):
            found.append(f"{wanted.name} is {version}: this needs {wanted}")
    return found


def _self_check() -> str | None:
    """``None`` if a certificate closes at a closed-form optimum and all derivatives vanish there, else what failed."""
    from ..losses import CrossEntropy
    from ..ufm import RegularizedUFM

    model = RegularizedUFM(CrossEntropy(), num_classes=4, per_class=3, dim=6, weight_decay=0.02, feature_decay=0.01)
    certificate = model.certify(model.optimum().point)
    if not 0 <= certificate.gap + 1e-12 <= 1e-9:
        return f"the duality gap at a closed-form optimum is {certificate.gap:.1e}, expected 0"
    if certificate.gradient_norm > 1e-9:
        return f"the gradient at a closed-form optimum is {certificate.gradient_norm:.1e}, expected 0"
    return None
