"""Coverage-guided fuzzing of the readers with atheris, for runs by hand.

    pip install atheris        # needs a Python that it has a wheel for; it is no dependency of this package
    PYTHONPATH=tests:tests/helpers python tests/attack/readers_fuzz.py KIND [-max_total_time=300] [CORPUS]

KIND is one of the names below. Whatever a reader raises but a ValueError, TypeError or OSError of one line ends the run
and leaves the input in a file ``crash-...``.
"""

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path


def readers() -> dict[str, tuple[str, Callable[[Path], object]]]:
    """Readers by name, with the name of the file that they take."""
    import neuralcollapse as nc
    from neuralcollapse.metrics import open_arrays
    from neuralcollapse.training import Plan

    def arrays(path: Path) -> object:
        found = open_arrays(path)
        return [found[name] for name in found]

    return {
        "npz": ("x.npz", arrays),
        "npy": ("x.npy", arrays),
        "safetensors": ("x.safetensors", arrays),
        "pt": ("x.pt", arrays),
        "parquet": ("x.parquet", arrays),
        "point": ("x.safetensors", nc.ufm.load_point),
        "statistics": ("x.safetensors", nc.ClassStatistics.load),
        "report": ("x.json", nc.CollapseReport.load),
        "plan": ("x.json", Plan.from_file),
        "toml": ("x.toml", Plan.from_file),
        "history": ("x.jsonl", nc.plot_history),
        "loss": ("", lambda path: nc.losses.get(path.name)),
    }


def main() -> None:
    """Fuzz the reader that the first argument names."""
    import atheris  # pyright: ignore[reportMissingImports]

    with atheris.instrument_imports(include=["neuralcollapse"]):
        found = readers()
    if len(sys.argv) < 2 or sys.argv[1] not in found:
        raise SystemExit(f"name a reader: {', '.join(found)}")
    name, read = found[sys.argv.pop(1)]
    folder = Path(tempfile.mkdtemp())

    def one(data: bytes) -> None:
        path = folder / name if name else Path(data.decode(errors="replace") or "x")
        if name:
            path.write_bytes(data)
        try:
            read(path)
        except (ValueError, TypeError, OSError) as error:
            if "\n" in str(error):
                raise RuntimeError(f"not one line: {error}") from error

    atheris.Setup(sys.argv, one)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
