"""Everything under deploy/ on a real API server, as a platform team installs it. Started by `testbed run`.

Warnings of the API server are errors. Pods are not run here (there is no node), but admitted: the namespace enforces
Pod Security `restricted`, and the controllers of Kubernetes make the pods.
"""

import json
import subprocess
import tempfile
import unittest
from pathlib import Path

import yaml
from cluster import KUSTOMIZE, STATE, apply, define, is_there, kubectl, prepare_namespace
from tools import CHART, DEPLOY, ROOT, documents, last_release, run, testbed, until

NAMESPACE = "oooi-system"


def make(*arguments):
    """One of the Makefile's targets, on the testbed."""
    program = f"{testbed()}/bin/kubectl --kubeconfig={STATE}/kubeconfig --warnings-as-errors"
    subprocess.run(["make", f"KUBECTL={program}", *arguments], cwd=ROOT, stdout=subprocess.DEVNULL, check=True)


def helm(*arguments, **options):
    """helm on the testbed."""
    # What helm keeps on disk is none of this machine's.
    with tempfile.TemporaryDirectory() as home:
        environment = {"KUBECONFIG": f"{STATE}/kubeconfig"}
        environment |= {f"HELM_{kind}_HOME": home for kind in ("CACHE", "CONFIG", "DATA")}
        return run("helm", "--namespace", NAMESPACE, *arguments, environment=environment, **options)


def get(*arguments):
    """Objects as Python values."""
    return json.loads(kubectl("get", *arguments, "--output=json").stdout)


def pods():
    """The manager's pods."""
    return get("pods", "--namespace", NAMESPACE, "--selector=app.kubernetes.io/component=manager")["items"]


def left():
    """What is there of an installation, definitions apart."""
    kinds = "clusterroles,clusterrolebindings,validatingwebhookconfigurations"
    found = [i["metadata"]["name"] for i in get(kinds)["items"] if i["metadata"]["name"].startswith("oooi")]
    ours = "deployments,services,serviceaccounts,roles,rolebindings,poddisruptionbudgets"
    inside = get(ours, "--namespace", NAMESPACE)["items"]
    return found + [i["metadata"]["name"] for i in inside if i["metadata"]["name"].startswith("oooi")]


class OnACluster(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        is_there()
        define(testbed() / "addons", testbed() / "crds/securitycontextconstraints.yaml")

    def assert_pods_are_admitted(self, image):
        """By their image. One is enough: no pod gets ready here, so an upgrade waits with the second."""
        until(f"there is a pod by {image}", lambda: any(p["spec"]["containers"][0]["image"] == image for p in pods()))

    def test_1_kustomize_installs_upgrades_and_removes(self):
        make("deploy", "IMG=r.test/oooi:1")
        self.assert_pods_are_admitted("r.test/oooi:1")
        # Over an installation that runs, as an upgrade.
        make("deploy", "IMG=r.test/oooi:2", "OVERLAY=ha")
        self.assert_pods_are_admitted("r.test/oooi:2")
        budget = get("poddisruptionbudget", "oooi-manager", "--namespace", NAMESPACE)
        self.assertEqual(budget["spec"]["minAvailable"], 1)
        # SecurityContextConstraints have no admission here, but their schema.
        apply("--dry-run=server", "-k", KUSTOMIZE / "openshift")
        apply("-k", DEPLOY / "prometheus")
        # Its token goes with the account, at once or a moment later.
        kubectl("delete", "--ignore-not-found", "-k", DEPLOY / "prometheus")
        make("undeploy", "OVERLAY=ha")
        self.assertEqual(left(), [])
        self.assertTrue(get("crd", "infras.hostedcluster.densityops.com"))
        make("uninstall")

    def test_2_pod_security_would_refuse_a_manager_that_asks_for_more(self):
        prepare_namespace()
        [_, deployment] = documents((KUSTOMIZE / "base/manager.yaml").read_text())
        template = deployment["spec"]["template"]
        metadata = {**template["metadata"], "name": "greedy", "namespace": NAMESPACE}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}
        # The account is made later than this pod.
        pod["spec"].pop("serviceAccountName")
        apply("--dry-run=server", "-f", "-", text=yaml.safe_dump(pod))
        pod["spec"]["containers"][0]["securityContext"]["capabilities"] = {"add": ["NET_RAW"]}
        said = apply("--dry-run=server", "-f", "-", text=yaml.safe_dump(pod), ok=False).stderr
        self.assertIn('violates PodSecurity "restricted', said)

    def test_3_helm_installs_upgrades_rolls_back_and_uninstalls(self):
        prepare_namespace()
        monitoring = "monitoring.monitors=true,monitoring.rules=true,monitoring.dashboard=true"
        with tempfile.TemporaryDirectory() as directory:
            # What is released is the package.
            helm("package", CHART, "--destination", directory)
            [package] = Path(directory).glob("oooi-*.tgz")
            helm("install", "oooi", package, "--set", f"image.tag=one,{monitoring}")
            self.assert_pods_are_admitted("localhost/oooi:one")
            crd = "infras.hostedcluster.densityops.com"
            kubectl("wait", "--for=condition=Established", "--timeout=60s", "crd", crd)
            kubectl("create", "namespace", "clusters")
            apply("-f", ROOT / "examples/infra.yaml")
            helm("upgrade", "oooi", package, "--set", "image.tag=two,highAvailability=true")
        self.assert_pods_are_admitted("localhost/oooi:two")
        get("poddisruptionbudget", "oooi-manager", "--namespace", NAMESPACE)
        helm("rollback", "oooi", "1")
        self.assert_pods_are_admitted("localhost/oooi:one")
        self.assertEqual(get("poddisruptionbudgets", "--namespace", NAMESPACE)["items"], [])
        said = helm("upgrade", "oooi", CHART, "--set", "replicas=none", ok=False).stderr
        self.assertIn("at '/replicas'", said)
        helm("uninstall", "oooi", "--wait", "--timeout=60s")
        self.assertEqual(left(), [])
        # The definitions stay, and with them what people wrote.
        get("infra", "my-cluster", "--namespace=clusters")

    def test_4_people_see_our_kinds_and_write_them_where_they_are_let(self):
        define(DEPLOY / "crds")
        apply("-k", KUSTOMIZE / "default")
        for role in ("view", "edit", "oooi-edit"):
            kubectl("create", "rolebinding", f"{role}-test", f"--clusterrole={role}", f"--user={role}", "-n", "default")

        def may(user, verb, resource):
            return kubectl("auth", "can-i", verb, resource, f"--as={user}", "-n", "default", ok=None).returncode == 0

        group = "hostedcluster.densityops.com"
        until("whoever may view a namespace sees leases", lambda: may("view", "list", f"dhcpleases.{group}"))
        until("whoever may edit it sees Infras", lambda: may("edit", "get", f"infras.{group}"))
        self.assertFalse(may("edit", "create", f"infras.{group}"))
        self.assertTrue(may("oooi-edit", "create", f"infras.{group}"))
        self.assertFalse(may("oooi-edit", "create", f"dhcpleases.{group}"))
        label = "rbac.authorization.k8s.io/aggregate-to-edit=true"
        kubectl("label", "clusterrole", "oooi-edit", label)
        until("whoever may edit a namespace writes Infras", lambda: may("edit", "create", f"infras.{group}"))

    def test_5_the_bundle_is_taken_by_the_api_server(self):
        prepare_namespace()
        with tempfile.TemporaryDirectory() as directory:
            digest = "@sha256:" + "a" * 64
            command = [DEPLOY / "olm/generate", "--kubectl", testbed() / "bin/kubectl", "--output", f"{directory}/b"]
            command += ["--image", f"r.test/oooi{digest}", "--envoy-image", f"r.test/envoy{digest}"]
            subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
            version = Path(directory) / "b/manifests/oooi.clusterserviceversion.yaml"
            # OLM puts it into the namespace of the subscription.
            version.write_text(version.read_text().replace("namespace: placeholder", f"namespace: {NAMESPACE}"))
            apply("--dry-run=server", "--namespace", NAMESPACE, "-f", version.parent)

    def test_6_the_last_release_is_upgraded_and_what_people_wrote_stays(self):
        release = last_release()
        with tempfile.TemporaryDirectory() as directory:
            archive = subprocess.run(
                ["git", "archive", release, "deploy/crds", "deploy/kustomize", "examples"],
                cwd=ROOT, stdout=subprocess.PIPE, check=True,
            )
            subprocess.run(["tar", "--extract", "--directory", directory], input=archive.stdout, check=True)
            old = Path(directory)
            define(old / "deploy/crds")
            apply("-k", old / "deploy/kustomize/default")
            apply("-f", "-", text="{apiVersion: v1, kind: Namespace, metadata: {name: clusters}}")
            apply("-f", old / "examples")
            make("deploy", "IMG=r.test/oooi:new")
            self.assert_pods_are_admitted("r.test/oooi:new")
            # Still there, and a change of each is admitted by the new definitions.
            kubectl("label", "upgraded=true", "-f", old / "examples")


if __name__ == "__main__":
    unittest.main()
