#!/usr/bin/env python3
"""Compares the native gateway with Envoy, HAProxy, nginx, sniproxy and a bare relay, all in one run.

Needs the Debian packages of `testbed/packages bench`, Envoy of the testbed, the load tool (`make bench-proxy` builds it),
and cargo build --release -p oooi-proxy --example gateway --example relay_floor
Usage: bench/proxy.py [--quick] [--rounds 3] [--seconds 4] [--only floor,oooi,sniproxy]

Every gateway has one worker on the first core and routes three names; clients and backend share the second core. All
gateways run at once on loopback, each at an address of its own, and are used in turn. The bare relay has no names to
route by, so there are two: one before the backend with TLS, one before the plain one. The careless ones promise less,
as sniproxy does: small pieces may wait for each other, and both sides are closed when one has ended. The splicing one is
the floor of bulk, and does nothing else.
"""

import argparse
import json
import os
import resource
import subprocess
import tempfile
import time

from common import HERE, ROOT, Failed, Processes, cpu_micros, first, goals, memory_mib, middle, publish, ratio, run, summaries, table, version

TLS, PLAIN = "127.91.0.1:7443", "127.91.0.1:7080"
PORT = 8443
NAMES = ["api.bench.test", "other.bench.test"]
CONNECTIONS = [("CPU µs / TLS connection", "tls cpu", 0), ("/ raw connection", "raw cpu", 0)]


class Bench:
    """The backend and the gateways."""

    def __init__(self, processes, load, envoy):
        self.processes, self.load_tool, self.envoy = processes, load, envoy
        self.gateways = {}

    def program(self, name):
        path = ROOT / "target/release/examples" / name
        if not path.exists():
            raise Failed(f"{path} is missing: run `make bench-proxy`")
        return path

    def settings(self, peer, name, address, **more):
        """A peer's settings with the addresses and its folder in them."""
        text = (HERE / "peers/proxy" / name).read_text()
        parts = {f"{key}_{what}": value for key, where in [("TLS", TLS), ("PLAIN", PLAIN)] for what, value in zip(["IP", "PORT"], where.split(":"))}
        folder = self.processes.folder / peer
        for key, value in {**parts, "ADDRESS": address, "FOLDER": folder, "TLS": TLS, "PLAIN": PLAIN, **more}.items():
            text = text.replace(f"@{key}@", str(value))
        return self.processes.write(f"{peer}/{name}", text)

    def start(self, name, address, command, answers="raw"):
        process = self.processes.spawn(name, command, core=0)
        work = lambda: process.poll() is None and self.try_load(answers, f"{address}:{PORT}", 1, 1) is not None
        self.processes.until(f"{name} relays", work)
        self.gateways[name] = (f"{address}:{PORT}", process)

    def start_all(self, chosen):
        self.processes.spawn("backend", [self.load_tool, "backend", TLS, PLAIN], core=1)
        floor = self.program("relay_floor")
        routes = [f"{name}={TLS}" for name in NAMES] + [f"raw.bench.test={PLAIN}"]
        envoy = self.settings("envoy", "envoy.yaml", "127.91.0.5")
        copying = self.settings("haproxy", "haproxy.cfg", "127.91.0.6", SPLICE="")
        splicing = self.settings("haproxy-splice", "haproxy.cfg", "127.91.0.7", SPLICE="option splice-request\n  option splice-response")
        nginx = self.settings("nginx", "nginx.conf", "127.91.0.8")
        sniproxy = self.settings("sniproxy", "sniproxy.conf", "127.91.0.9")
        commands = {
            "floor": ("127.91.0.2", [floor, f"127.91.0.2:{PORT}", TLS]),
            "floor, plain": ("127.91.0.3", [floor, f"127.91.0.3:{PORT}", PLAIN]),
            "careless floor": ("127.91.0.10", [floor, f"127.91.0.10:{PORT}", TLS, "careless"]),
            "careless floor, plain": ("127.91.0.11", [floor, f"127.91.0.11:{PORT}", PLAIN, "careless"]),
            "splicing floor, plain": ("127.91.0.12", [floor, f"127.91.0.12:{PORT}", PLAIN, "splice"]),
            "oooi": ("127.91.0.4", [self.program("gateway"), "1", f"127.91.0.4:{PORT}", *routes]),
            "Envoy": ("127.91.0.5", [self.envoy, "-c", envoy, "--concurrency", "1", "--log-level", "error", "--use-dynamic-base-id"]),
            "HAProxy": ("127.91.0.6", ["haproxy", "-db", "-q", "-f", copying]),
            "HAProxy, splice": ("127.91.0.7", ["haproxy", "-db", "-q", "-f", splicing]),
            "nginx": ("127.91.0.8", ["nginx", "-p", self.processes.folder / "nginx", "-c", nginx]),
            "sniproxy": ("127.91.0.9", ["sniproxy", "-f", "-c", sniproxy]),
        }
        for name, (address, command) in commands.items():
            if is_chosen(name, chosen):
                self.start(name, address, command, "raw" if leads_to(name, "bulk") else "tls")

    def try_load(self, *arguments):
        command = [*first(), "taskset", "-c", "1", self.load_tool, *map(str, arguments)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return json.loads(done.stdout) if done.returncode == 0 else None

    def load(self, name, kind, *arguments):
        """Loads a gateway; CPU time of it, and what the load tool says."""
        address, process = self.gateways[name]
        before = cpu_micros(process.pid)
        outcome = self.try_load(kind, address, *arguments)
        if outcome is None:
            return None, None
        return cpu_micros(process.pid) - before, outcome

    def connections(self, name, kind, seconds):
        cpu, outcome = self.load(name, kind, seconds, 16)
        if outcome is None:
            return {f"{kind} failed": 1}
        tails = {f"{kind} {part}": outcome[part] for part in ("p50", "p99", "p999")}
        return {f"{kind} cpu": cpu / outcome["done"], f"{kind} rate": outcome["rate"], f"{kind} failed": outcome["failed"], **tails}

    def bulk(self, name, megabytes):
        cpu, outcome = self.load(name, "bulk", megabytes)
        return {"bulk cpu": cpu / outcome["gigabytes"] / 1000, "bulk rate": outcome["gigabytes"] / outcome["seconds"]} if outcome else {}

    def idle(self, name, count, seconds):
        """Memory for each idle connection, and CPU while nothing happens."""
        address, process = self.gateways[name]
        before = memory_mib(process.pid)
        command = [*first(), "taskset", "-c", "1", self.load_tool, "idle", address, str(count)]
        holder = subprocess.Popen(list(map(str, command)), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        try:
            if not holder.stdout.readline():
                return {}
            each = (memory_mib(process.pid) - before) * 1024 / count
            cpu = cpu_micros(process.pid)
            time.sleep(seconds)  # the figure is what happens while nothing does
            return {"empty": before, "idle memory": each, "idle cpu": (cpu_micros(process.pid) - cpu) / seconds}
        finally:
            holder.stdin.close()
            holder.wait()


def leads_to(name, kind):
    """Whether a contender has the backend of this load: the floors have one each, and one is for bulk alone."""
    if name.startswith("splicing"):
        return kind == "bulk"
    return "floor" not in name or (kind == "tls") == ("plain" not in name)


def connections(bench, kinds, slices):
    """Rows of figures for each contender, from slices of a second.

    They take turns slice by slice, each time in another order: what a neighbour does for a moment spoils a slice of one,
    not the figure, and nobody is always the one after the busiest.
    """
    rows = {name: [] for name in bench.gateways}
    for kind in kinds:
        names = [name for name in bench.gateways if leads_to(name, kind)]
        for turn in range(slices):
            for name in names[turn % len(names) :] + names[: turn % len(names)]:
                rows[name].append(bench.connections(name, kind, 1))
    return rows


def is_chosen(name, chosen):
    return not chosen or any(name.split(",")[0] == one for one in chosen)


def compare(chosen, options, rounds, seconds):
    """Connections through a few contenders, round by round; what it finds is printed only."""
    with tempfile.TemporaryDirectory() as folder, Processes(folder) as processes:
        bench = Bench(processes, options.load, options.envoy)
        bench.start_all(chosen)
        collected = connections(bench, ("tls", "raw"), rounds * seconds)
    print(table(CONNECTIONS, summaries(collected)))
    print(f"load {os.getloadavg()[0]:.1f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=int, default=4)
    parser.add_argument("--quick", action="store_true", help="one round of two seconds a part: two minutes")
    parser.add_argument("--load", default=ROOT / "target/bench/load")
    parser.add_argument("--envoy", default="envoy", help="Envoy of the testbed: $(testbed/build --where)/bin/envoy")
    parser.add_argument("--only", default="", help="these contenders alone, by their first words; connections alone, and nothing is written")
    options = parser.parse_args()
    chosen = [name for name in options.only.split(",") if name]
    rounds, seconds = (1, 2) if options.quick else (options.rounds, options.seconds)
    counts = [100, 1000] if options.quick else [100, 1000, 9000]
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    if chosen:
        return compare(chosen, options, rounds, seconds)
    versions = {
        "Envoy": version([str(options.envoy), "--version"], r"/(\d+\.\d+\.\d+)"),
        "HAProxy": version(["haproxy", "-v"]),
        "nginx": version(["nginx", "-v"]),
        "sniproxy": version(["sniproxy", "-V"]),
    }
    with tempfile.TemporaryDirectory() as folder, Processes(folder) as processes:
        bench = Bench(processes, options.load, options.envoy)
        bench.start_all(chosen)
        # Before anything is warm, largest last: what a connection takes, and not what a load left behind.
        idle = {name: [{}] for name in bench.gateways if leads_to(name, "idle")}
        for count in counts:
            print(f"{count} idle connections", flush=True)
            for name, [row] in idle.items():
                figures = bench.idle(name, count, 2)
                row.setdefault("empty", figures.get("empty"))
                row.update({f"{figure} {count}": value for figure, value in figures.items() if figure != "empty"})
        collected = {name: [] for name in bench.gateways}
        for number in range(rounds):
            print(f"round {number + 1} of {rounds}", flush=True)
            for name, rows in connections(bench, ("tls", "raw", "request"), seconds).items():
                collected[name] += rows
            for name in bench.gateways:
                if leads_to(name, "bulk"):
                    collected[name].append(bench.bulk(name, 200 if options.quick else 500))
    report(summaries(collected), summaries(idle), counts, rounds, versions)


def report(figures, idle, counts, rounds, versions):
    cpu = [
        *CONNECTIONS,
        ("/ 1 KiB request", "request cpu", 1),
        ("CPU ms / GB", "bulk cpu", 0),
    ]
    speed = [
        ("TLS connections / s", "tls rate", 0),
        ("p50 µs", "tls p50", 0),
        ("p99", "tls p99", 0),
        ("p99.9", "tls p999", 0),
        ("requests / s", "request rate", 0),
        ("GB / s", "bulk rate", 2),
        ("failed", "tls failed", 0),
    ]
    most = counts[-1]
    held = [("MiB, no connection", "empty", 1)]
    held += [(f"KiB / connection, {count:,} idle", f"idle memory {count}", 2) for count in counts]
    held += [(f"CPU µs / s holding {most:,}", f"idle cpu {most}", 0)]
    peers = ["Envoy", "HAProxy", "HAProxy, splice", "nginx", "sniproxy"]
    ratios = {
        "TLS connection, of the floor": ratio(figures, "tls cpu", "oooi", ["floor"]),
        "TLS connection, of the best peer": ratio(figures, "tls cpu", "oooi", peers),
        "raw connection, of the floor": ratio(figures, "raw cpu", "oooi", ["floor, plain"]),
        "raw connection, of the best peer": ratio(figures, "raw cpu", "oooi", peers),
        "request, of nginx": ratio(figures, "request cpu", "oooi", ["nginx"]),
        "GB, of the floor": ratio(figures, "bulk cpu", "oooi", ["splicing floor, plain"]),
        "GB, of HAProxy with splice": ratio(figures, "bulk cpu", "oooi", ["HAProxy, splice"]),
    }
    said = "; ".join(f"{what}: {value:.2f}" for what, value in ratios.items() if value)
    text = "\n\n".join(
        [
            table(cpu, figures),
            table(speed, figures),
            f"oooi's share: {said}.",
            "Connections that are open and silent:",
            table(held, idle),
            goals(
                [
                    ("CPU for a TLS connection, of the bare relay: within 1.15", ratios["TLS connection, of the floor"], 1.15, 2),
                    ("for a raw connection, of the bare relay: within 1.15", ratios["raw connection, of the floor"], 1.15, 2),
                    ("for a TLS connection: below every peer", ratios["TLS connection, of the best peer"], 1, 2),
                    ("for a raw connection: below every peer", ratios["raw connection, of the best peer"], 1, 2),
                    ("for a request: not above nginx", ratios["request, of nginx"], 1, 2),
                    ("for a gigabyte: below HAProxy with splice", ratios["GB, of HAProxy with splice"], 1, 2),
                    ("KiB for an idle connection: under 1", middle(idle, "oooi", f"idle memory {most}"), 1, 2),
                    ("CPU while idle: none", middle(idle, "oooi", f"idle cpu {most}"), 0, 0),
                    ("MiB with no connection: under 6", middle(idle, "oooi", "empty"), 6, 1),
                ]
            ),
        ]
    )
    result = {"rounds": rounds, "versions": versions, "figures": figures, "idle": idle, "ratios": ratios}
    publish("proxy", "Gateway", result, text)


if __name__ == "__main__":
    run(main)
