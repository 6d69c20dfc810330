#!/usr/bin/env python3
"""Compares this DNS server with knot, unbound, CoreDNS, dnsmasq and a bare echo, all in one run.

Needs dnsperf, knot, unbound and dnsmasq (`testbed/packages clients bench`), CoreDNS (`make bench-dns` builds it), and
    cargo build --release -p oooi-dns --example dns_serve --example dns_echo
Usage: bench/dns.py [--quick] [--rounds 3] [--seconds 4]

Every server has one worker on the first core; dnsperf and the upstream share the second. All servers run at once on
loopback and are asked in turn. That throughput grows with cores is shown with shares of cores, which needs root and the
cpu controller of cgroup v1.
"""

import argparse
import os
import random
import re
import subprocess
import tempfile
from pathlib import Path

from common import HERE, ROOT, Failed, Processes, cpu_micros, first, goals, memory_mib, middle, publish, ratio, run, summaries, table, version

PORT = 5300
UPSTREAM = "127.90.0.9"
STEADY = 20_000
# Tails are taken from short slices in turn: what a neighbour does for a moment spoils one of them, not the figure.
SLICES = 12
# The answers that our cache may hold, in MiB: by default, and while it grows: as much as unbound has.
CACHE, ROOM = 8, 128

CPU = Path("/sys/fs/cgroup/cpu")
# A thread's share of its core, in µs of each period.
SHARE, PERIOD = 1_000, 10_000

OWN_ZONE = """$ORIGIN bench.example.
$TTL 3600
@ SOA ns hostmaster 1 3600 600 86400 30
@ NS ns
ns A 127.0.0.3
api A 127.0.0.4
*.apps A 127.0.0.4
"""

FOREIGN_ZONE = """$ORIGIN example.org.
$TTL 3600
@ SOA ns hostmaster 1 3600 600 86400 60
@ NS ns
ns A 192.0.2.53
*.wild A 192.0.2.9
"""

# Who can be asked what. The floor echoes anything, knot forwards nothing.
PARTS = ["own", "hit", "miss"]
AUTHORITATIVE = ("floor", "knot")


class Bench:
    """The running servers."""

    def __init__(self, processes, coredns):
        self.processes, self.coredns = processes, coredns
        self.servers = {}

    def program(self, name):
        path = ROOT / "target/release/examples" / name
        if not path.exists():
            raise Failed(f"{path} is missing: run `make bench-dns`")
        return path

    def settings(self, peer, name, **more):
        """A peer's settings with its address and folder in them."""
        folder = self.processes.folder / peer
        text = (HERE / "peers/dns" / name).read_text()
        for key, value in {"FOLDER": folder, "PORT": PORT, "UPSTREAM": UPSTREAM, **more}.items():
            text = text.replace(f"@{key}@", str(value))
        return self.processes.write(f"{peer}/{name}", text)

    def start(self, name, address, command, core="0", **environment):
        process = self.processes.spawn(name, command, core=core, **environment)
        probe = ["dig", "+tries=1", "+time=1", "+short", f"@{address}", "-p", str(PORT), "api.bench.example"]
        answers = lambda: process.poll() is None and subprocess.run(probe, capture_output=True, check=False).returncode == 0
        self.processes.until(f"{name} answers", answers)
        self.servers[name] = (address, process)

    def knot(self, name, core, address, domain, zone):
        self.processes.write(f"{name}/zone", zone)
        path = self.settings(name, "knot.conf", ADDRESS=address, DOMAIN=domain)
        self.start(name, address, ["knotd", "-c", path], core=core)
        # knot pins its own threads: put them back.
        pid = str(self.servers[name][1].pid)
        subprocess.run(["taskset", "-a", "-p", "-c", core, pid], check=True, stdout=subprocess.DEVNULL)

    def start_all(self, cache):
        self.knot("upstream", "1", UPSTREAM, "example.org", FOREIGN_ZONE)
        del self.servers["upstream"]
        self.start("floor", "127.90.0.1", [self.program("dns_echo"), f"127.90.0.1:{PORT}"])
        serve = self.program("dns_serve")
        self.start("oooi", "127.90.0.2", [serve, f"127.90.0.2:{PORT}", "1", cache, f"{UPSTREAM}:{PORT}"])
        self.knot("knot", "0", "127.90.0.3", "bench.example", OWN_ZONE)
        path = self.settings("unbound", "unbound.conf", ADDRESS="127.90.0.4")
        self.start("unbound", "127.90.0.4", ["unbound", "-d", "-c", path])
        self.processes.write("CoreDNS/zone", OWN_ZONE)
        path = self.settings("CoreDNS", "Corefile", ADDRESS="127.90.0.5")
        self.start("CoreDNS", "127.90.0.5", [self.coredns, "-quiet", "-conf", path], GOMAXPROCS="1")
        path = self.settings("dnsmasq", "dnsmasq.conf", ADDRESS="127.90.0.6")
        self.start("dnsmasq", "127.90.0.6", ["dnsmasq", "--keep-in-foreground", "--user=root", "--pid-file=", "-C", path])

    def dnsperf(self, address, questions, seconds, rate=None, cores="1", detail=False, clients=8, waiting=100):
        command = [*first(), "taskset", "-c", cores, "dnsperf", "-s", address, "-p", str(PORT), "-d", questions]
        command += ["-l", str(seconds), "-c", str(clients), "-q", str(waiting), "-T", "1"]
        command += ["-Q", str(rate)] if rate else []
        text = subprocess.run(command + (["-v"] if detail else []), capture_output=True, text=True, check=True).stdout
        number = lambda label: float(re.search(label + r":\s+([\d.]+)", text).group(1))
        outcome = {"answers": number("Queries completed"), "lost": number("Queries lost"), "rate": number("Queries per second")}
        if detail:
            waits = sorted(float(wait) * 1e6 for wait in re.findall(r"^> \S+ \S+ \S+ ([\d.]+)$", text, re.M))
            at = lambda part: waits[min(len(waits) - 1, int(part * len(waits)))] if waits else None
            outcome.update({"p50": at(0.5), "p99": at(0.99), "p999": at(0.999)})
        return outcome

    def questions(self, part, seconds):
        if part in ("own", "steady"):
            return self.processes.write("own", "".join(f"api.bench.example A\nx{at}.apps.bench.example A\n" for at in range(50)))
        if part == "hit":
            return self.processes.write("hits", "".join(f"h{at}.wild.example.org A\n" for at in range(1000)))
        tag = random.randrange(10**9)
        return self.processes.write("misses", "".join(f"{tag}-{at}.wild.example.org A\n" for at in range(50_000 * seconds)))

    def measure(self, part, name, seconds):
        """The figures of one part for one server."""
        address, process = self.servers[name]
        questions = self.questions(part, seconds)
        if part == "hit":
            self.dnsperf(address, questions, 1)
        before = cpu_micros(process.pid)
        outcome = self.dnsperf(address, questions, seconds, STEADY if part == "steady" else None, detail=part == "steady")
        cpu = (cpu_micros(process.pid) - before) / max(outcome["answers"], 1)
        tails = {figure: outcome[figure] for figure in ("p50", "p99", "p999") if figure in outcome}
        return {f"{part} cpu": cpu, f"{part} rate": outcome["rate"], f"{part} lost": outcome["lost"], **tails}


def growth(bench, seconds, counts):
    """CPU for each hit, and memory, with more and more names in the cache. Names are asked once, then again.

    All caches have room for all names: a smaller one would compare questions forwarded with answers kept.
    """
    rows = {}
    for name in ("oooi", "unbound", "CoreDNS"):
        address, process = bench.servers[name]
        row = {}
        for count in counts:
            names = "".join(f"g{at}.wild.example.org A\n" for at in range(count))
            questions = bench.processes.write("grown", names)
            subprocess.run(
                [*first(), "dnsperf", "-s", address, "-p", str(PORT), "-d", questions, "-n", "1", "-c", "8", "-q", "100"],
                capture_output=True,
                check=True,
            )
            before = cpu_micros(process.pid)
            outcome = bench.dnsperf(address, questions, seconds)
            row[f"cpu at {count}"] = (cpu_micros(process.pid) - before) / max(outcome["answers"], 1)
            row[f"MiB at {count}"] = memory_mib(process.pid)
        rows[name] = [row]
    return rows


def cores(bench, seconds):
    """One worker on one core and two on two, each with the same share of its core; nothing where that cannot be given.

    The load needs a core for as many questions as a worker can answer with one, so without shares two cores would have
    to do three cores' work.
    """
    if not os.access(CPU / "cpu.cfs_quota_us", os.W_OK):
        return {}
    names = {"oooi, 1 worker": 1, "oooi, 2 workers": 2}
    rows, groups = {name: [] for name in names}, []
    try:
        for name, workers in names.items():
            command = [bench.program("dns_serve"), f"127.90.1.{workers}:{PORT}", workers, CACHE]
            bench.start(name, f"127.90.1.{workers}", command, core="0,1")
            for core in range(workers):
                groups.append(CPU / f"bench{os.getpid()}-{workers}-{core}")
                share_of_core(bench.servers[name][1].pid, core, groups[-1])
        for _ in range(5):
            for name in names:
                rows[name].append(answers(bench, name, seconds))
    finally:
        bench.processes.end(*[bench.servers.pop(name)[1] for name in names if name in bench.servers])
        for group in groups:
            if group.exists():
                group.rmdir()
    return rows


def answers(bench, name, seconds):
    """What a server answers to more questions than its shares suffice for, from so many clients that all workers have some."""
    address, process = bench.servers[name]
    before = cpu_micros(process.pid)
    outcome = bench.dnsperf(address, bench.questions("own", seconds), seconds, cores="0,1", clients=200, waiting=1000)
    spent = cpu_micros(process.pid) - before
    each = spent / max(outcome["answers"], 1)
    return {"rate": outcome["rate"], "lost": outcome["lost"], "cpu": each, "busy": spent / seconds / 1e4}


def share_of_core(pid, core, group):
    """Puts the worker of a core there, with no more than its share of it, by a control group of its own."""
    threads = [task for task in Path(f"/proc/{pid}/task").iterdir() if (task / "comm").read_text().strip() == f"dns-{core}"]
    if len(threads) != 1:
        raise Failed(f"process {pid} has {len(threads)} threads of the name dns-{core}")
    group.mkdir()
    (group / "cpu.cfs_period_us").write_text(str(PERIOD))
    (group / "cpu.cfs_quota_us").write_text(str(SHARE))
    (group / "tasks").write_text(threads[0].name)
    subprocess.run(["taskset", "-p", "-c", str(core), threads[0].name], check=True, stdout=subprocess.DEVNULL)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=int, default=4)
    parser.add_argument("--quick", action="store_true", help="one round of two seconds a part: two minutes")
    parser.add_argument("--coredns", default=ROOT / "target/bench/coredns")
    options = parser.parse_args()
    rounds, seconds = (1, 2) if options.quick else (options.rounds, options.seconds)
    counts = [100, 10_000] if options.quick else [100, 1000, 10_000, 100_000]
    versions = {
        "knot": version(["knotd", "-V"]),
        "unbound": version(["unbound", "-V"]),
        "CoreDNS": version([str(options.coredns), "-version"]),
        "dnsmasq": version(["dnsmasq", "--version"]),
        "dnsperf": version(["dnsperf", "-h"], r"Version ([\d.]+)"),
    }
    with tempfile.TemporaryDirectory() as folder, Processes(folder) as processes:
        bench = Bench(processes, options.coredns)
        bench.start_all(CACHE)
        collected = {name: [] for name in bench.servers}
        idle = {name: memory_mib(process.pid) for name, (_, process) in bench.servers.items()}
        for number in range(rounds):
            print(f"round {number + 1} of {rounds}", flush=True)
            figures = {name: {"idle": idle[name]} for name in bench.servers}
            for part in PARTS:
                for name in bench.servers:
                    if part == "own" or name not in AUTHORITATIVE:
                        figures[name].update(bench.measure(part, name, seconds))
            for name, row in figures.items():
                row["loaded"] = memory_mib(bench.servers[name][1].pid)
                collected[name].append(row)
            for _ in range(SLICES):
                for name in bench.servers:
                    collected[name].append(bench.measure("steady", name, 1))
        print("growth and cores", flush=True)
        # All anew: what the rounds left in the caches would count.
        processes.end()
        bench = Bench(processes, options.coredns)
        bench.start_all(ROOM)
        grown = summaries(growth(bench, seconds, counts))
        scaled = summaries(cores(bench, seconds))
    report(summaries(collected), grown, scaled, counts, rounds, versions)


def report(figures, grown, scaled, counts, rounds, versions):
    cpu = [
        ("CPU µs / own name", "own cpu", 1),
        (f"at {STEADY:,}/s", "steady cpu", 1),
        ("/ cache hit", "hit cpu", 1),
        ("/ miss forwarded", "miss cpu", 1),
        ("MiB at start", "idle", 1),
        ("after the load", "loaded", 1),
    ]
    speed = [
        ("own names / s", "own rate", 0),
        ("hits / s", "hit rate", 0),
        ("misses / s", "miss rate", 0),
        (f"p50 µs at {STEADY:,}/s", "p50", 0),
        ("p99", "p99", 0),
        ("p99.9", "p999", 0),
    ]
    held = [(f"CPU µs / hit, {count:,} names", f"cpu at {count}", 1) for count in counts]
    held += [(f"MiB, {count:,}", f"MiB at {count}", 1) for count in counts]
    recursive = ["unbound", "CoreDNS", "dnsmasq"]
    ratios = {
        "own names, of the floor": ratio(figures, "own cpu", "oooi", ["floor"]),
        "own names, of the best peer": ratio(figures, "own cpu", "oooi", ["knot", *recursive]),
        "hits, of the floor": ratio(figures, "hit cpu", "oooi", ["floor"]) or hit_of_floor(figures),
        "hits, of the best peer": ratio(figures, "hit cpu", "oooi", recursive),
        "misses, of unbound": ratio(figures, "miss cpu", "oooi", ["unbound"]),
        "p99, of the best peer": ratio(figures, "p99", "oooi", ["knot", *recursive]),
        "answers of two workers, of one": ratio(scaled, "rate", "oooi, 2 workers", ["oooi, 1 worker"]),
    }
    said = "; ".join(f"{what}: {value:.2f}" for what, value in ratios.items() if value)
    text = "\n\n".join(
        [
            table(cpu, figures),
            table(speed, figures),
            f"oooi's share: {said}.",
            f"Hits with more and more names in the cache. Ours may hold {ROOM} MiB here, as unbound's; by default it is {CACHE}, and the oldest beyond are forgotten:",
            table(held, grown),
            *spread(scaled),
            goals(
                [
                    ("CPU for an own name, of the batched floor: within 1.2", ratios["own names, of the floor"], 1.2, 2),
                    ("for a hit, of the batched floor: within 1.2", ratios["hits, of the floor"], 1.2, 2),
                    ("for an own name: below the best peer", ratios["own names, of the best peer"], 1, 2),
                    ("for a hit: below the best peer", ratios["hits, of the best peer"], 1, 2),
                    ("for a miss: at most two thirds of unbound's", ratios["misses, of unbound"], 0.67, 2),
                    ("p99: not above the best peer", ratios["p99, of the best peer"], 1, 2),
                    ("MiB at start: under 10", middle(figures, "oooi", "idle"), 10, 1),
                    ("answers of two workers, of one: grows with cores", ratios["answers of two workers, of one"], ">=1.5", 2),
                ]
            ),
        ]
    )
    result = {"rounds": rounds, "versions": versions, "figures": figures, "grown": grown, "cores": scaled, "ratios": ratios}
    publish("dns", "DNS", result, text)


def spread(scaled):
    """What two cores answer beside one."""
    if not scaled:
        return ["One worker and two: not measured, since it takes root and the cpu controller of cgroup v1 to give shares of cores."]
    columns = [("answers / s", "rate", 0), ("lost", "lost", 0), ("CPU µs / own name", "cpu", 1), ("CPU in % of a core", "busy", 0)]
    share = f"{SHARE / PERIOD:.0%}"
    return [f"One worker on one core and two on two. Each may use {share} of its core, so that the load has room beside them:", table(columns, scaled)]


def hit_of_floor(figures):
    """The floor echoes, whatever is asked: its cost of an own name is that of a hit."""
    own, floor = figures["oooi"].get("hit cpu"), figures["floor"].get("own cpu")
    return own["median"] / floor["median"] if own and floor else None


if __name__ == "__main__":
    run(main)
