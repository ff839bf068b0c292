"""The table of contests holds together: names, sides, limits. No server, no network."""

import unittest

from lib.contests import CONTESTS, FREE, METRICS, PEERS, PINNED


class Table(unittest.TestCase):
    def test_names_are_unique_and_fit_a_file(self):
        names = [contest.name for contest in CONTESTS]
        self.assertEqual(len(names), len(set(names)))
        for name in names:
            self.assertRegex(name, r"^[a-z0-9-]+$")

    def test_a_limit_names_a_metric_and_a_side_of_its_contest(self):
        for contest in CONTESTS:
            others = {side.name for side in contest.sides[1:]}
            for limit in contest.limits:
                self.assertIn(limit.metric, METRICS)
                self.assertIn(limit.beside, others | {None}, contest.name)

    def test_a_server_is_ours_the_floor_or_a_peer(self):
        servers = {side.server for contest in CONTESTS for side in contest.sides}
        self.assertEqual(servers - {"queen", "floor"}, set(PEERS))


class Choice(unittest.TestCase):
    def setUp(self):
        self.contest = next(contest for contest in CONTESTS if contest.name == "request-reply-8")

    def test_a_peer_that_is_not_to_be_had_takes_its_limits_with_it(self):
        left = self.contest.among({"queen-engine"}, [PINNED, FREE])
        self.assertEqual([side.name for side in left.sides], ["queen", "redis"])
        self.assertEqual({limit.beside for limit in left.limits}, {"redis"})

    def test_with_nobody_to_compare_with_a_contest_is_left_out(self):
        self.assertIsNone(self.contest.among(set(PEERS), [PINNED, FREE]))

    def test_a_contest_that_needs_nobody_stays(self):
        parked = next(contest for contest in CONTESTS if contest.name == "parked")
        self.assertIsNotNone(parked.among(set(PEERS), [PINNED]))
        self.assertIsNone(parked.among(set(), [FREE]))


if __name__ == "__main__":
    unittest.main()
