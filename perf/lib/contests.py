"""What is compared with what, under which load, and what ratio is wanted: the table of perf/compare.

The first side of a contest is ours. Every ratio is ours over another side's, so smaller is better throughout.
"""

import dataclasses

PINNED, FREE = "pinned", "free"

PEERS = ("redis", "nats", "queen-engine")

# How each figure is called where people read it.
METRICS = {
    "p50": "median",
    "p99": "p99",
    "p999": "p99.9",
    "max": "longest",
    "cpu_us": "server CPU a message",
    "with_store_us": "server and PostgreSQL CPU a message",
    "peak_bytes": "peak memory",
    "bytes_each": "memory of one",
    "interval_us": "time a message",
}


@dataclasses.dataclass(frozen=True)
class Side:
    """A server, and how it is spoken to."""

    name: str
    # queen, floor, or one of PEERS.
    server: str
    # Of queen: the cores that have a data shard each.
    data_cpus: str = "0"
    # Flags of loadgen that it alone takes.
    load: tuple = ()
    # What puts the load on it.
    generator: str = "loadgen"
    # Of durable queues: where they are kept, postgres (a database of its own for each run) or sqlite.
    store: str = None


@dataclasses.dataclass(frozen=True)
class Limit:
    """The most that ours may be, as a multiple of another side's or, beside nobody, in the metric's own unit."""

    metric: str
    at_most: float
    beside: str = None


@dataclasses.dataclass(frozen=True)
class Contest:
    """Sides under one load, in turns."""

    name: str
    title: str
    load: tuple
    sides: tuple
    limits: tuple = ()
    placements: tuple = (PINNED, FREE)
    # Flags of loadgen for its pace.
    pace: tuple = ("--closed",)
    # In place of them, Poisson arrivals at this share of the rate that a closed loop reaches.
    share_of_peak: float = None
    # Long polls that the server is to hold at once, of which one's memory is wanted.
    parked: int = None

    def among(self, missing, placements):
        """The same without the servers that are not to be had, in those of its placements that are wanted.

        None if nothing is left of it: nobody to compare with, or no place.
        """
        sides = tuple(side for side in self.sides if side.server not in missing)
        names = {side.name for side in sides}
        limits = tuple(limit for limit in self.limits if limit.beside is None or limit.beside in names)
        placements = tuple(placement for placement in self.placements if placement in placements)
        is_alone = len(sides) == 1 and len(self.sides) > 1
        if is_alone or not placements:
            return None
        return dataclasses.replace(self, sides=sides, limits=limits, placements=placements)


def queen(*load, name="queen", data_cpus="0"):
    return Side(name, "queen", data_cpus, load)


def by_push_and_pop(pairs):
    at_most = 1.0 if pairs == 1 else 1.05
    return Contest(
        f"request-reply-{pairs}",
        f"request and reply by push and pop, {pairs} {'pair' if pairs == 1 else 'pairs'}",
        ("request-reply", "--pairs", str(pairs)),
        (queen("--style", "push-pop"), Side("redis", "redis"), Side("queen-engine", "queen-engine")),
        (
            *(Limit(metric, at_most, "redis") for metric in ("p50", "p99", "cpu_us")),
            Limit("cpu_us", 0.25, "queen-engine"),
        ),
    )


def by_the_verbs(pairs):
    return Contest(
        f"verbs-{pairs}",
        f"request and reply by the two verbs, {pairs} {'pair' if pairs == 1 else 'pairs'}",
        ("request-reply", "--pairs", str(pairs)),
        (queen("--style", "verbs"), Side("nats", "nats")),
        (Limit("p50", 1.1, "nats"), Limit("p99", 1.0, "nats"), Limit("cpu_us", 1.0, "nats")),
    )


def two_shards(pairs, limits):
    return Contest(
        f"two-shards-{pairs}",
        f"two data shards beside one, request and reply by push and pop, {pairs} pairs",
        ("request-reply", "--pairs", str(pairs), "--style", "push-pop"),
        (queen(name="two-shards", data_cpus="0,1"), queen(name="one-shard")),
        limits,
        # The server has both cores.
        (FREE,),
    )


def durable(name, title, load, limits):
    """Ours on PostgreSQL beside queen-engine on the same one, and ours on SQLite beside both."""
    sides = (
        Side("queen", "queen", store="postgres"),
        Side("queen-engine", "queen-engine", store="postgres"),
        Side("queen-sqlite", "queen", store="sqlite"),
    )
    limits = tuple(Limit(metric, at_most, "queen-engine") for metric, at_most in limits)
    # PostgreSQL has to run somewhere, too: with two cores all three share them.
    return Contest(f"durable-{name}", f"durable: {title}", load, sides, limits, (FREE,))


def many_partitions(name, title, many, at_least):
    """Pushes to 100,000 partitions beside pushes of 100 messages to one of 8."""
    sides = (
        Side("many", "queen", load=many, store="postgres"),
        Side("eight", "queen", load=("--partitions", "8", "--prefill", str(MANY)), store="postgres"),
    )
    limits = (Limit("interval_us", 1 / at_least, "eight"),)
    return Contest(f"durable-{name}", f"durable: {title}", DURABLE_BATCHES, sides, limits, (FREE,))


MANY = 100_000
IN_MANY = ("--partitions", str(MANY), "--prefill", str(MANY))
DURABLE_BATCHES = ("durable-push", "--connections", "8", "--batch", "100", "--size", "256")

DURABLE = (
    durable(
        "push",
        "push of one message of 256 bytes, 16 connections",
        ("durable-push", "--connections", "16", "--size", "256"),
        (("interval_us", 1 / 8), ("p50", 1 / 6)),
    ),
    durable(
        "batches",
        "push of 100 messages of 256 bytes, each to one of 8 partitions, 8 connections",
        (*DURABLE_BATCHES, "--partitions", "8"),
        (("interval_us", 1 / 3), ("with_store_us", 1 / 2)),
    ),
    durable(
        "pop",
        "pop with autoAck of up to 100 messages of 256 bytes over 8 partitions, 8 connections",
        ("durable-pop", "--connections", "8", "--batch", "100", "--partitions", "8", "--prefill", "200000"),
        (("interval_us", 1 / 4),),
    ),
    durable(
        "pipe",
        "push to a waiting pop, one message of 256 bytes under way",
        ("durable-pipe", "--pairs", "1", "--size", "256"),
        (("p50", 1 / 3),),
    ),
    many_partitions(
        "many-each",
        "100 messages to one of 100,000 partitions beside 100 messages to one of 8",
        IN_MANY,
        0.7,
    ),
    many_partitions(
        "many-across",
        "a message to each of 100 of 100,000 partitions beside 100 messages to one of 8",
        (*IN_MANY, "--across", "100"),
        0.4,
    ),
)

PUSH = ("push", "--connections", "16", "--size", "256")

CONTESTS = (
    *map(by_push_and_pop, (1, 8, 64)),
    *map(by_the_verbs, (1, 8, 64)),
    Contest(
        "push",
        "push of one message of 256 bytes, 16 connections",
        PUSH,
        (queen(), Side("queen-engine", "queen-engine"), Side("floor", "floor")),
        (Limit("cpu_us", 0.45, "queen-engine"), Limit("cpu_us", 1.3, "floor")),
    ),
    Contest(
        "batches",
        "push and drain in batches of 100 messages of 256 bytes, 4 connections each",
        ("push-pop", "--connections", "4", "--batch", "100", "--size", "256"),
        (queen(), Side("queen-engine", "queen-engine")),
        (Limit("cpu_us", 1 / 3, "queen-engine"),),
    ),
    two_shards(64, (Limit("cpu_us", 1.25, "one-shard"),)),
    two_shards(8, ()),
    Contest(
        "parked",
        "15,000 parked pops, then a push to each, all due at once",
        ("parked", "--parked", "15000", "--connections", "16", "--depth", "16"),
        (queen(),),
        # The longest latency is the time until all are woken, since all pushes are due within a millisecond.
        (Limit("bytes_each", 4096), Limit("max", 1e6)),
        (PINNED,),
        pace=("--rate", "15000000", "--arrivals", "constant"),
        parked=15_000,
    ),
    Contest(
        "half-of-the-peak",
        "open loop at half of the peak rate, Poisson arrivals, request and reply by push and pop, 64 pairs",
        ("request-reply", "--pairs", "64", "--style", "push-pop"),
        (queen(),),
        (Limit("p999", 5000),),
        share_of_peak=0.5,
    ),
    Contest(
        "generator",
        "the load generator beside wrk, both on the floor, push of 256 bytes, 16 connections",
        PUSH,
        (Side("loadgen", "floor"), Side("wrk", "floor", generator="wrk")),
        # At least 0.8 times its rate.
        (Limit("interval_us", 1.25, "wrk"),),
        (PINNED,),
    ),
    *DURABLE,
)
