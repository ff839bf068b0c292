"""The broker as a child process, for tests of the published Python client.

The binary is the one that the environment variable QUEEN_BIN names. Each test gets a broker of its
own, on a port that the kernel chooses and in a directory of its own, with two data shards where the
machine has two cores.
"""

import asyncio
import inspect
import json
import os
import re
import subprocess
import threading
import time
import urllib.request

import pytest
from queen import Queen

PATIENCE_S = 60
LISTENING = re.compile(r"listening on \S*:(\d+)")


class Broker:
    """A running broker."""

    def __init__(self, data_dir, scheme="http", settings=None):
        cores = sorted(os.sched_getaffinity(0))[:2]
        environment = {
            "NO_COLOR": "1",
            "PORT": "0",
            "QUEEN_BIND_ADDR": "127.0.0.1",
            "QUEEN_DATA_DIR": str(data_dir),
            "QUEEN_DATA_CPUS": ",".join(map(str, cores)),
            **(settings or {}),
        }
        self._base = f"{scheme}://" + ("127.0.0.1" if scheme == "http" else "localhost")
        self.log = []
        self._listening = threading.Event()
        self.url = None
        self._process = subprocess.Popen(
            [os.environ["QUEEN_BIN"]], env=environment, stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, errors="replace",
        )
        self._reader = threading.Thread(target=self._read_log, daemon=True)
        self._reader.start()
        if not self._listening.wait(PATIENCE_S) or self.url is None:
            self.kill()
            raise AssertionError("the broker does not listen:\n" + "".join(self.log))
        eventually("a healthy broker", self._is_healthy)

    def get(self, target):
        """The JSON that a GET answers."""
        with urllib.request.urlopen(self.url + target, timeout=PATIENCE_S) as response:
            return json.load(response)

    def parked(self):
        """Pops that wait."""
        return self.get("/status")["parked"]

    def row(self, queue):
        """The listing's row of a queue, or None."""
        rows = self.get("/api/v1/ephemeral/queues")["queues"]
        return next((row for row in rows if row["queue"] == queue), None)

    def kill(self):
        """Kills it and waits until it is gone."""
        self._process.kill()
        self._process.wait()
        self._reader.join()

    def _is_healthy(self):
        try:
            return self.get("/health")["status"] == "healthy"
        except OSError:
            return False

    def _read_log(self):
        for line in self._process.stderr:
            self.log.append(line)
            found = LISTENING.search(line)
            if found:
                self.url = f"{self._base}:{found[1]}"
                self._listening.set()
        self._listening.set()


def eventually(what, probe):
    """Asks `probe` again and again until it answers something true, and returns that."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        found = probe()
        if found:
            return found
        assert time.monotonic() < deadline, f"{what} did not happen within {PATIENCE_S} s"
        time.sleep(0.01)


async def eventually_async(what, probe):
    """As `eventually`, in a thread, so that the client's own tasks go on."""
    return await asyncio.to_thread(eventually, what, probe)


@pytest.fixture
def broker(tmp_path):
    """A broker that is killed after the test; its log is shown when the test fails."""
    broker = Broker(tmp_path)
    yield broker
    broker.kill()
    # pytest shows what a failed test printed, and only that.
    print("".join(broker.log))


def pytest_pyfunc_call(pyfuncitem):
    """Runs a test that is a coroutine function on an event loop of its own."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    arguments = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
    asyncio.run(pyfuncitem.obj(**arguments))
    return True


def connect(broker):
    """A client that reports a 429 at once, where its default is to try for half a minute."""
    return Queen(broker.url, retry_429={"max_attempts": 1})
