"""Alerts fire when they should and are silent when they should; they and the dashboard use metrics that exist."""

import json
import re
import shutil
import tempfile
import unittest
from pathlib import Path

import yaml
from tools import DEPLOY, ROOT, documents, run

PROMETHEUS = DEPLOY / "prometheus"
# Written from the registries of the servers and of the manager; `make check` holds it to them.
REFERENCE = ROOT / "docs/reference/metrics.md"
METRIC = re.compile(r"\b(?:oooi|egressip)_[a-z0-9_]+\b")


def groups():
    """The groups of rules."""
    [rule] = documents((PROMETHEUS / "rules.yaml").read_text())
    return rule["spec"]["groups"]


def alerts():
    """The alerts by name."""
    return {rule["alert"]: rule for group in groups() for rule in group["rules"]}


def dashboard():
    """The dashboard."""
    return json.loads((PROMETHEUS / "oooi.json").read_text())


def queries():
    """The dashboard's queries with their panels, those of its variables included."""
    found = [(p["title"], t["expr"]) for p in dashboard()["panels"] for t in p.get("targets", [])]
    return found + [(v["name"], v["query"]) for v in dashboard()["templating"]["list"] if v["type"] == "query"]


class TheAlerts(unittest.TestCase):
    def test_fire_when_they_should_and_only_then(self):
        with tempfile.TemporaryDirectory() as directory:
            rules = Path(directory) / "groups.yaml"
            rules.write_text(yaml.safe_dump({"groups": groups()}))
            shutil.copy(PROMETHEUS / "rules_test.yaml", directory)
            run("promtool", "check", "rules", "--lint=all", "--lint-fatal", rules)
            run("promtool", "test", "rules", Path(directory) / "rules_test.yaml")

    def test_have_a_case_that_fires_and_one_that_does_not(self):
        [tests] = documents((PROMETHEUS / "rules_test.yaml").read_text())
        cases = [case for test in tests["tests"] for case in test["alert_rule_test"]]
        fires = {case["alertname"] for case in cases if case.get("exp_alerts")}
        silent = {case["alertname"] for case in cases if not case.get("exp_alerts")}
        self.assertEqual(fires, set(alerts()))
        self.assertEqual(silent, set(alerts()))

    def test_say_what_happened_and_what_to_do(self):
        for name, alert in alerts().items():
            with self.subTest(name):
                self.assertIn(alert["labels"]["severity"], ["warning", "critical"])
                self.assertEqual(sorted(alert["annotations"]), ["description", "summary"])

    def test_keep_the_names_that_people_route_by(self):
        self.assertLessEqual({"HighEgressIPUtilization", "ExtremelyHighEgressIPUtilization"}, set(alerts()))


class TheMetrics(unittest.TestCase):
    def known(self):
        """All series of the reference, with those that a histogram is made of."""
        series = set()
        for name, kind in re.findall(r"^\| `(\w+)` \| (\w+) \|", REFERENCE.read_text(), re.MULTILINE):
            series.add(name)
            if kind == "histogram":
                series.update(f"{name}_{part}" for part in ("bucket", "sum", "count"))
        self.assertGreater(len(series), 50, f"{REFERENCE} is read wrongly")
        return series

    def test_of_alerts_and_dashboard_exist(self):
        used = [(name, alert["expr"]) for name, alert in alerts().items()] + queries()
        known = self.known()
        for name, query in used:
            with self.subTest(name):
                named = set(METRIC.findall(query))
                self.assertTrue(named, query)
                self.assertEqual(named - known, set(), "no such metric")


class TheDashboard(unittest.TestCase):
    def test_has_queries_that_prometheus_reads(self):
        expressions = [query for _, query in queries() if not query.startswith("label_values(")]
        self.assertGreater(len(expressions), 30)
        rules = [
            {"record": f"panel:{number}", "expr": query.replace("$__rate_interval", "5m")}
            for number, query in enumerate(expressions)
        ]
        with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
            yaml.safe_dump({"groups": [{"name": "dashboard", "rules": rules}]}, file)
            file.flush()
            run("promtool", "check", "rules", file.name)

    def test_has_panels_that_do_not_overlap(self):
        cells = set()
        for panel in dashboard()["panels"]:
            at = panel["gridPos"]
            covered = {(at["x"] + i, at["y"] + j) for i in range(at["w"]) for j in range(at["h"])}
            self.assertFalse(cells & covered, panel["title"])
            self.assertLessEqual(at["x"] + at["w"], 24)
            cells |= covered


if __name__ == "__main__":
    unittest.main()
