"""Server processes: started, asked for their CPU time and memory, and never left behind.

A child is killed by the kernel when this process dies in whatever way, so that no server outlives a comparison.
"""

import contextlib
import ctypes
import os
import pathlib
import signal
import socket
import subprocess
import tempfile
import time

HOST = "127.0.0.1"
TICKS_PER_S = os.sysconf("SC_CLK_TCK")
START_MAX_S = 60
STOP_MAX_S = 5

_PR_SET_PDEATHSIG = 1
_prctl = ctypes.CDLL(None).prctl


class Failed(Exception):
    """What went wrong, and what to do, in a sentence."""


def free_port():
    """A port that nobody listened at a moment ago."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return probe.getsockname()[1]


def exit_on_signals():
    """Makes a termination unwind like Ctrl-C does, through every `with` and `finally`."""

    def leave(number, _frame):
        # A second one must not cut the clean-up short.
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        raise SystemExit(128 + number)

    signal.signal(signal.SIGTERM, leave)
    signal.signal(signal.SIGINT, leave)


class Child:
    """A process with its output in a file, in a session of its own: a Ctrl-C reaches this process alone."""

    def __init__(self, name, command, env=None, cpu=None, user=None):
        self.name = name
        self.command = [str(word) for word in command]
        self.output = tempfile.TemporaryFile()
        as_user = {} if user is None else {"user": user, "group": user, "extra_groups": []}
        confined = [] if cpu is None else ["taskset", "-c", str(cpu)]
        try:
            self.process = subprocess.Popen(
                confined + self.command,
                stdin=subprocess.DEVNULL,
                stdout=self.output,
                stderr=subprocess.STDOUT,
                env=env,
                cwd="/",
                start_new_session=True,
                preexec_fn=lambda: _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL),
                **as_user,
            )
        except OSError as error:
            raise Failed(f"{name} did not start: {error}") from error

    @property
    def pid(self):
        return self.process.pid

    def said(self):
        """All that it has written so far."""
        size = os.fstat(self.output.fileno()).st_size
        return os.pread(self.output.fileno(), size, 0).decode(errors="replace")

    def wait_until(self, is_ready):
        """Asks again and again until the answer is true-ish, and returns it. A child that ends meanwhile has failed."""
        deadline = time.monotonic() + START_MAX_S
        while time.monotonic() < deadline:
            ready = is_ready()
            if ready:
                return ready
            if self.process.poll() is not None:
                raise Failed(f"{self.name} ended with {self.process.returncode}:\n{self.said()}")
            time.sleep(0.01)
        raise Failed(f"{self.name} was not ready within {START_MAX_S} s:\n{self.said()}")

    def cpu_s(self):
        """User and system time since its start."""
        # After the name, which may hold anything but a closing bracket behind its last one.
        fields = pathlib.Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS_PER_S

    def resident_bytes(self):
        """Its resident memory now."""
        pages = int(pathlib.Path(f"/proc/{self.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")

    def stop(self, with_signal=signal.SIGTERM):
        """Ends it, by force if it does not end by itself."""
        if self.process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                self.process.send_signal(with_signal)
            try:
                self.process.wait(STOP_MAX_S)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self.output.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()


def answers(port, question=b"", answer=b""):
    """Whether something at this port answers the question with these first bytes."""
    try:
        with socket.create_connection((HOST, port), timeout=1) as connection:
            connection.sendall(question)
            return connection.recv(len(answer) or 1).startswith(answer) if answer or question else True
    except OSError:
        return False
