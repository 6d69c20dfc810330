"""Every query of the dashboard and of the alerts, answered by Prometheus's own engine from what real processes expose.

Started by `testbed run`. A manager works on the control plane; the servers run beside it (scene.py). What they expose
becomes series with the labels that the monitors add, and promtool evaluates each query on them.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
import unittest

import yaml
from cluster import OOOI, apply, define, is_there, manager, prepare_namespace
from observability import PROMETHEUS, queries
from tools import DEPLOY, ROOT, documents, fetch, run, testbed, until

# Written from the registries of the servers and of the manager.
REFERENCE = ROOT / "docs/reference/metrics.md"
LINE = re.compile(r"^(?P<name>\w+)(?:\{(?P<labels>.*)\})? (?P<value>\S+)$")
# One network with a node that says how many addresses it can carry.
EGRESS = """
apiVersion: redhatcop.redhat.io/v1alpha1
kind: EgressIPAM
metadata: {name: offices}
spec: {topologyLabel: zone, cidrAssignments: [{CIDR: 10.77.0.0/24, labelValue: a}]}
---
apiVersion: v1
kind: Node
metadata:
  name: carries-addresses
  labels: {zone: a}
  annotations:
    cloud.network.openshift.io/egress-ipconfig: '[{"ifaddr": {"ipv4": "10.77.0.0/24"}, "capacity": {"ipv4": 14}}]'
"""


def exposed_by_the_manager():
    """What a manager exposes that has a certificate and looks after an EgressIPAM."""
    define(DEPLOY / "crds", ROOT / "testbed/crds/egressips.yaml")
    prepare_namespace()
    apply("-f", "-", text=EGRESS)
    with manager() as address:
        for name in ("egressip_ip_capacity{", "oooi_certificate_expiry_timestamp_seconds{"):
            until(f"the manager exposes {name}", lambda name=name: name in fetch(f"http://{address}/metrics"))
        return fetch(f"http://{address}/metrics")


def exposed_by_servers():
    """What each server exposes, by its resource."""
    alone = ["unshare", "--net"] + ([] if os.geteuid() == 0 else ["--map-root-user"])
    command = [*alone, sys.executable, "-B", DEPLOY / "tests/scene.py", OOOI, testbed() / "bin/envoy"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise AssertionError(done.stderr)
    return json.loads(done.stdout)


def series(page, **added):
    """The series of a page with the labels that Prometheus adds, and their values."""
    more = [f'{label}="{value}"' for label, value in added.items()]
    for line in page.splitlines():
        if line and not line.startswith("#"):
            name, labels, value = LINE.match(line).group("name", "labels", "value")
            yield f"{name}{{{','.join(([labels] if labels else []) + more)}}}", value


def families(page):
    """The names of the metrics of a page, as the reference has them."""
    kinds = re.findall(r"^# TYPE (\w+) (\w+)$", page, re.MULTILINE)
    return {f"{name}_total" if kind == "counter" else name for name, kind in kinds}


def has_result(query, labels):
    """An expression that has no result if the query has one with all of these labels.

    Comparisons say 0 or 1 instead of leaving out what does not hold, and what is written for want of a result goes.
    """
    query = re.sub(r" (==|>=|<=|>|<) ", r" \1 bool ", query).replace(" or vector(0)", "")
    query = re.sub(r"^absent\(", "count(", query)
    query = query.replace("$__rate_interval", "5m").replace('"$namespace"', '".*"').replace('"$server"', '".*"')
    with_labels = "".join(f" unless on ({label}) vector(0)" for label in sorted(labels))
    return f"absent(({query}){with_labels})"


def unanswered(queries, exposed):
    """Those of the queries that have no result, or one without the labels that are shown of it."""
    checks = {has_result(query, labels): name for name, query, labels in queries}
    test = {
        "interval": "1m",
        "input_series": [{"series": name, "values": f"{value}x10"} for name, value in exposed],
        "promql_expr_test": [{"expr": expression, "eval_time": "10m", "exp_samples": []} for expression in checks],
    }
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        yaml.safe_dump({"evaluation_interval": "1m", "tests": [test]}, file)
        file.flush()
        done = run("promtool", "test", "rules", file.name, ok=None)
    said = done.stdout + done.stderr
    failed = [json.loads(quoted) for quoted in re.findall(r'expr: ("(?:[^"\\]|\\.)*"), time', said)]
    if (done.returncode == 0) != (not failed):
        raise AssertionError(said)
    return sorted({checks[expression] for expression in failed})


class AScrape(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        is_there()
        cls.manager, cls.servers = exposed_by_the_manager(), exposed_by_servers()
        cls.up = cls.servers.pop("up")
        [_, pods] = documents((PROMETHEUS / "monitors.yaml").read_text())
        [endpoint] = pods["spec"]["podMetricsEndpoints"]
        added = [relabeling["targetLabel"] for relabeling in endpoint["relabelings"]]
        cls.exposed = list(series(cls.manager, namespace="oooi-system", pod="oooi-manager-0"))
        for server, page in cls.servers.items():
            # The Prometheus operator adds the first two by itself.
            labels = {"namespace": "clusters", "pod": f"{server}-0", **dict.fromkeys(added, server)}
            cls.exposed += series(page, **labels)

    def test_answers_every_query(self):
        asked = list(queries())
        self.assertGreater(len(asked), 50)
        self.assertEqual(unanswered(asked, self.exposed), [])

    def test_does_not_answer_what_is_wrong(self):
        wrong = [
            ("a metric that there is not", "sum(rate(oooi_dns_queries[$__rate_interval]))", set()),
            ("a label that there is not", "sum by (zone) (oooi_dns_upstream_up)", {"zone"}),
            ("a value that there is not", 'oooi_dns_queries_total{view="mars"}', set()),
            ("two that do not match", "oooi_leader / oooi_proxy_endpoints", set()),
            ("one of two", "count(oooi_dns_upstream == 0) or vector(0)", set()),
        ]
        self.assertEqual(unanswered(wrong, self.exposed), sorted(name for name, _, _ in wrong))

    def test_has_all_that_the_reference_names_and_nothing_else(self):
        text = REFERENCE.read_text()
        named = set(re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE))
        found = set().union(*map(families, [self.manager, self.up, *self.servers.values()]))
        self.assertEqual(found, named)
        translated = set(re.findall(r"`(oooi_proxy_\w+)`", text.splitlines()[-1]))
        self.assertTrue(translated)
        self.assertLessEqual(translated, families(self.servers["other-cluster-proxy"]))


if __name__ == "__main__":
    unittest.main()
