"""Listening: the socket, the token, timeouts for clients, and shutting down."""

import asyncio
import logging
import os
import secrets
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from contextvars import Context
from ipaddress import ip_address
from pathlib import Path

import h11
import uvicorn
from starlette.applications import Starlette
from uvicorn.protocols.http.h11_impl import H11Protocol

from composable_memory.errors import ConfigError
from composable_memory.http_server.guard import Guard
from composable_memory.state.folders import make_state_folder
from composable_memory_ops_logs.quick_dataclass import dataclass

TOKEN_FILE = "mcp-token"  # noqa: S105 - a file name
TOKEN_BYTES = 32
MAX_CONNECTIONS = 500
REQUEST_S = 10.0
"""A request must arrive completely within this time; a connection without one is closed."""
GRACE_S = 3
"""How long running requests may take at shutdown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """Where to listen, and what clients need to know."""

    host: str
    port: int
    token_file: Path
    token: str
    bound: socket.socket | None = None


async def access(
    host: str,
    port: int,
    state_dir: Path,
    token_file: Path | None = None,
    bound: socket.socket | None = None,
) -> Access:
    """Return how clients connect; without a token file, the token is in the state folder.

    A `bound` socket is used instead of host and port.

    Raises:
        ConfigError: others could reach the server but no token was chosen; or the token is unusable.
    """
    if bound is not None:
        if bound.family not in (socket.AF_INET, socket.AF_INET6):
            raise ConfigError("socket", "systemd passed a socket that is not TCP; give ListenStream= a port")
        host, port = bound.getsockname()[:2]
    if token_file is None and not _is_loopback(host):
        problem = f"{host} can be reached from other machines; choose a token and pass --token-file FILE"
        raise ConfigError("host", problem)
    file = token_file or await asyncio.to_thread(make_state_folder, state_dir) / TOKEN_FILE
    token = await asyncio.to_thread(_token, file, may_make=token_file is None)
    return Access(host=host, port=port, token_file=file, token=token, bound=bound)


@asynccontextmanager
async def listening(app: Starlette, access: Access) -> AsyncIterator[str]:
    """Serve until the block ends, then give running requests a few seconds; yields the URL.

    Raises:
        ConfigError: the port is in use.
    """
    with await asyncio.to_thread(_bound, access) as bound:
        port = bound.getsockname()[1]
        config = uvicorn.Config(
            Guard(
                app, token=access.token, port=port, host=None if _is_loopback(access.host) else access.host
            ),
            http=_TimedConnection,
            ws="none",
            lifespan="off",  # it would exit the process
            log_config=None,
            log_level="error",
            server_header=False,
            date_header=False,  # costs a timer tick ten times a second
            limit_concurrency=MAX_CONNECTIONS,
            timeout_graceful_shutdown=GRACE_S,
        )
        config.load()
        logging.getLogger("uvicorn.error").addFilter(_is_trouble)
        server = uvicorn.Server(config)
        server.lifespan = config.lifespan_class(config)
        async with app.router.lifespan_context(app):
            # In an empty context, so that no request belongs to the trace of this call.
            await asyncio.create_task(server.startup(sockets=[bound]), context=Context())
            try:
                yield f"http://{f'[{access.host}]' if ':' in access.host else access.host}:{port}/"
            finally:
                await server.shutdown(sockets=[bound])
                if server.server_state.tasks:  # cancelled by now
                    await asyncio.wait(server.server_state.tasks, timeout=GRACE_S)


def _is_trouble(record: logging.LogRecord) -> bool:
    """Return whether the library logs a real error: requests that end with the server are expected."""
    return "graceful shutdown" not in str(record.msg)


class _TimedConnection(H11Protocol):
    """A connection that is closed unless a complete request arrives in time."""

    _waiting: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._wait()

    def data_received(self, data: bytes) -> None:
        self._wait()
        super().data_received(data)
        if self.conn.their_state not in (h11.IDLE, h11.SEND_BODY):
            self._cancel_timeout()

    def connection_lost(self, exc: Exception | None) -> None:
        self._cancel_timeout()
        super().connection_lost(exc)

    def _wait(self) -> None:
        if self._waiting is None:
            self._waiting = self.loop.call_later(REQUEST_S, self.transport.abort)

    def _cancel_timeout(self) -> None:
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None


def _is_loopback(host: str) -> bool:
    with suppress(ValueError):
        return ip_address(host).is_loopback
    return host == "localhost"


def _token(file: Path, *, may_make: bool) -> str:
    """Return the token in a file that only its owner can read, creating it if missing. Blocks."""
    try:
        if may_make:
            with suppress(FileExistsError):
                made = os.open(file, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
                with os.fdopen(made, "w", encoding="ascii") as new:
                    new.write(secrets.token_urlsafe(TOKEN_BYTES))
        is_private = sys.platform == "win32" or not file.stat().st_mode & 0o077
        token = file.read_text(encoding="ascii").strip()
    except (OSError, UnicodeError) as error:
        raise ConfigError("token", f"the token in {file} cannot be used: {error}") from error
    if not is_private or len(token) < TOKEN_BYTES:
        fix = (
            "delete it, and a new one is created"
            if may_make
            else f"it needs {TOKEN_BYTES} characters, mode 600"
        )
        raise ConfigError("token", f"{file} can be read by others, or holds no token; {fix}")
    return token


def _bound(access: Access) -> socket.socket:
    family = socket.AF_INET6 if ":" in access.host else socket.AF_INET
    try:
        return access.bound or socket.create_server((access.host, access.port), family=family)
    except OSError as error:
        problem = (
            f"{access.port} of {access.host} cannot be used: {error.strerror}; choose another with --port"
        )
        raise ConfigError("port", problem) from error
