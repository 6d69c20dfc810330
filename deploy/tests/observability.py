"""The alerts and the dashboard as Python values, and what both ask."""

import json
import re

from tools import DEPLOY, documents

PROMETHEUS = DEPLOY / "prometheus"


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
    """What is asked: by whom, the query, and the labels that are shown of its answer."""
    for name, alert in alerts().items():
        yield name, alert["expr"], set(re.findall(r"\$labels\.(\w+)", str(alert["annotations"])))
    for panel in dashboard()["panels"]:
        for target in panel.get("targets", []):
            yield panel["title"], target["expr"], set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
    for variable in dashboard()["templating"]["list"]:
        if variable["type"] == "query":
            query, label = re.fullmatch(r"label_values\((.+), (\w+)\)", variable["query"]).groups()
            yield f"${variable['name']}", query, {label}
