"""Tests of sbom.py: `python3 -m unittest discover -s deploy/image`."""

import json
import unittest

import sbom

LOCK = """
[[package]]
name = "oooi"
version = "1.0.0"

[[package]]
name = "linked"
version = "2.0.0"
source = "registry"
checksum = "ab12"
"""


def package(name, version, kinds=("lib",), licence="MIT"):
    return {"id": name, "name": name, "version": version, "license": licence, "targets": [{"kind": list(kinds)}]}


def node(name, **dependencies):
    deps = [{"pkg": other, "dep_kinds": [{"kind": kind} for kind in kinds]} for other, kinds in dependencies.items()]
    return {"id": name, "deps": deps}


METADATA = {
    "workspace_members": ["oooi"],
    "packages": [
        package("oooi", "1.0.0", kinds=["bin"]),
        package("linked", "2.0.0", licence="MIT/Apache-2.0"),
        package("deep", "3.0.0"),
        package("tested", "4.0.0"),
        package("builds", "5.0.0"),
        package("derives", "6.0.0", kinds=["proc-macro"]),
        package("parses", "7.0.0"),
    ],
    "resolve": {
        "nodes": [
            node("oooi", linked=[None], tested=["dev"], builds=["build"], derives=[None]),
            node("linked", deep=[None, "dev"]),
            node("deep"),
            node("tested"),
            node("builds"),
            node("derives", parses=[None]),
            node("parses"),
        ]
    },
}


class ADocument(unittest.TestCase):
    def test_lists_what_is_linked_and_nothing_else(self):
        document = sbom.document(METADATA, LOCK, "x")
        self.assertEqual([entry["name"] for entry in document["components"]], ["deep", "linked"])
        self.assertEqual(document["metadata"]["component"]["purl"], "pkg:cargo/oooi@1.0.0")
        self.assertIn({"ref": "pkg:cargo/linked@2.0.0", "dependsOn": ["pkg:cargo/deep@3.0.0"]}, document["dependencies"])

    def test_has_checksums_and_licences(self):
        [_, linked] = sbom.document(METADATA, LOCK, "x")["components"]
        self.assertEqual(linked["hashes"], [{"alg": "SHA-256", "content": "ab12"}])
        self.assertEqual(linked["licenses"], [{"expression": "MIT OR Apache-2.0"}])

    def test_is_the_same_each_time_and_another_for_another_lock_file(self):
        first = json.dumps(sbom.document(METADATA, LOCK, "x"))
        self.assertEqual(first, json.dumps(sbom.document(METADATA, LOCK, "x")))
        self.assertNotEqual(first, json.dumps(sbom.document(METADATA, LOCK + "\n", "x")))

    def test_is_refused_without_the_binary(self):
        with self.assertRaises(sbom.Refused):
            sbom.document({**METADATA, "workspace_members": []}, LOCK, "x")


if __name__ == "__main__":
    unittest.main()
