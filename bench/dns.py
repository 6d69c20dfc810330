#!/usr/bin/env python3
"""Compares this DNS server with its peers and with the floor, all in one run.

Needs dnsperf, knot and unbound (Debian packages of these names) and
    cargo build --release -p oooi-dns --example dns_serve --example dns_echo
Usage: bench/dns.py [--rounds 3] [--seconds 4] [--folder target/release/examples]

Every server has one worker on the first core, dnsperf and the upstream share the second. All servers run
at once and are asked in turn, so that a noisy neighbour meets all of them. CPU is the time that the
server's threads spent on a core, by the scheduler's own count, for each answer that dnsperf received.
Compare ratios within one run; figures of another machine or hour say nothing.
"""

import argparse
import glob
import os
import random
import re
import subprocess
import tempfile
import time

PORT = 5300
UPSTREAM = "127.90.0.9"

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

UNBOUND = """server:
  interface: {address}@{port}
  do-daemonize: no
  username: ""
  chroot: ""
  directory: "{folder}"
  pidfile: ""
  use-syslog: no
  access-control: 127.0.0.0/8 allow
  do-not-query-localhost: no
  module-config: "iterator"
  num-threads: 1
  msg-cache-size: 64m
  rrset-cache-size: 64m
  outgoing-range: 4096
  num-queries-per-thread: 2048
  local-zone: "bench.example." static
  local-data: "api.bench.example. A 127.0.0.4"
  local-zone: "apps.bench.example." redirect
  local-data: "apps.bench.example. A 127.0.0.4"
remote-control:
  control-enable: no
forward-zone:
  name: "."
  forward-addr: {upstream}@{port}
"""

KNOT = """server:
  listen: {address}@{port}
  rundir: "{folder}"
  user: root
  udp-workers: 1
  tcp-workers: 1
  background-workers: 1
database:
  storage: "{folder}"
zone:
  - domain: {domain}
    storage: "{folder}"
    file: zone
    zonefile-sync: -1
"""


class Bench:
    """The running servers; ends all of them."""

    def __init__(self, folder):
        self.folder = folder
        self.processes = []

    def spawn(self, core, command):
        log = open(os.path.join(self.folder, "log"), "a")
        process = subprocess.Popen(["taskset", "-c", core] + command, stdout=log, stderr=log)
        self.processes.append(process)
        return process

    def write(self, path, text):
        path = os.path.join(self.folder, path)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w") as file:
            file.write(text)
        return path

    def knot(self, core, address, domain, zone):
        folder = os.path.join(self.folder, domain)
        self.write(f"{domain}/zone", zone)
        text = KNOT.format(address=address, port=PORT, folder=folder, domain=domain)
        process = self.spawn(core, ["/usr/sbin/knotd", "-c", self.write(f"{domain}/conf", text)])
        time.sleep(1)
        # knot pins its own threads: put them back.
        subprocess.run(["taskset", "-a", "-p", "-c", core, str(process.pid)], check=True, stdout=subprocess.DEVNULL)
        return process

    def unbound(self, core, address):
        folder = os.path.join(self.folder, "unbound")
        text = UNBOUND.format(address=address, port=PORT, folder=folder, upstream=UPSTREAM)
        return self.spawn(core, ["/usr/sbin/unbound", "-d", "-c", self.write("unbound/conf", text)])

    def end(self):
        for process in self.processes:
            process.terminate()
        for process in self.processes:
            process.wait()


def cpu_micros(pid):
    """Time on a core of all threads of a process."""
    total = 0
    for path in glob.glob(f"/proc/{pid}/task/*/schedstat"):
        with open(path) as file:
            total += int(file.read().split()[0])
    return total / 1000


def resident(pid):
    with open(f"/proc/{pid}/status") as file:
        return int(re.search(r"VmRSS:\s+(\d+)", file.read()).group(1)) / 1024


def dnsperf(address, questions, seconds, rate=None):
    command = ["taskset", "-c", "1", "dnsperf", "-s", address, "-p", str(PORT), "-d", questions]
    command += ["-l", str(seconds), "-c", "8", "-q", "100", "-T", "1"] + (["-Q", str(rate)] if rate else [])
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    number = lambda label: float(re.search(label + r":\s+([\d.]+)", text).group(1))
    return {
        "answers": number("Queries completed"),
        "lost": number("Queries lost"),
        "rate": number("Queries per second"),
        "latency": number(r"Average Latency \(s\)") * 1e6,
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=int, default=4)
    parser.add_argument("--folder", default="target/release/examples")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(folder)
        try:
            run(bench, options)
        finally:
            bench.end()


def run(bench, options):
    bench.knot("1", UPSTREAM, "example.org", FOREIGN_ZONE)
    program = lambda name: os.path.join(options.folder, name)
    servers = {
        "floor": ("127.90.0.1", bench.spawn("0", [program("dns_echo"), f"127.90.0.1:{PORT}"])),
        "oooi": ("127.90.0.2", bench.spawn("0", [program("dns_serve"), f"127.90.0.2:{PORT}", "1", f"{UPSTREAM}:{PORT}"])),
        "knot": ("127.90.0.3", bench.knot("0", "127.90.0.3", "bench.example", OWN_ZONE)),
        "unbound": ("127.90.0.4", bench.unbound("0", "127.90.0.4")),
    }
    time.sleep(1)
    idle = {name: resident(process.pid) for name, (_, process) in servers.items()}
    own = "".join(f"api.bench.example A\nx{at}.apps.bench.example A\n" for at in range(50))
    own = bench.write("questions/own", own)
    hits = bench.write("questions/hits", "".join(f"h{at}.wild.example.org A\n" for at in range(1000)))
    results = {}
    for _ in range(options.rounds):
        for test in ["own", "own at 20,000/s", "hit", "miss"]:
            for name, (address, process) in servers.items():
                if test in ("hit", "miss") and name in ("floor", "knot"):
                    continue
                questions = hits if test == "hit" else own
                if test == "miss":
                    tag = random.randrange(10**9)
                    lines = (f"{tag}-{at}.wild.example.org A\n" for at in range(100_000 * options.seconds))
                    questions = bench.write("questions/miss", "".join(lines))
                if test == "hit":
                    dnsperf(address, questions, 1)
                before = cpu_micros(process.pid)
                outcome = dnsperf(address, questions, options.seconds, 20_000 if "at" in test else None)
                outcome["cpu"] = (cpu_micros(process.pid) - before) / max(outcome["answers"], 1)
                results.setdefault((test, name), []).append(outcome)
    print(f"{'':18}{'':9}{'CPU µs':>8}{'answers/s':>11}{'mean µs':>9}{'lost':>6}")
    for (test, name), rounds in results.items():
        median = sorted(rounds, key=lambda outcome: outcome["cpu"])[len(rounds) // 2]
        lost = sum(outcome["lost"] for outcome in rounds)
        print(f"{test:18}{name:9}{median['cpu']:8.2f}{median['rate']:11.0f}{median['latency']:9.0f}{lost:6.0f}")
    for name, (_, process) in servers.items():
        print(f"{name:9} {idle[name]:5.1f} MiB at the start, {resident(process.pid):5.1f} after the load")


if __name__ == "__main__":
    main()
