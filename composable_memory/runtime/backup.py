"""Backs up what cannot be rebuilt from notes, and restores it.

A backup is a folder: `manifest.json` lists every other file with its SHA-256, `feedback.sqlite` has the
judgements and learnt weights, `traces.jsonl` the logged queries that were judged, `settings/` the settings
files, and `backends/<id>/` the data of each backend with `Capability.BACKUP`, enabled or not. It is written
under a temporary name and renamed when complete, and may be made while other processes write.
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
from composable_memory_ops_logs.retention import maintenance_lock, write_closed_at_once
from composable_memory_ops_logs.segments import Segment, blocks_of, segments_in

FORMAT_VERSION = 1
MANIFEST = "manifest.json"
STORE = "feedback.sqlite"
TRACES = "traces.jsonl"
SETTINGS = "settings"
USER_SETTINGS = "user.yaml"
BACKENDS = "backends"


class _Manifest(BaseModel):
    """What a backup says about itself."""

    model_config = ConfigDict(frozen=True)

    format: Literal["composable-memory-backup"] = "composable-memory-backup"
    version: int = FORMAT_VERSION
    program: str
    created_at: datetime
    memory: str
    """The id of the memory that was backed up."""
    note_scope: str | None = None
    """The recorded choice of the workspace's note files, if any."""
    parts: Mapping[str, Mapping[str, int]]
    files: Mapping[str, str]

    @property
    def backends(self) -> list[str]:
        """Return the backends that the backup has files of."""
        paths = (name.split("/") for name in self.files)
        return sorted({path[1] for path in paths if path[0] == BACKENDS and len(path) > 2})


@dataclass(frozen=True, slots=True, kw_only=True)
class BackupReport:
    """A backup: where it is, when it was made, and the counts of each of its parts.

    `left_out` says by backend why its data is missing from the backup. `not_enabled` maps each backend that
    was restored but is not enabled to the setting that enables it.
    """

    folder: Path
    created_at: datetime
    parts: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    left_out: Mapping[str, str] = field(default_factory=dict)
    not_enabled: Mapping[str, str] = field(default_factory=dict)


async def back_up(
    workspace: Path, folder: Path, *, state_dir: Path | None, environ: Mapping[str, str]
) -> BackupReport:
    """Back up the memory of a workspace into a new or empty folder.

    Raises:
        PathRefused: the folder is not empty, or cannot be created.
        BackendError: a backend could not be copied; there is no backup then.
        FeedbackError: the feedback store cannot be read.
        OpsLogError: the log cannot be read.
    """
    target = await asyncio.to_thread(free_folder, folder)
    async with AsyncExitStack() as stack:
        opened = open_memory(workspace, state_dir, environ=environ, long_lived=False)
        memory, disabled = await with_disabled_backends(
            await stack.enter_async_context(opened), stack, environ
        )
        left_out = {backend_id: reason for backend_id, reason in disabled.items() if reason}
        _refuse_incomplete(memory, besides=left_out)
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
                if backend_id in disabled and not any(parts[backend_id].values()):
                    left_out[backend_id] = "it is where the current settings do not look"
            manifest = await to_the_end(asyncio.to_thread(_manifest_of, scratch, memory, parts))
            await to_the_end(asyncio.to_thread(_put_in_place, scratch, target, manifest))
    return BackupReport(folder=target, created_at=manifest.created_at, parts=parts, left_out=left_out)


async def with_disabled_backends(
    memory: Memory, stack: AsyncExitStack, environ: Mapping[str, str]
) -> tuple[Memory, Mapping[str, str | None]]:
    """Return a memory that also has the disabled backends with data of their own to back up.

    The stack closes it. The mapping has these backends, each with the reason why it cannot be opened, if any;
    then none of them is opened.
    """
    kept = await asyncio.to_thread(_disabled_with_data, memory)
    whole = await _with_enabled(memory, kept, stack, environ)
    problems: dict[str, str | None] = {one.backend_id: one.reason for one in whole.unavailable()}
    for backend_id, one in whole.backends_to_back_up().items():
        health = await one.health() if backend_id in kept and isinstance(one, SupportsHealth) else None
        problems[backend_id] = health.message or "it does not answer" if health and not health.ok else None
    disabled = {backend_id: problems.get(backend_id) for backend_id in kept}
    return (memory if any(disabled.values()) else whole), disabled


async def _with_enabled(
    memory: Memory, backends: Collection[str], stack: AsyncExitStack, environ: Mapping[str, str]
) -> Memory:
    """Return the memory of the same workspace with more backends enabled; the stack closes it."""
    if not backends:
        return memory
    config = {backend_id: {"enabled": True} for backend_id in backends}
    opened = open_memory(memory.workspace_dir, memory.state_dir, config, environ=environ, long_lived=False)
    return await stack.enter_async_context(opened)


def _disabled_with_data(memory: Memory) -> list[str]:
    """Return the disabled backends with data of this workspace that only a backup can bring back."""
    able = (spec for spec in memory.registry.backend_specs() if Capability.BACKUP in spec.capabilities)
    disabled = (spec for spec in able if not memory.settings.memory.section(spec.id).enabled)
    return [
        spec.id
        for spec in disabled
        if any(_is_irreplaceable(one, memory) for one in spec.kept(memory.state_dir))
    ]


def _is_irreplaceable(store: KeptStore, memory: Memory) -> bool:
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
    """Restore a backup into a workspace: the same one or another.

    All hashes are verified before anything is changed. If there is data already, nothing happens without
    `replace`; with it each part is replaced atomically. If a part fails, settings and judgements are put
    back.

    Raises:
        PathRefused: the backup is incomplete or damaged.
        ConfigError: there is data and `replace` is false.
        BackendError: a backend could not restore its part; the error names those that had done so, if any.
        FeedbackError: the feedback store cannot be written.
    """
    place = await asyncio.to_thread(existing_folder, workspace)
    source, manifest = await asyncio.to_thread(_verified, folder)
    settings = await asyncio.to_thread(_settings_to_write, source, place, environ)
    if not replace:
        _refuse_to_replace(await asyncio.to_thread(_existing, settings))
    if STORE in manifest.files and not replace:
        # The settings are not restored yet, so do not open backends just for this check.
        async with open_learning(place, state_dir=state_dir, environ=environ) as learning:
            filled = await learning.context.stored_if_any(lambda store: not store.is_empty())
            _refuse_to_replace([str(learning.context.store_path)] if filled else [])
    before = await asyncio.to_thread(_current_content, settings)
    async with AsyncExitStack() as undo:
        undo.push_async_callback(asyncio.to_thread, _write_settings, before)
        await asyncio.to_thread(_write_settings, settings)
        async with AsyncExitStack() as stack:
            opened = open_memory(place, state_dir, environ=environ, long_lived=False)
            memory = await stack.enter_async_context(opened)
            settings_now = memory.settings.memory
            disabled = {
                backend_id: f"{settings_now.section_key(backend_id)}.enabled"
                for backend_id in manifest.backends
                if not settings_now.section(backend_id).enabled
            }
            memory = await _with_enabled(memory, disabled, stack, environ)
            _refuse_missing(memory, manifest)
            if scope := manifest.note_scope:
                await asyncio.to_thread(
                    keep_note_scope, memory.state_dir, _workspace_id(memory), scope, replaces=True
                )
            async with _rollback_of_judgements(memory) if STORE in manifest.files else nullcontext():
                await _restore_judgements(memory, source, manifest)
                await _restore_backends(memory, source, manifest, replace=replace)
            await memory.apply_forgetting()
        undo.pop_all()
    return BackupReport(
        folder=source, created_at=manifest.created_at, parts=manifest.parts, not_enabled=disabled
    )


def _workspace_id(memory: Memory) -> str:
    return memory.context.memory_id.removeprefix(memory_id_of(memory.settings.memory.agent_id, ""))


@asynccontextmanager
async def _rollback_of_judgements(memory: Memory) -> AsyncIterator[None]:
    """Put the judgements back as they were if the block fails."""
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
    """Have each backend restore its part, all or nothing; done last, since only a backend could undo it."""
    able, done = memory.backends_to_back_up(), list[str]()
    for backend_id in manifest.backends:
        try:
            await able[backend_id].restore(source / BACKENDS / backend_id, replace=replace)
        except ComposableMemoryError as error:
            if not done:
                raise
            reason = str(error).removeprefix(f"backend {backend_id!r} failed to restore: ")
            problem = f"{reason}; restored before it, and not undone: {', '.join(done)}"
            fix = "settings and judgements are unchanged; fix the problem, then restore with --force"
            raise BackendUnavailable(backend_id, problem, fix=fix, operation="restore") from error
        done.append(backend_id)


def _refuse_missing(memory: Memory, manifest: _Manifest) -> None:
    """Refuse to start if a backend that the backup has data of is not open."""
    lost = {one.backend_id: one.reason for one in memory.unavailable()}
    for backend_id in manifest.backends:
        if backend_id not in memory.backends_to_back_up():
            problem = f"the backup holds data for it, but {lost.get(backend_id, 'it cannot restore any')}"
            fix = "fix the problem, then restore again"
            raise BackendUnavailable(backend_id, problem, fix=fix, operation="restore")


def _refuse_incomplete(memory: Memory, *, besides: Collection[str]) -> None:
    """Refuse a backup that would lack the data of an enabled backend that cannot be opened now."""
    for lost in memory.unavailable():
        found = None if lost.backend_id in besides else memory.registry.backend(lost.backend_id)
        if found and found.spec and Capability.BACKUP in found.spec.capabilities:
            raise BackendUnavailable(
                lost.backend_id,
                f"the backup would lack its data: {lost.reason}",
                fix="fix the problem, or disable it",
                operation="back up",
            )


def _refuse_to_replace(held: Collection[str]) -> None:
    if held:
        raise ConfigError(
            "restore", f"there is already data: {', '.join(held)}; nothing was changed; --force replaces it"
        )


# --- writing


def free_folder(folder: Path) -> Path:
    """Return the path of a folder that a backup or an export may be written to.

    Raises:
        PathRefused: there is something already.
    """
    target = folder.expanduser().absolute()
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise PathRefused(target, "is not an empty folder; choose another")
    return target


@asynccontextmanager
async def scratch_beside(target: Path) -> AsyncIterator[Path]:
    """Create a folder beside the target, and remove it at the end if it is still there.

    Nothing may write into it by then: `to_the_end` waits for threads.
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
    """Copy the store; return the number of judgements in the copy, and their traces."""
    store.copy_into(folder / STORE)
    judgements = store.judgements()
    return len(judgements), frozenset(one.trace_id for one in judgements)


async def _copy_traces(memory: Memory, traces: Collection[str], folder: Path) -> int:
    """Write the lines of these traces, newest first as the log is read; return how many."""
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


def _verified(named: Path) -> tuple[Path, _Manifest]:
    """Return the folder and the manifest of a backup after verifying it.

    Raises:
        PathRefused: it is not a backup, or a file is missing, was changed, or is not listed.
    """
    folder = named.expanduser().absolute()
    try:
        manifest = _Manifest.model_validate_json((folder / MANIFEST).read_bytes())
    except (OSError, ValidationError) as error:
        raise PathRefused(folder, f"is not a backup: {MANIFEST} cannot be read ({error})") from error
    if manifest.version > FORMAT_VERSION:
        problem = f"is version {manifest.version}, but this program knows {FORMAT_VERSION}"
        raise PathRefused(folder, f"{problem}; update composable-memory")
    there = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if not path.is_dir()}
    problems = [f"{name} is missing" for name in sorted(manifest.files.keys() - there)]
    problems += [f"{name} is not part of it" for name in sorted(there - manifest.files.keys() - {MANIFEST})]
    for name in sorted(manifest.files.keys() & there):
        path = folder / name
        if path.is_symlink() or not path.is_file():
            problems.append(f"{name} is not a regular file")
            continue
        with path.open("rb") as file:
            if file_digest(file, "sha256").hexdigest() != manifest.files[name]:
                problems.append(f"{name} was changed")
    if problems:
        raise PathRefused(folder, f"is incomplete: {'; '.join(problems)}; nothing was restored")
    return folder, manifest


def _settings_to_write(source: Path, workspace: Path, environ: Mapping[str, str]) -> list[tuple[Path, bytes]]:
    """Return the settings files that differ from those in the backup, with the content to write."""
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


def _existing(settings: Collection[tuple[Path, bytes]]) -> list[str]:
    return [str(target) for target, _ in settings if target.exists()]


def _current_content(settings: Collection[tuple[Path, bytes]]) -> list[tuple[Path, bytes | None]]:
    return [(target, target.read_bytes() if target.exists() else None) for target, _ in settings]


def _write_settings(settings: Sequence[tuple[Path, bytes | None]]) -> None:
    """Write files; those without content are deleted."""
    for target, content in settings:
        if content is None:
            target.unlink(missing_ok=True)
            continue
        make_private_folder(target.parent)
        replace_file(target, content, survives="power cut")


def _restore_traces(traces: Path, log_dir: Path, *, was: str, memory_id: str) -> None:
    """Add events of restored traces that the log lacks, in a separate closed file for each month.

    Existing files stay as they are: other processes may be reading, compressing or deleting them. The log is
    shared by all memories of a state folder: an event it already has for another memory is added for this one
    too.
    """
    if not traces.exists():
        return
    newest_first = traces.read_bytes().splitlines()
    read = [_Line.read(line, was=was, memory_id=memory_id) for line in newest_first[::-1]]
    make_private_folder(log_dir)
    with maintenance_lock(log_dir, is_patient=True):
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
    """A line of a log; one that cannot be parsed has neither time nor id."""

    at: str
    id: str
    text: bytes

    @classmethod
    def read(cls, text: bytes, *, was: str, memory_id: str) -> "_Line":
        """Parse a line; if it is of the memory `was`, assign it to the memory being restored."""
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
    """Create a file for its owner only, with its folder."""
    make_private_folder(path.parent)
    return os.fdopen(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "wb")


def _write(path: Path, content: bytes) -> None:
    with _created(path) as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
