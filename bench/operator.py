#!/usr/bin/env python3
"""Measures the operator as Infras grow: how long until each is looked after, what that costs whom, and what is kept.

Needs the testbed, and cargo build --release -p oooi-operator --example many_infras
Usage: bench/operator.py --testbed target/debug/testbed [--quick] [--rounds 1] [--infras 10,100,1000]

Every size has a control plane of its own, on which no node runs the pods. Two floors tell what the API server itself
needs: a bare client that applies as many of the smallest objects as the operator wrote, eight at once, and one that
writes what the operator wrote for one Infra once more for each, without a read, a watch or a thought.
"""

import argparse
from pathlib import Path

from common import ROOT, Failed, goals, middle, on_control_plane, publish, run, summaries, table


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--infras", default="10,100,1000", help="how many, one size after the other")
    parser.add_argument("--quick", action="store_true", help="no more than 100 Infras")
    parser.add_argument("--program", type=Path, default=ROOT / "target/release/examples/many_infras")
    parser.add_argument("--testbed", type=Path, required=True, help="what starts a control plane: target/debug/testbed")
    options = parser.parse_args()
    if not options.program.exists():
        raise Failed(f"{options.program} is missing: run `make bench-operator`")
    sizes = [size for size in map(int, options.infras.split(",")) if size <= 100 or not options.quick]
    collected = {f"{size:,} Infras": [] for size in sizes}
    for number in range(options.rounds):
        for size in sizes:
            print(f"round {number + 1} of {options.rounds}: {size:,} Infras", flush=True)
            found = on_control_plane(options.testbed, options.program, size)
            collected[f"{size:,} Infras"].append({**found, "cost ms": found["manager cpu s"] / size * 1000})
    report(summaries(collected), sizes, options.rounds)


def report(figures, sizes, rounds):
    work = [
        ("s until all are looked after", "looked after s", 1),
        ("s of a bare client, smallest objects", "floor s", 1),
        ("s of a bare client, the same objects", "replay s", 1),
        ("calls for each", "calls", 0),
        ("of them writes", "writes", 0),
        ("writes in 20 s after", "writes after", 0),
        ("s for a manager that starts to look at all", "again s", 1),
        ("calls for each then", "calls again", 0),
        ("writes then", "writes again", 0),
        ("MiB at most", "MiB", 0),
        ("before the manager began", "MiB before", 0),
    ]
    cost = [
        ("CPU s of the manager", "manager cpu s", 1),
        ("of the API server", "apiserver cpu s", 1),
        ("of etcd", "etcd cpu s", 1),
        ("of the controller manager", "controllers cpu s", 1),
        ("manager's CPU ms for each Infra", "cost ms", 0),
    ]
    most = f"{sizes[-1]:,} Infras"
    text = "\n\n".join(
        [
            "From nothing to three servers' Deployments for each Infra, all at once. A bare client applies as many of the "
            "smallest objects, and then what the operator wrote for one Infra once for each.",
            table(work, figures),
            "What that cost, until all were looked after:",
            table(cost, figures),
            goals(
                [
                    (f"s until {most} are looked after: under 60", middle(figures, most, "looked after s"), 60, 1),
                    (f"s for a manager that starts to look at {most}: under 60", middle(figures, most, "again s"), 60, 1),
                    (f"MiB with {most}: under 150", middle(figures, most, "MiB"), 150, 0),
                    ("writes at rest: none", middle(figures, most, "writes after"), 0, 0),
                ]
            ),
        ]
    )
    grown = {"oooi": {f"cpu at {size}": figures[f"{size:,} Infras"]["cost ms"] for size in sizes}}
    publish("operator", "Operator", {"rounds": rounds, "versions": {}, "figures": figures, "grown": grown}, text)


if __name__ == "__main__":
    run(main)
