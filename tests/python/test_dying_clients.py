"""Clients that die at any moment of a pop: nothing they did not take is lost, nothing acked comes twice.

Raw sockets, since the published client does not die on request. Every run prints its seed; QUEEN_CHAOS_SEED repeats
one as far as threads allow, QUEEN_CHAOS_S makes it longer.
"""

import json
import os
import random
import re
import socket
import struct
import threading
import time
from urllib.parse import urlsplit

from conftest import eventually

EPHEMERAL = "/api/v1/ephemeral"
QUEUES = [f"q{index}" for index in range(6)]
PRODUCERS, CONSUMERS = 4, 24
PATIENCE_S = 60


class Connection:
    """A connection that can end in every way there is."""

    def __init__(self, url):
        where = urlsplit(url)
        self.socket = socket.create_connection((where.hostname, where.port), PATIENCE_S)
        self.rest = b""

    def send(self, method, target, body=None):
        text = b"" if body is None else json.dumps(body).encode()
        head = f"{method} {target} HTTP/1.1\r\nhost: b\r\ncontent-length: {len(text)}\r\n\r\n"
        self.socket.sendall(head.encode() + text)

    def receive(self):
        while b"\r\n\r\n" not in self.rest:
            self._read()
        head, self.rest = self.rest.split(b"\r\n\r\n", 1)
        length = int(re.search(rb"content-length: (\d+)", head).group(1))
        while len(self.rest) < length:
            self._read()
        body, self.rest = self.rest[:length], self.rest[length:]
        return int(head.split()[1]), json.loads(body)

    def call(self, *request):
        self.send(*request)
        return self.receive()

    def die(self, rng):
        """Ends by FIN or RST, with a stray pipelined byte before it or without."""
        if rng.random() < 0.5:
            self.socket.sendall(b"G")
        if rng.random() < 0.5:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()

    def _read(self):
        received = self.socket.recv(65536)
        if not received:
            raise EOFError("the broker closed the connection")
        self.rest += received


class Ledger:
    """What was pushed and what was acked, and what went wrong."""

    def __init__(self):
        self.lock = threading.Lock()
        self.pushed = dict.fromkeys(QUEUES, 0)
        self.acked = {queue: set() for queue in QUEUES}
        self.faults = []

    def reserve(self, queue, count):
        with self.lock:
            first = self.pushed[queue]
            self.pushed[queue] += count
            return range(first, first + count)

    def ack(self, queue, number):
        with self.lock:
            if number in self.acked[queue]:
                self.faults.append(f"{queue}: message {number} was acked twice")
            self.acked[queue].add(number)

    def is_settled(self):
        with self.lock:
            return all(len(self.acked[queue]) == self.pushed[queue] for queue in QUEUES)


def produce(url, ledger, rng, until):
    connection = Connection(url)
    while time.monotonic() < until:
        queue = rng.choice(QUEUES)
        messages = [{"payload": number} for number in ledger.reserve(queue, rng.randint(1, 5))]
        push = {"queue": queue, "partition": f"p{rng.randint(0, 3)}", "messages": messages}
        status, answer = connection.call("POST", f"{EPHEMERAL}/push", push)
        if status != 201:
            ledger.faults.append(f"push: {status} {answer}")
        time.sleep(rng.random() * 0.01)  # the pace of the load, not a wait for anything


def consume(url, ledger, rng, until, give_up):
    connection = Connection(url)
    while time.monotonic() < give_up and not (time.monotonic() > until and ledger.is_settled()):
        queue = rng.choice(QUEUES)
        wait_ms = rng.choice([50, 300, 1000])
        target = f"{EPHEMERAL}/pop?queue={queue}&batch={rng.randint(1, 7)}&wait=true&timeout={wait_ms}"
        if rng.random() < 0.3:
            target += f"&partition=p{rng.randint(0, 3)}"
        connection.send("GET", target)
        fate = rng.random()
        if fate < 0.25 and time.monotonic() < until:
            time.sleep(rng.random() * 0.02)  # dies while parked, or while its answer is on the way
            connection.die(rng)
            connection = Connection(url)
            continue
        if fate < 0.3:
            connection.socket.shutdown(socket.SHUT_WR)
        status, answer = connection.receive()
        if status != 200:
            ledger.faults.append(f"pop: {status} {answer}")
        if fate < 0.3:
            connection.socket.close()
            connection = Connection(url)
        acknowledge(connection, ledger, rng, queue, answer.get("messages", []))
    connection.socket.close()


def acknowledge(connection, ledger, rng, queue, messages):
    if not messages:
        return
    acks = [{"id": message["id"], "status": "retry" if rng.random() < 0.1 else "ok"} for message in messages]
    _, answer = connection.call("POST", f"{EPHEMERAL}/ack", {"queue": queue, "acks": acks})
    for message, result in zip(messages, answer["results"]):
        if result["outcome"] == "acked":
            ledger.ack(queue, message["payload"])


def test_clients_that_die_lose_nothing_and_double_nothing(broker):
    seed = int(os.environ.get("QUEEN_CHAOS_SEED", random.randrange(1 << 32)))
    print(f"QUEEN_CHAOS_SEED={seed}")
    control = Connection(broker.url)
    for index, queue in enumerate(QUEUES):
        # Leases end soon, so that what died with a client comes back within the test; some queues gather windows.
        options = {"leaseSeconds": 1, "retryLimit": 1_000_000}
        if index % 3 == 2:
            options["windowBuffer"] = {"ms": 20, "count": 5}
        assert control.call("POST", f"{EPHEMERAL}/configure", {"queue": queue, "options": options})[0] == 201
    ledger = Ledger()
    until = time.monotonic() + float(os.environ.get("QUEEN_CHAOS_S", "5"))
    give_up = until + PATIENCE_S

    def rng(number):
        return random.Random(seed * 1000 + number)

    workers = [
        threading.Thread(target=produce, args=(broker.url, ledger, rng(number), until)) for number in range(PRODUCERS)
    ] + [
        threading.Thread(target=consume, args=(broker.url, ledger, rng(100 + number), until, give_up))
        for number in range(CONSUMERS)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not ledger.faults, ledger.faults[:5]
    lost = {queue: ledger.pushed[queue] - len(ledger.acked[queue]) for queue in QUEUES}
    assert not any(lost.values()), f"never acked: {lost}"
    assert sum(ledger.pushed.values()) > 0
    eventually("every place of a gone client to be free", lambda: broker.parked() == 0)
    ephemeral = broker.get("/status")["ephemeral"]
    assert (ephemeral["messages"], ephemeral["bytes"]) == (0, 0), ephemeral
