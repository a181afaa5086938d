"""``neuralcollapse doctor``: what is installed, and whether it works here."""

from typing import Annotated

from cyclopts import Parameter

from ._app import app, print_json

OPTIONAL = {
    "torchmetrics": "metric adapter",
    "lightning": "Lightning callback",
    "transformers": "Hugging Face callback",
    "tensorboard": "TensorBoard logging",
    "matplotlib": "pictures",
}


@app.command
def doctor(*, json: Annotated[bool, Parameter(negative="")] = False) -> int:
    """Say which versions are installed, how many threads are in use, and whether a small solve checks out.

    Exit code 1 when something that is needed does not work.

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
    from ._terminal import say_next, styled, terminal

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
    problem = _self_check()
    data = os.environ.get("NEURALCOLLAPSE_DATA")
    if json:
        print_json({**facts, "optional": optional, "data": data, "healthy": problem is None, "problem": problem})
        return 0 if problem is None else 1

    table = Table(title="neuralcollapse doctor", show_header=False)
    for name, value in facts.items():
        table.add_row(name, str(value))
    for name, version in optional.items():
        table.add_row(name, version or styled((f"not installed ({OPTIONAL[name]})", "dim")))
    table.add_row("NEURALCOLLAPSE_DATA", data or styled(("not set: only the embedded data sets", "dim")))
    console = terminal()
    console.print(table)
    if problem is None:
        words = ": a small model was evaluated, certified and agrees with its closed form"
        console.print(styled(("healthy", "green"), words))
        say_next("neuralcollapse demo")
        return 0
    console.print(styled(("unhealthy", "red"), f": {problem}"))
    return 1


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
