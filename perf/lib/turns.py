"""Runs contests: each side in turns, on a server that was started for the run alone."""

import contextlib
import dataclasses
import json
import pathlib
import re
import subprocess
import threading

from .broker import exchange, record_answers, start_broker, start_floor
from .children import HOST, Failed
from .contests import PINNED
from .numbers import median
from .place import ROOT

SERVER_CPU, LOAD_CPU = 0, 1
SCHEMES = {"redis": "redis", "nats": "nats"}

# What a run takes beside its warm-up and its measured part, about: start, last messages, stop.
BESIDE_S = {"queen-engine": 4.0}
BESIDE_ELSE_S = 1.0
PARKING_S = 12.0
# To fill, to read back, and a schema.
DURABLE_S = 12.0
BACKLOG_MAX_S = 120


@dataclasses.dataclass(frozen=True)
class Tools:
    """The programs of a comparison, and its scratch directory."""

    broker: pathlib.Path
    floor: pathlib.Path
    loadgen: pathlib.Path
    peers: object
    scratch: pathlib.Path


@dataclasses.dataclass(frozen=True)
class Timing:
    """How long each run is."""

    rounds: int
    warmup_s: float
    measured_s: float

    def run_s(self, contest, side):
        """What a run takes, about."""
        beside_s = PARKING_S if contest.parked else BESIDE_S.get(side.server, BESIDE_ELSE_S)
        if side.store:
            beside_s = DURABLE_S
        return self.warmup_s + self.measured_s + beside_s

    def contest_s(self, contest):
        """What a contest takes, about."""
        round_s = sum(self.run_s(contest, side) for side in contest.sides)
        calibration_s = self.run_s(contest, contest.sides[0]) if contest.share_of_peak else 0
        return len(contest.placements) * (self.rounds * round_s + calibration_s)


class Turns:
    """Runs contests with the same tools and timing."""

    def __init__(self, tools, timing):
        self.tools = tools
        self.timing = timing

    def all_rounds(self, contest, placement):
        """The contest's rounds: a measurement by side each, one after the other."""
        pace = contest.pace
        if contest.share_of_peak:
            peak = self.run(contest, placement, contest.sides[0], pace, "peak")
            rate = round(contest.share_of_peak * peak["rate_per_s"])
            print(f"  a closed loop reaches {peak['rate_per_s']:,.0f}/s: paced at {rate:,}/s", flush=True)
            pace = ("--rate", str(rate), "--arrivals", "poisson")
        rounds = []
        for number in range(1, self.timing.rounds + 1):
            measured = {}
            for side in contest.sides:
                measured[side.name] = self.run(contest, placement, side, pace, f"round-{number}")
                print(f"  round {number}  {said(side, measured[side.name])}", flush=True)
            rounds.append(measured)
        return rounds

    def run(self, contest, placement, side, pace, name):
        """One measurement on a fresh server. A generator's failed check is in the measurement, not an exception."""
        directory = self.tools.scratch / contest.name / placement / name
        directory.mkdir(parents=True, exist_ok=True)
        report = directory / f"{side.name}.json"
        with contextlib.ExitStack() as undo:
            database = undo.enter_context(self.tools.peers.database()) if side.store == "postgres" else None
            server = undo.enter_context(self.server(side, placement, directory, database))
            if side.generator == "wrk":
                return self.run_wrk(server, placement)
            if contest.parked:
                with ParkedMemory(server, contest.parked) as memory:
                    measured = self.run_loadgen(contest, placement, side, pace, server, report)
                return measured | {"bytes_each": memory.bytes_each}
            return self.run_loadgen(contest, placement, side, pace, server, report)

    def server(self, side, placement, directory, database):
        cpu = SERVER_CPU if placement == PINNED else None
        if side.server == "queen":
            return start_broker(self.tools.broker, directory / f"data-{side.name}", side.data_cpus, database)
        if side.server == "floor":
            on_a_core = [] if cpu is None else ["--cpu", cpu]
            return start_floor(self.tools.floor, *on_a_core, "--answers", self.recorded_answers())
        return self.tools.peers.start(side.server, cpu, database)

    def recorded_answers(self):
        """The directory with the broker's answers, recorded at the first use."""
        directory = self.tools.scratch / "answers"
        if not directory.exists():
            directory.mkdir()
            with start_broker(self.tools.broker, self.tools.scratch / "recorded", SERVER_CPU) as broker:
                record_answers(broker.port, directory)
        return directory

    def load_command(self, contest, placement, side):
        """The command that puts the load on, without its target and its pace."""
        cpus = ["--cpus", str(LOAD_CPU)] if placement == PINNED else []
        # A backlog is popped from its first message on, for as long as it lasts.
        is_backlog = contest.load[0] == "durable-pop"
        warmup_s, measured_s = (0, BACKLOG_MAX_S) if is_backlog else (self.timing.warmup_s, self.timing.measured_s)
        times = ["--warmup", f"{warmup_s:g}s", "--duration", f"{measured_s:g}s"]
        return ["loadgen", *contest.load, *side.load, *times, *cpus]

    def run_loadgen(self, contest, placement, side, pace, server, report):
        command = [self.tools.loadgen, *self.load_command(contest, placement, side)[1:], *pace, "--quiet"]
        command += ["--target", f"{SCHEMES.get(side.server, 'http')}://{HOST}:{server.port}"]
        if side.store == "postgres":
            command += ["--postgres-pid", self.tools.peers.cluster().server.pid]
        command += ["--server-pid", server.pid, "--json", report, "--plot", report.with_suffix(".svg")]
        ran = subprocess.run([str(word) for word in command], capture_output=True, text=True, stdin=subprocess.DEVNULL)
        if ran.returncode not in (0, 1) or not report.exists():
            raise Failed(f"`{' '.join(ran.args)}` ended with {ran.returncode}:\n{ran.stdout}{ran.stderr}")
        return measurement(json.loads(report.read_text()), report)

    def run_wrk(self, server, placement):
        cpus = ["taskset", "-c", str(LOAD_CPU)] if placement == PINNED else []
        seconds = round(self.timing.warmup_s + self.timing.measured_s)
        command = [*cpus, "wrk", "-t1", "-c16", f"-d{seconds}s", "-s", ROOT / "perf" / "wrk" / "push.lua"]
        cpu_before_s = server.cpu_s()
        ran = subprocess.run([*map(str, command), f"http://{HOST}:{server.port}"], capture_output=True, text=True)
        cpu_s = server.cpu_s() - cpu_before_s
        requests = re.search(r"(\d+) requests in", ran.stdout)
        rate = re.search(r"Requests/sec:\s+([\d.]+)", ran.stdout)
        if not requests or not rate or "Non-2xx" in ran.stdout or "Socket errors" in ran.stdout:
            raise Failed(f"wrk went wrong:\n{ran.stdout}{ran.stderr}")
        rate_per_s = float(rate.group(1))
        return {
            "rate_per_s": rate_per_s,
            "interval_us": 1e6 / rate_per_s,
            "cpu_us": 1e6 * cpu_s / int(requests.group(1)),
            "faults": {},
        }


class ParkedMemory:
    """Looks on until the broker counts all the pops as parked, and then at what each has cost it in resident memory."""

    LOOK_EVERY_S = 0.2

    def __init__(self, server, count):
        self.server = server
        self.count = count
        self.bytes_each = None
        self.is_over = threading.Event()
        # So that what a first request costs is not counted.
        self.parked()
        self.before_bytes = server.resident_bytes()
        self.thread = threading.Thread(target=self.look)

    def parked(self):
        metrics = exchange(self.server.port, "GET", "/metrics/prometheus").decode()
        return int(re.search(r"^queen_parked_long_polls (\d+)$", metrics, re.MULTILINE).group(1))

    def look(self):
        while not self.is_over.wait(self.LOOK_EVERY_S):
            # It answers no questions while it opens thousands of connections, or when it has ended.
            with contextlib.suppress(OSError, Failed):
                if self.parked() >= self.count:
                    self.bytes_each = (self.server.resident_bytes() - self.before_bytes) / self.count
                    return

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.is_over.set()
        self.thread.join()


def measurement(report, path):
    """What counts of a report of loadgen. Latencies in microseconds."""
    server = report["server"] or {}
    kinds = ("lost", "duplicated", "reordered", "corrupted", "errors")
    return {
        "rate_per_s": report["rate_per_s"],
        "paced_per_s": report["plan"]["rate_per_s"],
        "interval_us": 1e6 / report["rate_per_s"] if report["rate_per_s"] else None,
        **{metric: report["latency_us"][metric] or None for metric in ("p50", "p99", "p999", "max")},
        "cpu_us": server.get("cpu_us_per_message"),
        "with_store_us": with_store_us(report),
        "peak_bytes": server.get("peak_rss_bytes"),
        "faults": {kind: report[kind] for kind in kinds if report.get(kind)},
        "report": str(path),
    }


def with_store_us(report):
    """The CPU time of a durable message, PostgreSQL's included where it is one; None of others."""
    used = [report[part]["cpu_us_per_message"] for part in ("server", "postgres") if report.get(part)]
    is_durable = report.get("scenario", "").startswith("durable-")
    return sum(used) if is_durable and used and None not in used else None


def said(side, measured):
    """A measurement in a line."""
    words = [f"{side.name:12} {measured['rate_per_s']:9,.0f}/s"]
    for name, metric in (("p50", "p50"), ("p99", "p99"), ("max", "max"), ("CPU", "cpu_us"), ("all CPU", "with_store_us")):
        if measured.get(metric) is not None:
            words.append(f"{name} {measured[metric]:9,.1f} us")
    if measured.get("bytes_each"):
        words.append(f"{measured['bytes_each']:,.0f} bytes each")
    words += [f"{kind.upper()} {count:,}" for kind, count in measured["faults"].items()]
    return "  ".join(words)


def medians(rounds, side):
    """The medians of a side's measurements by metric."""
    metrics = dict.fromkeys(metric for measured in rounds for metric in measured[side])
    figures = [metric for metric in metrics if metric not in ("faults", "report")]
    return {metric: median(measured[side].get(metric) for measured in rounds) for metric in figures}
