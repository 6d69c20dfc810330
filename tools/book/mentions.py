#!/usr/bin/env python3
"""Holds what pages say of the commands of `oooi` against the commands themselves.

    tools/book/mentions.py

Every `oooi COMMAND --flag` in code, whether in a line or in a block, must be in docs/reference/commands.md, which the
binary wrote. Blocks that are run are proved anyway; this is for all the others.
"""

import re
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import pages

ROOT = Path(__file__).resolve().parents[2]
REFERENCE = "docs/reference/commands.md"
INLINE = re.compile(r"`+([^`]+)`+")
# A mention ends where the shell begins something else.
MENTION = re.compile(r"(?:^|[\s/(])oooi((?:\s+(?![|;&#>])\S+)*)")
FLAG = re.compile(r"(?<![\w-])(--[a-z][a-z-]*)")


def known(reference: str) -> dict[tuple[str, ...], set[str]]:
    """The flags of every command, by the words after `oooi`."""
    flags: dict[tuple[str, ...], set[str]] = {}
    command: tuple[str, ...] = ()
    for line in reference.splitlines():
        if line.startswith("## oooi"):
            command = tuple(line.split()[2:])
            flags[command] = set()
        elif line.lstrip().startswith("-"):
            flags.setdefault(command, set()).update(FLAG.findall(line.strip().split("  ")[0]))
    return flags


def texts(page: str):
    """All code of a page with its line."""
    prose, blocks = pages.split(page)
    for number, line in prose:
        for code in INLINE.findall(line):
            yield number, code
    for block in blocks:
        if (block.words or [""])[0] in ("console", "sh"):
            # A command goes on after a line that ends with a backslash.
            joined = "\n".join(block.lines).replace("\\\n", " ")
            for offset, line in enumerate(joined.split("\n"), 1):
                if line.startswith(("$ ", "# ")) or block.words[0] == "sh":
                    yield block.line + offset, line


def wrong(page: str, flags: dict[tuple[str, ...], set[str]]) -> list[tuple[int, str]]:
    """What a page says that is not so."""
    found = []
    for number, code in texts(page):
        for mention in MENTION.findall(code):
            words = mention.split()
            command: tuple[str, ...] = ()
            while len(words) > len(command) and (*command, words[len(command)]) in flags:
                command = (*command, words[len(command)])
            if words and re.fullmatch(r"[a-z]+", words[0]) and not command:
                found.append((number, f"there is no command `oooi {words[0]}`"))
                continue
            allowed = flags[()] | flags[command]
            found += [
                (number, f"`{' '.join(('oooi', *command))}` has no {flag}")
                for flag in FLAG.findall(mention)
                if flag not in allowed
            ]
    return found


def main() -> int:
    flags = known((ROOT / REFERENCE).read_text())
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "README.md", "docs/*.md"],
        cwd=ROOT, check=True, capture_output=True, text=True,
    ).stdout.split()
    mistakes = [
        f"{name}:{line}: {message}"
        for name in listed
        if name != REFERENCE and (ROOT / name).exists()
        for line, message in wrong((ROOT / name).read_text(), flags)
    ]
    for mistake in mistakes:
        print(mistake, file=sys.stderr)
    print(f"{len(listed)} pages, {len(mistakes)} mentions of commands or flags that there are not")
    return 1 if mistakes else 0


if __name__ == "__main__":
    sys.exit(main())
