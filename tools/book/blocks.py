#!/usr/bin/env python3
"""Runs the shell blocks of the documentation.

    tools/book/blocks.py [--oooi target/debug/oooi] [--have cluster]... [PAGE]...

A block of shell says after its language what becomes of it:

    ```console run              each line after `$ ` is run; what stands below it must be what it prints
    ```console run exit=2       the last command ends with 2
    ```console run times        how long something took is not compared: `1.5 ms`, `2 s`
    ```sh run                   the whole block is one script
    ```console needs=vlan       needs what is not there (see NEEDS), and is run where `--have` says that it is
    ```yaml file=infra.yaml     is written to that file first

With `--have`, only pages with a block that needs it are run.
`…` stands for any text in a line of output, and alone on a line for any lines. A block that says nothing is refused.
The blocks of a page run in order in one temporary directory, which has a copy of examples/ and links to what people
have in their checkout, with `oooi` on the PATH.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import pages

ROOT = Path(__file__).resolve().parents[2]
SHELLS = {"console", "sh", "bash", "shell"}
# What a block may need, for the reader of the block's source.
NEEDS = {
    "checkout": "builds or tests the project itself, which other targets do",
    "cluster": "an API server without nodes; the cluster tests have one",
    "nodes": "a Kubernetes cluster with Multus and the image",
    "hypershift": "a management cluster with HyperShift and KubeVirt",
    "openshift": "an OpenShift cluster",
    "vlan": "root, and an interface on a VLAN",
    "registry": "a container registry",
    "envoy": "Envoy",
}
SECONDS = 60
TIME = re.compile(r"\b[0-9]+(\.[0-9]+)? (ms|s)\b")


class Wrong(Exception):
    """What is wrong with a block."""


@dataclass
class Plan:
    """What becomes of a block."""

    run: bool
    needs: str | None = None
    exit: int = 0
    times: bool = False


def plan(words: list[str]) -> Plan:
    """Reads the words after the language."""
    run, times, needs, code = False, False, None, 0
    for word in words:
        name, _, value = word.partition("=")
        if word == "run":
            run = True
        elif word == "times":
            times = True
        elif name == "needs" and value in NEEDS:
            needs = value
        elif name == "needs":
            raise Wrong(f"needs={value} is none of {', '.join(NEEDS)}")
        elif name == "exit" and value.isdigit():
            code = int(value)
        else:
            raise Wrong(f"`{word}` means nothing here")
    if run == (needs is not None):
        raise Wrong("a block of shell says either `run` or `needs=…`")
    return Plan(run, needs, code, times)


def steps(block: pages.Block) -> list[tuple[str, list[str]]]:
    """The commands of a block, each with the output that should follow."""
    if block.words[0] != "console":
        return [("\n".join(block.lines), [])]
    found: list[tuple[str, list[str]]] = []
    continued = False
    for line in block.lines:
        if continued:
            found[-1] = (found[-1][0] + "\n" + line, [])
        elif line.startswith(("$ ", "# ")):
            found.append((line[2:], []))
        elif found:
            found[-1][1].append(line)
        else:
            raise Wrong(f"`{line}` stands before the first command: it begins with `$ `, as root with `# `")
        continued = (continued or line.startswith(("$ ", "# "))) and line.endswith("\\")
    return found


def matches(expected: list[str], printed: list[str]) -> bool:
    """Whether output is what was expected, with `…` for anything."""
    def line(text: str) -> str:
        if text.strip() == "…":
            return r"(?:[^\n]*\n)*?"
        # Columns are as wide as their longest word: how many spaces there are is not looked at.
        words = [".*?".join(re.escape(part) for part in word.split("…")) for word in text.split()]
        return r"[ \t]*" + r"[ \t]+".join(words) + r"[ \t]*\n"

    pattern = "".join(line(text) for text in expected)
    return re.fullmatch(pattern, "".join(f"{text}\n" for text in printed)) is not None


def run_block(block: pages.Block, wanted: Plan, directory: Path, environment: dict[str, str]) -> None:
    """Runs a block, and raises what is wrong."""
    todo = steps(block)
    for index, (command, expected) in enumerate(todo):
        code = wanted.exit if index == len(todo) - 1 else 0
        try:
            ended = subprocess.run(
                ["bash", "-euo", "pipefail", "-c", command], cwd=directory, env=environment, text=True,
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=SECONDS,
            )
        except subprocess.TimeoutExpired:
            raise Wrong(f"`{command}` did not end within {SECONDS} s") from None
        if ended.returncode != code:
            raise Wrong(f"`{command}` ended with {ended.returncode}, not {code}:\n{ended.stdout}")
        if any(line.strip() for line in expected):
            printed = ended.stdout.rstrip("\n").split("\n")
            while not expected[-1].strip():
                expected.pop()
            if wanted.times:
                expected, printed = ([TIME.sub("…", line) for line in lines] for lines in (expected, printed))
            if not matches(expected, printed):
                raise Wrong(f"`{command}` printed something else:\n{ended.stdout}")


def run_page(page: Path, directory: Path, environment: dict[str, str], have: set[str]) -> tuple[list[str], int, int]:
    """What is wrong with the blocks of a page, how many ran, and how many need what is not there."""
    wrong, ran, left = [], 0, 0
    for block in pages.split(page.read_text())[1]:
        language, words = (block.words or [""])[0], block.words[1:]
        try:
            if language in SHELLS:
                wanted = plan(words)
                steps(block)
                if wanted.run or wanted.needs in have:
                    run_block(block, wanted, directory, environment)
                    ran += 1
                else:
                    left += 1
            elif words and words[0].startswith("file="):
                file = directory / words[0].removeprefix("file=")
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text("\n".join(block.lines) + "\n")
        except Wrong as mistake:
            wrong.append(f"{page}:{block.line}: {mistake}")
    return wrong, ran, left


def needs(page: Path) -> set[str]:
    """What the blocks of a page need."""
    words = (word for block in pages.split(page.read_text())[1] for word in block.words)
    return {word.removeprefix("needs=") for word in words if word.startswith("needs=")}


def prepare(directory: Path, oooi: Path) -> dict[str, str]:
    """A directory as people have it before them, and the environment of the commands."""
    programs = directory / ".bin"
    programs.mkdir()
    (programs / "oooi").symlink_to(oooi)
    shutil.copytree(ROOT / "examples", directory / "examples")
    for name in ("deploy", "Makefile"):
        (directory / name).symlink_to(ROOT / name)
    environment = {name: value for name, value in os.environ.items() if name in ("KUBECONFIG", "LANG", "TERM")}
    # `testbed run` names the directory of the cluster that it started.
    if testbed := os.environ.get("OOOI_TESTBED"):
        environment["KUBECONFIG"] = f"{testbed}/kubeconfig"
    path = os.environ.get("PATH", "/usr/bin:/bin")
    return environment | {"PATH": f"{programs}:{path}", "HOME": str(directory), "NO_COLOR": "1"}


def main() -> int:
    options = argparse.ArgumentParser(description="Runs the shell blocks of the documentation.")
    options.add_argument("--oooi", type=Path, default=ROOT / "target/debug/oooi", help="the binary")
    options.add_argument("--have", action="append", choices=NEEDS, default=[], help="what is there")
    options.add_argument("files", metavar="PAGE", nargs="*", type=Path)
    args = options.parse_args()
    if not args.oooi.exists():
        print(f"{args.oooi} is not there: run `make build` first", file=sys.stderr)
        return 2
    book = args.files or [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    if args.have:
        book = [page for page in book if needs(page) & set(args.have)]
    mistakes, ran, left = [], 0, 0
    for page in book:
        with tempfile.TemporaryDirectory(prefix="oooi-book-") as directory:
            environment = prepare(Path(directory), args.oooi.resolve())
            wrong, some, others = run_page(page, Path(directory), environment, set(args.have))
        mistakes += wrong
        ran += some
        left += others
    for mistake in mistakes:
        print(mistake, file=sys.stderr)
    print(f"{len(book)} pages: {ran} blocks ran, {left} need what is not here, {len(mistakes)} are wrong")
    return 1 if mistakes else 0


if __name__ == "__main__":
    sys.exit(main())
