"""Tests of join.py: `python3 -m unittest discover -s deploy/image`."""

import contextlib
import io
import json
import tarfile
import tempfile
import unittest
from pathlib import Path

import join
import oci
from test_oci import blob, sample, unpack


class AJoinedArchive(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.directory = Path(directory.name)
        self.digests = {}
        for arch in ("amd64", "s390x"):
            self.digests[arch] = self.write(f"{arch}.tar", sample(arch=arch))

    def write(self, name, image):
        archive, digest = oci.pack(image)
        (self.directory / name).write_bytes(archive)
        return digest

    def paths(self, *names):
        return [self.directory / name for name in names]

    def test_has_one_index_of_all_architectures_under_one_name(self):
        archive, digest = join.join(self.paths("s390x.tar", "amd64.tar"))
        members = unpack(archive)
        [entry] = json.loads(members["index.json"])["manifests"]
        self.assertEqual(entry["digest"], digest)
        self.assertEqual(entry["annotations"]["io.containerd.image.name"], "example.test/sample:1")
        index = json.loads(blob(members, entry))
        found = {manifest["platform"]["architecture"]: manifest["digest"] for manifest in index["manifests"]}
        self.assertEqual(found, self.digests)
        for manifest in index["manifests"]:
            config = json.loads(blob(members, json.loads(blob(members, manifest))["config"]))
            self.assertEqual(config["architecture"], manifest["platform"]["architecture"])

    def test_does_not_depend_on_the_order_of_its_parts(self):
        self.assertEqual(join.join(self.paths("s390x.tar", "amd64.tar")), join.join(self.paths("amd64.tar", "s390x.tar")))

    def test_refuses_what_does_not_belong_together_or_is_damaged(self):
        self.write("other.tar", sample(arch="arm64", name="example.test/other:1"))
        self.write("again.tar", sample())
        (self.directory / "text.tar").write_text("no archive")
        archive, _ = oci.pack(sample(arch="arm64"))
        (self.directory / "bent.tar").write_bytes(archive.replace(b'"architecture":"arm64"', b'"architecture":"arm65"', 1))
        with tarfile.open(self.directory / "empty.tar", "w"):
            pass
        for name, message in [
            ("other.tar", "different names"),
            ("again.tar", "second archive for amd64"),
            ("text.tar", "cannot be read"),
            ("missing.tar", "cannot be read"),
            ("bent.tar", "damaged"),
            ("empty.tar", "no archive of one image"),
        ]:
            with self.subTest(name):
                said, output = io.StringIO(), self.directory / "out.tar"
                with contextlib.redirect_stderr(said):
                    status = join.main(["--output", str(output), *map(str, self.paths("amd64.tar", name))])
                self.assertEqual(status, 1)
                self.assertIn(message, said.getvalue())
                self.assertFalse(output.exists())


if __name__ == "__main__":
    unittest.main()
