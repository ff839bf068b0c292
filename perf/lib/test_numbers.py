"""`python3 -m unittest discover -s perf` runs these: no server, no network."""

import unittest

from lib.numbers import Ratio, median, median_round, verdict


class Ratios(unittest.TestCase):
    def test_a_ratio_pairs_the_rounds_and_not_the_medians(self):
        # The machine slowed down by ten in the second round: for both.
        ratio = Ratio.of([10, 100, 12], [20, 200, 20])
        self.assertEqual((ratio.median, ratio.smallest, ratio.largest), (0.5, 0.5, 0.6))

    def test_a_round_that_one_side_missed_counts_for_neither(self):
        self.assertEqual(Ratio.of([1, None, 3], [2, 2, 2]), Ratio(1.0, 0.5, 1.5))
        self.assertEqual(Ratio.of([1, 9], [2, 0]), Ratio(0.5, 0.5, 0.5))

    def test_nothing_in_common_is_no_ratio(self):
        self.assertIsNone(Ratio.of([], []))
        self.assertIsNone(Ratio.of([None], [1]))
        self.assertIsNone(Ratio.of([1], [0]))

    def test_a_ratio_reads_as_its_median_and_its_spread(self):
        self.assertEqual(str(Ratio(0.5, 0.25, 1)), "0.50 (0.25 to 1.00)")


class Medians(unittest.TestCase):
    def test_the_median_leaves_out_what_was_not_measured(self):
        self.assertEqual(median([3, None, 1]), 2)
        self.assertIsNone(median([None]))

    def test_the_median_round_is_one_that_was_measured(self):
        self.assertEqual(median_round([30, 10, None, 20]), 3)
        self.assertEqual(median_round([5, 4]), 1)
        self.assertIsNone(median_round([None]))


class Verdicts(unittest.TestCase):
    def test_a_limit_is_held_up_to_itself(self):
        self.assertEqual(verdict(1.05, 1.05), "held")
        self.assertEqual(verdict(1.06, 1.05), "not held")

    def test_what_was_not_measured_is_not_held(self):
        self.assertEqual(verdict(None, 1.0), "not measured")


if __name__ == "__main__":
    unittest.main()
