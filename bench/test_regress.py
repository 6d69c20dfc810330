"""What the comparison with the baseline lets pass, and what it refuses."""

import json
import unittest

import regress
from common import Failed


class Judgement(unittest.TestCase):
    def test_five_percent_more_passes(self):
        regress.judge({"respond": 1000}, {"respond": 1050})

    def test_more_than_five_percent_fails_and_is_named(self):
        with self.assertRaisesRegex(Failed, "above the baseline: respond;"):
            regress.judge({"respond": 1000, "answer": 10}, {"respond": 1051, "answer": 10})

    def test_less_passes(self):
        regress.judge({"respond": 1000}, {"respond": 1})

    def test_a_function_without_a_baseline_fails(self):
        with self.assertRaisesRegex(Failed, "no baseline for respond"):
            regress.judge({}, {"respond": 1})

    def test_every_function_has_a_committed_baseline_and_nothing_else_has(self):
        committed = json.loads(regress.BASELINE.read_text())["instructions"]
        self.assertEqual(list(committed), [name for name, *_ in regress.FUNCTIONS])


if __name__ == "__main__":
    unittest.main()
