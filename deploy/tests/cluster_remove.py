"""The removal that docs/operations.md tells, on a real API server with a real manager. Started by `testbed run`.

What has a finalizer goes only while the manager runs, so the manager is stopped where the page has it deleted.
"""

import json
import os
import subprocess
import sys
import unittest

from cluster import STATE, apply, define, is_there, kubectl, manager, prepare_namespace
from tools import DEPLOY, ROOT, testbed, until

sys.path.insert(0, str(ROOT / "tools/book"))
import blocks
import pages

PAGE = ROOT / "docs/operations.md"
KINDS = "infras,dhcpservers,dnsservers,proxyservers,egressipams"
# A DHCP server reads machines in the namespace of the control plane, an EgressIPAM labels nodes: both have a finalizer.
WORLD = """
apiVersion: v1
kind: Namespace
metadata: {name: clusters}
---
apiVersion: v1
kind: Namespace
metadata: {name: clusters-leaving}
---
apiVersion: k8s.cni.cncf.io/v1
kind: NetworkAttachmentDefinition
metadata: {name: vlan, namespace: clusters}
spec: {config: '{"cniVersion": "0.3.1", "name": "vlan", "type": "bridge", "bridge": "br1", "vlan": 100, "ipam": {}}'}
---
apiVersion: hypershift.openshift.io/v1beta1
kind: NodePool
metadata: {name: leaving, namespace: clusters}
spec:
  clusterName: leaving
  platform: {type: KubeVirt, kubevirt: {additionalNetworks: [{name: clusters/vlan}]}}
---
apiVersion: hypershift.openshift.io/v1beta1
kind: HostedCluster
metadata: {name: leaving, namespace: clusters, annotations: {hostedcluster.densityops.com/infra: "true"}}
spec:
  platform: {type: KubeVirt}
  dns: {baseDomain: example.com}
  networking: {machineNetwork: [{cidr: 192.168.200.0/24}]}
  services:
    - service: APIServer
      servicePublishingStrategy: {type: LoadBalancer, loadBalancer: {hostname: api.leaving.example.com}}
---
apiVersion: redhatcop.redhat.io/v1alpha1
kind: EgressIPAM
metadata: {name: leaving}
spec: {topologyLabel: zone, cidrAssignments: [{CIDR: 10.88.0.0/24, labelValue: a}]}
"""


def told():
    """The commands of the page's section, in their order."""
    text = PAGE.read_text()
    begins = text[: text.index("\n## Remove\n")].count("\n")
    after = [block for block in pages.split(text)[1] if block.line > begins and block.words[0] in blocks.SHELLS]
    return [command for block in after for command, _ in blocks.steps(block)]


def follow(command):
    """Runs a command as a reader does; one that waits for ever is given up."""
    environment = {**os.environ, "KUBECONFIG": f"{STATE}/kubeconfig", "PATH": f"{testbed()}/bin:{os.environ['PATH']}"}
    done = subprocess.run(
        ["timeout", "90", "bash", "-euo", "pipefail", "-c", command], cwd=ROOT, env=environment, check=False,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )
    if done.returncode != 0:
        raise AssertionError(f"`{command}` ended with {done.returncode}:\n{done.stdout}")


def left():
    """What there is of our kinds."""
    items = json.loads(kubectl("get", KINDS, "--all-namespaces", "--output=json").stdout)["items"]
    return [f"{item['kind']} {item['metadata']['name']}" for item in items]


def is_held(kind, name):
    """Whether a resource has a finalizer."""
    found = kubectl("get", kind, name, "--namespace=clusters", "--output=jsonpath={.metadata.finalizers}", ok=None)
    return bool(found.stdout)


class Removal(unittest.TestCase):
    def test_in_the_order_of_the_page_leaves_nothing_and_does_not_hang(self):
        is_there()
        define(DEPLOY / "crds", ROOT / "testbed/crds", testbed() / "crds/networkattachmentdefinitions.yaml")
        prepare_namespace()
        apply("-k", DEPLOY / "kustomize/default")
        apply("-f", "-", text=WORLD)
        commands = told()
        [ends] = [index for index, command in enumerate(commands) if "delete -k deploy/kustomize" in command]
        with manager():
            until("a server of the HostedCluster is held", lambda: is_held("dhcpserver", "leaving-dhcp"))
            until("the EgressIPAM is held", lambda: is_held("egressipam", "leaving"))
            for command in commands[:ends]:
                follow(command)
            until("nothing is left of our kinds", lambda: not left())
        for command in commands[ends:]:
            follow(command)
        definitions = kubectl("get", "crd", "--output=name").stdout
        self.assertNotIn("densityops", definitions)
        self.assertNotIn("egressipams", definitions)


if __name__ == "__main__":
    unittest.main()
