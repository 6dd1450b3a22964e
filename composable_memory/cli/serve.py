"""`cmem serve`: watch the notes, and answer the commands of others, which then start at once."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

import typer
from typer.main import get_group

from composable_memory.cli.command import Target, command
from composable_memory.cli.command_group import CommandGroup
from composable_memory.cli.command_server import CommandServer
from composable_memory.cli.exit_codes import ExitCode
from composable_memory.cli.options import AsJson
from composable_memory.cli.output import error, print_json, print_line
from composable_memory.cli.watch import stay_open
from composable_memory.config.layers import default_state_dir
from composable_memory.errors import ComposableMemoryError, ConfigError
from composable_memory.json_documents import document
from composable_memory.registry import discover_backends
from composable_memory.runtime.memory import Memory
from composable_memory.state.folders import existing_folder, made_folder
from composable_memory.supervision.file_lock import file_lock
from composable_memory_start import ANSWERED, FOLDER, address_of, exchange, request_of

BEGIN_S = 120.0
"""How long a server in the background may take until it answers; a large folder is opened first."""
END_S = 60.0
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
    as_json: AsJson = False,
) -> ExitCode:
    """Keep a workspace ready: watch it, and answer `search`, `pack`, `get` and `status` at once."""
    address = await asyncio.to_thread(_address, target)
    if action == "status":
        return await _show(address, as_json=as_json)
    if action == "stop":
        return await _stop(address)
    if background:
        return await _start(target, address, as_json=as_json)
    async with file_lock(address.with_suffix(".lock"), owner="serve", patience_s=0.0) as is_ours:
        if not is_ours:
            whose = await _process(address)
            error(f"a server for this workspace runs already ({whose}); `cmem serve stop` ends it")
            return ExitCode.FAILED
        await stay_open(target, as_json=as_json, beside=partial(_answering, address))
    return ExitCode.FINE


@asynccontextmanager
async def _answering(address: Path, memory: Memory, end: asyncio.Event) -> AsyncIterator[str]:
    """Answer commands beside the watch, until the block is left; yields what it does, for people."""
    from composable_memory.cli.commands import app as commands

    group, began = get_group(commands), datetime.now(UTC)
    assert isinstance(group, CommandGroup)
    answered = {name: await asyncio.to_thread(group.load, name) for name in ANSWERED}
    for one in answered.values():
        one.add_help_option = False  # help is for the client to print
    await _warm(memory)

    def control(arguments: Sequence[str]) -> str:
        if "stop" in arguments:
            end.set()
        told = document(
            pid=os.getpid(),
            workspace=str(memory.workspace_dir),
            since=began.isoformat(timespec="seconds"),
            answered=server.answered,
            declined=server.declined,
            last_declined=server.last_reason or None,
        )
        return json.dumps(told)

    registry = await asyncio.to_thread(discover_backends)
    server = CommandServer(address, commands=answered, registry=registry, control=control)
    try:
        await server.start()
    except OSError as problem:
        raise ConfigError("state_dir", f"no socket can be made at {address}: {problem.strerror}") from problem
    try:
        yield "Serving"
    finally:
        await server.stop()


async def _warm(memory: Memory) -> None:
    """Load the model for questions, which all commands of this process share while one memory has it."""
    with suppress(ComposableMemoryError):
        await memory.probe_embedding_availability()


def _address(target: Target) -> Path:
    """Return where the socket of a workspace is, in a folder for its owner alone. Blocks."""
    state = made_folder(target.state_dir or default_state_dir(os.environ))
    folder = state / FOLDER
    folder.mkdir(mode=0o700, exist_ok=True)
    folder.chmod(0o700)
    return Path(address_of(str(state), str(existing_folder(target.workspace))))


async def _asked(address: Path, action: str) -> str | None:
    """Return what the server says of itself; None if none answers."""
    try:
        frames = await asyncio.to_thread(lambda: exchange(str(address), request_of(["serve", action])))
    except OSError:
        return None
    return frames[0][1].decode()


async def _process(address: Path) -> str:
    told = await _asked(address, "status")
    return f"process {json.loads(told)['pid']}" if told else "it does not answer"


async def _show(address: Path, *, as_json: bool) -> ExitCode:
    told = await _asked(address, "status")
    found = json.loads(told) if told else {}
    if as_json:
        print_json({"running": told is not None, **found})
    elif told is None:
        print_line("No server runs for this workspace.")
    else:
        print_line(
            f"Process {found['pid']} has served {found['workspace']} since {found['since']}: "
            f"{found['answered']} answered, {found['declined']} left to their own process."
        )
        if "lastDeclined" in found:
            print_line(f"The last of these because {found['lastDeclined']}.")
    return ExitCode.FINE if told else ExitCode.FAILED


async def _stop(address: Path) -> ExitCode:
    if await _asked(address, "stop") is None:
        error("no server answers for this workspace")
        return ExitCode.FAILED
    async with file_lock(address.with_suffix(".lock"), owner="serve", patience_s=END_S) as has_ended:
        if not has_ended:
            error(f"the server has not ended after {END_S:.0f} s")
            return ExitCode.FAILED
    return ExitCode.FINE


async def _start(target: Target, address: Path, *, as_json: bool) -> ExitCode:
    """Start a server that outlives this process, and wait until it answers."""
    if await _asked(address, "status"):
        error(f"a server for this workspace runs already ({await _process(address)})")
        return ExitCode.FAILED
    place = ["--workspace", str(target.workspace)]
    place += ["--state-dir", str(target.state_dir)] if target.state_dir else []
    child = await asyncio.to_thread(_spawned, [*place, "--json"], address.with_suffix(".log"))
    deadline = asyncio.get_running_loop().time() + BEGIN_S
    while await _asked(address, "status") is None:
        if child.poll() is not None or asyncio.get_running_loop().time() > deadline:
            said = await asyncio.to_thread(address.with_suffix(".log").read_text, "utf-8", "replace")
            error(f"the server did not start: {said.strip()[-500:] or f'no answer in {BEGIN_S:.0f} s'}")
            return ExitCode.FAILED
        await asyncio.sleep(POLL_S)
    return await _show(address, as_json=as_json)


def _spawned(options: Sequence[str], log: Path) -> "subprocess.Popen[bytes]":
    """Return a server in a session of its own. Blocks."""
    with os.fdopen(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as said:
        return subprocess.Popen(  # noqa: S603 - this program
            [sys.executable, "-m", "composable_memory.cli", "serve", *options],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=said,
            start_new_session=True,
        )
