#!/usr/bin/env python3
"""Compares the memory of our manager with the least that a manager in Go takes, on the test control plane.

Needs a test control plane, the Go manager and the static binary: `make bench-manager` runs it with all of them.
Usage: bench/manager.py [--quick] [--rounds 3] [--infras 100]

The Go manager watches what ours watches and does nothing: a floor for an operator that is written with
controller-runtime. Both elect a leader and serve metrics and probes. They run in turn: without an Infra, then with the
Infras and all that ours made of them, each started anew.
"""

import argparse
import os
import subprocess
import tempfile
import time
import urllib.request
from pathlib import Path

from common import ROOT, Failed, Processes, cpu_micros, goals, memory_mib, publish, ratio, run, summaries, table, version

NAMESPACE = "bench-manager"
SETTLED = 10
# CPU µs a second: who takes less has read everything, and only waits.
QUIET = 20_000
OWN_PROBES, GO_PROBES = "127.0.0.1:9097", "127.0.0.1:9099"

# What each hosted cluster has: a VLAN of its own, and an Infra on it.
TENANT = [
    """apiVersion: k8s.cni.cncf.io/v1
kind: NetworkAttachmentDefinition
metadata: {name: @NAME@, namespace: bench-manager}
spec: {config: '{"cniVersion": "0.3.1", "type": "bridge", "bridge": "@NAME@"}'}
""",
    """apiVersion: hostedcluster.densityops.com/v1alpha1
kind: Infra
metadata: {name: @NAME@, namespace: bench-manager}
spec:
  networkConfig: {cidr: 192.168.100.0/24, gateway: 192.168.100.1, networkAttachmentDefinition: @NAME@}
  infraComponents:
    dhcp: {}
    dns: {baseDomain: example.com, clusterName: @NAME@}
    proxy: {engine: Native, controlPlaneNamespace: bench-manager}
""",
]


class Bench:
    """The two managers, and the cluster that they look after."""

    def __init__(self, processes, options):
        self.processes, self.kubectl_path = processes, options.kubectl
        own = [options.oooi, "manager", "--image", "localhost/oooi:bench", "--leader-elect", "--pod-namespace", "default"]
        own += ["--pod-name", "bench", "--health-probe-bind-address", OWN_PROBES, "--metrics-bind-address", "127.0.0.1:9096"]
        own += ["--metrics-secure", "false"]
        self.commands = {"oooi manager": (own, OWN_PROBES), "floor in Go": ([options.manager], GO_PROBES)}

    def kubectl(self, *arguments, text=None):
        done = subprocess.run([self.kubectl_path, *map(str, arguments)], input=text, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise Failed(f"kubectl {' '.join(map(str, arguments))}: {done.stderr.strip()[-500:]}")
        return done.stdout

    def start(self, name):
        command, probes = self.commands[name]
        process = self.processes.spawn(name, command)

        def ready():
            if process.poll() is not None:
                raise Failed(f"{name} ended: {self.processes.log(name)[-500:]}")
            try:
                return urllib.request.urlopen(f"http://{probes}/healthz", timeout=1).status == 200
            except OSError:
                return False

        self.processes.until(f"{name} answers", ready)
        return process

    @staticmethod
    def load(process):
        """CPU time of three seconds, for each of them."""
        before = cpu_micros(process.pid)
        time.sleep(3)
        return (cpu_micros(process.pid) - before) / 3

    def measure(self, name, when):
        """Memory once nothing happens any more, and the CPU time that this takes."""
        process = self.start(name)
        self.processes.until(f"{name} has nothing to do", lambda: self.load(process) < QUIET, seconds=120)
        before = cpu_micros(process.pid)
        time.sleep(SETTLED)  # the figure is what is left once nothing happens
        figures = {when: memory_mib(process.pid), f"{when} cpu": (cpu_micros(process.pid) - before) / SETTLED}
        self.processes.end(process)
        return figures

    def make(self, count):
        """The Infras, and by our manager all that they need."""
        manifests = [f"apiVersion: v1\nkind: Namespace\nmetadata: {{name: {NAMESPACE}}}\n"]
        for number in range(count):
            manifests += [text.replace("@NAME@", f"tenant-{number}") for text in TENANT]
        self.kubectl("apply", "--server-side", "-f", "-", text="---\n".join(manifests))
        process = self.start("oooi manager")
        made = lambda: len(self.kubectl("get", "deployments", "-n", NAMESPACE, "--no-headers").splitlines()) >= 3 * count
        self.processes.until(f"{3 * count} Deployments are made", made, seconds=300)
        self.processes.end(process)

    def clean(self):
        self.kubectl("delete", "namespace", NAMESPACE, "--ignore-not-found", "--wait=false")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--infras", type=int, default=100)
    parser.add_argument("--quick", action="store_true", help="one round: two minutes")
    parser.add_argument("--oooi", type=Path, default=ROOT / "target/x86_64-unknown-linux-musl/release/oooi")
    parser.add_argument("--manager", type=Path, default=ROOT / "target/bench/manager")
    parser.add_argument("--testbed", type=Path, required=True, help="$(testbed/build --where)")
    options = parser.parse_args()
    options.kubectl = options.testbed / "bin/kubectl"
    rounds = 1 if options.quick else options.rounds
    for path in (options.oooi, options.manager):
        if not path.exists():
            raise Failed(f"{path} is missing: run `make bench-manager`")
    if "OOOI_TESTBED" not in os.environ:
        raise Failed("there is no test control plane: run `make bench-manager`")
    os.environ["KUBECONFIG"] = str(Path(os.environ["OOOI_TESTBED"]) / "kubeconfig")
    with tempfile.TemporaryDirectory() as folder, Processes(folder) as processes:
        bench = Bench(processes, options)
        for definitions in (ROOT / "deploy/crds", options.testbed / "crds/networkattachmentdefinitions.yaml"):
            bench.kubectl("apply", "--server-side", "-f", definitions)
        collected = {name: [{} for _ in range(rounds)] for name in bench.commands}
        try:
            for when in ("rest", "loaded"):
                for number in range(rounds):
                    print(f"{when}, round {number + 1} of {rounds}", flush=True)
                    for name in bench.commands:
                        collected[name][number].update(bench.measure(name, when))
                if when == "rest":
                    print(f"{options.infras} Infras", flush=True)
                    bench.make(options.infras)
        finally:
            bench.clean()
    versions = {"Kubernetes": version([str(options.kubectl), "version", "--client"]), "controller-runtime": go_module()}
    report(summaries(collected), options.infras, rounds, versions)


def go_module():
    """The version of controller-runtime that the Go manager is built with."""
    text = (ROOT / "bench/manager/go.mod").read_text()
    return text.split("sigs.k8s.io/controller-runtime v")[1].split()[0]


def report(figures, infras, rounds, versions):
    columns = [
        ("MiB, no Infra", "rest", 1),
        (f"MiB, {infras} Infras", "loaded", 1),
        ("CPU µs / s, no Infra", "rest cpu", 0),
        (f"CPU µs / s, {infras} Infras", "loaded cpu", 0),
    ]
    ratios = {
        "with no Infra": ratio(figures, "rest", "oooi manager", ["floor in Go"]),
        f"with {infras}": ratio(figures, "loaded", "oooi manager", ["floor in Go"]),
    }
    said = "; ".join(f"{what}: {value:.2f}" for what, value in ratios.items())
    text = "\n\n".join(
        [
            "One manager looks after all hosted clusters. The floor is a manager in Go that watches the same kinds and does "
            "nothing; both were started anew with what is there.",
            table(columns, figures),
            f"oooi's share of the floor's memory: {said}.",
            goals([(f"memory with {infras} Infras: below the floor's", ratios[f"with {infras}"], 1, 2)]),
        ]
    )
    publish("manager", "Memory of the manager", {"rounds": rounds, "versions": versions, "figures": figures, "ratios": ratios}, text)


if __name__ == "__main__":
    run(main)
