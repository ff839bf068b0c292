"""The other brokers of a comparison, each on a port of its own, in memory only, with its own defaults otherwise."""

import contextlib
import glob
import os
import pathlib
import pwd
import shutil
import signal
import subprocess
import tempfile

from .broker import LIMITS, environment
from .children import HOST, Child, Failed, answers, free_port
from .need import installed_crate, install_debian, need_commands, target_dir

ENGINE_VERSION = "1.3.0"

# What needs to be there for each, by the command that is looked for.
PACKAGES = {
    "redis": {"redis-server": "redis-server"},
    "nats": {"nats-server": "nats-server"},
}


class Peers:
    """Starts peers. Keeps the PostgreSQL that the queen-engine wants at its start running until it is closed."""

    def __init__(self, wanted, engine=None):
        """Installs what is missing of the peers that are wanted. `engine` is a built queen-engine."""
        self.engine = engine
        self.postgres = None
        self.has_schema = False
        for peer in wanted:
            need_commands(PACKAGES.get(peer, {}))
        if "queen-engine" in wanted:
            if engine is None:
                self.engine = installed_crate("queen-engine", ENGINE_VERSION, "queen", target_dir() / "peers")
            postgres_programs()

    def start(self, peer, cpu, database=None):
        """A peer that is ready, confined to a core if one is named. `database` is where it keeps durable queues."""
        if peer == "queen-engine":
            return self.start_engine(cpu, database)
        return {"redis": start_redis, "nats": start_nats}[peer](cpu)

    @contextlib.contextmanager
    def database(self):
        """The settings of a database in the cluster that nobody has used, thrown away afterwards."""
        with self.cluster().database() as name:
            yield self.cluster().settings(name)

    def cluster(self):
        """The cluster that all share, running from the first use on."""
        if self.postgres is None:
            self.postgres = Postgres()
        return self.postgres

    def versions(self, wanted):
        """What each says that it is."""
        commands = {"redis": ["redis-server", "--version"], "nats": ["nats-server", "--version"]}
        versions = {peer: first_line(commands[peer]) for peer in wanted if peer in commands}
        if "queen-engine" in wanted:
            postgres = first_line([postgres_programs() / "postgres", "--version"])
            versions["queen-engine"] = f"queen-engine {ENGINE_VERSION} beside {postgres}"
        return versions

    def start_engine(self, cpu, database=None):
        """The engine's own process: ephemeral queues touch no database, but it does not start without one."""
        # Once for each database is enough.
        is_first = database is not None or not self.has_schema
        self.has_schema |= database is None
        cluster = self.cluster()
        port = free_port()
        settings = {
            "PORT": str(port),
            "QUEEN_BIND_ADDR": HOST,
            **(database or cluster.settings("postgres")),
            "FILE_BUFFER_DIR": str(cluster.scratch / "buffers"),
            # Its limit is 5,000 messages a second: a limit is not what is measured.
            "QUEEN_EPHEMERAL_RATE": "1000000000",
            "QUEEN_EPHEMERAL_BURST": "2000000000",
            "QUEEN_APPLY_SCHEMA": "true" if is_first else "false",
        }
        engine = Child("the queen-engine", [self.engine], environment(**LIMITS, **settings), cpu)
        return ready(engine, port, b"GET /health HTTP/1.1\r\nHost: q\r\n\r\n", b"HTTP/1.1 200")

    def close(self):
        if self.postgres:
            self.postgres.stop()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def start_redis(cpu):
    port = free_port()
    command = ["redis-server", "--bind", HOST, "--port", port, "--save", "", "--appendonly", "no"]
    return ready(Child("redis", command, cpu=cpu), port, b"PING\r\n", b"+PONG")


def start_nats(cpu):
    port = free_port()
    return ready(Child("nats", ["nats-server", "-a", HOST, "-p", port], cpu=cpu), port, b"", b"INFO")


def ready(server, port, question, answer):
    """Waits until the server answers, and keeps its port."""
    try:
        server.wait_until(lambda: answers(port, question, answer))
    except BaseException:
        server.stop(signal.SIGKILL)
        raise
    server.port = port
    return server


def first_line(command):
    return subprocess.run(command, capture_output=True, text=True).stdout.partition("\n")[0].strip()


def postgres_programs():
    """Where PostgreSQL's newest server programs are, installed now if they are nowhere."""
    for attempt in range(2):
        on_path = shutil.which("initdb")
        found = [pathlib.Path(on_path)] if on_path else []
        found += map(pathlib.Path, glob.glob("/usr/lib/postgresql/*/bin/initdb"))
        if found:
            return max(found, key=lambda path: path.parent.parent.name.zfill(4)).parent
        if attempt == 0:
            install_debian(["postgresql"])
    raise Failed("PostgreSQL's initdb is nowhere; run: apt-get install postgresql")


class Postgres:
    """A private cluster that only a socket in its own directory leads to, thrown away at the end. It syncs each commit."""

    def __init__(self):
        # It refuses to run as root: there it runs as the user that Debian's package makes.
        self.user = "postgres" if os.geteuid() == 0 else None
        self.databases = 0
        programs = postgres_programs()
        with contextlib.ExitStack() as undo:
            # Not below TMPDIR, whose path may be too long for a socket's.
            self.scratch = pathlib.Path(tempfile.mkdtemp(prefix="queen-compare.", dir="/tmp"))
            undo.callback(shutil.rmtree, self.scratch, ignore_errors=True)
            data, self.sockets = self.scratch / "data", self.scratch / "sockets"
            for directory in (data, self.sockets):
                directory.mkdir()
                if self.user:
                    shutil.chown(directory, self.user)
            self.scratch.chmod(0o755)
            initdb = [programs / "initdb", "-D", data, "-U", "postgres", "-A", "trust"]
            initdb += ["-E", "UTF8", "--no-locale", "--no-sync"]
            made = subprocess.run(initdb, capture_output=True, text=True, cwd="/", **as_user(self.user))
            if made.returncode != 0:
                raise Failed(f"initdb failed:\n{made.stdout}{made.stderr}")
            command = [programs / "postgres", "-D", data, "-c", "listen_addresses=", "-c", "max_connections=300"]
            command += ["-c", f"unix_socket_directories={self.sockets}"]
            self.server = Child("PostgreSQL", command, user=self.user)
            undo.callback(self.server.stop, signal.SIGINT)
            self.server.wait_until(lambda: "ready to accept connections" in self.server.said())
            self.undo = undo.pop_all()

    def settings(self, database):
        """What tells a broker to use a database."""
        return {"PG_HOST": str(self.sockets), "PG_PORT": "5432", "PG_USER": "postgres", "PG_DATABASE": database}

    @contextlib.contextmanager
    def database(self):
        """The name of a new database. What earlier ones have left to write is written before."""
        self.databases += 1
        name = f"run_{self.databases}"
        self.run(f"CREATE DATABASE {name}")
        self.run("CHECKPOINT")
        try:
            yield name
        finally:
            self.run(f"DROP DATABASE {name} WITH (FORCE)")

    def run(self, statement, database="postgres"):
        """What one statement brings, by psql."""
        command = ["psql", "-h", self.sockets, "-U", "postgres", "-d", database, "-qXAt", "-v", "ON_ERROR_STOP=1"]
        command += ["-c", statement]
        ran = subprocess.run([str(word) for word in command], capture_output=True, text=True, cwd="/")
        if ran.returncode != 0:
            raise Failed(f"{statement}: {ran.stderr.strip()}")
        return ran.stdout.strip()

    def stop(self):
        self.undo.close()


def as_user(user):
    """What `subprocess` takes to run as somebody else."""
    if user is None:
        return {}
    try:
        pwd.getpwnam(user)
    except KeyError:
        raise Failed(f"there is no user {user} to run PostgreSQL as; run: apt-get install postgresql") from None
    return {"user": user, "group": user, "extra_groups": []}
