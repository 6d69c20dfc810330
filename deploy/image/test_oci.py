"""Tests of oci.py: `python3 -m unittest discover -s deploy/image`."""

import contextlib
import gzip
import hashlib
import io
import json
import os
import stat
import tarfile
import tempfile
import unittest
from pathlib import Path

import oci

# `setcap cap_net_raw=p FILE; getfattr -n security.capability -e hex FILE` on Linux.
NET_RAW_PERMITTED = bytes.fromhex("0000000200200000000000000000000000000000")
# The same with `cap_net_raw=ep`.
NET_RAW_EFFECTIVE = bytes.fromhex("0100000200200000000000000000000000000000")


def sample(**changes):
    """A small image of one program."""
    fields = {
        "name": "example.test/sample:1",
        "entrypoint": ["/sample"],
        "labels": {"org.opencontainers.image.title": "sample"},
        "files": {"/sample": (b"\x7fELF program", 0o755), "/etc/conf/a": (b"a", 0o644)},
        "capabilities": {"/sample": "cap_net_raw=p"},
    }
    return oci.Image(**{**fields, **changes})


def unpack(archive):
    """The members of an archive by name."""
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        return {member.name: tar.extractfile(member).read() for member in tar if member.isfile()}


def blob(members, description):
    """The blob that a descriptor names, after checking size and digest."""
    data = members["blobs/" + description["digest"].replace(":", "/")]
    assert len(data) == description["size"]
    assert "sha256:" + hashlib.sha256(data).hexdigest() == description["digest"]
    return data


class AnArchive(unittest.TestCase):
    def test_has_the_same_bytes_each_time(self):
        self.assertEqual(oci.pack(sample()), oci.pack(sample()))

    def test_does_not_depend_on_the_order_of_its_files(self):
        files = sample().files
        self.assertEqual(oci.pack(sample()), oci.pack(sample(files=dict(reversed(files.items())))))

    def test_changes_its_digest_with_a_byte_of_a_file(self):
        other = sample(files={**sample().files, "/etc/conf/a": (b"b", 0o644)})
        self.assertNotEqual(oci.pack(sample())[1], oci.pack(other)[1])

    def test_names_every_blob_by_its_digest_and_the_layer_by_its_plain_content(self):
        archive, digest = oci.pack(sample())
        members = unpack(archive)
        [entry] = json.loads(members["index.json"])["manifests"]
        self.assertEqual(entry["digest"], digest)
        self.assertEqual(entry["annotations"]["io.containerd.image.name"], "example.test/sample:1")
        manifest = json.loads(blob(members, entry))
        config = json.loads(blob(members, manifest["config"]))
        [layer] = manifest["layers"]
        plain = gzip.decompress(blob(members, layer))
        self.assertEqual(config["rootfs"]["diff_ids"], ["sha256:" + hashlib.sha256(plain).hexdigest()])
        self.assertEqual(config["config"]["User"], "65532:65532")
        self.assertEqual(config["config"]["Labels"], {"org.opencontainers.image.title": "sample"})
        self.assertEqual(config["created"], "1970-01-01T00:00:00Z")
        self.assertEqual(len(members), 5, "three blobs, the index and the layout")


class ALayer(unittest.TestCase):
    def entries(self, **changes):
        tar = tarfile.open(fileobj=io.BytesIO(oci.layer(sample(**changes))))
        return {member.name: member for member in tar}

    def test_lists_parents_before_their_files(self):
        self.assertEqual(list(self.entries()), ["etc", "etc/conf", "etc/conf/a", "sample"])

    def test_belongs_to_root_and_has_a_fixed_time(self):
        for member in self.entries(epoch=7).values():
            self.assertEqual((member.uid, member.gid, member.mtime), (0, 0, 7), member.name)

    def test_keeps_a_capability_as_an_extended_attribute(self):
        header = self.entries()["sample"].pax_headers["SCHILY.xattr.security.capability"]
        self.assertEqual(header.encode("utf-8", "surrogateescape"), NET_RAW_PERMITTED)

    def test_gives_a_capability_to_no_other_file(self):
        self.assertNotIn("SCHILY.xattr.security.capability", self.entries()["etc/conf/a"].pax_headers)

    def test_holds_symbolic_links(self):
        member = self.entries(links={"/bin/sh": "busybox"})["bin/sh"]
        self.assertTrue(member.issym())
        self.assertEqual(member.linkname, "busybox")

    def test_refuses_what_cannot_be_meant(self):
        content = (b"", 0o644)
        for changes in [
            {"files": {"relative": content}},
            {"files": {"/a/../b": content}},
            {"files": {"/": content}},
            {"files": {"/a": content, "/a/b": content}, "capabilities": {}},
            {"files": {"/a": content}, "links": {"/a": "b"}, "capabilities": {}},
            {"files": {"/a": content}, "capabilities": {"/other": "cap_net_raw=p"}},
        ]:
            with self.subTest(changes), self.assertRaises(oci.Refused):
                oci.layer(sample(**changes))


class ACapability(unittest.TestCase):
    def test_is_written_as_the_kernel_reads_it(self):
        self.assertEqual(oci.capability_xattr("cap_net_raw=p"), NET_RAW_PERMITTED)
        self.assertEqual(oci.capability_xattr("cap_net_raw=ep"), NET_RAW_EFFECTIVE)

    def test_of_an_unknown_name_or_flag_is_refused(self):
        for text in ["cap_sys_admin=p", "cap_net_raw", "cap_net_raw=i", "=p", ""]:
            with self.subTest(text), self.assertRaises(oci.Refused):
                oci.capability_xattr(text)


class TheCommand(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.directory = Path(directory.name)
        self.program = self.directory / "program"
        self.program.write_bytes(b"program")
        self.program.chmod(0o700)

    def run_it(self, *arguments):
        self.said = io.StringIO()
        output = self.directory / "out" / "image.tar"
        with contextlib.redirect_stderr(self.said), contextlib.redirect_stdout(io.StringIO()):
            status = oci.main(["--output", str(output), "--name", "example.test/a:1", *arguments])
        return status, output

    def test_writes_an_archive_and_leaves_nothing_beside_it(self):
        status, output = self.run_it("--file", f"{self.program}:/program", "--entrypoint", "/program")
        self.assertEqual(status, 0, self.said.getvalue())
        self.assertEqual(os.listdir(output.parent), ["image.tar"])
        layer = next(data for data in unpack(output.read_bytes()).values() if data[:2] == b"\x1f\x8b")
        with tarfile.open(fileobj=io.BytesIO(gzip.decompress(layer))) as tar:
            self.assertEqual(stat.S_IMODE(tar.getmember("program").mode), 0o755, "the mode of the host is not kept")

    def test_says_what_is_wrong_and_writes_nothing(self):
        for arguments, message in [
            (["--file", "/nowhere:/program"], "cannot read '/nowhere'"),
            (["--file", f"{self.directory}:/program"], "not a regular file"),
            (["--file", str(self.program)], "SOURCE:/path"),
            (["--file", f"{self.program}:/a", "--file", f"{self.program}:/a"], "twice"),
            (["--user", "nobody"], "UID:GID"),
            (["--label", "novalue"], "KEY=VALUE"),
        ]:
            with self.subTest(arguments):
                status, output = self.run_it(*arguments)
                self.assertEqual(status, 1)
                self.assertIn(message, self.said.getvalue())
                self.assertFalse(output.exists())


if __name__ == "__main__":
    unittest.main()
