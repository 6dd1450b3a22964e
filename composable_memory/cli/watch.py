"""`cmem watch`: keeps the index up to date."""

import asyncio
import os
import signal
import socket
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager, nullcontext, suppress
from pathlib import Path

import typer

from composable_memory.cli.command import Target, command
from composable_memory.cli.options import AsJson
from composable_memory.cli.output import print_json, print_line, warn, warn_degraded, warn_if_empty
from composable_memory.config.layers import default_state_dir
from composable_memory.errors import BackendUnavailable, ConfigError
from composable_memory.folder_identity import FolderIdentity
from composable_memory.json_documents import document
from composable_memory.runtime.memory import Memory
from composable_memory.runtime.opening import open_memory
from composable_memory.state.folders import existing_folder, make_state_folder
from composable_memory.types import JsonValue
from composable_memory_ops_logs import (
    BackendDegraded,
    BackendRecovered,
    OpsEvent,
    OpsLog,
    SyncComplete,
    SyncFailed,
)
from composable_memory_ops_logs.line_format import event_to_wire
from composable_memory_ops_logs.plurals import counted

LOOK_S = 2.0
"""How often a long-running process checks whether its folders still exist."""
WATCHING = frozenset({"starting", "active", "partial"})

app = typer.Typer()


@command(app, "watch")
async def watch(target: Target, *, as_json: AsJson = False) -> None:
    """Keep running and update the index as notes change. With --json, print one document per line."""
    await stay_open(target, as_json=as_json)


Beside = Callable[[Memory, asyncio.Event], AbstractAsyncContextManager[str]]
"""Does something with an open memory until the block ends; yields a word for what the process does."""


async def stay_open(
    target: Target, *, as_json: bool, beside: Beside | None = None, needs: Sequence[Path] = ()
) -> None:
    """Keep a memory open and its index up to date until a signal comes, and report each sync.

    It also ends when the workspace, the state folder or any other path in `needs` is gone. Without anything
    `beside`, it is an error if nothing watches the notes.
    """
    printer = _Printer(as_json=as_json)
    workspace = await asyncio.to_thread(existing_folder, target.workspace)
    state = await asyncio.to_thread(make_state_folder, target.state_dir or default_state_dir(os.environ))
    async with (
        end_signals(state, workspace, *needs) as end,
        open_memory(target.workspace, target.state_dir) as memory,
    ):
        if beside is None:
            _require_watching(memory)
        with _sync_events(memory.ops_log) as events:
            async with beside(memory, end) if beside else nullcontext("Watching") as doing:
                await notify_service_manager("READY=1")
                await _until(end, _follow(memory, events, printer, doing))
            while not events.empty():
                printer.print(events.get_nowait())
        await notify_service_manager("STOPPING=1")


async def _until(end: asyncio.Event, work: Coroutine[None, None, None]) -> None:
    """Work until `end`; an exception ends it too."""
    working, ending = asyncio.create_task(work), asyncio.create_task(end.wait())
    done, _ = await asyncio.wait({working, ending}, return_when=asyncio.FIRST_COMPLETED)
    working.cancel()
    ending.cancel()
    await asyncio.wait({working, ending})
    if working in done:
        working.result()


async def _follow(memory: Memory, events: "asyncio.Queue[OpsEvent]", printer: "_Printer", doing: str) -> None:
    """Bring the index up to date, then print its events as they come."""
    warn_degraded(memory.unavailable())
    await memory.sync(reason="boot")
    if not printer.as_json:
        print_line(f"{doing} {memory.workspace_dir}: {_format_means(memory)}. Stop with Ctrl-C.", dim=True)
    warn_if_empty(memory.status())
    if doing == "Watching":
        _require_watching(memory)
    while True:
        printer.print(await events.get())


class _Printer:
    """Prints a line, or a document on a line, for each event worth reporting."""

    def __init__(self, *, as_json: bool) -> None:
        self.as_json = as_json
        self._is_first = True
        self._problems: Sequence[str] = ()
        self._error = ""

    def print(self, event: OpsEvent) -> None:
        """Print what happened, unless it changed nothing or is known already."""
        match event.detail:
            case SyncComplete() as done if self._is_news(done):
                self._write(event, done)
            case SyncFailed() as failed if failed.error.message != self._error:
                self._error = failed.error.message
                self._write(event, failed)
            case BackendDegraded() as degraded:
                warn(f"degraded: {event.backend}: {degraded.what} {degraded.level}: {degraded.reason}")
            case BackendRecovered() as recovered:
                warn(f"recovered: {event.backend}, after {recovered.after_s:.0f} s")

    def _is_news(self, done: SyncComplete) -> bool:
        changes = done.files_indexed or done.removed or done.embedded or done.full_reindex
        is_news = bool(changes) or self._is_first or bool(self._error) or self._problems != done.problems
        new = [problem for problem in done.problems if problem not in self._problems]
        self._is_first, self._problems, self._error = False, done.problems, ""
        for problem in new:
            warn(f"problem: {problem}")
        return is_news

    def _write(self, event: OpsEvent, done: SyncComplete | SyncFailed) -> None:
        if self.as_json:
            print_json(_sync_document(event, done), compact=True)
            return
        at = event.ts.astimezone().strftime("%H:%M:%S")
        if isinstance(done, SyncFailed):
            warn(f"{at}  {event.backend}, {done.reason}: failed: {done.error.message}")
            return
        print_line(
            f"{at}  {event.backend}, {done.reason}: {counted(done.files_indexed, 'file')} indexed, "
            f"{done.removed} removed, {counted(done.chunks_written, 'chunk')}, {done.embedded} embedded, "
            f"{done.embeddings_pending} to embed, in {event.duration_ms or 0:.0f} ms"
        )


def _sync_document(event: OpsEvent, done: SyncComplete | SyncFailed) -> dict[str, JsonValue]:
    """Return one sync, or one that failed, as JSON."""
    about = document(ts=event_to_wire(event)["ts"], backend=event.backend or "", reason=done.reason)
    if isinstance(done, SyncFailed):
        return about | document(error=done.error.message)
    return about | document(
        files_indexed=done.files_indexed,
        files_removed=done.removed,
        chunks_written=done.chunks_written,
        embedded=done.embedded,
        embeddings_pending=done.embeddings_pending,
        problems=done.problems,
        took_ms=round(event.duration_ms or 0.0, 3),
    )


def _means(memory: Memory) -> dict[str, Mapping[str, JsonValue]]:
    """Return how each backend that watches something does it."""
    return {name: status.watch for name, status in memory.backend_statuses().items() if status.watch}


def _require_watching(memory: Memory) -> None:
    """Make sure that something watches the notes.

    Raises:
        ConfigError: the settings turn watching off.
        BackendUnavailable: the notes cannot be watched, and there is no sync interval instead.
    """
    means = _means(memory).values()
    if any(one["state"] in WATCHING or "intervalMinutes" in one for one in means):
        return
    if why := [str(one["reason"]) for one in means if "reason" in one]:
        fix = "or set memory.builtin.sync.interval_minutes to check the notes at intervals"
        raise BackendUnavailable("builtin", why[0], fix=fix, operation="watch")
    problem = "nothing would follow the notes; turn it on, or set memory.builtin.sync.interval_minutes"
    raise ConfigError("memory.builtin.sync.watch", problem)


def _format_means(memory: Memory) -> str:
    """Return how the notes are watched, by backend if there are several."""
    means = _means(memory)
    if len(means) == 1:
        return "".join(map(_format_one, means.values()))
    return "; ".join(f"{name}: {_format_one(one)}" for name, one in means.items())


def _format_one(one: Mapping[str, JsonValue]) -> str:
    roots, words = one.get("roots"), []
    if one["state"] in WATCHING and isinstance(roots, list):
        whose = "its" if len(roots) == 1 else "their"
        words.append(f"{counted(len(roots), 'folder')} watched, with {whose} subfolders")
    else:
        words.append(f"not watched ({one.get('reason', 'memory.builtin.sync.watch is off')})")
    if "intervalMinutes" in one:
        words.append(f"checked every {one['intervalMinutes']:g} minutes")
    return ", ".join(words)


@contextmanager
def _sync_events(ops_log: OpsLog) -> Iterator["asyncio.Queue[OpsEvent]"]:
    """Yield the queue of sync events; they may come from any thread."""
    loop = asyncio.get_running_loop()
    events: asyncio.Queue[OpsEvent] = asyncio.Queue()

    def hear(event: OpsEvent) -> None:
        if isinstance(event.detail, SyncComplete | SyncFailed | BackendDegraded | BackendRecovered):
            loop.call_soon_threadsafe(events.put_nowait, event)

    unsubscribe = ops_log.subscribe(hear)
    try:
        yield events
    finally:
        unsubscribe()


@asynccontextmanager
async def end_signals(*needs: Path) -> AsyncIterator[asyncio.Event]:
    """Yield an event that is set by Ctrl-C, by SIGTERM, and when a path is gone."""
    loop = asyncio.get_running_loop()
    end = asyncio.Event()

    def ask(*_: object) -> None:
        loop.call_soon_threadsafe(end.set)

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    looking = asyncio.create_task(_end_without(needs, end))
    try:
        yield end
    finally:
        looking.cancel()
        await asyncio.wait([looking])
        for number, handler in before.items():
            signal.signal(number, handler)


async def _end_without(paths: Sequence[Path], end: asyncio.Event) -> None:
    """Set `end` when one of the paths is gone, or something else is in its place."""
    known = await asyncio.to_thread(lambda: [FolderIdentity.at(one) for one in paths])
    while not (gone := await asyncio.to_thread(_gone, known)):  # noqa: ASYNC110 - no disk tells
        await asyncio.sleep(LOOK_S)
    warn(f"ending, as this is gone: {', '.join(gone)}")
    end.set()


def _gone(known: Sequence[FolderIdentity]) -> list[str]:
    found = []
    for one in known:
        try:
            if one.is_same(FolderIdentity.at(one.path)):
                continue
        except FileNotFoundError:
            pass
        except OSError:  # a disk that does not answer now
            continue
        found.append(str(one.path))
    return found


async def notify_service_manager(state: str) -> None:
    """Notify systemd of the service's state, if it wants to know (sd_notify(3), `Type=notify`)."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if address and hasattr(socket, "AF_UNIX"):
        await asyncio.to_thread(_send, state.encode(), address)


def _send(message: bytes, address: str) -> None:
    # If the manager does not listen, that is no reason to end.
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.sendto(message, address.replace("@", "\0", 1) if address.startswith("@") else address)
