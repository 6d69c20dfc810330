#!/usr/bin/env python3
"""Joins image archives of several architectures into one, for import where no registry can be reached.

The result is an OCI layout with one image index under one name; `skopeo copy --all oci-archive:FILE …`, `podman load` and
`ctr images import` take it. The same archives give the same bytes.

Refused: an archive that is no OCI layout of one image, a blob that is not what its name says, two archives of one
architecture, and images of different names.

    join.py --output dist/oooi-0.1.0-image.tar dist/oooi-amd64.tar dist/oooi-arm64.tar
"""

import argparse
import io
import json
import os
import sys
import tarfile
from pathlib import Path

import oci

NAMES = ("io.containerd.image.name", "org.opencontainers.image.ref.name")


def read(path):
    """The blobs of an archive by their digest, and the entry of its image."""
    try:
        with tarfile.open(path) as tar:
            members = {member.name: tar.extractfile(member).read() for member in tar if member.isfile()}
        [entry] = json.loads(members["index.json"])["manifests"]
        blobs = {f"sha256:{Path(name).name}": data for name, data in members.items() if name.startswith("blobs/")}
        if entry["digest"] not in blobs or "architecture" not in entry["platform"]:
            raise KeyError("its manifest")
    except (OSError, tarfile.TarError) as error:
        raise oci.Refused(f"'{path}' cannot be read: {error}") from error
    except (KeyError, TypeError, ValueError) as error:
        raise oci.Refused(f"'{path}' is no archive of one image: {error}") from error
    for name, data in blobs.items():
        if oci.digest(data) != name:
            raise oci.Refused(f"'{path}' is damaged: {name} has another content")
    return blobs, entry


def join(paths, epoch=0):
    """One archive of several, and the digest of its index."""
    blobs, entries, names = {}, {}, set()
    for path in paths:
        of_image, entry = read(path)
        architecture = entry["platform"]["architecture"]
        if architecture in entries:
            raise oci.Refused(f"'{path}' is the second archive for {architecture}")
        blobs.update(of_image)
        annotations = entry.pop("annotations", {})
        names.add(annotations.get(NAMES[0]))
        entries[architecture] = entry
    if len(names) != 1 or None in names:
        raise oci.Refused(f"the images have different names, or none: {sorted(map(str, names))}")
    [name] = names
    manifests = [entries[architecture] for architecture in sorted(entries)]
    index = oci.document({"schemaVersion": 2, "mediaType": oci.INDEX, "manifests": manifests})
    blobs[oci.digest(index)] = index
    top = {**oci.described(oci.INDEX, index), "annotations": dict.fromkeys(NAMES, name)}
    files = {f"blobs/sha256/{key.split(':')[1]}": data for key, data in blobs.items()}
    files["index.json"] = oci.document({"schemaVersion": 2, "mediaType": oci.INDEX, "manifests": [top]})
    files["oci-layout"] = oci.document({"imageLayoutVersion": "1.0.0"})
    return oci.archive(files, epoch), oci.digest(index)


def main(arguments=None):
    """The command line."""
    parser = argparse.ArgumentParser(description="Joins image archives of several architectures into one.")
    parser.add_argument("--output", required=True, type=Path, help="the archive to write")
    parser.add_argument("archives", nargs="+", type=Path)
    options = parser.parse_args(arguments)
    try:
        data, digest = join(options.archives, int(os.environ.get("SOURCE_DATE_EPOCH", "0")))
        oci.put(options.output, data)
    except (oci.Refused, OSError, ValueError) as error:
        print(f"join.py: {error}", file=sys.stderr)
        return 1
    print(f"{options.output}: {digest} ({len(data) / 1e6:.1f} MB)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
