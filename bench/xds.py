#!/usr/bin/env python3
"""Measures the Envoy engine's control plane as backends grow: what building and pushing costs, and how soon a change is in force.

Needs Envoy of the testbed and cargo build --release -p oooi-xds --example xds_scale
Usage: bench/xds.py --envoy PATH [--quick] [--rounds 3] [--changes 100]

Every backend has ten endpoints. "Pushed" is over gRPC to a client that only accepts; Envoy's own work to take it over
stands beside it. A change moves one endpoint, and connections through Envoy tell when it has moved.
"""

import argparse
import json
import subprocess
from pathlib import Path

from common import ROOT, Failed, first, goals, middle, publish, run, summaries, table, version

ENDPOINTS = 10


def measure(program, envoy, backends, changes):
    command = [*first(), program, envoy, backends, ENDPOINTS, changes]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Failed(f"{backends} backends: {done.stderr.strip()}")
    return json.loads(done.stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--changes", type=int, default=100)
    parser.add_argument("--quick", action="store_true", help="one round of 20 changes")
    parser.add_argument("--program", type=Path, default=ROOT / "target/release/examples/xds_scale")
    parser.add_argument("--envoy", required=True, help="Envoy of the testbed: $(testbed/build --where)/bin/envoy")
    options = parser.parse_args()
    if not options.program.exists():
        raise Failed(f"{options.program} is missing: run `make bench-xds`")
    rounds, changes = (1, 20) if options.quick else (options.rounds, options.changes)
    sizes = [10, 100, 1000]
    collected = {f"{size:,} backends": [] for size in sizes}
    for number in range(rounds):
        print(f"round {number + 1} of {rounds}", flush=True)
        for size in sizes:
            collected[f"{size:,} backends"].append(measure(options.program, options.envoy, size, changes))
    versions = {"Envoy": version([str(options.envoy), "--version"], r"/(\d+\.\d+\.\d+)")}
    report(summaries(collected), sizes, rounds, changes, versions)


def growth(figures, sizes):
    """What a change costs with the most backends, of what it costs with the fewest."""
    least, most = (middle(figures, f"{size:,} backends", "change control us") for size in (sizes[0], sizes[-1]))
    return most / least if least and most else None


def report(figures, sizes, rounds, changes, versions):
    whole = [
        ("ms to assemble", "assemble ms", 2),
        ("to build the resources", "build ms", 2),
        ("built and pushed", "built and pushed ms", 1),
        ("until Envoy has all", "envoy ms", 0),
    ]
    change = [
        ("CPU µs to assemble a change", "change assemble us", 0),
        ("CPU µs to build and send it", "change control us", 0),
        ("resources sent", "change resources", 1),
        ("ms until connections follow", "change ms", 1),
        ("the slowest", "change most ms", 1),
    ]
    most = f"{sizes[-1]:,} backends"
    text = "\n\n".join(
        [
            f"The whole configuration at once, {ENDPOINTS} endpoints for each backend:",
            table(whole, figures),
            f"One endpoint moves; medians of {changes} moves:",
            table(change, figures),
            goals(
                [
                    ("ms to build and push 1,000 backends with 10 endpoints each: under 50", middle(figures, most, "built and pushed ms"), 50, 1),
                    ("resources sent for one change", middle(figures, most, "change resources"), 1, 1),
                    ("CPU for a change with 1,000 backends, of one with 10: within 2", growth(figures, sizes), 2, 2),
                    ("ms until a change reaches connections, the slowest: under 100", middle(figures, most, "change most ms"), 100, 1),
                ]
            ),
        ]
    )
    # For the plot: what one change costs as backends grow.
    grown = {"oooi": {f"cpu at {size}": figures[f"{size:,} backends"]["change control us"] for size in sizes}}
    publish("xds", "Envoy's control plane", {"rounds": rounds, "versions": versions, "figures": figures, "grown": grown}, text)


if __name__ == "__main__":
    run(main)
