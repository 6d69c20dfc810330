#!/usr/bin/env python3
"""Runs the test programs of a `cargo test` side by side: most of them wait for timers and other processes.

    tools/tests/side_by_side.py --at-once 3 cargo test --workspace --test 'net*'
    tools/tests/side_by_side.py --at-once 3 --in-turn egress cargo test --workspace --test 'cluster*'

Cargo runs one program after the other. Here several run at once, but for those that one pattern names, which cannot
share what they test against: they run one after the other beside the rest. The output of one that fails is shown whole, of
others the number of tests and the seconds. Each runs in the folder of its crate, as with cargo.
"""

import argparse
import json
import re
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

RESULT = re.compile(r"^test result: \w+\. (\d+) passed; (\d+) failed", re.MULTILINE)


def programs(command):
    """Builds them: for each its name, its file, and the folder of its crate."""
    built = subprocess.run([*command, "--no-run", "--message-format=json"], stdout=subprocess.PIPE, check=False)
    if built.returncode != 0:
        sys.exit(built.returncode)
    for line in built.stdout.splitlines():
        message = json.loads(line)
        if message.get("executable") and message["profile"]["test"]:
            folder = Path(message["manifest_path"]).parent
            yield f"{folder.name}/{message['target']['name']}", message["executable"], folder


def groups(programs, patterns):
    """Lists of programs that run one after the other: those that a pattern names, and each other one alone."""
    together, alone = [[] for _ in patterns], []
    for program in programs:
        named = [group for pattern, group in zip(patterns, together) if re.search(pattern, program[0])]
        if named:
            named[0].append(program)
        else:
            alone.append([program])
    # The longest of all lists are begun first.
    return [group for group in together if group] + alone


def run(group):
    """Runs one after the other and tells of each: how many tests passed and failed."""
    passed = failed = 0
    for name, executable, folder in group:
        began = time.monotonic()
        done = subprocess.run(
            [executable, "--quiet"],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            check=False,
        )
        well, ill = counts(done.stdout, done.returncode)
        output = done.stdout if ill else ""
        seconds = time.monotonic() - began
        print(f"{output}{name}: {well} passed, {ill} failed in {seconds:.0f} s", flush=True)
        passed, failed = passed + well, failed + ill
    return passed, failed


def counts(output, status):
    """How many tests passed and failed. A program that tells of no tests is one itself, by how it ended."""
    results = [(int(passed), int(failed)) for passed, failed in RESULT.findall(output)]
    if not results:
        return (1, 0) if status == 0 else (0, 1)
    passed, failed = (sum(column) for column in zip(*results))
    return passed, max(failed, int(status != 0))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--at-once", type=int, default=2, help="how many programs may run at once")
    parser.add_argument("--in-turn", metavar="PATTERN", action="append", default=[],
                        help="programs that run one after the other; may be given again for others")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    arguments = parser.parse_args()
    found = groups(programs(arguments.command), arguments.in_turn)
    with ThreadPoolExecutor(arguments.at_once) as pool:
        passed, failed = (sum(column) for column in zip((0, 0), *pool.map(run, found)))
    print(f"{passed} passed, {failed} failed")
    sys.exit(1 if failed or not passed else 0)


if __name__ == "__main__":
    main()
