#!/usr/bin/env python3
"""Counts the instructions of the hot functions and compares them with the committed baseline: more than 5 % growth fails.

Needs valgrind and cargo build --release of the examples hot_dhcp, hot_dns, hot_proxy, hot_xds, hot_egress.
Usage: bench/regress.py [--write] [--programs FOLDER]

Each function runs N times and 2N times under callgrind; the difference, divided by N, is what one call costs. Setting up
and starting cancel out, and no clock is asked: the same code gives the same count on any day. Another compiler or another
version of a dependency may not: then look at what changed, and write the baseline anew by --write.
"""

import argparse
import json
import os
import re
import subprocess
from pathlib import Path

from common import HERE, ROOT, Failed, run

BASELINE = HERE / "baseline.json"
ALLOWED = 1.05
# What is counted: its name, the program, its argument, and how often it runs. Hash tables are filled in another order in
# each run, so that setting up does not cancel out quite: what has a large one runs more often.
FUNCTIONS = [
    ("DHCP: respond to DISCOVER", "hot_dhcp", "discover", 4000),
    ("DHCP: respond to a renewal", "hot_dhcp", "renew", 4000),
    ("DNS: answer an own name", "hot_dns", "own", 1000),
    ("DNS: answer from the cache", "hot_dns", "hit", 20_000),
    ("gateway: parse a client hello", "hot_proxy", "hello", 1000),
    ("gateway: match a route", "hot_proxy", "route", 1000),
    ("xDS: one endpoint of 1,000 backends changes", "hot_xds", "change", 200),
    ("ipam: allocate an address", "hot_egress", "ipam", 1000),
    ("egress: place 500 addresses on 100 nodes", "hot_egress", "place", 5),
]


def instructions(program, what, count):
    """Instructions of a whole run."""
    command = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", program, what, str(count)]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False, env={"PATH": os.environ["PATH"]})
    found = re.search(r"Collected\s*:\s*(\d+)", done.stderr)
    if done.returncode != 0 or not found:
        raise Failed(f"{program} {what} {count}: {done.stderr.strip()[-500:]}")
    return int(found.group(1))


def growth(baseline, counted):
    """The names of what takes more than is allowed, and of what nobody has counted before."""
    unknown = [name for name in counted if name not in baseline]
    worse = [name for name, now in counted.items() if name in baseline and now > baseline[name] * ALLOWED]
    return worse, unknown


def judge(baseline, counted):
    """Fails when something grew or has no baseline."""
    worse, unknown = growth(baseline, counted)
    if worse:
        raise Failed(f"more than 5 % above the baseline: {', '.join(worse)}; mend it, or say why in the commit that writes the baseline anew")
    if unknown:
        raise Failed(f"no baseline for {', '.join(unknown)}: run `make bench-regress REGRESS=--write`")


def line(name, before, now):
    change = f"{now / before - 1:+8.1%}" if before else ""
    return f"{name:<46}{before or '–':>12}{now:>12}{change}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="make what is counted now the baseline")
    parser.add_argument("--programs", type=Path, default=ROOT / "target/release/examples")
    options = parser.parse_args()
    baseline = {} if options.write else json.loads(BASELINE.read_text())["instructions"]
    counted = {}
    print(f"{'instructions a call':<46}{'baseline':>12}{'now':>12}")
    for name, program, what, count in FUNCTIONS:
        path = options.programs / program
        if not path.exists():
            raise Failed(f"{path} is missing: run `make bench-regress`")
        once, twice = (instructions(path, what, times) for times in (count, 2 * count))
        counted[name] = round((twice - once) / count)
        print(line(name, baseline.get(name), counted[name]), flush=True)
    if options.write:
        rustc = subprocess.run(["rustc", "--version"], capture_output=True, text=True, check=True, cwd=ROOT).stdout.strip()
        BASELINE.write_text(json.dumps({"compiler": rustc, "instructions": counted}, indent=1, ensure_ascii=False) + "\n")
        print(f"written: {BASELINE.relative_to(ROOT)}")
    else:
        judge(baseline, counted)


if __name__ == "__main__":
    run(main)
