#!/usr/bin/env python3
"""Finds dead links in the documentation: files and anchors that are not there, pages that nobody finds.

    tools/book/links.py            every Markdown file of the repository

A page under docs/ is also a page of the book, which holds nothing else: its links stay inside docs/, and the book's
table of contents (docs/SUMMARY.md) names it. Addresses of other sites are not looked at.
"""

import subprocess
import sys
from pathlib import Path
from urllib.parse import unquote

sys.path.insert(0, str(Path(__file__).parent))
import pages

ROOT = Path(__file__).resolve().parents[2]
BOOK = "docs"
CONTENTS = "docs/SUMMARY.md"


def is_foreign(target: str) -> bool:
    return "://" in target or target.startswith("mailto:")


def check_page(root: Path, page: Path, of_the_book: bool) -> list[str]:
    """What is wrong with the links of one page."""
    wrong = []
    for line, target in pages.links(page.read_text()):
        if is_foreign(target):
            continue
        path, _, anchor = unquote(target).partition("#")
        where = (page.parent / path).resolve() if path else page
        place = f"{page.relative_to(root)}:{line}: {target}"
        if not where.exists():
            wrong.append(f"{place}: there is no such file")
        elif of_the_book and not where.is_relative_to(root / BOOK):
            wrong.append(f"{place}: leads out of {BOOK}/, where the book ends; name the file in `code` instead")
        elif of_the_book and where.is_dir():
            wrong.append(f"{place}: is a directory; name a page")
        elif anchor and where.suffix == ".md" and anchor not in pages.anchors(where.read_text()):
            wrong.append(f"{place}: {where.name} has no heading with this anchor")
    return wrong


def check_contents(root: Path, book: list[Path]) -> list[str]:
    """What is wrong with the table of contents."""
    contents = root / CONTENTS
    named = [(contents.parent / target).resolve() for _, target in pages.links(contents.read_text())]
    wrong = [
        f"{page.relative_to(root)}: is not in {CONTENTS}"
        for page in book
        if page.resolve() not in named and page != contents
    ]
    twice = {page for page in named if named.count(page) > 1}
    return wrong + [f"{CONTENTS}: {page.name} is there twice" for page in sorted(twice)]


def check(root: Path, files: list[str]) -> list[str]:
    """What is wrong with all of them."""
    wrong, book = [], []
    for name in sorted(files):
        of_the_book = name.startswith(f"{BOOK}/")
        wrong += check_page(root, root / name, of_the_book)
        if of_the_book:
            book.append(root / name)
    return wrong + check_contents(root, book)


def main() -> int:
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md"],
        cwd=ROOT, check=True, capture_output=True, text=True,
    ).stdout.split("\n")
    files = [name for name in listed if name and (ROOT / name).exists()]
    wrong = check(ROOT, files)
    for line in wrong:
        print(line, file=sys.stderr)
    print(f"{len(files)} pages, {len(wrong)} dead links")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
