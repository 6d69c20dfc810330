"""What the checks of the documentation read out of a page: headings, links and fenced blocks. No disk."""

import re
from dataclasses import dataclass, field

FENCE = re.compile(r"^(\s*)(`{3,}|~{3,})\s*(.*)$")
HEADING = re.compile(r"^(#{1,6})\s+(.*?)\s*#*$")
# [text](target) and ![text](target "title"); [name]: target
LINK = re.compile(r"\[(?:[^\]\\]|\\.)*\]\(\s*<?([^)\s>]+)>?(?:\s+\"[^\"]*\")?\s*\)")
REFERENCE = re.compile(r"^\s{0,3}\[[^\]]+\]:\s*(\S+)")
CODE = re.compile(r"(`+)(?:(?!\1).)+?\1")


@dataclass
class Block:
    """A fenced block: its info string, its lines, and the line on which it begins."""

    info: str
    line: int
    lines: list[str] = field(default_factory=list)

    @property
    def words(self) -> list[str]:
        return self.info.split()


def split(text: str) -> tuple[list[tuple[int, str]], list[Block]]:
    """The lines of prose with their numbers, and the fenced blocks."""
    prose, blocks, inside, indent, fence = [], [], None, "", ""
    for number, line in enumerate(text.splitlines(), 1):
        found = FENCE.match(line)
        if inside is not None:
            if found and found[2].startswith(fence) and not found[3]:
                inside = None
            else:
                inside.lines.append(line.removeprefix(indent))
        elif found:
            inside, indent, fence = Block(found[3].strip(), number), found[1], found[2]
            blocks.append(inside)
        else:
            prose.append((number, line))
    return prose, blocks


def slug(heading: str) -> str:
    """The anchor of a heading, as GitHub and mdBook make it."""
    heading = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
    kept = re.sub(r"[^\w\- ]", "", heading.lower())
    return kept.strip().replace(" ", "-")


def anchors(text: str) -> set[str]:
    """Every anchor of a page. Headings of the same text are numbered."""
    seen: dict[str, int] = {}
    found = set()
    for _, line in split(text)[0]:
        if heading := HEADING.match(line):
            name = slug(heading[2])
            count = seen.get(name, 0)
            seen[name] = count + 1
            found.add(f"{name}-{count}" if count else name)
    return found


def links(text: str) -> list[tuple[int, str]]:
    """Every link of a page with its line. What stands in code is none."""
    found = []
    for number, line in split(text)[0]:
        line = CODE.sub("code", line)
        found += [(number, target) for target in LINK.findall(line)]
        if reference := REFERENCE.match(line):
            found.append((number, reference[1]))
    return found
