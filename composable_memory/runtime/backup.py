"""Copies out what cannot be rebuilt from notes, and takes it in again.

A backup is a folder: `manifest.json` names every other file with its SHA-256, `feedback.sqlite` is what was
judged and learnt, `traces.jsonl` the logged queries that were judged, `settings/` the settings files, and
`backends/<id>/` what each backend with `Capability.BACKUP` keeps, enabled or not. It is written beside its
place and renamed when it is whole, and may be taken while others write.
"""

import asyncio
import json
import os
import shutil
from collections import defaultdict
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, nullcontext
from dataclasses import field
from datetime import UTC, datetime
from hashlib import file_digest
from importlib.metadata import version
from io import BytesIO
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import BinaryIO, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, ValidationError

from composable_memory.config.layers import user_config_path
from composable_memory.config.settings_files import WORKSPACE_FILES
from composable_memory.errors import BackendUnavailable, ComposableMemoryError, ConfigError, PathRefused
from composable_memory.interfaces import Capability, KeptStore, SupportsHealth
from composable_memory.learning import open_learning
from composable_memory.runtime.memory import Memory
from composable_memory.runtime.opening import open_memory
from composable_memory.state.folders import existing_folder, memory_id_of
from composable_memory.state.workspaces import keep_note_scope, kept_note_scope
from composable_memory.supervision.tasks import to_the_end
from composable_memory_feedback.store.store import FeedbackStore
from composable_memory_ops_logs import OpsLogReader
from composable_memory_ops_logs.line_format import event_to_wire, to_line
from composable_memory_ops_logs.private_files import make_private_folder, replace_file, sync_folder
from composable_memory_ops_logs.quick_dataclass import dataclass
from composable_memory_ops_logs.retention import turn_at_chores, write_closed_at_once
from composable_memory_ops_logs.segments import Segment, blocks_of, segments_in

FORMAT_VERSION = 1
MANIFEST = "manifest.json"
STORE = "feedback.sqlite"
TRACES = "traces.jsonl"
SETTINGS = "settings"
USER_SETTINGS = "user.yaml"
BACKENDS = "backends"


class _Manifest(BaseModel):
    """What a backup says of itself."""

    model_config = ConfigDict(frozen=True)

    format: Literal["composable-memory-backup"] = "composable-memory-backup"
    version: int = FORMAT_VERSION
    program: str
    created_at: datetime
    memory: str
    """The id of the memory that was backed up."""
    note_scope: str | None = None
    """Which files of its workspace were chosen as the notes, if that was chosen."""
    parts: Mapping[str, Mapping[str, int]]
    files: Mapping[str, str]

    @property
    def backends(self) -> list[str]:
        """Return the backends that files are of."""
        paths = (name.split("/") for name in self.files)
        return sorted({path[1] for path in paths if path[0] == BACKENDS and len(path) > 2})


@dataclass(frozen=True, slots=True, kw_only=True)
class BackupReport:
    """A backup: where it is, when it was taken, and how much of what is in each part of it.

    `left_out` says by backend why what it keeps here is not in the backup. `not_enabled` has, by backend, the
    setting that enables one whose part was restored though it is not enabled.
    """

    folder: Path
    created_at: datetime
    parts: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    left_out: Mapping[str, str] = field(default_factory=dict)
    not_enabled: Mapping[str, str] = field(default_factory=dict)


async def back_up(
    workspace: Path, folder: Path, *, state_dir: Path | None, environ: Mapping[str, str]
) -> BackupReport:
    """Write a backup of the memory of a workspace into a folder that is not there yet, or is empty.

    Raises:
        PathRefused: the folder holds something, or cannot be made.
        BackendError: a backend could not be copied; there is no backup then.
        FeedbackError: the feedback store cannot be read.
        OpsLogError: the log cannot be read.
    """
    target = await asyncio.to_thread(free_folder, folder)
    async with AsyncExitStack() as stack:
        opened = open_memory(workspace, state_dir, environ=environ, long_lived=False)
        memory, asleep = await with_all_kept(await stack.enter_async_context(opened), stack, environ)
        left_out = {backend_id: reason for backend_id, reason in asleep.items() if reason}
        _refuse_lost(memory, besides=left_out)
        async with scratch_beside(target) as scratch:
            parts = {
                "settings": await to_the_end(asyncio.to_thread(_copy_settings, memory, environ, scratch))
            }
            stored = memory.context.stored_if_any(lambda store: _copy_store(scratch, store))
            traces = await to_the_end(stored)
            if traces is not None:
                judgements, named = traces
                lines = await to_the_end(_copy_traces(memory, named, scratch))
                parts["feedback"] = {"judgements": judgements, "events": lines}
            for backend_id, one in memory.backends_to_back_up().items():
                own = scratch / BACKENDS / backend_id
                await to_the_end(asyncio.to_thread(_make_folder, own))
                parts[backend_id] = dict(await to_the_end(one.backup(own)))
                if backend_id in asleep and not any(parts[backend_id].values()):
                    left_out[backend_id] = "it is where the settings that are in force now do not look"
            manifest = await to_the_end(asyncio.to_thread(_manifest_of, scratch, memory, parts))
            await to_the_end(asyncio.to_thread(_put_in_place, scratch, target, manifest))
    return BackupReport(folder=target, created_at=manifest.created_at, parts=parts, left_out=left_out)


async def with_all_kept(
    memory: Memory, stack: AsyncExitStack, environ: Mapping[str, str]
) -> tuple[Memory, Mapping[str, str | None]]:
    """Return a memory with the backends that keep what is only theirs and that the settings do not enable.

    The stack closes it. Second come these backends, and why one cannot be asked; then none is opened.
    """
    kept = await asyncio.to_thread(_kept_by_others, memory)
    whole = await _with_enabled(memory, kept, stack, environ)
    problems: dict[str, str | None] = {one.backend_id: one.reason for one in whole.unavailable()}
    for backend_id, one in whole.backends_to_back_up().items():
        health = await one.health() if backend_id in kept and isinstance(one, SupportsHealth) else None
        problems[backend_id] = health.message or "it does not answer" if health and not health.ok else None
    asleep = {backend_id: problems.get(backend_id) for backend_id in kept}
    return (memory if any(asleep.values()) else whole), asleep


async def _with_enabled(
    memory: Memory, backends: Collection[str], stack: AsyncExitStack, environ: Mapping[str, str]
) -> Memory:
    """Return the memory of the same workspace with further backends; the stack closes it."""
    if not backends:
        return memory
    config = {backend_id: {"enabled": True} for backend_id in backends}
    opened = open_memory(memory.workspace_dir, memory.state_dir, config, environ=environ, long_lived=False)
    return await stack.enter_async_context(opened)


def _kept_by_others(memory: Memory) -> list[str]:
    """Return the backends that are not enabled and keep what only a backup brings back of this workspace."""
    able = (spec for spec in memory.registry.backend_specs() if Capability.BACKUP in spec.capabilities)
    asleep = (spec for spec in able if not memory.settings.memory.section(spec.id).enabled)
    return [
        spec.id for spec in asleep if any(_is_lasting(one, memory) for one in spec.kept(memory.state_dir))
    ]


def _is_lasting(store: KeptStore, memory: Memory) -> bool:
    is_rebuildable = store.is_rebuildable or store.is_empty or not store.bytes
    memory_id = memory_id_of(memory.settings.memory.agent_id, store.workspace_id)
    return memory_id == memory.context.memory_id and not is_rebuildable


async def restore(
    workspace: Path,
    folder: Path,
    *,
    state_dir: Path | None,
    environ: Mapping[str, str],
    replace: bool = False,
) -> BackupReport:
    """Make what a backup holds the memory of a workspace, of that one or of another.

    Everything is compared with its hash before anything is touched. Where there is data already, nothing
    happens without `replace`; with it they are replaced, each part at once. When a part fails, settings and
    judgements are put back as they were.

    Raises:
        PathRefused: the backup is not whole.
        ConfigError: there is data and `replace` is false.
        BackendError: a backend could not take in its part; it says which others had, if any.
        FeedbackError: the feedback store cannot be written.
    """
    place = await asyncio.to_thread(existing_folder, workspace)
    source, manifest = await asyncio.to_thread(_checked, folder)
    settings = await asyncio.to_thread(_settings_to_write, source, place, environ)
    if not replace:
        _refuse_to_replace(await asyncio.to_thread(_there, settings))
    if STORE in manifest.files and not replace:
        # The settings are not restored yet, so that no backend is opened for this look.
        async with open_learning(place, state_dir=state_dir, environ=environ) as learning:
            filled = await learning.context.stored_if_any(lambda store: not store.is_empty())
            _refuse_to_replace([str(learning.context.store_path)] if filled else [])
    before = await asyncio.to_thread(_as_they_are, settings)
    async with AsyncExitStack() as undo:
        undo.push_async_callback(asyncio.to_thread, _write_settings, before)
        await asyncio.to_thread(_write_settings, settings)
        async with AsyncExitStack() as stack:
            opened = open_memory(place, state_dir, environ=environ, long_lived=False)
            memory = await stack.enter_async_context(opened)
            settings_now = memory.settings.memory
            asleep = {
                backend_id: f"{settings_now.section_key(backend_id)}.enabled"
                for backend_id in manifest.backends
                if not settings_now.section(backend_id).enabled
            }
            memory = await _with_enabled(memory, asleep, stack, environ)
            _refuse_missing(memory, manifest)
            if scope := manifest.note_scope:
                await asyncio.to_thread(
                    keep_note_scope, memory.state_dir, _workspace_id(memory), scope, replaces=True
                )
            async with _judgements_kept(memory) if STORE in manifest.files else nullcontext():
                await _restore_judgements(memory, source, manifest)
                await _restore_backends(memory, source, manifest, replace=replace)
            await memory.apply_forgetting()
        undo.pop_all()
    return BackupReport(
        folder=source, created_at=manifest.created_at, parts=manifest.parts, not_enabled=asleep
    )


def _workspace_id(memory: Memory) -> str:
    return memory.context.memory_id.removeprefix(memory_id_of(memory.settings.memory.agent_id, ""))


@asynccontextmanager
async def _judgements_kept(memory: Memory) -> AsyncIterator[None]:
    """Make the judgements what they were before the block if that fails."""
    former, memory_id = memory.state_dir / f".{STORE}.{os.getpid()}.former", memory.context.memory_id
    try:
        await memory.context.stored(lambda store: store.copy_into(former))
        async with AsyncExitStack() as undo:
            undo.push_async_callback(
                memory.context.stored,
                lambda store: store.restore_from(former, memory=memory_id, was=memory_id),
            )
            yield
            undo.pop_all()
    finally:
        await asyncio.to_thread(former.unlink, missing_ok=True)


async def _restore_judgements(memory: Memory, source: Path, manifest: _Manifest) -> None:
    if STORE in manifest.files:
        stored, was, memory_id = source / STORE, manifest.memory, memory.context.memory_id
        await memory.context.stored(lambda store: store.restore_from(stored, memory=memory_id, was=was))
        log_dir = memory.ops_log_dir
        await asyncio.to_thread(_restore_traces, source / TRACES, log_dir, was=was, memory_id=memory_id)


async def _restore_backends(memory: Memory, source: Path, manifest: _Manifest, *, replace: bool) -> None:
    """Have each backend take in its part, all or nothing; it is the last, since only it could undo that."""
    able, done = memory.backends_to_back_up(), list[str]()
    for backend_id in manifest.backends:
        try:
            await able[backend_id].restore(source / BACKENDS / backend_id, replace=replace)
        except ComposableMemoryError as error:
            if not done:
                raise
            reason = str(error).removeprefix(f"backend {backend_id!r} failed to restore: ")
            problem = f"{reason}; restored before it, and not undone: {', '.join(done)}"
            fix = "settings and judgements are as before; mend it, then restore with --force"
            raise BackendUnavailable(backend_id, problem, fix=fix, operation="restore") from error
        done.append(backend_id)


def _refuse_missing(memory: Memory, manifest: _Manifest) -> None:
    """Refuse to begin where a backend is not open that there is something of."""
    lost = {one.backend_id: one.reason for one in memory.unavailable()}
    for backend_id in manifest.backends:
        if backend_id not in memory.backends_to_back_up():
            problem = f"the backup holds data of it, and {lost.get(backend_id, 'it cannot restore any')}"
            fix = "mend it, then restore again"
            raise BackendUnavailable(backend_id, problem, fix=fix, operation="restore")


def _refuse_lost(memory: Memory, *, besides: Collection[str]) -> None:
    """Refuse a backup that would lack what an enabled backend keeps that cannot be opened now."""
    for lost in memory.unavailable():
        found = None if lost.backend_id in besides else memory.registry.backend(lost.backend_id)
        if found and found.spec and Capability.BACKUP in found.spec.capabilities:
            raise BackendUnavailable(
                lost.backend_id,
                f"a backup would lack what it keeps: {lost.reason}",
                fix="mend it, or disable it",
                operation="back up",
            )


def _refuse_to_replace(held: Collection[str]) -> None:
    if held:
        raise ConfigError(
            "restore", f"there is data already: {', '.join(held)}; nothing was changed, --force replaces it"
        )


# --- writing


def free_folder(folder: Path) -> Path:
    """Return the path of a folder that a backup or an export may be written to.

    Raises:
        PathRefused: something is there already.
    """
    target = folder.expanduser().absolute()
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise PathRefused(target, "is not an empty folder; name another")
    return target


@asynccontextmanager
async def scratch_beside(target: Path) -> AsyncIterator[Path]:
    """Make a folder beside the target, and remove it in the end if it is still there.

    Nobody may write into it any more by then: `to_the_end` waits for threads.
    """
    scratch = target.with_name(f".{target.name}.{os.getpid()}.partial")
    try:
        await asyncio.to_thread(_make_folder, scratch)
    except OSError as error:
        raise PathRefused(target, f"cannot be made: {error.strerror}; name another") from error
    try:
        yield scratch
    finally:
        await asyncio.to_thread(shutil.rmtree, scratch, ignore_errors=True)


def _copy_settings(memory: Memory, environ: Mapping[str, str], folder: Path) -> dict[str, int]:
    own = [memory.workspace_dir / name for name in WORKSPACE_FILES]
    found = {USER_SETTINGS: user_config_path(environ), **{file.name: file for file in own}}
    count = 0
    for name, file in found.items():
        if file.is_file():
            _write(folder / SETTINGS / name, file.read_bytes())
            count += 1
    return {"files": count}


def _copy_store(folder: Path, store: FeedbackStore) -> tuple[int, frozenset[str]]:
    """Copy the store; return how many judgements the copy has, and their traces."""
    store.copy_into(folder / STORE)
    judgements = store.judgements()
    return len(judgements), frozenset(one.trace_id for one in judgements)


async def _copy_traces(memory: Memory, traces: Collection[str], folder: Path) -> int:
    """Write the lines of these traces, newest first as the log is read; return how many there are."""
    await memory.ops_log.flush()

    def write() -> int:
        count = 0
        with _created(folder / TRACES) as file:
            for event in OpsLogReader(memory.ops_log_dir).events() if traces else ():
                if event.trace_id in traces:
                    file.write(to_line(event_to_wire(event)))
                    count += 1
        return count

    return await asyncio.to_thread(write)


def _manifest_of(folder: Path, memory: Memory, parts: Mapping[str, Mapping[str, int]]) -> _Manifest:
    files = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            path.chmod(0o600)
            with path.open("rb") as file:
                files[path.relative_to(folder).as_posix()] = file_digest(file, "sha256").hexdigest()
                os.fsync(file.fileno())
    return _Manifest(
        program=version("composable-memory"),
        created_at=memory.context.clock().astimezone(UTC),
        memory=memory.context.memory_id,
        note_scope=kept_note_scope(memory.state_dir, _workspace_id(memory)),
        parts=parts,
        files=files,
    )


def _put_in_place(scratch: Path, target: Path, manifest: _Manifest) -> None:
    _write(scratch / MANIFEST, manifest.model_dump_json(indent=1).encode() + b"\n")
    if target.exists():
        target.rmdir()
    scratch.rename(target)
    sync_folder(target.parent)


# --- reading


def _checked(named: Path) -> tuple[Path, _Manifest]:
    """Return the folder and the manifest of a backup that is whole.

    Raises:
        PathRefused: it is not one, or a file is missing, was changed, or is not named.
    """
    folder = named.expanduser().absolute()
    try:
        manifest = _Manifest.model_validate_json((folder / MANIFEST).read_bytes())
    except (OSError, ValidationError) as error:
        raise PathRefused(folder, f"is no backup: {MANIFEST} cannot be read ({error})") from error
    if manifest.version > FORMAT_VERSION:
        problem = f"is of version {manifest.version}, this program knows {FORMAT_VERSION}"
        raise PathRefused(folder, f"{problem}; update composable-memory")
    there = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if not path.is_dir()}
    problems = [f"{name} is missing" for name in sorted(manifest.files.keys() - there)]
    problems += [f"{name} is not of it" for name in sorted(there - manifest.files.keys() - {MANIFEST})]
    for name in sorted(manifest.files.keys() & there):
        path = folder / name
        if path.is_symlink() or not path.is_file():
            problems.append(f"{name} is no plain file")
            continue
        with path.open("rb") as file:
            if file_digest(file, "sha256").hexdigest() != manifest.files[name]:
                problems.append(f"{name} was changed")
    if problems:
        raise PathRefused(folder, f"is not whole: {'; '.join(problems)}; nothing was restored")
    return folder, manifest


def _settings_to_write(source: Path, workspace: Path, environ: Mapping[str, str]) -> list[tuple[Path, bytes]]:
    """Return the settings files that are not there as they are in the backup, with their content."""
    found = []
    for file in sorted((source / SETTINGS).glob("*")):
        is_own = file.name == USER_SETTINGS
        target = user_config_path(environ) if is_own else workspace / file.name
        content = file.read_bytes()
        if (is_own or file.name in WORKSPACE_FILES) and not (
            target.is_file() and target.read_bytes() == content
        ):
            found.append((target, content))
    return found


def _there(settings: Collection[tuple[Path, bytes]]) -> list[str]:
    return [str(target) for target, _ in settings if target.exists()]


def _as_they_are(settings: Collection[tuple[Path, bytes]]) -> list[tuple[Path, bytes | None]]:
    return [(target, target.read_bytes() if target.exists() else None) for target, _ in settings]


def _write_settings(settings: Sequence[tuple[Path, bytes | None]]) -> None:
    """Write files, and remove those that have no content."""
    for target, content in settings:
        if content is None:
            target.unlink(missing_ok=True)
            continue
        make_private_folder(target.parent)
        replace_file(target, content, survives="power cut")


def _restore_traces(traces: Path, log_dir: Path, *, was: str, memory_id: str) -> None:
    """Add the events of traces that the log does not have, in a closed file of their own for each month.

    Files that are there already stay as they are: others may read, compress or delete them meanwhile. The log
    is that of all memories of a state folder: what it has of another one is added as of this memory as well.
    """
    if not traces.exists():
        return
    newest_first = traces.read_bytes().splitlines()
    read = [_Line.read(line, was=was, memory_id=memory_id) for line in newest_first[::-1]]
    make_private_folder(log_dir)
    with turn_at_chores(log_dir, is_patient=True):
        missing = {one.id: one for one in read if one.at}
        traces_of, memories = dict[str, str](), defaultdict[str, set[object]](set)
        for event in OpsLogReader(log_dir).events():
            if event.id in missing:
                traces_of[event.id] = event.trace_id
                if memory := event.logged.get("memory"):
                    memories[event.trace_id].add(memory)
        for id_, trace in traces_of.items():
            if memory_id in memories.get(trace, (memory_id,)):
                del missing[id_]
        new = sorted(missing.values(), key=attrgetter("at"))
        for month, lines in groupby(new, key=lambda line: line.at[:7]):
            there = [one.number for one in segments_in(log_dir) if one.period == month]
            target = Segment(month, max(there, default=0) + 1, log_dir).closed_path
            content = BytesIO(b"".join(line.text + b"\n" for line in lines))
            write_closed_at_once(target, blocks_of(content))


class _Line(NamedTuple):
    """A line of a log; one that cannot be read has neither time nor id."""

    at: str
    id: str
    text: bytes

    @classmethod
    def read(cls, text: bytes, *, was: str, memory_id: str) -> "_Line":
        """Return a line, as one of the memory that it is restored into if it is of the one that `was`."""
        try:
            event = json.loads(text)
            at, id_, detail = str(event["ts"]), str(event["id"]), event.get("detail")
            datetime.fromisoformat(at[:10])
        except (KeyError, RecursionError, TypeError, ValueError):
            return cls("", "", text)
        if was != memory_id and isinstance(detail, dict) and detail.get("memory") == was:
            detail["memory"] = memory_id
            text = json.dumps(event, separators=(",", ":")).encode()
        return cls(at, id_, text)


# --- files


def _make_folder(folder: Path) -> None:
    make_private_folder(folder.parent)
    folder.mkdir(mode=0o700)


def _created(path: Path) -> BinaryIO:
    """Create a file for its owner alone, with its folder."""
    make_private_folder(path.parent)
    return os.fdopen(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "wb")


def _write(path: Path, content: bytes) -> None:
    with _created(path) as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
