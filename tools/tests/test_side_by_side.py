"""What the outputs of test programs count as, and which of them run one after the other."""

import unittest

from side_by_side import counts, groups

WELL = "running 3 tests\n...\ntest result: ok. 3 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out\n"
ILL = "running 3 tests\n..F\ntest result: FAILED. 2 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out\n"


class Counts(unittest.TestCase):
    def test_passed_and_failed_are_what_the_program_says(self):
        self.assertEqual(counts(WELL, 0), (3, 0))
        self.assertEqual(counts(ILL, 101), (2, 1))

    def test_a_program_without_tests_is_one_itself(self):
        self.assertEqual(counts("it went well\n", 0), (1, 0))
        self.assertEqual(counts("", 1), (0, 1))

    def test_a_program_that_ends_badly_failed_whatever_it_says(self):
        self.assertEqual(counts(WELL, -9), (3, 1))


class Groups(unittest.TestCase):
    def test_those_that_a_pattern_names_run_one_after_the_other(self):
        programs = [("a/one", "1", "a"), ("b/egress_x", "2", "b"), ("b/two", "3", "b"), ("c/egress_y", "4", "c")]
        one, x, two, y = programs
        self.assertEqual(groups(programs, ["egress"]), [[x, y], [one], [two]])
        self.assertEqual(groups(programs, ["egress", "b/"]), [[x, y], [two], [one]])
        self.assertEqual(groups(programs, ["none"]), [[program] for program in programs])


if __name__ == "__main__":
    unittest.main()
