"""`cmem serve`: watches the notes, and answers the commands of others, which then start at once."""

import asyncio
import json
import os
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from typer.main import get_group

from composable_memory.cli.command import ExitCode, Target, command
from composable_memory.cli.command_group import CommandGroup
from composable_memory.cli.command_server import CommandServer
from composable_memory.cli.mcp import Workspaces, named_workspaces, not_installed
from composable_memory.cli.options import AsJson, Port, StateDir
from composable_memory.cli.output import error, print_json, warn
from composable_memory.cli.render import print_details
from composable_memory.cli.watch import end_signals, notify_service_manager, stay_open
from composable_memory.config.layers import default_state_dir
from composable_memory.errors import ComposableMemoryError, ConfigError
from composable_memory.registry import discover_backends
from composable_memory.runtime.memory import Memory
from composable_memory.state.folders import existing_folder, make_state_folder
from composable_memory.supervision.file_lock import file_lock
from composable_memory_ops_logs.private_files import make_private_folder
from composable_memory_start import ANSWERED, FOLDER, address_of, exchange, request_of

if TYPE_CHECKING:
    from composable_memory.http_server import Access
    from composable_memory.mcp_server.open_memories import Service

BEGIN_S = 120.0
"""How long a server in the background may take to answer; opening a large index takes a while."""
END_S = 60.0
DEFAULT_HOST = "127.0.0.1"
DEFAULT_PORT = 7737
FIRST_INHERITED = 3
POLL_S = 0.1

app = typer.Typer()


@command(app, "serve")
async def serve(
    action: Annotated[
        Literal["run", "status", "stop"],
        typer.Argument(
            metavar="[run|status|stop]", help="Run a server, show whether one is running, or stop it."
        ),
    ] = "run",
    *,
    workspace: Workspaces = None,
    background: Annotated[
        bool,
        typer.Option(
            "--background", help="Return once the server is up; it keeps running without a terminal."
        ),
    ] = False,
    http: Annotated[
        bool, typer.Option("--http", help="Also serve the JSON API and MCP over HTTP, with a token.")
    ] = False,
    host: Annotated[
        str,
        typer.Option(
            "--host", metavar="NAME", help="The address to listen on for --http; default: this machine only."
        ),
    ] = DEFAULT_HOST,
    port: Port = DEFAULT_PORT,
    token_file: Annotated[
        Path | None,
        typer.Option(
            "--token-file",
            metavar="FILE",
            help="A token of your own; required to listen beyond this machine.",
        ),
    ] = None,
    state_dir: StateDir = None,
    as_json: AsJson = False,
) -> ExitCode:
    """Keep a workspace ready: watch its notes, and answer `search`, `get`, `recall` and others faster."""
    named = named_workspaces(workspace or ["."])
    state = await asyncio.to_thread(make_state_folder, state_dir or default_state_dir(os.environ))
    addresses = [await asyncio.to_thread(_address, state, one) for one in named.values()]
    address = addresses[0]
    if action == "run" and not background:
        bound = _inherited()
        way_in = await _way_in(state, host, port, token_file, bound) if http or bound else None
        async with AsyncExitStack() as locks:
            held = [await locks.enter_async_context(_lock(one, patience_s=0.0)) for one in addresses]
            if all(held):
                if "" in named:
                    target = Target(workspace=named[""], state_dir=state_dir)
                    beside = partial(_answering, addresses, way_in)
                    await stay_open(target, as_json=as_json, beside=beside, needs=[*map(_lock_of, addresses)])
                else:
                    await _serve_named(named, addresses, state, way_in)
                return ExitCode.FINE
            address = addresses[held.index(False)]
    found = await _asked(address, action)
    if action == "run" and found is None and background:
        options = ["--http", "--host", host, "--port", str(port)] if http else []
        options += ["--token-file", str(token_file)] if token_file else []
        options += [word for one in workspace or ["."] for word in ("--workspace", one)]
        found = await _started(address, [*options, "--state-dir", str(state)])
    elif action == "run":
        whose = f"process {found['pid']}" if found else "it does not answer"
        error(f"a server for this workspace is already running ({whose}); `cmem serve stop` stops it")
        return ExitCode.FAILED
    elif action == "stop" and found:
        async with _lock(address, patience_s=END_S) as has_ended:
            found["running"] = not has_ended
    elif found is None:
        async with _lock(address, patience_s=0.0) as is_free:
            if not is_free:
                error("a server for this workspace does not answer; if it has not just started, end it")
    status = found or {"running": False}
    print_json(status) if as_json else print_details("server", status)
    return ExitCode.FINE if found and found["running"] == (action != "stop") else ExitCode.FAILED


@asynccontextmanager
async def _answering(
    addresses: Sequence[Path], way_in: "Access | None", memory: "Memory | Service", end: asyncio.Event
) -> AsyncIterator[str]:
    """Answer commands beside the watch until the block ends; yields a description of that.

    A service has a memory for each address.
    """
    from composable_memory.cli.commands import app as commands

    group = get_group(commands)
    assert isinstance(group, CommandGroup)
    answered = {name: await asyncio.to_thread(group.load, name) for name in ANSWERED}
    for one in answered.values():
        one.add_help_option = False  # help is for the client to print
    for one in (memory,) if isinstance(memory, Memory) else memory.memories:
        with suppress(ComposableMemoryError):  # the commands share a model that this memory holds
            await one.probe_embedding_availability()
    registry = await asyncio.to_thread(discover_backends)
    async with AsyncExitStack() as stack:
        url = await stack.enter_async_context(_over_http(memory, way_in)) if way_in else None
        for address in addresses:
            server = CommandServer(address, answered, registry, end, url)
            await server.start()
            stack.push_async_callback(server.stop)
        yield "Serving"


async def _serve_named(
    named: Mapping[str, Path], addresses: Sequence[Path], state: Path, way_in: "Access | None"
) -> None:
    """Serve several workspaces until a signal comes; one that cannot be opened does not affect the others.

    Raises:
        ConfigError: they would not be served over HTTP, which names are for.
    """
    if way_in is None:
        raise ConfigError("--workspace", "names need --http; without it, start one server per folder")
    from composable_memory.mcp_server.open_memories import open_service

    async with (
        end_signals(state, *map(_lock_of, addresses)) as end,
        open_service(named, state, None) as service,
    ):
        for name, opened in service.workspaces.items():
            if opened.problem:
                warn(f"{name}: {opened.problem}")
        async with _answering(addresses, way_in, service, end):
            await notify_service_manager("READY=1")
            await end.wait()
            await notify_service_manager("STOPPING=1")


def _inherited() -> socket.socket | None:
    """Return the socket that systemd has opened for this process, if any: see sd_listen_fds(3)."""
    if (os.environ.get("LISTEN_PID"), os.environ.get("LISTEN_FDS")) != (str(os.getpid()), "1"):
        return None
    bound = socket.socket(fileno=FIRST_INHERITED)
    bound.set_inheritable(False)
    return bound


async def _way_in(
    state: Path, host: str, port: int, token_file: Path | None, bound: socket.socket | None
) -> "Access":
    """Return how clients connect over HTTP.

    Raises:
        ConfigError: something it needs is not installed, or it may not listen there.
    """
    try:
        from composable_memory.http_server import access
    except ImportError as missing:
        raise ConfigError("--http", not_installed(missing, "HTTP")) from missing
    return await access(host, port, state, token_file, bound)


@asynccontextmanager
async def _over_http(memory: "Memory | Service", way_in: "Access") -> AsyncIterator[str]:
    """Answer over HTTP until the block ends; yields the address, and tells people how to connect."""
    from composable_memory.http_server import build_app, listening
    from composable_memory.mcp_server.open_memories import Opened, Service

    if isinstance(memory, Memory):
        memory = Service(workspaces={"": Opened(memory=memory)}, session_key=None)
    async with listening(build_app(memory), way_in) as url:
        shown = way_in.token if sys.stderr.isatty() else f"$(cat {way_in.token_file})"
        warn(f"serving at {url}; in a browser, open {url}?token={shown}; clients send the token as a header")
        yield url


def _lock(address: Path, *, patience_s: float) -> AbstractAsyncContextManager[bool]:
    """Return the lock that the server of a workspace holds while it runs."""
    return file_lock(_lock_of(address), owner="serve", patience_s=patience_s)


def _lock_of(address: Path) -> Path:
    return address.with_suffix(".lock")


def _address(state: Path, workspace: Path) -> Path:
    """Return the socket path of a workspace, in a folder for its owner only. Blocks."""
    folder = state / FOLDER
    make_private_folder(folder)
    folder.chmod(0o700)
    return Path(address_of(str(state), str(existing_folder(workspace))))


async def _asked(address: Path, action: str) -> dict[str, Any] | None:
    """Return the server's reply; None if there is no server."""
    try:
        frames = await asyncio.to_thread(lambda: exchange(str(address), request_of(["serve", action])))
    except OSError:
        return None
    status: dict[str, Any] = json.loads(frames[0][1])
    return status


async def _started(address: Path, options: Sequence[str]) -> dict[str, Any]:
    """Start a server that outlives this process, and return its status once it answers.

    Raises:
        ConfigError: it does not answer.
    """
    log = address.with_suffix(".log")
    child = await asyncio.to_thread(_spawned, options, log)
    deadline = asyncio.get_running_loop().time() + BEGIN_S
    while (found := await _asked(address, "status")) is None:
        if child.poll() is not None or asyncio.get_running_loop().time() > deadline:
            said = await asyncio.to_thread(log.read_text, "utf-8", "replace")
            raise ConfigError("serve", f"the server does not answer: {said.strip()[-500:] or 'it is silent'}")
        await asyncio.sleep(POLL_S)
    return found


def _spawned(options: Sequence[str], log: Path) -> "subprocess.Popen[bytes]":
    """Start a server in a session of its own. Blocks."""
    with os.fdopen(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as said:
        return subprocess.Popen(  # noqa: S603 - this program
            [sys.executable, "-m", "composable_memory.cli", "serve", *options],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=said,
            start_new_session=True,
        )
