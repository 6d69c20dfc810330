"""One commit gives one image, whoever packs it."""

import json
import os
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

from test_oci import blob, unpack

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]


def pack(here, **environment):
    """What the image says of its creation, and its bytes."""
    with tempfile.TemporaryDirectory() as directory:
        binary, output = Path(directory) / "oooi", Path(directory) / "image.tar"
        binary.write_bytes(b"a binary")
        others = {name: value for name, value in os.environ.items() if name != "SOURCE_DATE_EPOCH"}
        subprocess.run([here / "pack", binary, output], env=others | environment, stdout=subprocess.DEVNULL, check=True)
        archive = output.read_bytes()
    members = unpack(archive)
    [manifest] = json.loads(members["index.json"])["manifests"]
    config = json.loads(blob(members, json.loads(blob(members, manifest))["config"]))
    return config["created"], archive


class TheImage(unittest.TestCase):
    def test_is_from_the_moment_of_its_commit(self):
        log = ["git", "-C", ROOT, "log", "-1", "--date=format-local:%Y-%m-%dT%H:%M:%SZ"]
        told = {**os.environ, "TZ": "UTC"}
        commit = subprocess.run([*log, "--format=%cd"], env=told, stdout=subprocess.PIPE, text=True, check=True).stdout.strip()
        seconds = subprocess.run([*log, "--format=%ct"], stdout=subprocess.PIPE, text=True, check=True).stdout.strip()
        created, archive = pack(HERE)
        self.assertEqual(created, commit)
        # As a release has it packed.
        self.assertEqual(pack(HERE, SOURCE_DATE_EPOCH=seconds), (created, archive))

    def test_outside_of_git_is_from_no_moment(self):
        with tempfile.TemporaryDirectory() as directory:
            here = Path(directory) / "deploy/image"
            shutil.copytree(HERE, here)
            shutil.copy(ROOT / "Cargo.toml", directory)
            self.assertEqual(pack(here, GIT_CEILING_DIRECTORIES=directory)[0], "1970-01-01T00:00:00Z")


if __name__ == "__main__":
    unittest.main()
