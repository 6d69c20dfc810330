"""Traffic of one kind from a tenant until it is killed: one line an attempt, `SECONDS ok` or `SECONDS reason`.

A kind is a generator that tries once, and says what failed by what it yields or raises; one that raised starts anew.

    connections HOST PORT CA   a new TLS connection and a request each time, by name: the next address where one gives no answer
    held HOST PORT CA          a request each time on one connection that is kept; a broken one is opened again
    watch HOST PORT CA CERT KEY  a watch of nodes that is kept: each time, whether it still stands
    bulk HOST PORT CA CERT KEY  a document of megabytes each time, on one connection that is kept
    names HOST                 the address of a name, from the resolvers that DHCP gave, each asked twice at most, as any client does
    leases                     a lease renewed each time, for the same address

Of several gateways or resolvers those that PREFERRED names are tried first.
"""

import http.client
import os
import signal
import socket
import ssl
import struct
import subprocess
import sys
import tempfile
import time

PAUSE = 0.1
# An address that does not answer is given up for the next one; an answer that is late on a busy machine is not lost.
TIMEOUT = 2
PATIENCE = 10
PREFERRED = os.environ["PREFERRED"].split()


def connect(address, host, ca, certificate=None):
    """One connection to an address."""
    context = ssl.create_default_context(cafile=ca)
    if certificate:
        context.load_cert_chain(*certificate)
    plain = socket.create_connection(address, TIMEOUT)
    plain.settimeout(PATIENCE)
    # A peer that vanished is noticed within PATIENCE, also where nobody sends.
    plain.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (socket.TCP_KEEPIDLE, 5), (socket.TCP_KEEPINTVL, 1), (socket.TCP_KEEPCNT, 5):
        plain.setsockopt(socket.IPPROTO_TCP, option, value)
    connection = http.client.HTTPSConnection(host, address[1])
    connection.sock = context.wrap_socket(plain, server_hostname=host)
    return connection


def first(host, port, attempt):
    """What the first address gives that does not fail: a client tries the next one."""
    failed = None
    found = socket.getaddrinfo(host, port, socket.AF_INET, socket.SOCK_STREAM)
    for address in sorted((one[-1] for one in found), key=lambda address: address[0] not in PREFERRED):
        try:
            return attempt(address)
        except (OSError, http.client.HTTPException) as error:
            failed = error
    raise failed


def ask(connection, path="/"):
    connection.request("GET", path)
    answer = connection.getresponse()
    answer.read()
    if answer.status != 200:
        raise OSError(f"status {answer.status}")


def connections(host, port, ca):
    def once(address):
        connection = connect(address, host, ca)
        ask(connection)
        connection.close()

    while True:
        first(host, port, once)
        yield


def held(host, port, ca):
    connection = first(host, port, lambda address: connect(address, host, ca))
    while True:
        ask(connection)
        yield


def watch(host, port, ca, certificate, key):
    stream = first(host, port, lambda address: connect(address, host, ca, (certificate, key))).sock
    request = f"GET /api/v1/nodes?watch=1&allowWatchBookmarks=1 HTTP/1.1\r\nHost: {host}\r\n\r\n"
    stream.sendall(request.encode())
    status = stream.recv(65536).split(b"\r\n")[0]
    if b" 200 " not in status:
        raise OSError(f"answer {status}")
    stream.settimeout(0.001)
    while True:
        try:
            if not stream.recv(65536):
                raise ConnectionResetError("the watch ended")
        except TimeoutError:
            pass
        yield


def bulk(host, port, ca, certificate, key):
    connection = first(host, port, lambda address: connect(address, host, ca, (certificate, key)))
    while True:
        ask(connection, "/openapi/v2")
        yield


def names(host):
    with open("/etc/resolv.conf") as file:
        servers = [line.split()[1] for line in file if line.startswith("nameserver")]
    servers.sort(key=lambda server: server not in PREFERRED)
    labels = b"".join(bytes([len(label)]) + label.encode() for label in host.split("."))
    number = 0
    while True:
        number = (number + 1) % 65536
        query = struct.pack("!6H", number, 0x0100, 1, 0, 0, 0) + labels + b"\0\0\1\0\1"
        answered = None
        for server in servers * 2:
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
                s.settimeout(1)
                try:
                    s.connect((server, 53))
                    s.send(query)
                    answered = s.recv(4096)
                    break
                except OSError as error:
                    refused = error
        if answered is None:
            raise refused
        if answered[:2] != query[:2] or answered[3] & 15 or not int.from_bytes(answered[6:8], "big"):
            raise OSError(f"answer {answered.hex()}")
        yield


def leases():
    with tempfile.TemporaryDirectory() as directory:
        events, script = f"{directory}/events", f"{directory}/script"
        with open(script, "w") as file:
            file.write(
                '#!/bin/sh\ncase $1 in bound|renew) ip address replace "$ip/$mask" dev eth0; '
                f"echo $ip >> {events};; esac\n"
            )
        os.chmod(script, 0o755)
        client = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", "udhcpc", "-f", "-i", "eth0", "-s", script, "-t", "3", "-T", "1", "-A", "1"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        seen, first = 0, None

        def addresses():
            if not os.path.exists(events):
                return []
            with open(events) as file:
                return file.read().split()

        while True:
            late = time.monotonic() + (30 if seen == 0 else 4)
            while len(addresses()) == seen and time.monotonic() < late:
                if client.poll() is not None:
                    raise SystemExit("udhcpc ended")
                time.sleep(0.02)
            heard = addresses()
            first = first or (heard or [None])[0]
            if len(heard) == seen:
                yield "no answer to a renewal"
            else:
                yield None if heard[-1] == first else f"{heard[-1]} instead of {first}"
            seen = len(heard)
            time.sleep(0.5)
            client.send_signal(signal.SIGUSR1)


def main():
    kinds = {"connections": connections, "held": held, "watch": watch, "bulk": bulk, "names": names, "leases": leases}
    kind, arguments = kinds[sys.argv[1]], sys.argv[2:]
    attempts = kind(*arguments)
    while True:
        try:
            said = next(attempts) or "ok"
        except (OSError, http.client.HTTPException) as error:
            said = f"{type(error).__name__} {error}"
            attempts = kind(*arguments)
        # In one piece: whoever reads between a line and its end would count an empty one.
        os.write(1, f"{time.monotonic():.3f} {said}\n".encode())
        time.sleep(PAUSE)


main()
