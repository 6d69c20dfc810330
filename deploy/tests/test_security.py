"""The page on security leaves out no right of the manager."""

import re
import unittest

from tools import DEPLOY, ROOT, documents

PAGE = (ROOT / "docs/security.md").read_text()


def section(title):
    """The text below a heading."""
    return PAGE.split(f"\n## {title}\n")[1].split("\n## ")[0]


def named(file):
    """What the rules of a file's roles name: resources, apart from their parts, and the roles that may be bound."""
    for role in documents((DEPLOY / "kustomize/base" / file).read_text()):
        for rule in role.get("rules", []):
            yield from (resource.split("/")[0] for resource in rule["resources"])
            yield from rule["resourceNames"] if "bind" in rule["verbs"] else []


class ThePageOnSecurity(unittest.TestCase):
    def assert_told(self, file, text):
        words = set(re.findall(r"`([^`]+)`", text))
        self.assertEqual(sorted(set(named(file)) - words), [])

    def test_has_every_right_of_the_manager_in_its_table(self):
        rows = [line for line in section("What the manager may do").splitlines() if line.startswith("|")]
        # Parts have rows of their own: `services/status`, `hostedclusters/status`.
        self.assert_told("manager-role.yaml", "\n".join(row.split("|")[1] for row in rows))

    def test_has_every_right_for_egress_addresses_below_it(self):
        self.assert_told("egress-role.yaml", section("What the manager may do").split("`oooi-egress` is apart")[1])


if __name__ == "__main__":
    unittest.main()
