"""The servers of one hosted cluster, as their pods run them: prints what each exposes, by the name of its resource.

    unshare --net /usr/bin/python3 deploy/tests/scene.py OOOI ENVOY

It takes the network namespace that it is started in for its own. The manifests are those of examples/; the gateway runs
twice, by each engine. `up` is all of them in one process, which nobody scrapes by the monitors.
"""

import contextlib
import json
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

from tools import DEPLOY, fetch, until

EXAMPLES = DEPLOY.parent / "examples"
ADDRESSES = ["192.168.100.2/24", "192.168.100.3/24", "192.168.100.4/24", "192.168.100.5/24"]


def ip(*arguments):
    """ip, in this namespace."""
    subprocess.run(["ip", *arguments], check=True)


def ask(question):
    """A question of the DNS server, so that it has answered one: which of all sorts there will be nobody knows before."""
    labels = b"".join(bytes([len(label)]) + label.encode() for label in question.split("."))
    header = bytes.fromhex("1234 0100 0001 0000 0000 0000")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
        client.settimeout(5)
        client.sendto(header + labels + b"\0" + b"\0\x01\0\x01", ("192.168.100.3", 53))
        client.recv(512)


def exposed(oooi, commands):
    """Starts them side by side, waits until all are ready, and gives their pages by the same names."""
    with contextlib.ExitStack() as running:
        pages = {}
        for port, (name, arguments) in enumerate(commands.items(), 9090):
            command = [oooi, *arguments, f"--metrics-bind-address=127.0.0.1:{port}"]
            # What they log says why one is not ready.
            process = running.enter_context(subprocess.Popen(command, stdout=sys.stderr))
            running.callback(process.terminate)
            pages[name] = f"http://127.0.0.1:{port}"
        for name, page in pages.items():
            until(f"{name} is ready", lambda page=page: fetch(f"{page}/readyz") == "ok")
        ask("api.my-cluster.example.com")
        return {name: fetch(f"{page}/metrics") for name, page in pages.items()}


def main(oooi, envoy):
    """Prints the pages of the servers, and of all of them in one process."""
    ip("link", "set", "lo", "up")
    ip("link", "add", "vlan0", "type", "bridge")
    ip("link", "set", "vlan0", "up")
    for address in ADDRESSES:
        ip("address", "add", address, "dev", "vlan0")
    with tempfile.TemporaryDirectory() as directory:
        second = Path(directory) / "envoy.yaml"
        second.write_text((EXAMPLES / "proxyserver.yaml").read_text().replace("192.168.100.4", "192.168.100.5"))
        leases = ["--interface=vlan0", f"--state-dir={directory}"]
        servers = {
            "my-cluster-dhcp": ["dhcp", "-f", EXAMPLES / "dhcpserver.yaml", *leases],
            "my-cluster-dns": ["dns", "-f", EXAMPLES / "dnsserver.yaml"],
            "my-cluster-proxy": ["proxy", "-f", EXAMPLES / "proxyserver.yaml"],
            "other-cluster-proxy": ["proxy", "-f", second, "--engine=envoy", f"--envoy={envoy}"],
        }
        together = {"up": ["up", "-f", EXAMPLES / "infra.yaml", *leases]}
        print(json.dumps(exposed(oooi, servers) | exposed(oooi, together)))


if __name__ == "__main__":
    main(*sys.argv[1:])
