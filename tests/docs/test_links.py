"""Links and pictures that pages write as HTML arrive: the strict build looks only at those written as Markdown."""

import posixpath
import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
ADDRESS = re.compile(r'<[^>]*\s(?:href|src)="([^"#]*)(?:#([^"]*))?"')
MADE = {"collapse.html"}
"""What the build itself writes beside the pages."""
PAGES = [path for path in sorted(DOCS.rglob("*.md")) if ADDRESS.search(path.read_text(encoding="utf-8"))]


def target_of(page, address):
    """The file in docs/ that an address on a page stands for; every page but an index has a folder of its own."""
    folder = page.relative_to(DOCS).with_suffix("") if page.stem != "index" else page.parent.relative_to(DOCS)
    path = posixpath.normpath(posixpath.join(folder.as_posix(), address))
    if Path(path).suffix:
        return DOCS / path
    return DOCS / "index.md" if path == "." else DOCS / f"{path}.md"


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.relative_to(DOCS).as_posix())
def test_addresses_in_html_arrive(page):
    for address, anchor in ADDRESS.findall(page.read_text(encoding="utf-8")):
        if address.startswith(("http:", "https:", "mailto:")):
            continue
        target = target_of(page, address) if address else page
        if target.name in MADE:
            continue
        assert target.is_file(), f"{page.name}: {address} leads nowhere"
        if anchor and target.suffix == ".md":
            text = target.read_text(encoding="utf-8")
            headings = {re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-") for title in heads(text)}
            ids = set(re.findall(r'id="([^"]+)"', text))
            assert anchor in headings | ids, f"{page.name}: {address}#{anchor} has no such heading"


def heads(text):
    return re.findall(r"^#+ (.+)$", re.sub(r"```.*?```", "", text, flags=re.DOTALL), re.MULTILINE)


def test_some_pages_have_such_links():
    assert {"gallery.md", "understand.md"} <= {page.name for page in PAGES}
