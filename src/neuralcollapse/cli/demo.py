"""``neuralcollapse demo``: a first look, in seconds."""

from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from ._app import app


@app.command
def demo(
    *,
    out: Annotated[Path | None, Parameter(help="Also write point.safetensors and history.json to this folder.")] = None,
    seed: Annotated[int, Parameter(help="Seed of the random start.")] = 0,
) -> int:
    """Watch a model collapse: solve one from a random start and see the certificate close.

    A cross-entropy classifier with free features and weight decay is minimised by L-BFGS, which knows nothing of the
    theory. At a few iterates the rigorous lower bound on the global minimum is computed from the iterate alone; the gap
    falls to zero while features collapse. At the end the result is compared with the closed form.

    **Try:**

    ```
    neuralcollapse demo
    neuralcollapse demo --seed 7 --out demo
    ```
    """
    from rich.console import Console
    from rich.table import Table

    from .._support.files import write_json
    from .._support.threads import torch_threads
    from ..losses import CrossEntropy
    from ..ufm import Point, RegularizedUFM, save_point

    console = Console()
    model = RegularizedUFM(
        CrossEntropy(),
        num_classes=10,
        per_class=50,
        dim=16,
        weight_decay=5e-3,
        feature_decay=1e-4,
        bias_decay=0.01,
    )
    console.print(
        f"[bold]Ten classes, {model.num_samples} free features in {model.dim} dimensions, cross-entropy with weight "
        "decay.[/bold]\nMinimised by L-BFGS from a random start. The lower bound is proved anew at each row from that "
        "row's point alone.\n"
    )
    with torch_threads(1):
        rows, point = _solve(model, seed)
        certificate = model.certify(point)
        start = model.random_point(seed) * 0.0
        saddle = model.certify(Point(start.W, start.H, start.b))
    best = model.optimum()
    table = Table()
    for title in ("iteration", "value", "lower bound", "gap", "nc1", "accuracy"):
        table.add_column(title, justify="right")
    for row in rows:
        numbers = f"{row['value']:.9f}", f"{row['lower_bound']:.9f}", f"{row['gap']:.1e}", f"{row['nc1']:.1e}"
        table.add_row(str(row["iteration"]), *numbers, f"{row['accuracy']:.0%}")
    console.print(table)
    console.print(f"\nverdict      [green]{certificate.verdict}[/green]: {certificate.reason}")
    console.print(f"closed form  {best.value:.12f} ({best.regime}); solved {certificate.value:.12f}")
    norm = float(point.classifier.norm(dim=1).mean())
    console.print(f"             classifier norm {best.weight_norm:.6f}; solved {norm:.6f}")
    console.print(f"at the origin the verdict is [yellow]{saddle.verdict}[/yellow]: {saddle.reason}")
    if out is not None:
        save_point(out / "point.safetensors", point, {"problem": model.to_json()})
        write_json(out / "history.json", rows)
        console.print(f"\nwrote {out / 'point.safetensors'} and {out / 'history.json'}; try")
        console.print(f"  neuralcollapse certify {out / 'point.safetensors'}")
    return 0 if certificate.verdict == "global minimum" else 1


def _solve(model: Any, seed: int) -> tuple[list[dict[str, Any]], Any]:
    """L-BFGS with the model's analytic gradient; a row at iterations 0, 1, 2, 5, 10, 20, 50, ..."""
    import numpy as np
    import torch
    from scipy.optimize import minimize

    from ..metrics import measure

    start = model.random_point(seed)
    rows: list[dict[str, Any]] = []
    iteration = 0

    def objective(flat: np.ndarray) -> tuple[float, np.ndarray]:
        state = model.linearize(start.like(torch.from_numpy(flat)))
        return state.value, state.gradient.flatten().numpy()

    def record(flat: np.ndarray) -> None:
        point = start.like(torch.from_numpy(flat.copy()))
        certificate = model.certify(point)
        rows.append(
            {
                "iteration": iteration,
                "value": certificate.value,
                "lower_bound": certificate.lower_bound,
                "gap": certificate.gap,
                "nc1": measure(point.H, model.labels, metrics="nc1").nc1,
                "accuracy": float(((point.H @ point.classifier.T + point.b).argmax(1) == model.labels).double().mean()),
            }
        )

    def callback(flat: np.ndarray) -> None:
        nonlocal iteration
        iteration += 1
        if iteration in {1, 2, 5, 10, 20, 50, 100, 200, 500, 1000}:
            record(flat)

    record(start.flatten().numpy())
    found = minimize(
        objective,
        start.flatten().numpy(),
        jac=True,
        method="L-BFGS-B",
        callback=callback,
        options={"maxiter": 5000, "maxfun": 10000, "ftol": 1e-16, "gtol": 1e-11},
    )
    record(found.x)
    return rows, start.like(torch.from_numpy(found.x))
