"""Alerts fire when they should and are silent when they should. That their metrics exist: cluster_scrape.py."""

import shutil
import tempfile
import unittest
from pathlib import Path

import yaml
from observability import PROMETHEUS, alerts, dashboard, groups
from tools import documents, run


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


class TheDashboard(unittest.TestCase):
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
