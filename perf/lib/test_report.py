"""Measurements as a report: what is held, what is not, what the checks found. No server, no network."""

import json
import pathlib
import tempfile
import unittest

from lib import report
from lib.contests import PINNED, Contest, Limit, Side
from lib.turns import Timing, Turns, measurement, with_store_us

LATENCIES = ("p50", "p99", "p999", "max")
CONTEST = Contest(
    "asking",
    "asking, 2 pairs",
    ("request-reply", "--pairs", "2"),
    (Side("queen", "queen"), Side("redis", "redis")),
    (Limit("p50", 1.0, "redis"), Limit("cpu_us", 0.5, "redis"), Limit("p999", 5000)),
)


def run(p50, cpu_us, **faults):
    """A measurement, as loadgen reports it."""
    latency_us = {metric: factor * p50 for factor, metric in enumerate(LATENCIES, 1)}
    server = {"cpu_us_per_message": cpu_us, "rss_bytes": 1 << 20, "peak_rss_bytes": 2 << 20}
    reported = {"rate_per_s": 1e6 / p50, "latency_us": latency_us, "server": server, "errors": 0, **faults}
    reported["plan"] = {"rate_per_s": None}
    return measurement(reported, pathlib.Path("scratch/queen.json"))


ROUNDS = [
    {"queen": run(100, 20), "redis": run(200, 25)},
    {"queen": run(1000, 200, lost=3), "redis": run(1000, 250)},
    {"queen": run(100, 20), "redis": run(125, 25)},
]


class Measurement(unittest.TestCase):
    def test_the_cpu_of_a_durable_message_is_that_of_all_who_keep_it(self):
        used = {"cpu_us_per_message": 3.0, "rss_bytes": 0, "peak_rss_bytes": 0}
        of = {"scenario": "durable-push", "server": used, "postgres": used | {"cpu_us_per_message": 4.0}}
        self.assertEqual(with_store_us(of), 7.0)
        self.assertEqual(with_store_us(of | {"postgres": None}), 3.0)
        self.assertIsNone(with_store_us(of | {"scenario": "push"}))
        self.assertIsNone(with_store_us(of | {"server": used | {"cpu_us_per_message": None}}))


class Judgement(unittest.TestCase):
    def setUp(self):
        self.rows = {row["metric"]: row for row in report.judged(CONTEST, PINNED, ROUNDS)}

    def test_a_limit_is_judged_by_the_median_of_the_rounds_ratios(self):
        self.assertEqual((self.rows["p50"]["value"], self.rows["p50"]["verdict"]), (0.8, "held"))
        self.assertEqual((self.rows["cpu_us"]["value"], self.rows["cpu_us"]["verdict"]), (0.8, "not held"))

    def test_a_limit_beside_nobody_is_judged_by_the_median(self):
        self.assertEqual((self.rows["p999"]["value"], self.rows["p999"]["max"]), (300, 3000))

    def test_a_run_without_messages_is_no_measurement(self):
        empty = measurement(
            {
                "rate_per_s": 0.0,
                "latency_us": dict.fromkeys(LATENCIES, 0.0),
                "server": None,
                "lost": 1,
                "plan": {"rate_per_s": None},
            },
            pathlib.Path("queen.json"),
        )
        rounds = [{"queen": run(100, 20), "redis": empty}]
        self.assertEqual([row["verdict"] for row in report.judged(CONTEST, PINNED, rounds)][:1], ["not measured"])


class Report(unittest.TestCase):
    def setUp(self):
        self.scratch = tempfile.TemporaryDirectory()
        self.addCleanup(self.scratch.cleanup)
        turns = Turns(None, Timing(rounds=3, warmup_s=1, measured_s=3))
        output = pathlib.Path(self.scratch.name)
        results = {(CONTEST, PINNED): ROUNDS}
        self.text = report.write(output, "perf/compare", turns, results, {"redis": "Redis 7"}, "true")
        self.json = json.loads(next(output.glob("compare-*.json")).read_text())

    def test_it_says_what_is_held_and_what_is_not(self):
        self.assertIn("| asking, 2 pairs | redis | pinned | median | 0.80 (0.50 to 1.00) | 1.00 | held |", self.text)
        self.assertIn("| 0.80 (0.80 to 0.80) | 0.50 | **not held** |", self.text)

    def test_it_names_what_the_checks_found(self):
        self.assertIn("queen: 3 lost (asking, 2 pairs, pinned, round 2)", self.text)

    def test_it_names_the_longest_latency_of_ours(self):
        self.assertEqual(self.json["longest_us"], {"value": 4000, "where": "asking, 2 pairs, pinned"})

    def test_it_has_the_commands_the_machine_and_every_round(self):
        contest = self.json["contests"][0]
        command = "loadgen request-reply --pairs 2 --warmup 1s --duration 3s --cpus 1 --closed"
        self.assertEqual(contest["commands"]["queen"], command)
        self.assertEqual(len(contest["rounds"]), 3)
        self.assertNotIn("scratch", json.dumps(self.json))
        self.assertTrue(self.json["machine"]["cpu"])
        self.assertTrue(contest["plot"].endswith("asking.svg"))


if __name__ == "__main__":
    unittest.main()
