"""Small whole files of every kind that the program reads."""

from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file

import neuralcollapse as nc
from neuralcollapse.training import Plan

PLAN = Plan(
    data="synthetic:num_classes=3,dim=4,per_class=12",
    model="mlp:width=6,depth=1",
    epochs=4,
    batch_size=12,
    validation=0.25,
    measure=(1, 2, 4),
    metrics=("nc1", "nc2"),
)
PROBLEM = nc.ufm.RegularizedUFM("ce", 3, 2, 4, 0.01, 0.01)


def arrays(seed: int = 0) -> dict[str, np.ndarray]:
    """Features of three classes, labels, and a classifier."""
    random = np.random.default_rng(seed)
    features, weight = random.normal(size=(12, 4)), random.normal(size=(3, 4))
    return {"features": features, "labels": np.arange(12) % 3, "weight": weight, "bias": np.zeros(3)}


def write_features(folder: Path, seed: int = 0) -> None:
    """The arrays in each of the formats that ``measure`` reads, a folder each, and one of ``.npy`` files."""
    held = arrays(seed)
    for name in ("npz", "compressed", "npy", "safetensors", "pt", "parquet"):
        (folder / name).mkdir(parents=True)
    np.savez(folder / "npz/features.npz", **held)  # pyright: ignore[reportArgumentType]
    np.savez_compressed(folder / "compressed/features.npz", **held)  # pyright: ignore[reportArgumentType]
    for name, array in held.items():
        np.save(folder / f"npy/{name}.npy", array)
    tensors = {name: torch.from_numpy(array) for name, array in held.items()}
    save_file(tensors, folder / "safetensors/features.safetensors")
    torch.save(tensors, folder / "pt/features.pt")
    write_parquet(folder / "parquet/features.parquet", held)


def write_parquet(path: Path, held: dict[str, np.ndarray]) -> None:
    """Features as a list column, and labels."""
    import duckdb

    rows = ", ".join(f"({row.tolist()}, {label})" for row, label in zip(held["features"], held["labels"], strict=True))
    duckdb.sql(f"COPY (SELECT * FROM (VALUES {rows}) AS t(features, labels)) TO '{path}' (FORMAT parquet)")


def write_for_lines(folder: Path) -> None:
    """What command lines name."""
    folder.mkdir()
    np.savez(folder / "features.npz", **arrays())  # pyright: ignore[reportArgumentType]
    write_parquet(folder / "features.parquet", arrays())
    nc.ufm.save_point(folder / "point.safetensors", PROBLEM.random_point(0), {"problem": PROBLEM.to_json()})
    plan = 'data = "synthetic:num_classes=2,dim=2,per_class=3"\nmodel = "mlp:width=3"\nepochs = 1\n'
    (folder / "plan.toml").write_text(plan)
    nc.training.train(PLAN.model_copy(update={"epochs": 1, "measure": (1,)}), folder / "results" / "run")
