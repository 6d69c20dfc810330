"""What a release installs names the images that it was made for, by its chart as by its manifests."""

import os
import subprocess
import tarfile
import tempfile
import unittest
from pathlib import Path
from unittest import mock

from tools import DEPLOY, documents, last_release, run, testbed

USUAL = "envoyproxy/envoy:distroless-v1.40.0"


def pack(image, envoy, output):
    """Packs the chart as deploy/release does."""
    command = [DEPLOY / "chart", image, envoy, output, testbed() / "bin/helm"]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def charted(image, envoy):
    """What the packed chart renders without any value."""
    with tempfile.TemporaryDirectory() as directory:
        done = pack(image, envoy, directory)
        if done.returncode != 0:
            raise AssertionError(done.stderr)
        [package] = Path(directory).glob("oooi-*.tgz")
        return run("helm", "template", "oooi", package, "--namespace", "oooi-system").stdout


def manifests(image, envoy):
    """What deploy/release and `make deploy` render."""
    command = [DEPLOY / "manifests", "default", image, envoy, testbed() / "bin/kubectl"]
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout


def images(text):
    """The image of the manager, and those that it gives to servers."""
    [deployment] = [item for item in documents(text) if item["kind"] == "Deployment"]
    [container] = deployment["spec"]["template"]["spec"]["containers"]
    values = {variable["name"]: variable.get("value") for variable in container["env"]}
    return container["image"], values["RELATED_IMAGE_OOOI"], values["RELATED_IMAGE_ENVOY"]


class ARelease(unittest.TestCase):
    def test_names_its_images_in_chart_and_manifests(self):
        mirrored = "r.test:5000/envoy@sha256:" + "b" * 64
        for image, envoy in [
            ("r.test/oooi:v0.1.0", ""),
            ("r.test:5000/team/oooi:0.1.0-rc.1", mirrored),
            ("localhost/oooi:dev", "r.test/envoy:1.40"),
        ]:
            with self.subTest(image):
                expected = (image, image, envoy or USUAL)
                self.assertEqual(images(charted(image, envoy)), expected)
                self.assertEqual(images(manifests(image, envoy)), expected)

    def test_packs_a_chart_that_does_not_tell_when(self):
        with tempfile.TemporaryDirectory() as directory, mock.patch.dict(os.environ, {"SOURCE_DATE_EPOCH": "86400"}):
            done = pack("r.test/oooi:v0.1.0", "", directory)
            self.assertEqual(done.returncode, 0, done.stderr)
            [package] = Path(directory).glob("oooi-*.tgz")
            with tarfile.open(package) as chart:
                self.assertEqual({(member.mtime, member.uid) for member in chart}, {(86400, 0)})

    def test_is_refused_for_an_image_without_a_tag(self):
        for image in ["r.test/oooi", "r.test:5000/oooi", "r.test/oooi:", "r.test/oooi@sha256:" + "a" * 64]:
            with self.subTest(image), tempfile.TemporaryDirectory() as directory:
                done = pack(image, "", directory)
                self.assertEqual((done.returncode, list(Path(directory).iterdir())), (1, []))
                self.assertIn(f"the image '{image}' has no tag: write NAME:TAG", done.stderr)

    def test_is_upgraded_from_the_one_before_it(self):
        # A hook names its repository by variables, which win over the folder.
        others = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
        with tempfile.TemporaryDirectory() as directory, mock.patch.dict(os.environ, others, clear=True):
            def git(*words):
                who = ["-c", "user.name=test", "-c", "user.email=test@example.com", "-c", "core.hooksPath=/dev/null"]
                who += ["-c", "commit.gpgsign=false", "-c", "tag.gpgsign=false"]
                subprocess.run(["git", "-C", directory, *who, *words], stdout=subprocess.DEVNULL, check=True)

            def commit():
                git("commit", "--allow-empty", "--message=change")

            git("init", "--quiet")
            commit()
            self.assertEqual(last_release(directory), "HEAD")
            git("tag", "v1")
            self.assertEqual(last_release(directory), "HEAD")
            commit()
            self.assertEqual(last_release(directory), "v1")
            git("tag", "v2")
            self.assertEqual(last_release(directory), "v1")
            commit()
            self.assertEqual(last_release(directory), "v2")


if __name__ == "__main__":
    unittest.main()
