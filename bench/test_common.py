"""How goals are told."""

import unittest

from common import goals


class Goals(unittest.TestCase):
    def verdict(self, measured, limit):
        return goals([("g", measured, limit, 2)]).splitlines()[2]

    def test_what_is_kept_is_held_and_what_is_not_says_by_how_much(self):
        self.assertEqual(self.verdict(1.15, 1.15), "| g | 1.15 | held |")
        self.assertEqual(self.verdict(1.5, 1.2), "| g | 1.50 | missed by 25% |")

    def test_what_is_to_be_reached_says_what_lacks(self):
        self.assertEqual(self.verdict(2.5, ">=2"), "| g | 2.50 | held |")
        self.assertEqual(self.verdict(1.5, ">=2"), "| g | 1.50 | missed by 25% |")

    def test_nothing_where_nothing_is_wanted_is_held(self):
        self.assertEqual(self.verdict(0, 0), "| g | 0.00 | held |")
        self.assertEqual(self.verdict(3, 0), "| g | 3.00 | missed |")

    def test_what_was_not_measured_says_so(self):
        self.assertEqual(self.verdict(None, 1), "| g | – | not measured |")


if __name__ == "__main__":
    unittest.main()
