"""``neuralcollapse data``: what is where, fetch, check."""

from shlex import quote

from cyclopts import App

from ._app import Flag, app, print_json

data = App(name="data", help="List, fetch and check data sets.")
app.command(data)


@data.command(name="list")
def list_sets(*, root: str | None = None, json: Flag = False) -> None:
    """Say which data sets there are, and which of them are here.

    **Try:**

    ```
    neuralcollapse data list
    neuralcollapse data list --root data --json
    ```

    Parameters
    ----------
    root
        Folder of the data sets (default: the variable NEURALCOLLAPSE_DATA).
    json
        Print one JSON list instead of a table.

    """
    from ..data import root_folder, sources
    from ._output.terminal import print_table, say_next, terminal, write_tabs

    folder = root_folder(root)
    rows = []
    for name, kind in sources.items():
        source = kind()
        found = None if folder is None or source.embedded else source.locate(folder)
        where = "embedded" if source.embedded else ("absent" if not found else str(found[0].parent))
        rows.append(
            {
                "name": name,
                "title": source.title,
                "classes": source.num_classes,
                "shape": list(source.image_shape),
                "train": source.train_size,
                "test": source.test_size,
                "licence": source.licence,
                "here": where != "absent",
                "where": where,
            }
        )
    if json:
        print_json(rows)
        return
    columns = ("name", "images", "train", "test", "classes", "where")
    cells = [
        (row["name"], "x".join(map(str, row["shape"])), f"{row['train']:,}", f"{row['test']:,}", str(row["classes"]),
         row["where"])
        for row in rows
    ]  # fmt: skip
    heading = f"data sets in {folder}" if folder else "data sets (no root folder is given)"
    terminal(stderr=True, soft_wrap=True).print(heading)
    console = terminal()
    if console.is_terminal:
        print_table(columns, cells, console)
    else:
        write_tabs(columns, cells)
    say_next("neuralcollapse data get NAME --root DIR", "neuralcollapse train --data digits --out RUN")


@data.command
def get(name: str, /, *, root: str | None = None, mirror: str | None = None) -> None:
    """Fetch a data set from its official address; a broken download continues where it stopped.

    **Try:**

    ```
    neuralcollapse data get mnist --root data
    ```

    Parameters
    ----------
    name
        A data set of ``neuralcollapse data list``.
    root
        Folder of the data sets (default: the variable NEURALCOLLAPSE_DATA).
    mirror
        Address of a folder that holds the same files.

    """
    from ..data import get as fetch_set
    from ..data import root_folder, sources
    from ._output.progress import DownloadBar
    from ._output.terminal import say_next

    with DownloadBar() as bar:
        files = fetch_set(name, root, mirror, bar)
    if sources[sources.parse(name)[0]].embedded:
        print(f"{name} is embedded: nothing to fetch")
    else:
        print(f"{name}: {len(files)} files in {files[0].parent}")
        say_next(f"neuralcollapse data check {quote(name)} --root {quote(str(root_folder(root)))}")


@data.command
def check(name: str, /, *, root: str | None = None, json: Flag = False) -> int:
    """Read a data set and compare it with the published checksums. Exit code 1 if it cannot be used.

    **Try:**

    ```
    neuralcollapse data check digits
    neuralcollapse data check cifar10 --root data --json
    ```

    Parameters
    ----------
    name
        A data set of ``neuralcollapse data list``.
    root
        Folder of the data sets (default: the variable NEURALCOLLAPSE_DATA).
    json
        Print one JSON object instead of lines.

    """
    from ..data import check as check_set
    from ._output.terminal import say_next

    report = check_set(name, root)
    code = 0 if report.problem is None else 1
    if json:
        print_json(
            {
                "name": report.name,
                "usable": report.problem is None,
                "official": report.official,
                "problem": report.problem,
                "train": report.train_size,
                "test": report.test_size,
                "files": [{"path": str(file.path), "status": file.status} for file in report.files],
            }
        )
        return code
    meaning = {
        "official": "official",
        "other": "other bytes than the published file",
        "unlisted": "no published checksum",
    }
    for file in report.files:
        print(f"{file.path}: {meaning[file.status]}")
    if report.problem is not None:
        print(f"{report.name}: not usable: {report.problem}")
    else:
        print(f"{report.name}: usable, {report.train_size:,} train and {report.test_size:,} test images")
        place = "" if root is None else f" --root {quote(root)}"
        say_next(f"neuralcollapse train --data {quote(name)}{place} --out RUN")
    return code
