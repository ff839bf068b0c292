"""The broker and the floor as servers of a comparison, and the answers that the floor gives in the broker's place."""

import json
import os
import re
import socket

from .children import HOST, Child, Failed

# Far above what a run keeps, so that no limit is measured. The queues that only grow are bounded by a declaration.
LIMITS = {
    "QUEEN_EPHEMERAL_MAX_BYTES": str(2 << 30),
    "QUEEN_EPHEMERAL_QUEUE_MAX_BYTES": str(1 << 30),
    "QUEEN_EPHEMERAL_QUEUE_MAX_LENGTH": "1000000",
}

PUSH = "/api/v1/ephemeral/push"
POP = "/api/v1/ephemeral/pop?queue=floor-drain&batch=100&autoAck=true"
MESSAGE = '{"payload":"' + "x" * 254 + '"}'

# A queue that only takes pushes: full, it drops as much as it takes, as a queue does that is never quite read.
PUSH_QUEUE = {"maxLength": 10000, "policy": "dropOldest"}


def environment(**settings):
    """This process's environment with these settings and no others of the broker's."""
    of_brokers = ("QUEEN_", "PG_", "DATABASE_URL", "DB_POOL_SIZE", "JWT_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(of_brokers)}
    return kept | settings


def start_broker(binary, data_dir, data_cpus, store=None):
    """The broker on a port of its own, with a data shard on each of these cores. `store` are settings of a PostgreSQL."""
    settings = {
        "PORT": "0",
        "QUEEN_BIND_ADDR": HOST,
        "QUEEN_DATA_DIR": str(data_dir),
        "QUEEN_DATA_CPUS": str(data_cpus),
        "QUEEN_SPIN_US": "0",
        # It logs next to nothing after the start.
        "LOG_LEVEL": "info",
    }
    return listening(Child("the broker", [binary], environment(**LIMITS, **settings, **(store or {}))))


def start_floor(binary, *arguments):
    """The floor on a port of its own."""
    return listening(Child("the floor", [binary, "--port", "0", *arguments]))


def listening(server):
    """Waits for the line that says where it listens, and keeps its port."""
    try:
        found = server.wait_until(lambda: re.search(r"listening on \S+:(\d+)", server.said()))
    except BaseException:
        server.stop()
        raise
    server.port = int(found.group(1))
    return server


def exchange(port, method, path, body=""):
    """One request on a connection of its own; the whole answer as bytes."""
    head = f"{method} {path} HTTP/1.1\r\nHost: {HOST}:{port}\r\n"
    if method == "POST":
        head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
    with socket.create_connection((HOST, port), timeout=60) as connection:
        connection.sendall((head + "\r\n" + body).encode())
        answer = b""
        while True:
            read = connection.recv(1 << 16)
            if not read:
                raise Failed(f"{method} {path} was cut off after {answer!r}")
            answer += read
            found = re.search(rb"content-length: (\d+)", answer, re.IGNORECASE)
            end = answer.find(b"\r\n\r\n")
            if found and end >= 0 and len(answer) >= end + 4 + int(found.group(1)):
                break
    if not answer.startswith((b"HTTP/1.1 200", b"HTTP/1.1 201")):
        raise Failed(f"{method} {path} answered {answer!r}")
    return answer


def push_body(queue, messages):
    """A push of so many messages of 256 bytes."""
    return f'{{"queue":"{queue}","messages":[{",".join([MESSAGE] * messages)}]}}'


def configure(port, queue, options):
    """Declares a queue."""
    exchange(port, "POST", "/api/v1/ephemeral/configure", json.dumps({"queue": queue, "options": options}))


def record_answers(port, directory):
    """Writes the broker's answers to a push, a push of 100 and a pop of 100 where the floor reads them."""
    configure(port, "floor-push", PUSH_QUEUE)
    answers = {
        "push": exchange(port, "POST", PUSH, push_body("floor-push", 1)),
        "push-batch": exchange(port, "POST", PUSH, push_body("floor-push", 100)),
    }
    # Ids grow with the number of messages: record one as long as most of a run's.
    for _ in range(1000):
        exchange(port, "POST", PUSH, push_body("floor-drain", 100))
        answers["pop"] = exchange(port, "GET", POP)
    for name, answer in answers.items():
        (directory / name).write_bytes(answer)
