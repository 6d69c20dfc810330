#!/usr/bin/env python3
"""Says at once when the disk has no room for what a run of all tests writes, not in the middle of it.

    tools/room.py

Each place takes what it took in a run from nothing; what is there already is not needed again. It fails only where less
is free than is certainly missing.
"""

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
GIB = 2**30
# Logs, data of control planes, and tests that are linked again.
ALWAYS = GIB
MAY_GO = "old checkouts, `cargo clean`, `rm -r fuzz/target dist`, `testbed/build --prune`, `go clean -cache`"


@dataclass
class Place:
    """Where a run writes: how much it takes from nothing, how much of it is there, on which file system."""

    path: Path
    takes: int
    has: int
    disk: int

    def missing(self):
        return max(0, self.takes - self.has)


def verdict(places, free):
    """What to tell about each file system, by its number in `free`, and whether there is room enough."""
    lines, enough = [], True
    for disk, room in free.items():
        here = [place for place in places if place.disk == disk]
        needed = ALWAYS + sum(place.missing() for place in here)
        lines.append(f"{here[0].path}: {room / GIB:.1f} GiB are free, about {needed / GIB:.1f} GiB will be written")
        if room < needed:
            enough = False
            lines += [f"  {place.missing() / GIB:.1f} GiB into {place.path}" for place in here if place.missing()]
            lines.append(f"there is too little room: free {(needed - room) / GIB:.1f} GiB more; what may go: {MAY_GO}")
    return lines, enough


def standing(path):
    """The path, or what there is of it."""
    return path if path.exists() else standing(path.parent)


def size(path):
    """How much a folder takes; others may write into it meanwhile."""
    du = subprocess.run(["du", "-s", "--block-size=1", path], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False)
    return int((du.stdout.split() or [0])[0])


def asked(*command):
    """What a program prints; nothing if it is not there or fails."""
    try:
        return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


def measured():
    """The places of a run on this machine, with what each took on amd64."""
    home = Path.home()
    takes = {
        # Half of it are test programs; then the release build of the node tests.
        Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")): 9.5,
        ROOT / "fuzz/target": 1.5,
    }
    # What the testbed is made of is not asked for again once it is whole.
    if not asked(ROOT / "testbed/build", "--where"):
        cache = os.environ.get("OOOI_CACHE") or Path(os.environ.get("XDG_CACHE_HOME") or home / ".cache") / "oooi"
        takes[Path(cache)] = 1
        takes[Path(asked("go", "env", "GOCACHE") or home / ".cache/go-build")] = 6
        takes[Path(asked("go", "env", "GOMODCACHE") or home / "go/pkg/mod")] = 2.5
    return [Place(path, int(gib * GIB), size(path), standing(path).stat().st_dev) for path, gib in takes.items()]


def main():
    places = measured()
    free = {place.disk: shutil.disk_usage(standing(place.path)).free for place in places}
    lines, enough = verdict(places, free)
    print("\n".join(lines))
    return 0 if enough else 1


if __name__ == "__main__":
    sys.exit(main())
