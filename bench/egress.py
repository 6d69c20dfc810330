#!/usr/bin/env python3
"""Measures egress addresses: how long until all are on nodes, and what the loss of a node moves.

Needs the testbed, and cargo build --release -p oooi-operator --example many_namespaces
Usage: bench/egress.py --testbed target/debug/testbed [--quick] [--rounds 3] [--nodes 100]

Namespaces ask an EgressIPAM with three networks, on OpenShift SDN without a cloud. Then one node is lost.
"""

import argparse
from pathlib import Path

from common import ROOT, Failed, goals, middle, on_control_plane, publish, run, summaries, table


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--nodes", type=int, default=100)
    parser.add_argument("--quick", action="store_true", help="one round")
    parser.add_argument("--program", type=Path, default=ROOT / "target/release/examples/many_namespaces")
    parser.add_argument("--testbed", type=Path, required=True, help="what starts a control plane: target/debug/testbed")
    options = parser.parse_args()
    if not options.program.exists():
        raise Failed(f"{options.program} is missing: run `make bench-egress`")
    rounds = 1 if options.quick else options.rounds
    sizes = [50, 500]
    collected = {f"{size} namespaces": [] for size in sizes}
    for number in range(rounds):
        print(f"round {number + 1} of {rounds}", flush=True)
        for size in sizes:
            found = on_control_plane(options.testbed, options.program, size, options.nodes)
            collected[f"{size} namespaces"].append(found)
    report(summaries(collected), options.nodes, rounds)


def report(figures, nodes, rounds):
    columns = [
        ("s until every address is on a node", "on nodes s", 1),
        ("addresses", "addresses", 0),
        ("calls", "calls", 0),
        ("of them writes", "writes", 0),
        ("moved by a lost node", "moved", 0),
        ("within s", "failover s", 1),
        ("writes in 10 s after", "writes after", 0),
        ("MiB at most", "MiB", 0),
    ]
    text = "\n\n".join(
        [
            f"Namespaces ask an EgressIPAM with three networks for addresses, on OpenShift SDN with {nodes} nodes. Then a node "
            "is lost: what it had moves, and nothing else.",
            table(columns, figures),
            goals(
                [
                    ("s until 500 namespaces have their addresses: under 30", middle(figures, "500 namespaces", "on nodes s"), 30, 1),
                    ("writes at rest: none", middle(figures, "500 namespaces", "writes after"), 0, 0),
                ]
            ),
        ]
    )
    publish("egress", "Egress addresses", {"rounds": rounds, "versions": {}, "figures": figures}, text)


if __name__ == "__main__":
    run(main)
