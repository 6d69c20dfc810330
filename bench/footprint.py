#!/usr/bin/env python3
"""Compares the memory of all that one hosted cluster needs on its VLAN: of ours, and of a stack of peers.

Needs root, the Debian packages of `testbed/packages clients bench`, CoreDNS and the load tool (`make bench-footprint`
builds them), Envoy of the testbed, and the static binary of `make image`.
Usage: bench/footprint.py --envoy PATH [--quick] [--rounds 3]

One stack runs at a time, in a network namespace of its own; nodes, their DNS upstream and the control plane are at the
other end of a veth pair. At rest, it has answered each kind of question once. Loaded, it has 10,000 leases, 10,000 names
of others in its cache, and 2,000 open connections. Memory is proportional: what processes share counts once. The manager
is not in it, since there is one for all hosted clusters: bench/manager.py compares it with the least that one in Go
takes. Programs of which there may be others on the machine run from a copy, so that those share nothing with them.
"""

import argparse
import re
import resource
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

import dhcp
from common import HERE, ROOT, Failed, Processes, cpu_micros, first, goals, middle, publish, ratio, run, summaries, table, tree, version
from dns import FOREIGN_ZONE

LEASES, NAMES, CONNECTIONS = 10_000, 10_000, 2000
# What each DHCP server takes in leases a second without losing many.
RATES = {"dnsmasq": 300}
RATE = 2000
SETTLED = 5
DNS, GATEWAY, CLIENT = "10.0.0.3", "10.0.0.4", dhcp.CLIENT
API = "api.bench.example"
QUIET_ENVOY = ["--concurrency", "1", "--log-level", "error", "--use-dynamic-base-id"]
OWN = ["oooi, one process", "oooi, three processes", "oooi, three processes and Envoy"]
PEERS = ["CoreDNS + Kea + Envoy", "CoreDNS + dnsmasq + Envoy"]


class Stack:
    """A VLAN with one stack on it."""

    def __init__(self, processes, programs):
        self.processes, self.programs = processes, programs
        self.wire = dhcp.Contender(processes, "stack")
        for address in (DNS, GATEWAY):
            command = ["ip", "-n", self.wire.server, "address", "add", f"{address}/15", "dev", "eth0"]
            subprocess.run(command, check=True)
        self.parts = {}
        processes.spawn("backend", [programs["load"], "backend", f"{CLIENT}:7443", f"{CLIENT}:7080"], namespace=self.wire.client)
        processes.write("upstream/zone", FOREIGN_ZONE)
        values = {"FOLDER": processes.folder / "upstream", "ADDRESS": CLIENT, "PORT": 53, "DOMAIN": "example.org"}
        upstream = self.settings("dns/knot.conf", **values)
        processes.spawn("upstream", ["knotd", "-c", upstream], namespace=self.wire.client)

    def settings(self, path, **values):
        text = (HERE / "peers" / path).read_text()
        for key, value in values.items():
            text = text.replace(f"@{key}@", str(value))
        return self.processes.write(Path(path).name, text)

    def part(self, name, *command):
        self.parts[name] = self.processes.spawn(name, command, namespace=self.wire.server)

    def start(self, name):
        """Starts the stack and waits until each of its services has answered."""
        folder = self.processes.folder
        if name in OWN:
            infra = self.settings("stack/infra.yaml")
            files = ["-f", self.settings("stack/control-plane.yaml")]
            oooi = self.programs["oooi"]
        if name == "oooi, one process":
            self.part("oooi up", oooi, "up", "-f", infra, *files, "--interface", "eth0", "--state-dir", folder / "state")
        elif name in OWN:
            planned = subprocess.run([oooi, "plan", "-f", infra, "-o", "yaml"], capture_output=True, text=True, check=True).stdout
            manifest = {kind: self.processes.write(f"{kind}.yaml", text) for kind, text in by_kind(planned).items()}
            state = ["--interface", "eth0", "--state-dir", folder / "state"]
            self.part("oooi dhcp", oooi, "dhcp", "-f", manifest["DHCPServer"], *state)
            self.part("oooi dns", oooi, "dns", "-f", manifest["DNSServer"], "--metrics-bind-address", "127.0.0.1:9091")
            gateway = ["-f", manifest["ProxyServer"], *files, "--metrics-bind-address", "127.0.0.1:9092"]
            if "Envoy" in name:
                # As in a pod, where Envoy is a container of its own; on one thread, as beside the peers.
                bootstrap = folder / "envoy.json"
                subprocess.run([oooi, "proxy", *gateway, "--write-bootstrap", bootstrap], check=True)
                self.part("oooi proxy for Envoy", oooi, "proxy", *gateway, "--engine", "envoy", "--external-envoy")
                self.part("Envoy for oooi", self.programs["envoy"], "-c", bootstrap, *QUIET_ENVOY)
            else:
                self.part("oooi proxy", oooi, "proxy", *gateway)
        else:
            self.settings("stack/zone")
            self.part("CoreDNS", self.programs["coredns"], "-quiet", "-conf", self.settings("stack/Corefile", FOLDER=folder))
            server = "Kea" if "Kea" in name else "dnsmasq"
            self.part(server, *dhcp.COMMANDS[server](self.processes, folder))
            self.part("Envoy", self.programs["envoy"], "-c", self.settings("stack/envoy.yaml"), *QUIET_ENVOY)
        self.processes.until(f"{name}: DHCP answers", lambda: self.alive() and self.wire.load(20, 1)["leases"] > 0)
        for asked in (API, "first.wild.example.org"):
            self.processes.until(f"{name}: DNS answers for {asked}", lambda: self.alive() and self.resolves(asked))
        self.processes.until(f"{name}: the gateway relays", lambda: self.alive() and self.relays())

    def alive(self):
        for name, process in self.parts.items():
            if process.poll() is not None:
                raise Failed(f"{name} ended: {self.processes.log(name)[-500:]}")
        return True

    def inside(self, *command):
        return ["ip", "netns", "exec", self.wire.client, *first(), *map(str, command)]

    def resolves(self, asked):
        command = self.inside("dig", "+tries=1", "+time=1", "+short", f"@{DNS}", asked)
        return re.search(r"^\d+\.", subprocess.run(command, capture_output=True, text=True, check=False).stdout, re.M)

    def hold(self, count):
        """Opens connections through the gateway; they are open until the input of what holds them ends."""
        command = self.inside(self.programs["load"], "idle", f"{GATEWAY}:6443", count, API)
        holder = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        self.processes.running.append(holder)
        return holder if holder.stdout.readline() else None

    def relays(self):
        holder = self.hold(1)
        if holder:
            holder.stdin.close()
            holder.wait()
        return holder is not None

    def load(self):
        """What nodes leave behind and keep open."""
        held = 0
        rate = next((rate for part, rate in RATES.items() if part in self.parts), RATE)
        while held < LEASES:
            granted = self.wire.load(rate, 1)["leases"]
            if granted == 0:
                raise Failed(f"no lease after {held}; see {self.processes.folder}")
            held += granted
        if self.hold(CONNECTIONS) is None:
            raise Failed(f"the gateway did not take {CONNECTIONS:,} connections; see {self.processes.folder}")
        names = self.processes.write("names", "".join(f"f{at}.wild.example.org A\n" for at in range(NAMES)))
        ask = self.inside("dnsperf", "-s", DNS, "-d", names, "-n", "1", "-c", "8", "-q", "100")
        said = subprocess.run(ask, capture_output=True, text=True, check=True).stdout
        answered = int(re.search(r"NOERROR (\d+)", said).group(1)) if "NOERROR" in said else 0
        if answered < 0.99 * NAMES:
            raise Failed(f"{answered:,} of {NAMES:,} names were answered")

    def figures(self, when):
        """Memory of each part once nothing happens any more, and the CPU time that this takes."""
        pids = {name: process.pid for name, process in self.parts.items()}
        time.sleep(SETTLED)  # the figure is what is left once nothing happens
        before = sum(map(cpu_micros, pids.values()))
        time.sleep(SETTLED)
        spent = (sum(map(cpu_micros, pids.values())) - before) / SETTLED
        self.alive()
        return {name: {when: memory(pid)["Pss"], f"{when} anonymous": memory(pid)["Pss_Anon"]} for name, pid in pids.items()}, spent


def by_kind(manifests):
    """The documents of `oooi plan -o yaml`, by their kind."""
    documents = [text for text in manifests.split("---\n") if text.strip()]
    return {re.search(r"^kind: (\w+)$", text, re.M).group(1): text for text in documents}


def memory(pid):
    """MiB of a process and of those below it: all, and what no file backs."""
    total = {"Pss": 0, "Pss_Anon": 0}
    for one in tree(pid):
        rollup = Path(f"/proc/{one}/smaps_rollup").read_text()
        for part in total:
            total[part] += int(re.search(rf"^{part}:\s+(\d+)", rollup, re.M).group(1)) / 1024
    return total


def measure(name, folder, programs):
    """The figures of a stack, and of each of its parts."""
    folder.mkdir()
    with Processes(folder) as processes:
        stack = Stack(processes, programs)
        stack.start(name)
        parts, idle = stack.figures("rest")
        stack.load()
        loaded, busy = stack.figures("loaded")
        for part, figures in loaded.items():
            parts[part].update(figures)
    whole = {figure: sum(part[figure] for part in parts.values()) for figure in next(iter(parts.values()))}
    return {**whole, "rest cpu": idle, "loaded cpu": busy}, parts


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="one round: three minutes")
    parser.add_argument("--oooi", type=Path, default=ROOT / "target/x86_64-unknown-linux-musl/release/oooi")
    parser.add_argument("--coredns", type=Path, default=ROOT / "target/bench/coredns")
    parser.add_argument("--load", type=Path, default=ROOT / "target/bench/load")
    parser.add_argument("--envoy", type=Path, required=True, help="Envoy of the testbed: $(testbed/build --where)/bin/envoy")
    options = parser.parse_args()
    rounds = 1 if options.quick else options.rounds
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    versions = {
        "CoreDNS": version([str(options.coredns), "-version"]),
        "Kea": version(["kea-dhcp4", "-v"]),
        "dnsmasq": version(["dnsmasq", "--version"]),
        "Envoy": version([str(options.envoy), "--version"], r"/(\d+\.\d+\.\d+)"),
    }
    stacks = {name: [] for name in OWN + PEERS}
    parts = {}
    with tempfile.TemporaryDirectory(dir=ROOT / "target") as folder:
        programs = {}
        for name in ("oooi", "coredns", "load", "envoy"):
            path = getattr(options, name)
            if not path.exists():
                raise Failed(f"{path} is missing: run `make bench-footprint`")
            programs[name] = shutil.copy2(path, Path(folder) / name)
        for number in range(rounds):
            print(f"round {number + 1} of {rounds}", flush=True)
            for at, name in enumerate(stacks):
                whole, each = measure(name, Path(folder) / f"{number}-{at}", programs)
                stacks[name].append(whole)
                for part, figures in each.items():
                    parts.setdefault(part, []).append(figures)
        size = Path(programs["oooi"]).stat().st_size / 1024**2
    report(summaries(stacks), summaries(parts), size, rounds, versions)


def report(stacks, parts, size, rounds, versions):
    kept = [
        ("MiB at rest", "rest", 1),
        ("of it anonymous", "rest anonymous", 1),
        ("MiB loaded", "loaded", 1),
        ("of it anonymous", "loaded anonymous", 1),
    ]
    spent = [("CPU µs / s at rest", "rest cpu", 0), ("loaded", "loaded cpu", 0)]
    ratios = {
        f"{name}, {when}": ratio(stacks, figure, name, PEERS)
        for name in OWN
        for when, figure in [("at rest", "rest"), ("loaded", "loaded")]
    }
    said = "; ".join(f"{what}: {value:.2f}" for what, value in ratios.items())
    text = "\n\n".join(
        [
            "All that one hosted cluster needs on its VLAN. Loaded it has "
            f"{LEASES:,} leases, {NAMES:,} names in the cache and {CONNECTIONS:,} open connections. Memory that is not "
            f"anonymous is pages of files, such as of our binary of {size:.0f} MiB: all processes on a machine that run "
            "the same file share them. No manager is in it, neither ours nor one of the peers: there is one for all hosted "
            "clusters, and the next section compares it.",
            table(kept + spent, stacks),
            f"oooi's share of the smallest peer stack: {said}.",
            "By process:",
            table(kept, parts),
            goals(
                [
                    (f"MiB of `oooi dhcp` with {LEASES:,} leases: under 10", middle(parts, "oooi dhcp", "loaded"), 10, 1),
                    ("MiB of `oooi dns` at rest: under 10", middle(parts, "oooi dns", "rest"), 10, 1),
                    (f"MiB of `oooi dns` with {NAMES:,} names: under 15", middle(parts, "oooi dns", "loaded"), 15, 1),
                    ("MiB of `oooi proxy` at rest: under 6", middle(parts, "oooi proxy", "rest"), 6, 1),
                ]
            ),
        ]
    )
    result = {"rounds": rounds, "versions": versions, "figures": stacks, "parts": parts, "ratios": ratios}
    publish("footprint", "Memory of a whole stack", result, text)


if __name__ == "__main__":
    run(main)
