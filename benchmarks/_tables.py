"""Tables of a benchmark: printed as Markdown as they come, and kept in a result file that the docs are made from."""

import json
import os
import platform
from pathlib import Path

import torch


def machine(seconds: str = "processor") -> dict[str, object]:
    """What runs this: no names, no paths."""
    facts = {"cores": os.cpu_count(), "processor": processor(), "torch": torch.__version__}
    return facts | {"python": platform.python_version(), "threads": torch.get_num_threads(), "seconds": seconds}


def processor() -> str:
    """The processor's own name where it has one."""
    cpu = Path("/proc/cpuinfo")
    names = (
        [line.split(":")[1] for line in cpu.read_text().splitlines() if line.startswith("model name")]
        if cpu.exists()
        else []
    )
    return names[0].strip() if names else platform.machine()


class Tables:
    """Tables by part; saving replaces the parts that were run and keeps the others of the file."""

    def __init__(self) -> None:
        self.parts: dict[str, list[dict[str, object]]] = {}

    def add(self, part: str, title: str, columns: list[str], rows: list[list[str]]) -> None:
        print(f"\n### {title}\n")
        print("| " + " | ".join(columns) + " |")
        print("|" + "---|" * len(columns))
        for row in rows:
            print("| " + " | ".join(row) + " |", flush=True)
        self.parts.setdefault(part, []).append({"title": title, "columns": columns, "rows": rows})

    def save(self, path: Path, seconds: str = "processor") -> None:
        before = json.loads(path.read_text())["tables"] if path.exists() else {}
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({"machine": machine(seconds), "tables": before | self.parts}, indent=1) + "\n")
