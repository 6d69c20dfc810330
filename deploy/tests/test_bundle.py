"""The bundle is what the operator framework takes, and refuses images that a mirror could not serve."""

import json
import subprocess
import tempfile
import unittest
from pathlib import Path

import yaml
from tools import CHART, DEPLOY, by_name, documents, kustomized, run, testbed, version

IMAGE, ENVOY = "r.test/oooi@sha256:" + "a" * 64, "r.test/envoy@sha256:" + "b" * 64


def generate(output, *options, image=IMAGE):
    """Runs the generator."""
    command = [DEPLOY / "olm/generate", "--kubectl", testbed() / "bin/kubectl", "--image", image]
    command += ["--envoy-image", ENVOY, "--output", output, *options]
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)


class TheBundle(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        directory = tempfile.TemporaryDirectory()
        cls.addClassCleanup(directory.cleanup)
        cls.folder = Path(directory.name) / "bundle"
        done = generate(cls.folder)
        if done.returncode != 0:
            raise AssertionError(done.stderr)
        manifests = sorted((cls.folder / "manifests").glob("*.yaml"))
        cls.objects = [document for path in manifests for document in documents(path.read_text())]
        [cls.csv] = [item for item in cls.objects if item["kind"] == "ClusterServiceVersion"]

    def test_is_taken_by_the_operator_framework(self):
        # It ends with success whatever it finds.
        done = run("operator-verify", "manifests", "--object_validate", "--operatorhub_validate", self.folder)
        self.assertNotIn("level=error", done.stdout + done.stderr)

    def test_is_refused_when_something_is_missing(self):
        """The validation is one that can fail."""
        with tempfile.TemporaryDirectory() as directory:
            broken = Path(directory) / "bundle"
            self.assertEqual(generate(broken).returncode, 0)
            (broken / "manifests/infras.hostedcluster.densityops.com.yaml").unlink()
            done = run("operator-verify", "manifests", broken)
            self.assertRegex(done.stdout + done.stderr, r"level=error .*Kind=Infra.* not found in bundle")

    def test_has_the_rules_and_the_deployment_of_kustomize(self):
        overlay = by_name(kustomized(DEPLOY / "kustomize/openshift"))
        rbac = "rbac.authorization.k8s.io/v1"
        expected = [overlay[rbac, "ClusterRole", "", name]["rules"] for name in ("oooi-egress", "oooi-manager")]
        spec = self.csv["spec"]["install"]["spec"]
        [permissions] = spec["clusterPermissions"]
        self.assertCountEqual(permissions["rules"], expected[0] + expected[1])
        [deployment] = spec["deployments"]
        [container] = deployment["spec"]["template"]["spec"]["containers"]
        self.assertIn("--enable-openshift", container["args"])
        self.assertEqual(container["image"], IMAGE)

    def test_brings_every_role_that_the_manager_binds(self):
        [permissions] = self.csv["spec"]["install"]["spec"]["clusterPermissions"]
        bound = {name for rule in permissions["rules"] if "bind" in rule["verbs"] for name in rule["resourceNames"]}
        brought = {item["metadata"]["name"] for item in self.objects if item["kind"] == "ClusterRole"}
        self.assertTrue(bound)
        self.assertLessEqual(bound, brought)

    def test_names_every_image_by_digest(self):
        related = {entry["image"] for entry in self.csv["spec"]["relatedImages"]}
        self.assertEqual(related, {IMAGE, ENVOY})
        self.assertNotIn("localhost/", yaml.safe_dump(self.csv))

    def test_has_an_example_of_every_kind_that_people_write(self):
        examples = json.loads(self.csv["metadata"]["annotations"]["alm-examples"])
        kinds = {entry["kind"] for entry in self.csv["spec"]["customresourcedefinitions"]["owned"]}
        self.assertEqual({example["kind"] for example in examples}, kinds - {"DHCPLease"})

    def test_says_that_it_uses_the_proxy_of_the_cluster(self):
        """The manager asks clouds by the HTTPS_PROXY that OLM gives it."""
        annotations = self.csv["metadata"]["annotations"]
        self.assertEqual(annotations["features.operators.openshift.io/proxy-aware"], "true")

    def test_needs_the_kubernetes_that_the_chart_needs(self):
        [chart] = documents((CHART / "Chart.yaml").read_text())
        self.assertEqual(chart["kubeVersion"], f">={self.csv['spec']['minKubeVersion']}-0")

    def test_has_the_version_of_the_workspace(self):
        self.assertEqual(self.csv["metadata"]["name"], f"oooi.v{version()}")

    def test_is_not_written_for_images_by_tag_or_over_something_else(self):
        with tempfile.TemporaryDirectory() as directory:
            done = generate(Path(directory) / "bundle", image="r.test/oooi:1")
            self.assertEqual((done.returncode, "not named by digest" in done.stderr), (1, True), done.stderr)
            self.assertEqual(generate(Path(directory) / "bundle", "--allow-tags", image="r.test/oooi:1").returncode, 0)
            precious = Path(directory) / "precious"
            precious.mkdir()
            (precious / "file").write_text("")
            done = generate(precious)
            self.assertEqual((done.returncode, "is no bundle" in done.stderr), (1, True), done.stderr)
            self.assertTrue((precious / "file").exists())


if __name__ == "__main__":
    unittest.main()
