#!/usr/bin/env python3
"""Compares the memory of the shipped binary with that of the peers: at rest, and with what a large site gives them.

Needs root, the Debian packages of `testbed/packages clients bench`, CoreDNS (`make bench-footprint` builds it) and the
static binary of `make image`.
Usage: bench/footprint.py [--binary PATH]

DHCP holds 10,000 leases, DNS 10,000 names of others in its cache. Memory is proportional (what is shared counts once);
how much of it is not backed by a file stands beside. What a gateway takes is in bench/proxy.py.
"""

import argparse
import re
import subprocess
import tempfile
import time

import dhcp
import dns
from common import HERE, ROOT, Failed, Processes, first, publish, run, summaries, table, tree, version

LEASES, NAMES = 10_000, 10_000
# A server gives back what only its start needed three seconds after it.
SETTLED = 5

SERVER = """apiVersion: hostedcluster.densityops.com/v1alpha1
kind: {kind}
metadata: {{name: bench, namespace: bench}}
spec:
"""
DNS_SERVER = """  networkConfig: {serverIP: 192.0.2.3/24, proxyIP: 192.0.2.4, networkAttachmentName: none}
  hostedClusterDomain: bench.example
  staticEntries: [{hostname: api.bench.example, ip: 192.0.2.4}]
  upstreamDNS: ["UPSTREAM"]
"""


def memory(pid):
    """MiB of a process and those below it: all, and what no file backs."""
    total = {"Pss": 0, "Pss_Anon": 0}
    for one in tree(pid):
        with open(f"/proc/{one}/smaps_rollup") as file:
            text = file.read()
        for part in total:
            total[part] += int(re.search(rf"^{part}:\s+(\d+)", text, re.M).group(1)) / 1024
    return total["Pss"], total["Pss_Anon"]


def at_rest(pid):
    time.sleep(SETTLED)  # the figure is what is left once nothing happens
    return memory(pid)


def figures(before, after):
    return {"rest": before[0], "rest anonymous": before[1], "loaded": after[0], "loaded anonymous": after[1]}


def of_dhcp(processes, binary):
    """DHCP servers at rest and with 10,000 leases."""
    spec = "".join(f"  {line}\n" for line in (HERE / "peers/dhcp/oooi.yaml").read_text().splitlines())
    manifest = processes.write("dhcp/server.yaml", SERVER.format(kind="DHCPServer") + spec + "    networkAttachmentName: none\n")
    own = lambda _, folder: [binary, "dhcp", "-f", manifest, "--interface", "eth0", "--state-dir", folder]
    rows = {}
    for name, command in {"oooi dhcp": own, "Kea": dhcp.kea, "dnsmasq, DHCP": dhcp.dnsmasq}.items():
        dhcp.COMMANDS[name] = command
        folder = processes.folder / re.sub(r"\W+", "", name)
        folder.mkdir()
        contender = dhcp.Contender(processes, name)
        contender.start(folder)
        before = at_rest(contender.process.pid)
        # dnsmasq writes all its leases for each one: 10,000 would take it hours.
        wanted, rate = (500, 200) if name.startswith("dnsmasq") else (LEASES, 2000)
        held = 0
        while held < wanted:
            held += contender.load(rate, 2)["leases"]
        rows[name] = [figures(before, at_rest(contender.process.pid))]
        contender.stop()
    return rows


def of_dns(processes, binary, coredns):
    """DNS servers at rest and with 10,000 names in the cache."""
    bench = dns.Bench(processes, coredns)
    bench.knot("upstream", "1", dns.UPSTREAM, "example.org", dns.FOREIGN_ZONE)
    spec = DNS_SERVER.replace("UPSTREAM", f"{dns.UPSTREAM}:{dns.PORT}")
    manifest = processes.write("dns/server.yaml", SERVER.format(kind="DNSServer") + spec)
    address = "127.90.0.2"
    bench.start("oooi dns", address, [binary, "dns", "-f", manifest, "--listen", f"{address}:{dns.PORT}"])
    path = bench.settings("unbound", "unbound.conf", ADDRESS="127.90.0.4")
    bench.start("unbound", "127.90.0.4", ["unbound", "-d", "-c", path])
    processes.write("CoreDNS/zone", dns.OWN_ZONE)
    path = bench.settings("CoreDNS", "Corefile", ADDRESS="127.90.0.5")
    bench.start("CoreDNS", "127.90.0.5", [coredns, "-quiet", "-conf", path], GOMAXPROCS="1")
    questions = processes.write("names", "".join(f"f{at}.wild.example.org A\n" for at in range(NAMES)))
    rows = {}
    for name in ("oooi dns", "unbound", "CoreDNS"):
        where, process = bench.servers[name]
        before = at_rest(process.pid)
        ask = ["dnsperf", "-s", where, "-p", str(dns.PORT), "-d", questions, "-n", "1", "-c", "8", "-q", "100"]
        subprocess.run([*first(), *ask], capture_output=True, check=True)
        rows[name] = [figures(before, at_rest(process.pid))]
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", default=ROOT / "target/x86_64-unknown-linux-musl/release/oooi")
    parser.add_argument("--coredns", default=ROOT / "target/bench/coredns")
    options = parser.parse_args()
    for path in (options.binary, options.coredns):
        if not subprocess.run(["test", "-x", path], check=False).returncode == 0:
            raise Failed(f"{path} is missing: run `make bench-footprint`")
    versions = {
        "Kea": version(["kea-dhcp4", "-v"]),
        "dnsmasq": version(["dnsmasq", "--version"]),
        "unbound": version(["unbound", "-V"]),
        "CoreDNS": version([str(options.coredns), "-version"]),
    }
    with tempfile.TemporaryDirectory(dir=ROOT / "target") as folder, Processes(folder) as processes:
        print("DHCP", flush=True)
        rows = of_dhcp(processes, options.binary)
        print("DNS", flush=True)
        rows.update(of_dns(processes, options.binary, options.coredns))
    report(summaries(rows), versions)


def report(rows, versions):
    columns = [
        ("MiB at rest", "rest", 1),
        ("of it anonymous", "rest anonymous", 1),
        ("MiB loaded", "loaded", 1),
        ("of it anonymous", "loaded anonymous", 1),
    ]
    text = "\n\n".join(
        [
            f"Processes of the static binary that ships, beside the peers. Loaded is {LEASES:,} leases (500 for dnsmasq, "
            f"which writes all of them anew for each) or {NAMES:,} names in the cache.",
            table(columns, rows),
        ]
    )
    publish("footprint", "Memory", {"rounds": 1, "versions": versions, "figures": rows}, text)


if __name__ == "__main__":
    run(main)
