"""`cmem serve`: watch the notes, and answer the commands of others, which then start at once."""

import asyncio
import json
import os
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from typer.main import get_group

from composable_memory.cli.command import Target, command
from composable_memory.cli.command_group import CommandGroup
from composable_memory.cli.command_server import CommandServer
from composable_memory.cli.exit_codes import ExitCode
from composable_memory.cli.mcp import not_installed
from composable_memory.cli.options import AsJson
from composable_memory.cli.output import error, print_json, warn
from composable_memory.cli.render import print_details
from composable_memory.cli.watch import stay_open
from composable_memory.config.layers import default_state_dir
from composable_memory.errors import ComposableMemoryError, ConfigError
from composable_memory.registry import discover_backends
from composable_memory.runtime.memory import Memory
from composable_memory.state.folders import existing_folder, made_folder
from composable_memory.supervision.file_lock import file_lock
from composable_memory_start import ANSWERED, FOLDER, address_of, exchange, request_of

if TYPE_CHECKING:
    from composable_memory.http_server import Access

BEGIN_S = 120.0
"""How long a server in the background may take until it answers; a large index takes a while to open."""
END_S = 60.0
DEFAULT_HOST = "127.0.0.1"
DEFAULT_PORT = 7737
FIRST_INHERITED = 3
POLL_S = 0.1

app = typer.Typer()


@command(app, "serve")
async def serve(
    target: Target,
    action: Annotated[
        Literal["run", "status", "stop"],
        typer.Argument(metavar="[run|status|stop]", help="Run a server, show whether one runs, or stop it."),
    ] = "run",
    *,
    background: Annotated[
        bool, typer.Option("--background", help="Return once the server runs; it goes on without a terminal.")
    ] = False,
    http: Annotated[
        bool, typer.Option("--http", help="Serve the JSON API and MCP over HTTP as well, with a token.")
    ] = False,
    host: Annotated[
        str, typer.Option("--host", metavar="NAME", help="Where to listen for --http; default: this machine.")
    ] = DEFAULT_HOST,
    port: Annotated[
        int, typer.Option("--port", metavar="N", min=0, max=65535, help="The port for --http; 0 is any free.")
    ] = DEFAULT_PORT,
    token_file: Annotated[
        Path | None,
        typer.Option("--token-file", metavar="FILE", help="A token of your own; needed beyond this machine."),
    ] = None,
    as_json: AsJson = False,
) -> ExitCode:
    """Keep a workspace ready: watch it, and answer `search`, `pack`, `get` and `status` at once."""
    address = await asyncio.to_thread(_address, target)
    lock = partial(file_lock, address.with_suffix(".lock"), owner="serve")
    if action == "run" and not background:
        bound = _inherited()
        way_in = await _way_in(target, host, port, token_file, bound) if http or bound else None
        async with lock(patience_s=0.0) as is_ours:
            if is_ours:
                await stay_open(target, as_json=as_json, beside=partial(_answering, address, way_in))
                return ExitCode.FINE
    found = await _asked(address, action)
    if action == "run" and found is None and background:
        options = ["--http", "--host", host, "--port", str(port)] if http else []
        options += ["--token-file", str(token_file)] if token_file else []
        found = await _started(target, address, options)
    elif action == "run":
        whose = f"process {found['pid']}" if found else "it does not answer"
        error(f"a server for this workspace runs already ({whose}); `cmem serve stop` ends it")
        return ExitCode.FAILED
    elif action == "stop" and found:
        async with lock(patience_s=END_S) as has_ended:
            found["running"] = not has_ended
    elif found is None:
        async with lock(patience_s=0.0) as is_free:
            if not is_free:
                error("a server has this workspace, and does not answer; unless it has just begun, end it")
    status = found or {"running": False}
    print_json(status) if as_json else print_details("server", status)
    return ExitCode.FINE if found and found["running"] == (action != "stop") else ExitCode.FAILED


@asynccontextmanager
async def _answering(
    address: Path, way_in: "Access | None", memory: Memory, end: asyncio.Event
) -> AsyncIterator[str]:
    """Answer commands beside the watch, until the block is left; yields what it does, for people."""
    from composable_memory.cli.commands import app as commands

    group = get_group(commands)
    assert isinstance(group, CommandGroup)
    answered = {name: await asyncio.to_thread(group.load, name) for name in ANSWERED}
    for one in answered.values():
        one.add_help_option = False  # help is for the client to print
    with suppress(ComposableMemoryError):
        await (
            memory.probe_embedding_availability()
        )  # a model that this memory holds is shared with the others
    registry = await asyncio.to_thread(discover_backends)
    async with AsyncExitStack() as stack:
        url = await stack.enter_async_context(_over_http(memory, way_in)) if way_in else None
        server = CommandServer(address, answered, registry, end, url)
        await server.start()
        stack.push_async_callback(server.stop)
        yield "Serving"


def _inherited() -> socket.socket | None:
    """Return the socket that systemd has opened for this process, if it has: see sd_listen_fds(3)."""
    if (os.environ.get("LISTEN_PID"), os.environ.get("LISTEN_FDS")) != (str(os.getpid()), "1"):
        return None
    bound = socket.socket(fileno=FIRST_INHERITED)
    bound.set_inheritable(False)
    return bound


async def _way_in(
    target: Target, host: str, port: int, token_file: Path | None, bound: socket.socket | None
) -> "Access":
    """Return how clients come in over HTTP.

    Raises:
        ConfigError: what it needs is not installed, or it may not listen there.
    """
    try:
        from composable_memory.http_server import access
    except ImportError as missing:
        raise ConfigError("--http", not_installed(missing, "HTTP")) from missing
    return await access(host, port, target.state_dir or default_state_dir(os.environ), token_file, bound)


@asynccontextmanager
async def _over_http(memory: Memory, way_in: "Access") -> AsyncIterator[str]:
    """Answer over HTTP until the block is left; yields the address, and tells people how to come in."""
    from composable_memory.http_server import build_app, listening
    from composable_memory.mcp_server.service import Opened, Service

    service = Service(workspaces={"": Opened(memory=memory)}, session_key=None)
    async with listening(build_app(service), way_in) as url:
        shown = way_in.token if sys.stderr.isatty() else f"$(cat {way_in.token_file})"
        warn(f"serving at {url}; a browser enters by {url}?token={shown}, and clients send it as a header")
        yield url


def _address(target: Target) -> Path:
    """Return where the socket of a workspace is, in a folder for its owner alone. Blocks."""
    state = made_folder(target.state_dir or default_state_dir(os.environ))
    folder = state / FOLDER
    folder.mkdir(mode=0o700, exist_ok=True)
    folder.chmod(0o700)
    return Path(address_of(str(state), str(existing_folder(target.workspace))))


async def _asked(address: Path, action: str) -> dict[str, Any] | None:
    """Return what the server says of itself; None if none answers."""
    try:
        frames = await asyncio.to_thread(lambda: exchange(str(address), request_of(["serve", action])))
    except OSError:
        return None
    status: dict[str, Any] = json.loads(frames[0][1])
    return status


async def _started(target: Target, address: Path, options: Sequence[str]) -> dict[str, Any]:
    """Start a server that outlives this process, and return its status as soon as it answers.

    Raises:
        ConfigError: it does not.
    """
    place = [*options, "--workspace", str(target.workspace)]
    place += ["--state-dir", str(target.state_dir)] if target.state_dir else []
    log = address.with_suffix(".log")
    child = await asyncio.to_thread(_spawned, place, log)
    deadline = asyncio.get_running_loop().time() + BEGIN_S
    while (found := await _asked(address, "status")) is None:
        if child.poll() is not None or asyncio.get_running_loop().time() > deadline:
            said = await asyncio.to_thread(log.read_text, "utf-8", "replace")
            raise ConfigError("serve", f"the server does not answer: {said.strip()[-500:] or 'it is silent'}")
        await asyncio.sleep(POLL_S)
    return found


def _spawned(place: Sequence[str], log: Path) -> "subprocess.Popen[bytes]":
    """Return a server in a session of its own. Blocks."""
    with os.fdopen(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as said:
        return subprocess.Popen(  # noqa: S603 - this program
            [sys.executable, "-m", "composable_memory.cli", "serve", *place],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=said,
            start_new_session=True,
        )
