"""Write every figure of README and docs from the files in evidence/ (``make results``).

Two pages are made as a whole, results and gallery. In the others, what stands between a pair of marks

    <!-- NAME: made by `make results` -->
    <!-- end of NAME -->

is made by the function of that name in ``study_pages`` or ``figures``; a test fails when a page says anything else.
"""

import argparse
import re
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
HOME = HERE.parent
sys.path.insert(0, str(HERE))

import figures  # noqa: E402
import study_pages  # noqa: E402

BLOCK = re.compile(r"(<!-- ([\w-]+): made by `make results` -->\n).*?(<!-- end of \2 -->)", re.DOTALL)
BLOCKS = study_pages.BLOCKS | figures.BLOCKS


def pages() -> dict[Path, str]:
    """The text of each page, by its path."""
    found = study_pages.read_all()
    made = {
        HOME / "docs" / "results.md": study_pages.results(found),
        HOME / "docs" / "gallery.md": study_pages.gallery(found),
    }
    for path in [HOME / "README.md", *sorted((HOME / "docs").glob("*.md"))]:
        if path not in made and BLOCK.search(text := path.read_text(encoding="utf-8")):
            made[path] = BLOCK.sub(lambda block: block[1] + BLOCKS[block[2]]().rstrip() + "\n" + block[3], text)
    return made


def main() -> int:
    """Write the pages, or with --check say which would change."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; exit code 1 if a page would change")
    check = parser.parse_args().check
    made = pages()
    stale = [path for path, text in made.items() if not path.exists() or path.read_text(encoding="utf-8") != text]
    for path in stale:
        if not check:
            path.write_text(made[path], encoding="utf-8")
        sys.stdout.write(f"{'stale' if check else 'wrote'} {path.relative_to(HOME)}\n")
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
