"""The chart renders what kustomize renders, and refuses what cannot be meant."""

import json
import subprocess
import tempfile
import unittest
from pathlib import Path

from tools import CHART, DEPLOY, ROOT, by_name, documents, kustomized, run, templated, version

KUSTOMIZE = DEPLOY / "kustomize"
# The overlays are for trying things out: their image has no version.
DEV = ["--set", "image.tag=dev"]
NO_CRDS = ["--set", "crds.install=false"]


def overlay(*components, base="default"):
    """An overlay of one's own, as people write it: the default with components."""
    with tempfile.TemporaryDirectory(dir=KUSTOMIZE, prefix=".test-") as directory:
        lines = ["apiVersion: kustomize.config.k8s.io/v1beta1", "kind: Kustomization", f"resources: [../{base}]"]
        lines += [f"components: [{', '.join(f'../components/{name}' for name in components)}]"]
        (Path(directory) / "kustomization.yaml").write_text("\n".join(lines))
        return kustomized(directory)


class TheChart(unittest.TestCase):
    maxDiff = None

    def assert_same(self, overlay_objects, *options, namespace="oooi-system"):
        expected = by_name(item for item in overlay_objects if item["kind"] != "Namespace")
        rendered = by_name(templated(*DEV, *options, namespace=namespace))
        self.assertEqual(sorted(expected), sorted(rendered))
        for key in expected:
            self.assertEqual(expected[key], rendered[key], key)

    def test_equals_the_default_overlay(self):
        self.assert_same(kustomized(KUSTOMIZE / "default"), *NO_CRDS)

    def test_without_the_webhook_equals_the_base(self):
        self.assert_same(kustomized(KUSTOMIZE / "base"), *NO_CRDS, "--set", "webhook.enabled=false")

    def test_equals_the_overlay_of_high_availability(self):
        self.assert_same(kustomized(KUSTOMIZE / "ha"), *NO_CRDS, "--set", "highAvailability=true")

    def test_equals_the_overlay_of_openshift(self):
        self.assert_same(kustomized(KUSTOMIZE / "openshift"), *NO_CRDS, "--set", "openshift=true")

    def test_equals_components_in_an_overlay_of_ones_own(self):
        options = ["--set", "openshift=true,highAvailability=true,userRoles.aggregateEdit=true"]
        self.assert_same(overlay("ha", "aggregate", base="openshift"), *NO_CRDS, *options)

    def test_brings_the_definitions_and_keeps_them(self):
        paths = (DEPLOY / "crds").glob("*.yaml")
        expected = by_name(document for path in paths for document in documents(path.read_text()))
        rendered = by_name(item for item in templated() if item["kind"] == "CustomResourceDefinition")
        self.assertEqual(sorted(expected), sorted(rendered))
        for key, definition in rendered.items():
            self.assertEqual(definition["metadata"].pop("annotations"), {"helm.sh/resource-policy": "keep"})
            self.assertEqual(expected[key], definition)

    def test_with_monitoring_equals_the_folder_of_prometheus(self):
        every = ["monitoring.monitors=true", "monitoring.rules=true", "monitoring.dashboard=true"]
        expected = by_name(kustomized(DEPLOY / "prometheus"))
        plain = by_name(templated(*NO_CRDS))
        rendered = by_name(templated(*NO_CRDS, "--set", ",".join(every)))
        self.assertEqual({key: rendered[key] for key in rendered if key not in plain}, expected)

    def test_labels_monitoring_for_the_prometheus_that_looks_for_it(self):
        options = ["--set", "monitoring.rules=true,monitoring.labels.release=mine"]
        [rule] = [item for item in templated(*NO_CRDS, *options) if item["kind"] == "PrometheusRule"]
        self.assertEqual(rule["metadata"]["labels"], {"app.kubernetes.io/name": "oooi", "release": "mine"})

    def test_puts_everything_into_the_namespace_of_the_release(self):
        every = ["monitoring.monitors=true", "monitoring.rules=true", "monitoring.dashboard=true", "openshift=true"]
        text = run("helm", "template", "oooi", CHART, "--namespace", "elsewhere", "--set", ",".join(every)).stdout
        self.assertNotIn("oooi-system", text.replace("oooi-system/", ""))
        for item in documents(text):
            self.assertIn(item["metadata"].get("namespace", "elsewhere"), ["elsewhere"], item["metadata"]["name"])

    def test_names_its_image_by_version_or_digest(self):
        digest = "sha256:" + "a" * 64
        for options, image in [
            ([], f"localhost/oooi:{version()}"),
            (["--set", f"image.repository=r.test/o,image.digest={digest}"], f"r.test/o@{digest}"),
        ]:
            [manager] = [item for item in templated(*NO_CRDS, *options) if item["kind"] == "Deployment"]
            [container] = manager["spec"]["template"]["spec"]["containers"]
            self.assertEqual(container["image"], image)
            self.assertIn({"name": "RELATED_IMAGE_OOOI", "value": image}, container["env"])

    def test_passes_what_the_manager_looks_after(self):
        options = ["manager.namespaces={a,b}", "manager.controllers={infra}", "manager.egressNetwork=ovn-kubernetes"]
        [manager] = [i for i in templated(*NO_CRDS, "--set", ",".join(options)) if i["kind"] == "Deployment"]
        arguments = manager["spec"]["template"]["spec"]["containers"][0]["args"]
        for argument in ["--namespace=a,b", "--controllers=infra", "--egress-network=ovn-kubernetes"]:
            self.assertIn(argument, arguments)

    def test_passes_what_the_pods_of_servers_get(self):
        options = ["imagePullSecrets[0].name=one", "imagePullSecrets[1].name=two", "servers.priorityClassName=high"]
        rendered = templated(*NO_CRDS, "--set", ",".join(options))
        [account] = [item for item in rendered if item["kind"] == "ServiceAccount"]
        self.assertEqual(account["imagePullSecrets"], [{"name": "one"}, {"name": "two"}])
        [manager] = [item for item in rendered if item["kind"] == "Deployment"]
        arguments = manager["spec"]["template"]["spec"]["containers"][0]["args"]
        for argument in ["--image-pull-secret=one", "--image-pull-secret=two", "--priority-class=high"]:
            self.assertIn(argument, arguments)
        # Values that `helm upgrade --reuse-values` keeps from before there were such.
        self.assertEqual(templated(*NO_CRDS, "--set", "servers=null"), templated(*NO_CRDS))

    def test_has_the_version_of_the_workspace(self):
        [chart] = documents((CHART / "Chart.yaml").read_text())
        self.assertEqual((chart["version"], chart["appVersion"]), (version(), version()))

    def test_has_nothing_that_helm_lint_minds(self):
        said = run("helm", "lint", "--strict", CHART).stdout
        self.assertIn("0 chart(s) failed", said)

    def test_refuses_wrong_values_and_says_where(self):
        for option, place in [
            ("replicas=two", "at '/replicas': got string, want integer"),
            ("replicas=0", "at '/replicas': minimum"),
            ("image.tagg=x", "at '/image': additional properties 'tagg' not allowed"),
            ("image.digest=abc", "at '/image/digest'"),
            ("image.pullPolicy=Sometimes", "at '/image/pullPolicy'"),
            ("highAvailabilty=true", "additional properties 'highAvailabilty' not allowed"),
            ("manager.controllers={infras}", "at '/manager/controllers/0'"),
            ("manager.namespaces={Not_A_Name}", "at '/manager/namespaces/0'"),
            ("manager.egressNetwork=calico", "at '/manager/egressNetwork'"),
            ("crds.install=maybe", "at '/crds/install': got string, want boolean"),
            ("resources.limits.memory=lots", "at '/resources/limits/memory'"),
        ]:
            with self.subTest(option):
                said = run("helm", "template", "oooi", CHART, "--set", option, ok=False).stderr
                self.assertIn(place, said)

    def test_refuses_a_kubernetes_that_is_too_old(self):
        said = run("helm", "template", "oooi", CHART, "--kube-version", "1.30.9", ok=False).stderr
        self.assertIn("chart requires kubeVersion: >=1.31.0-0 which is incompatible with Kubernetes v1.30.9", said)
        run("helm", "template", "oooi", CHART, "--kube-version", "1.31.0")


class TheMakefile(unittest.TestCase):
    def test_refuses_a_kubernetes_that_is_too_old_before_it_installs_anything(self):
        with tempfile.TemporaryDirectory() as directory:
            program, asked = Path(directory) / "kubectl", Path(directory) / "asked"
            for minor, calls in [("30+", 1), ("31", 2)]:
                version = json.dumps({"major": "1", "minor": minor}, indent=2)
                program.write_text(f"#!/bin/sh\necho \"$@\" >> {asked}\necho '{version}'\n")
                program.chmod(0o755)
                asked.write_text("")
                made = subprocess.run(
                    ["make", "--directory", ROOT, "install", f"KUBECTL={program}"], capture_output=True, text=True, check=False
                )
                self.assertEqual(len(asked.read_text().splitlines()), calls, made.stderr)
                self.assertEqual(made.returncode == 0, minor == "31", made.stderr)
                self.assertEqual("runs Kubernetes 1.30: oooi needs 1.31 or later" in made.stderr, minor == "30+")


if __name__ == "__main__":
    unittest.main()
