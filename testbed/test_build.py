"""Tests of the cache that `build` keeps: `python3 -B -m unittest discover -s testbed`. They build nothing real."""

import contextlib
import importlib.machinery
import importlib.util
import io
import os
import tempfile
import threading
import unittest
from pathlib import Path
from unittest import mock

loader = importlib.machinery.SourceFileLoader("build", str(Path(__file__).parent / "build"))
build = importlib.util.module_from_spec(importlib.util.spec_from_loader("build", loader))
loader.exec_module(build)


class Fake(build.Part):
    """A part that writes its lock file as its program, and counts how often it is built."""

    def __init__(self, folder, name="fake"):
        super().__init__(name, ["lock"], 1)
        self.place_of_files, self.built, self.fails = folder, 0, False

    def folder(self):
        return self.place_of_files

    def recipe(self):
        return "fake"

    def build(self, target):
        self.built += 1
        (target / "bin" / self.name).write_text((self.folder() / "lock").read_text())
        if self.fails:
            raise build.Failed("as asked")


class TheCache(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.root = Path(directory.name)
        (self.root / "lock").write_text("1")
        self.part = Fake(self.root)
        for change in (
            mock.patch.dict(os.environ, {"OOOI_CACHE": str(self.root / "cache")}),
            mock.patch.object(build, "PARTS", [self.part]),
        ):
            change.start()
            self.addCleanup(change.stop)

    def run_it(self, *arguments):
        out, err = io.StringIO(), io.StringIO()
        with mock.patch("sys.argv", ["build", *arguments]):
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                status = build.main()
        return status, out.getvalue().strip(), err.getvalue()

    def test_is_filled_once(self):
        status, first, _ = self.run_it()
        self.assertEqual((status, self.part.built), (0, 1))
        status, second, said = self.run_it()
        self.assertEqual((status, self.part.built, second, said), (0, 1, first, ""))
        self.assertEqual((Path(first) / "bin/fake").read_text(), "1")

    def test_has_another_key_after_a_change_of_a_lock_file(self):
        _, before, _ = self.run_it()
        (self.root / "lock").write_text("2")
        _, after, _ = self.run_it()
        self.assertNotEqual(before, after)
        self.assertEqual((Path(before) / "bin/fake").read_text(), "1", "another checkout may use it still")
        self.assertEqual((Path(after) / "bin/fake").read_text(), "2")

    def test_builds_a_changed_part_alone(self):
        other = self.root / "other"
        other.mkdir()
        (other / "lock").write_text("1")
        second = Fake(other, "second")
        with mock.patch.object(build, "PARTS", [self.part, second]):
            self.run_it()
            (other / "lock").write_text("2")
            self.run_it()
        self.assertEqual((self.part.built, second.built), (1, 2))

    def test_keeps_nothing_of_a_part_that_failed(self):
        self.part.fails = True
        status, _, said = self.run_it()
        self.assertEqual(status, 1)
        self.assertIn("as asked", said)
        self.assertEqual(list((self.root / "cache/testbed/parts").iterdir()), [])
        self.part.fails = False
        self.assertEqual(self.run_it()[0], 0)

    def test_removes_what_a_killed_run_left_half_built(self):
        half = self.root / "cache/testbed/parts/.building-killed"
        half.mkdir(parents=True)
        self.run_it()
        self.assertFalse(half.exists())

    def test_is_asked_without_building(self):
        status, _, said = self.run_it("--where")
        self.assertEqual((status, self.part.built), (1, 0))
        self.assertIn("missing: fake", said)
        self.assertIn("make testbed", said)
        _, built, _ = self.run_it()
        self.assertEqual(self.run_it("--where")[:2], (0, built))

    def test_lets_a_second_run_wait_for_the_first(self):
        began, go_on = threading.Event(), threading.Event()
        plain = self.part.build

        def slow(target):
            began.set()
            go_on.wait(10)
            plain(target)

        with mock.patch.object(self.part, "build", slow):
            first = threading.Thread(target=build.build_all)
            second = threading.Thread(target=build.build_all)
            with contextlib.redirect_stderr(io.StringIO()) as said:
                first.start()
                self.assertTrue(began.wait(10))
                second.start()
                while "waiting" not in said.getvalue():
                    self.assertTrue(second.is_alive())
                go_on.set()
                first.join(10)
                second.join(10)
        self.assertEqual(self.part.built, 1)

    def test_can_be_pruned_to_these_lock_files(self):
        _, before, _ = self.run_it()
        (self.root / "lock").write_text("2")
        _, after, _ = self.run_it("--prune")
        self.assertFalse(Path(before).exists())
        self.assertEqual((Path(after) / "bin/fake").read_text(), "2")
        self.assertEqual(len(list((self.root / "cache/testbed/parts").iterdir())), 1)


class ThePins(unittest.TestCase):
    def test_name_every_part_by_files_that_are_there(self):
        for part in build.PARTS:
            for name in part.files:
                self.assertTrue((part.folder() / name).is_file(), f"{part.name}: {name}")

    def test_give_kubernetes_the_version_that_it_says_of_itself(self):
        self.assertIn(f"k8s.io/kubernetes v{build.KUBERNETES}", (build.HERE / "parts/kubernetes/go.mod").read_text())


if __name__ == "__main__":
    unittest.main()
