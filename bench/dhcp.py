#!/usr/bin/env python3
"""Compares this DHCP server with Kea, ISC dhcpd, dnsmasq and a bare responder, all in one run.

Needs root, the Debian packages of `testbed/packages bench`, and
    cargo build --release -p oooi-dhcp --example serve --example dhcp_floor --example dhcp_load
Usage: bench/dhcp.py [--quick] [--rounds 3] [--seconds 4]

Every server is alone in a network namespace, with perfdhcp at the other end of a veth pair. Servers share the first
core, perfdhcp has the second. Each round starts every server anew, and the contenders take turns in each part. perfdhcp
speaks as a relay and every client is new, so that each of its exchanges of four messages is one lease more.

The fastest answer more than perfdhcp can ask. So each server also meets a load of our own, in which so many clients ask
at once and each is followed by the next: what it does then is what it can do.
"""

import argparse
import math
import random
import re
import subprocess
import tempfile

from common import HERE, ROOT, Failed, Processes, cpu_micros, first, goals, memory_mib, middle, publish, ratio, run, summaries, table, version

SERVER, CLIENT = "10.0.0.2", "10.0.0.9"
QUIET = 200
# Clients that ask at once where a server is to show what it can do; for how many seconds, or until the pool of 130,000
# has no more than a quarter left.
CROWD, SECONDS, LEASES = 128, 3, 100_000
MOST_DROPPED = 0.01
# What is tried for the most leases a second, from a place near where each contender was found; a step takes 2 s.
# All steps together must not empty the pool of 130,000 addresses, so that they are far apart where the rates are high.
LADDER = [100, 200, 300, 375, 500, 750, 1000, 1500, 2000, 3000, 4000, 4500, 5000, 5500, 6000, 7000, 8000, 10_000, 12_000, 14_000]
START = {"oooi": 8000, "floor": 8000, "floor, not synced": 8000, "Kea": 4500, "dhcpd": 500, "dnsmasq": 300}


class Contender:
    """A server in a namespace of its own, and the client's end of its wire."""

    def __init__(self, processes, name):
        self.processes, self.name = processes, name
        tag = re.sub(r"\W+", "", name)
        self.server = processes.namespace(f"{tag}-s")
        self.client = processes.namespace(f"{tag}-c")
        add = ["ip", "-n", self.server, "link", "add", "eth0", "type", "veth", "peer", "name", "eth0"]
        subprocess.run([*add, "netns", self.client], check=True)
        for namespace, address in [(self.server, SERVER), (self.client, CLIENT)]:
            subprocess.run(["ip", "-n", namespace, "address", "add", f"{address}/15", "dev", "eth0"], check=True)
            subprocess.run(["ip", "-n", namespace, "link", "set", "eth0", "up"], check=True)
        self.process = None
        self.macs = random.Random(name)

    def start(self, folder):
        """Starts it with nothing leased."""
        self.process = self.processes.spawn(
            self.name, COMMANDS[self.name](self.processes, folder), core=0, namespace=self.server
        )
        self.processes.until(f"{self.name} answers", lambda: self.load(20, 1)["leases"] > 0)

    def stop(self):
        self.processes.end(self.process)

    def load(self, rate, seconds):
        """Lets clients that nobody has seen ask at this rate; what came of it."""
        base = ":".join(f"{self.macs.randrange(256):02x}" for _ in range(3))
        command = ["ip", "netns", "exec", self.client, *first(), "taskset", "-c", "1", "perfdhcp", "-4", "-g", "single"]
        command += ["-r", str(rate), "-R", "16000000", "-b", f"mac=02:{base}:00:00", "-p", str(seconds)]
        command += ["-W", "300000", "-l", CLIENT, SERVER]
        text = subprocess.run(command, capture_output=True, text=True, check=False).stdout
        if "REQUEST-ACK" not in text:
            return {"leases": 0, "sent": 0, "drops": 1.0, "delay": None}
        asked, granted = text.split("Statistics for: REQUEST-ACK")
        number = lambda label, part: float(re.search(label + r":\s+([\d.]+)", part).group(1))
        sent, leases = number("sent packets", asked), number("received packets", granted)
        delay = re.search(r"avg delay:\s+([\d.]+)", granted)
        return {
            "leases": leases,
            "sent": sent,
            "drops": 1 - leases / sent if sent else 1.0,
            "delay": float(delay.group(1)) * 1000 if delay else None,
        }

    def measured(self, rate, seconds):
        """The same, with the server's CPU time for each lease."""
        before = cpu_micros(self.process.pid)
        outcome = self.load(rate, seconds)
        outcome["cpu"] = (cpu_micros(self.process.pid) - before) / max(outcome["leases"], 1)
        return outcome

    def asked_by(self, clients, leases):
        """What comes of so many clients that ask without a pause, each followed by the next."""
        command = ["ip", "netns", "exec", self.client, *first(), "taskset", "-c", "1", program("dhcp_load"), SERVER, CLIENT]
        command += [clients, SECONDS, leases, self.macs.randrange(1 << 16)]
        before = cpu_micros(self.process.pid)
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=True)
        cpu = cpu_micros(self.process.pid) - before
        leases, _, seconds, p50, p99, p999 = map(float, done.stdout.split())
        return {"rate": leases / seconds, "cpu": cpu / max(leases, 1), "p50": p50, "p99": p99, "p99.9": p999}

    def ceiling(self):
        """The most leases a second with at most one in a hundred lost, by steps up or down.

        A step that fails is tried once more: a neighbour who stops the disk for a moment decides one try, seldom two.
        """
        at = LADDER.index(START[self.name])
        best, step = None, 1
        while 0 <= at < len(LADDER):
            outcome = self.measured(LADDER[at], 2)
            if outcome["drops"] > MOST_DROPPED:
                outcome = self.measured(LADDER[at], 2)
            if outcome["drops"] <= MOST_DROPPED:
                best = {**outcome, "rate": outcome["leases"] / 2}
                if step < 0:
                    break
            elif best:
                break
            else:
                step = -1
            at += step
        return best


def oooi(_, folder):
    state = folder / "oooi"
    state.mkdir()
    return [program("serve"), HERE / "peers/dhcp/oooi.yaml", "eth0", state]


def floor(_, folder):
    return [program("dhcp_floor"), SERVER, folder / "floor.journal"]


def bare_floor(_, __):
    return [program("dhcp_floor"), SERVER, "-"]


def settings(name, folder):
    """A peer's settings, with the folder of this round in them."""
    text = (HERE / "peers/dhcp" / name).read_text().replace("@FOLDER@", str(folder))
    path = folder / name
    path.write_text(text)
    return path


def kea(_, folder):
    # It wants its locks and pid where it may write.
    command = ["env", f"KEA_PIDFILE_DIR={folder}", f"KEA_LOCKFILE_DIR={folder}", f"KEA_LOGGER_DESTINATION=stdout"]
    return [*command, "kea-dhcp4", "-c", settings("kea.json", folder)]


def dhcpd(_, folder):
    leases = folder / "dhcpd.leases"
    leases.touch()
    return ["dhcpd", "-4", "-f", "-q", "--no-pid", "-user", "root", "-group", "root", "-cf", settings("dhcpd.conf", folder), "-lf", leases, "eth0"]


def dnsmasq(_, folder):
    return ["dnsmasq", "--keep-in-foreground", "--user=root", "--pid-file=", "-C", settings("dnsmasq.conf", folder)]


COMMANDS = {
    "floor, not synced": bare_floor,
    "floor": floor,
    "oooi": oooi,
    "Kea": kea,
    "dhcpd": dhcpd,
    "dnsmasq": dnsmasq,
}
PEERS = ["Kea", "dhcpd", "dnsmasq"]


def program(name):
    path = ROOT / "target/release/examples" / name
    if not path.exists():
        raise Failed(f"{path} is missing: run `make bench-dhcp`")
    return path


def one_round(contenders, folder, seconds):
    """Every figure of one round, by contender."""
    for contender in contenders:
        contender.start(folder)
    figures = {contender.name: {"idle": memory_mib(contender.process.pid)} for contender in contenders}
    for contender in contenders:
        quiet = contender.measured(QUIET, seconds)
        figures[contender.name].update({"quiet": quiet["cpu"], "delay": quiet["delay"]})
    for contender in contenders:
        best = contender.ceiling()
        if best:
            figures[contender.name].update({"full": best["cpu"], "rate": best["rate"]})
    for contender in contenders:
        contender.stop()
    place = folder / "crowd"
    place.mkdir()
    for contender in contenders:
        contender.start(place)
        alone = contender.asked_by(1, 10_000)
        figures[contender.name].update({key: alone[key] for key in ("p50", "p99", "p99.9")})
        crowd = contender.asked_by(CROWD, LEASES)
        figures[contender.name].update({"crowd rate": crowd["rate"], "crowd cpu": crowd["cpu"]})
        contender.stop()
    return figures


def growth(contenders, folder, sizes):
    """Cost of a lease while so many are held, and memory with them. Only for those that get there in time."""
    figures = {}
    for contender in contenders:
        contender.start(folder)
        held, row = 10, {}
        for size in sizes:
            rate = 5000 if contender.name != "Kea" else 2500
            while held < size:
                seconds = max(1, min(10, math.ceil((size - held) / rate)))
                held += contender.load(rate, seconds)["leases"]
            row[f"cpu at {size}"] = contender.measured(QUIET, 3)["cpu"]
            row[f"MiB at {size}"] = memory_mib(contender.process.pid)
        contender.stop()
        figures[contender.name] = [row]
    return figures


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=int, default=4)
    parser.add_argument("--quick", action="store_true", help="one round, and up to 10,000 leases: two minutes")
    parser.add_argument("--only", nargs="+", choices=list(COMMANDS), default=list(COMMANDS))
    options = parser.parse_args()
    rounds = 1 if options.quick else options.rounds
    sizes = [10, 10_000] if options.quick else [10, 1000, 10_000, 60_000]
    versions = {
        "Kea": version(["kea-dhcp4", "-v"]),
        "dhcpd": version(["dhcpd", "--version"]),
        "dnsmasq": version(["dnsmasq", "--version"]),
        "perfdhcp": version(["perfdhcp", "-v"]),
    }
    collected = {name: [] for name in options.only}
    # Beside the repository's build: a disk, as a state directory is on one, and not memory.
    with tempfile.TemporaryDirectory(dir=ROOT / "target") as folder, Processes(folder) as processes:
        contenders = [Contender(processes, name) for name in options.only]
        for number in range(rounds):
            print(f"round {number + 1} of {rounds}", flush=True)
            place = processes.folder / str(number)
            place.mkdir()
            for name, figures in one_round(contenders, place, options.seconds).items():
                collected[name].append(figures)
        place = processes.folder / "growth"
        place.mkdir()
        print("growth", flush=True)
        growing = [contender for contender in contenders if contender.name in ("oooi", "floor", "Kea")]
        grown = summaries(growth(growing, place, sizes))
    report(summaries(collected), grown, sizes, rounds, versions)


def flatness(grown, sizes):
    """The most that a lease cost while leases grew, of what it cost with the fewest."""
    costs = [middle(grown, "oooi", f"cpu at {size}") for size in sizes]
    return max(costs) / costs[0] if all(costs) else None


def report(figures, grown, sizes, rounds, versions):
    columns = [
        (f"CPU µs / lease at {QUIET}/s", "quiet", 0),
        ("at its full rate", "full", 0),
        ("most leases / s of perfdhcp", "rate", 0),
        ("CPU µs / lease in a crowd", "crowd cpu", 0),
        ("leases / s in a crowd", "crowd rate", 0),
        ("MiB at start", "idle", 1),
    ]
    tails = [
        (f"mean µs at {QUIET}/s", "delay", 0),
        ("p50 µs, one client at a time", "p50", 0),
        ("p99", "p99", 0),
        ("p99.9", "p99.9", 0),
    ]
    held = [(f"CPU µs / lease, {size:,} held", f"cpu at {size}", 0) for size in sizes]
    held += [(f"MiB, {size:,} held", f"MiB at {size}", 1) for size in sizes[-2:]]
    ratios = {
        "quiet, of the synced floor": ratio(figures, "quiet", "oooi", ["floor"]),
        "at full rate, of the synced floor": ratio(figures, "full", "oooi", ["floor"]),
        "quiet, of Kea": ratio(figures, "quiet", "oooi", ["Kea"]),
        "at full rate, of Kea": ratio(figures, "full", "oooi", ["Kea"]),
        "in a crowd, of the synced floor": ratio(figures, "crowd cpu", "oooi", ["floor"]),
        "in a crowd, of Kea": ratio(figures, "crowd cpu", "oooi", ["Kea"]),
        "rate in a crowd, of Kea's": ratio(figures, "crowd rate", "oooi", ["Kea"]),
    }
    said = "; ".join(f"{what}: {value:.2f}" for what, value in ratios.items() if value)
    text = "\n\n".join(
        [
            "Floor, oooi, dhcpd and dnsmasq synchronise each lease before its ACK; Kea and the floor of that name do not.",
            table(columns, figures),
            f"A crowd is {CROWD} clients at once, each followed by the next as soon as it has its lease. perfdhcp itself can "
            "ask no faster than some 14,000 a second on a core.",
            "From REQUEST to ACK:",
            table(tails, figures),
            f"oooi's share: {said}.",
            "What a lease costs at 200 a second while more and more are held:",
            table(held, grown),
            goals(
                [
                    ("CPU for a lease when quiet, of the synced floor: within 1.3", ratios["quiet, of the synced floor"], 1.3, 2),
                    ("the same in a crowd: within 1.3", ratios["in a crowd, of the synced floor"], 1.3, 2),
                    ("the same at what perfdhcp can ask: within 1.3", ratios["at full rate, of the synced floor"], 1.3, 2),
                    ("below Kea, which does not synchronise, when quiet", ratios["quiet, of Kea"], 1, 2),
                    ("below Kea in a crowd", ratios["in a crowd, of Kea"], 1, 2),
                    ("leases a second: at least twice Kea's", ratios["rate in a crowd, of Kea's"], ">=2", 1),
                    ("MiB with 10,000 leases: under 10", middle(grown, "oooi", "MiB at 10000"), 10, 1),
                    (f"cost flat from 10 to {sizes[-1]:,} leases: within 1.3", flatness(grown, sizes), 1.3, 2),
                ]
            ),
        ]
    )
    result = {"rounds": rounds, "versions": versions, "figures": figures, "grown": grown, "ratios": ratios}
    publish("dhcp", "DHCP", result, text)


if __name__ == "__main__":
    run(main)
