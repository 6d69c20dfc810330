#!/usr/bin/env python3
"""Packs files into a reproducible OCI image archive, with nothing but Python's standard library.

The same files and options give the same bytes: entries are sorted, every timestamp is
SOURCE_DATE_EPOCH (else 0), owners are root, and gzip carries no time and no name. One image is one
layer; there is no base image. A file capability is kept in the layer as the PAX record
`SCHILY.xattr.security.capability`, the form that container runtimes restore on unpacking.

Refused: a source that is no regular file, a target that is not absolute or is named twice, a
capability of an unknown name or for a file that is not in the image.

    oci.py --output dist/oooi-amd64.tar --name example.test/oooi:dev --arch amd64 \\
        --user 65532:65532 --file target/release/oooi:/oooi --capability /oooi=cap_net_raw=p \\
        --entrypoint /oooi --label org.opencontainers.image.title=oooi
"""

import argparse
import dataclasses
import gzip
import hashlib
import io
import json
import os
import posixpath
import re
import stat
import struct
import sys
import tarfile
import time
from pathlib import Path

LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"
CONFIG = "application/vnd.oci.image.config.v1+json"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
INDEX = "application/vnd.oci.image.index.v1+json"

# linux/capability.h. Only what a network server may ask for; a longer list would invite more.
CAPABILITIES = {"cap_net_bind_service": 10, "cap_net_admin": 12, "cap_net_raw": 13}
ARCHITECTURES = ["amd64", "arm64", "ppc64le", "s390x"]
VFS_CAP_REVISION_2 = 0x02000000
VFS_CAP_FLAGS_EFFECTIVE = 0x000001


class Refused(Exception):
    """The image cannot be built as asked; the message says why and what to change."""


@dataclasses.dataclass
class Image:
    """What an image holds. `files` maps an absolute path to (content, mode); `links` to a target."""

    name: str
    arch: str = "amd64"
    user: str = "65532:65532"
    entrypoint: list = dataclasses.field(default_factory=list)
    command: list = dataclasses.field(default_factory=list)
    env: list = dataclasses.field(default_factory=list)
    labels: dict = dataclasses.field(default_factory=dict)
    files: dict = dataclasses.field(default_factory=dict)
    links: dict = dataclasses.field(default_factory=dict)
    capabilities: dict = dataclasses.field(default_factory=dict)
    epoch: int = 0


def capability_xattr(text):
    """The bytes of security.capability for `cap_net_raw=p` (or `cap_net_raw,cap_net_admin=ep`)."""
    names, separator, flags = text.partition("=")
    if not separator or flags not in ("p", "ep"):
        raise Refused(f"capability '{text}': write NAME[,NAME]=p (permitted) or =ep (also effective)")
    permitted = 0
    for name in names.split(","):
        if name not in CAPABILITIES:
            raise Refused(f"capability '{name}' is not known; known are {', '.join(sorted(CAPABILITIES))}")
        permitted |= 1 << CAPABILITIES[name]
    magic = VFS_CAP_REVISION_2 | (VFS_CAP_FLAGS_EFFECTIVE if flags == "ep" else 0)
    low, high = permitted & 0xFFFFFFFF, permitted >> 32
    return struct.pack("<IIIII", magic, low, 0, high, 0)


def layer(image):
    """The layer as an uncompressed tar: parents first, then files and links, sorted by path."""
    entries = {**image.files, **image.links}
    for path in [*entries, *image.capabilities]:
        if not path.startswith("/") or posixpath.normpath(path) != path or path == "/":
            raise Refused(f"'{path}' is not a plain absolute path inside the image")
    if both := set(image.files) & set(image.links):
        raise Refused(f"{sorted(both)} are named both as file and as link")
    if missing := set(image.capabilities) - set(image.files):
        raise Refused(f"{sorted(missing)} have a capability but are no files of the image")
    directories = {str(parent) for path in entries for parent in Path(path).parents if str(parent) != "/"}
    if shadowed := directories & set(entries):
        raise Refused(f"{sorted(shadowed)} are named as files, and other files lie below them")

    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for path in sorted(directories | set(entries)):
            info = tarfile.TarInfo(path.lstrip("/"))
            info.mtime = image.epoch
            if path in directories:
                info.type, info.mode = tarfile.DIRTYPE, 0o755
                tar.addfile(info)
            elif path in image.links:
                info.type, info.mode, info.linkname = tarfile.SYMTYPE, 0o777, image.links[path]
                tar.addfile(info)
            else:
                content, info.mode = image.files[path]
                info.size = len(content)
                if path in image.capabilities:
                    value = capability_xattr(image.capabilities[path])
                    info.pax_headers["SCHILY.xattr.security.capability"] = value.decode(
                        "utf-8", "surrogateescape"
                    )
                tar.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


def digest(data):
    """The OCI digest of some bytes."""
    return "sha256:" + hashlib.sha256(data).hexdigest()


def document(value):
    """JSON with one possible spelling, so that its digest is stable."""
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def described(kind, data):
    """A descriptor: how one OCI document refers to another blob."""
    return {"mediaType": kind, "digest": digest(data), "size": len(data)}


def pack(image):
    """The image as the bytes of an OCI archive, and the digest of its manifest."""
    plain = layer(image)
    packed = gzip.compress(plain, compresslevel=6, mtime=0)
    created = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(image.epoch))
    settings = {"User": image.user, "Labels": image.labels, "Env": image.env, "WorkingDir": "/"}
    if image.entrypoint:
        settings["Entrypoint"] = image.entrypoint
    if image.command:
        settings["Cmd"] = image.command
    config = document(
        {
            "architecture": image.arch,
            "os": "linux",
            "created": created,
            "config": settings,
            "rootfs": {"type": "layers", "diff_ids": [digest(plain)]},
            "history": [{"created": created, "created_by": "oci.py"}],
        }
    )
    manifest = document(
        {
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": described(CONFIG, config),
            "layers": [described(LAYER, packed)],
            "annotations": image.labels,
        }
    )
    index = document(
        {
            "schemaVersion": 2,
            "mediaType": INDEX,
            "manifests": [
                {
                    **described(MANIFEST, manifest),
                    "platform": {"architecture": image.arch, "os": "linux"},
                    "annotations": {
                        # The first is read by containerd, the second is the standard's own.
                        "io.containerd.image.name": image.name,
                        "org.opencontainers.image.ref.name": image.name,
                    },
                }
            ],
        }
    )
    members = {f"blobs/sha256/{digest(blob).split(':')[1]}": blob for blob in (config, packed, manifest)}
    members["index.json"] = index
    members["oci-layout"] = document({"imageLayoutVersion": "1.0.0"})

    return archive(members, image.epoch), digest(manifest)


def archive(members, epoch):
    """Files by name as the bytes of an OCI archive."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for name in ("blobs", "blobs/sha256"):
            info = tarfile.TarInfo(name)
            info.type, info.mode, info.mtime = tarfile.DIRTYPE, 0o755, epoch
            tar.addfile(info)
        for name in sorted(members):
            info = tarfile.TarInfo(name)
            info.size, info.mode, info.mtime = len(members[name]), 0o644, epoch
            tar.addfile(info, io.BytesIO(members[name]))
    return buffer.getvalue()


def put(path, data):
    """Writes a file in one step, so that nobody finds half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    partial.write_bytes(data)
    partial.rename(path)


def read_file(argument):
    """`SOURCE:/target` as (target, (content, mode)); the mode is 0755 for a program, else 0644."""
    source, separator, target = argument.partition(":")
    if not separator:
        raise Refused(f"--file '{argument}': write SOURCE:/path/in/the/image")
    try:
        kind = os.stat(source).st_mode
        if not stat.S_ISREG(kind):
            raise Refused(f"'{source}' is not a regular file")
        return target, (Path(source).read_bytes(), 0o755 if kind & 0o111 else 0o644)
    except OSError as error:
        raise Refused(f"cannot read '{source}': {error.strerror}") from error


def pairs(arguments, option, read=None):
    """Repeated KEY=VALUE arguments as a dictionary; a key named twice is refused."""
    result = {}
    for argument in arguments:
        key, value = read(argument) if read else argument.split("=", 1) if "=" in argument else (argument, None)
        if value is None:
            raise Refused(f"{option} '{argument}': write KEY=VALUE")
        if key in result:
            raise Refused(f"{option} names '{key}' twice")
        result[key] = value
    return result


def main(arguments=None):
    """The command line: reads the files, packs the image, and puts it in place in one step."""
    parser = argparse.ArgumentParser(description="Packs files into a reproducible OCI image archive.")
    parser.add_argument("--output", required=True, type=Path, help="the archive to write")
    parser.add_argument("--name", required=True, help="the reference under which a node finds the image")
    parser.add_argument("--arch", default="amd64", choices=ARCHITECTURES)
    parser.add_argument("--user", default="65532:65532", help="UID:GID, numbers only")
    parser.add_argument("--file", action="append", default=[], metavar="SOURCE:/TARGET")
    parser.add_argument("--link", action="append", default=[], metavar="/PATH=TARGET", help="a symbolic link")
    parser.add_argument("--capability", action="append", default=[], metavar="/TARGET=NAME=p")
    parser.add_argument("--label", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--env", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--entrypoint", action="append", default=[], help="one word; may repeat")
    parser.add_argument("--command", action="append", default=[], help="one default argument; may repeat")
    options = parser.parse_args(arguments)
    try:
        if not re.fullmatch(r"\d+:\d+", options.user):
            raise Refused(f"--user '{options.user}': write UID:GID; a name cannot be checked by runAsNonRoot")
        image = Image(
            name=options.name,
            arch=options.arch,
            user=options.user,
            entrypoint=options.entrypoint,
            command=options.command,
            env=options.env,
            labels=pairs(options.label, "--label"),
            files=pairs(options.file, "--file", read_file),
            links=pairs(options.link, "--link"),
            capabilities=pairs(options.capability, "--capability"),
            epoch=int(os.environ.get("SOURCE_DATE_EPOCH", "0")),
        )
        packed, manifest = pack(image)
        put(options.output, packed)
    except (Refused, OSError, ValueError) as error:
        print(f"oci.py: {error}", file=sys.stderr)
        return 1
    print(f"{options.output}: {options.name} {manifest} ({len(packed) / 1e6:.1f} MB)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
