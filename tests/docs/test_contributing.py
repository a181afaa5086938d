"""What CONTRIBUTING says is performed: its files are put into a copy of the package, and its checks are run there."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HOME = Path(__file__).parents[2]
TEXT = (HOME / "CONTRIBUTING.md").read_text(encoding="utf-8")
SECTION = re.compile(r"^## Adding a ([\w ]+?)(?:: one file)?$(.*?)(?=^## )", re.MULTILINE | re.DOTALL)
EXAMPLES = {
    kind: blocks
    for kind, text in SECTION.findall(TEXT)
    if (blocks := re.findall(r"```python\n(.*?)```", text, re.DOTALL))
}


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    """A copy of the package with every file that the examples add."""
    folder = tmp_path_factory.mktemp("house")
    shutil.copytree(HOME / "src", folder / "src", ignore=shutil.ignore_patterns("__pycache__"))
    for file, _ in EXAMPLES.values():
        path = re.match(r"# (src/\S+\.py)\n", file)[1]
        assert (folder / path).parent.is_dir(), f"{path}: there is no such room"
        assert not (folder / path).exists()
        (folder / path).write_text(file.partition("\n")[2], encoding="utf-8")
    return folder


def test_there_is_an_example_of_each_kind():
    assert list(EXAMPLES) == ["loss", "metric", "net", "data set", "study"]
    assert all(len(blocks) == 2 for blocks in EXAMPLES.values())


def test_the_examples_work_in_a_copy_of_the_package(package, tmp_path):
    """One process for all: it shows besides that they do not disturb one another."""
    for number, (_, check) in enumerate(EXAMPLES.values()):
        (package / f"check_{number}.py").write_text(check, encoding="utf-8")
    runs = "\n".join(
        f"runpy.run_path({str(package / f'check_{n}.py')!r}, run_name='__main__')" for n in range(len(EXAMPLES))
    )
    program = package / "checks.py"
    program.write_text(f"import runpy\nif __name__ == '__main__':\n    {runs.replace(chr(10), chr(10) + '    ')}\n")
    environment = {**os.environ, "PYTHONPATH": str(package / "src"), "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, program], capture_output=True, text=True, cwd=tmp_path, env=environment)
    assert done.returncode == 0, done.stderr[-2000:]


def test_the_tests_of_all_of_a_kind_find_the_examples_and_pass(package):
    """But for the metric's, which asks for its number by a loop and for a row in the docs besides."""
    files = ("losses/test_losses.py", "models/test_nets.py", "data/test_sources.py", "studies/test_all_studies.py")
    names = ("scaled-cross-entropy", "one-layer", "stripes", "codes/distances")
    command = [sys.executable, "-m", "pytest", "-v", "-p", "no:cacheprovider", "-k", " or ".join(names)]
    environment = {**os.environ, "PYTHONPATH": str(package / "src"), "OMP_NUM_THREADS": "1"}
    tests = [str(HOME / "tests" / file) for file in files]
    done = subprocess.run([*command, *tests], capture_output=True, text=True, cwd=HOME, env=environment)
    assert done.returncode == 0, done.stdout[-3000:]
    for file, name in zip(files, names, strict=True):
        assert re.search(rf"{file}\S*::.*{name}.* PASSED", done.stdout), f"{file} has no test of {name}"
