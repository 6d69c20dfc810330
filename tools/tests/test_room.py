"""How much room a run needs, and what is said where there is less."""

import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from room import GIB, Place, standing, verdict

TARGET, CACHE = Path("/checkout/target"), Path("/cache")


def places(has=0, disks=(1, 1)):
    """A run that takes 9 GiB and 4 GiB from nothing, with so much of the former there."""
    return [Place(TARGET, 9 * GIB, has * GIB, disks[0]), Place(CACHE, 4 * GIB, 0, disks[1])]


class Room(unittest.TestCase):
    def test_a_run_from_nothing_needs_all_of_it(self):
        self.assertFalse(verdict(places(), {1: 13 * GIB})[1])
        self.assertTrue(verdict(places(), {1: 14 * GIB})[1])

    def test_what_is_there_is_not_needed_again(self):
        self.assertTrue(verdict(places(has=9), {1: 5 * GIB})[1])
        # More than a run takes makes up for nothing elsewhere.
        self.assertFalse(verdict(places(has=90), {1: 4 * GIB})[1])

    def test_each_file_system_counts_by_itself(self):
        self.assertTrue(verdict(places(disks=(1, 2)), {1: 10 * GIB, 2: 5 * GIB})[1])
        self.assertFalse(verdict(places(disks=(1, 2)), {1: 50 * GIB, 2: 4 * GIB})[1])

    def test_too_little_says_how_much_is_needed_how_much_there_is_and_what_may_go(self):
        lines, _ = verdict(places(has=3), {1: 2 * GIB})
        said = "\n".join(lines)
        for words in [
            "2.0 GiB are free, about 11.0 GiB will be written",
            "6.0 GiB into /checkout/target",
            "free 9.0 GiB more",
            "cargo clean",
        ]:
            self.assertIn(words, said)

    def test_a_folder_that_is_not_there_yet_will_be_where_its_parent_is(self):
        self.assertEqual(standing(Path("/nowhere/at/all")), Path("/"))


if __name__ == "__main__":
    unittest.main()
