#!/usr/bin/env python3
"""Writes what the binary is made of as a CycloneDX document, from `cargo metadata` and Cargo.lock.

    sbom.py --target x86_64-unknown-linux-musl > oooi.cdx.json

Listed are the crates that are linked into the binary for the target: what only builds or tests it is not. The same
lock file gives the same document.
"""

import argparse
import json
import re
import subprocess
import sys
import uuid
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
BINARY = "oooi"


class Refused(Exception):
    """The document cannot be written; the message says why."""


def linked(metadata, binary):
    """The ids of the packages that are linked into a binary, and what each depends on."""
    packages = {package["id"]: package for package in metadata["packages"]}
    macros = {
        key for key, package in packages.items() if any("proc-macro" in target["kind"] for target in package["targets"])
    }
    nodes = {node["id"]: node for node in metadata["resolve"]["nodes"]}
    roots = [key for key in metadata["workspace_members"] if packages[key]["name"] == binary]
    if len(roots) != 1:
        raise Refused(f"the workspace has {len(roots)} packages '{binary}'")
    found, waiting = {}, list(roots)
    while waiting:
        key = waiting.pop()
        if key in found:
            continue
        # No kind is the ordinary one: others are `dev` and `build`.
        ordinary = [d["pkg"] for d in nodes[key]["deps"] if any(kind["kind"] is None for kind in d["dep_kinds"])]
        found[key] = sorted(set(ordinary) - macros)
        waiting += found[key]
    return roots[0], packages, found


def checksums(lock):
    """The checksum of each package of a lock file that has one, by name and version."""
    entries = {}
    for entry in lock.split("[[package]]")[1:]:
        fields = dict(re.findall(r'^(\w+) = "(.*)"$', entry, re.MULTILINE))
        if "checksum" in fields:
            entries[fields["name"], fields["version"]] = fields["checksum"]
    return entries


def component(package, hashes, kind="library"):
    """A package as CycloneDX has it."""
    name, version = package["name"], package["version"]
    purl = f"pkg:cargo/{name}@{version}"
    described = {"type": kind, "bom-ref": purl, "name": name, "version": version, "purl": purl}
    if package.get("license"):
        # Some old crates write `/` for `OR`.
        described["licenses"] = [{"expression": package["license"].replace("/", " OR ")}]
    if (name, version) in hashes:
        described["hashes"] = [{"alg": "SHA-256", "content": hashes[name, version]}]
    return described


def document(metadata, lock, target):
    """The document."""
    root, packages, found = linked(metadata, BINARY)
    hashes = checksums(lock)
    reference = {key: component(packages[key], hashes)["bom-ref"] for key in found}
    dependencies = [
        {"ref": reference[key], "dependsOn": sorted(reference[other] for other in found[key])} for key in found
    ]
    components = [component(packages[key], hashes) for key in found if key != root]
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": uuid.uuid5(uuid.NAMESPACE_OID, target + lock).urn,
        "version": 1,
        "metadata": {
            "component": component(packages[root], hashes, "application"),
            "properties": [{"name": "cargo:target", "value": target}],
        },
        "components": sorted(components, key=lambda entry: entry["bom-ref"]),
        "dependencies": sorted(dependencies, key=lambda entry: entry["ref"]),
    }


def main():
    """The command line."""
    parser = argparse.ArgumentParser(description="Writes what the binary is made of, as CycloneDX.")
    parser.add_argument("--target", default="x86_64-unknown-linux-musl", help="the triple that it is built for")
    options = parser.parse_args()
    command = ["cargo", "metadata", "--locked", "--format-version=1", f"--filter-platform={options.target}"]
    try:
        metadata = json.loads(subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, check=True).stdout)
        json.dump(document(metadata, (ROOT / "Cargo.lock").read_text(), options.target), sys.stdout, indent=1)
    except (Refused, OSError, subprocess.CalledProcessError) as error:
        print(f"sbom.py: {error}", file=sys.stderr)
        return 1
    print()
    return 0


if __name__ == "__main__":
    sys.exit(main())
