"""`cmem migrate`: move a memory from its own file to a PostgreSQL server, and back."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import typer

from composable_memory.cli.plugin_api import (
    AsJson,
    ExitCode,
    Target,
    command,
    counted,
    print_json,
    print_line,
    warn,
)
from composable_memory.config.layers import validate_backend_options
from composable_memory.errors import BackendUnavailable
from composable_memory.interfaces import Capability, SupportsSync
from composable_memory.json_documents import document
from composable_memory.paths import has_memory_files, resolve_memory_file
from composable_memory.runtime.memory import Memory
from composable_memory.runtime.opening import open_memory
from composable_memory.state.workspaces import kept_note_scope
from composable_memory_adapters.builtin.settings import BuiltinSettings, filled_in
from composable_memory_adapters.postgres import PostgresSettings, migrating
from composable_memory_adapters.postgres.cli import migrate as command_spec
from composable_memory_adapters.postgres.cli.app import (
    Which,
    opened_server,
    own_workspace,
    settings_of,
    tenant_of,
)
from composable_memory_feedback.store.export_import import Imported
from composable_memory_feedback.store.store import FeedbackStore

WITHOUT_EMBEDDER = {"memory": {"embedding": {"provider": "none"}, "fallback": "none"}}
"""What moves has its vectors; what has none is embedded by the next `cmem index`."""

migrate = typer.Typer(help=command_spec.summary, no_args_is_help=True)


@command(migrate, "postgres", epilog="Example: cmem migrate postgres --backend team")
async def to_postgres(target: Target, *, backend: Which = None, as_json: AsJson = False) -> ExitCode:
    """Copy the folder's notes to the server, with their vectors from the built-in index."""
    backend_id, _ = await asyncio.to_thread(settings_of, target, backend)
    async with _opened(target) as (memory, index), opened_server(target, backend, None) as server:
        manager = memory.manager.backends_with(Capability.SYNC).get(backend_id)
        if not isinstance(manager, SupportsSync):
            lost = [one.reason for one in memory.unavailable() if one.backend_id == backend_id]
            problem = lost[0] if lost else "it is not open"
            raise BackendUnavailable(backend_id, problem, fix="see `cmem status`", operation="migrate")
        report = await manager.sync(reason="migrate")
        workspace, tenant = await tenant_of(target, server)
        vectors, pending = await migrating.vectors_to_server(server, tenant, index)
        learnt = await _learnt(memory, backend_id, to_server=True)
    if as_json:
        about = document(workspace=workspace, notes_written=report.files_indexed)
        more = document(notes_same=report.files_unchanged, vectors=vectors, without_vector=pending)
        print_json(
            about | more | document(learnt=learnt.added, problems=[*report.problems, *learnt.left_out])
        )
    else:
        print_line(
            f"Workspace {workspace!r}: {counted(report.files_indexed, 'note')} written,"
            f" {report.files_unchanged} there already; {counted(vectors, 'vector')} moved."
        )
        _print_learnt(learnt)
    for problem in (*report.problems, *learnt.left_out):
        warn(f"problem: {problem}")
    if pending:
        warn(f"hint: {counted(pending, 'passage')} had no vectors here; `cmem index` embeds them")
    return ExitCode.DEGRADED if report.problems or learnt.left_out else ExitCode.FINE


@command(migrate, "builtin", epilog="Example: cmem migrate builtin --workspace ~/notes")
async def to_builtin(target: Target, *, backend: Which = None, as_json: AsJson = False) -> ExitCode:
    """Write notes that only the server has to the folder, and keep their vectors for the built-in index."""
    async with _opened(target) as (memory, index), opened_server(target, backend, None) as server:
        workspace, tenant = await tenant_of(target, server)
        backend_id, settings = await asyncio.to_thread(settings_of, target, backend)
        is_folder = await asyncio.to_thread(_is_all_notes, target, memory, settings)
        place_of = partial(
            resolve_memory_file,
            workspace=memory.workspace_dir,
            extra_paths=(*settings.extra_paths, *([memory.workspace_dir] if is_folder else ())),
        )
        hide = partial(memory.forgotten.hide, source="memory")
        moved = await migrating.notes_from_server(server, tenant, place_of, hide)
        now_ms = int(memory.context.clock().timestamp() * 1000)
        vectors = await migrating.vectors_from_server(server, tenant, index, now_ms=now_ms)
        learnt = await _learnt(memory, backend_id, to_server=False)
    if as_json:
        about = document(workspace=workspace, notes_written=len(moved.written), notes_same=moved.same)
        left_out = [document(path=path, reason=reason) for path, reason in moved.left.items()]
        print_json(about | document(vectors=vectors, left_out=left_out, learnt=learnt.added))
    else:
        print_line(
            f"From {workspace!r}: {counted(len(moved.written), 'note')} written, {moved.same} here already;"
            f" {counted(vectors, 'vector')} kept."
        )
        print_line("`cmem index` adds them to the built-in index, with these vectors.")
        _print_learnt(learnt)
    for problem in learnt.left_out:
        warn(f"problem: {problem}")
    for path, problem in moved.left.items():
        warn(f"problem: {path} was left out: {problem}")
    return ExitCode.DEGRADED if moved.left or learnt.left_out else ExitCode.FINE


async def _learnt(memory: Memory, backend_id: str, *, to_server: bool) -> Imported:
    """Add what one store has learnt to the other; do nothing if the settings keep it only in a file."""
    context = memory.context
    if memory.settings.memory.feedback.backend != backend_id:
        return Imported()

    def move(shared: FeedbackStore) -> Imported:
        if to_server and not context.store_path.exists():
            return Imported()
        with FeedbackStore.open(context.store_path, clock=context.clock) as file:
            source, target = (file, shared) if to_server else (shared, file)
            lines: list[bytes] = []
            source.export(lines.append, memory=context.memory_id)
            return target.import_(lines, memory=context.memory_id)

    return await context.stored(move)


def _print_learnt(learnt: Imported) -> None:
    if learnt.added:
        rows = ", ".join(f"{count} of {table.replace('_', ' ')}" for table, count in learnt.added.items())
        print_line(f"Learnt data: {rows}.")


@asynccontextmanager
async def _opened(target: Target) -> AsyncIterator[tuple[Memory, Path]]:
    """Yield the memory, without embedding, and the file of its builtin index."""
    folder, state = target.path(target.workspace), target.state_folder()
    async with open_memory(folder, state, WITHOUT_EMBEDDER, long_lived=False) as memory:
        yield memory, await asyncio.to_thread(lambda: _index_of(memory, own_workspace(target)))


def _index_of(memory: Memory, workspace_id: str) -> Path:
    offered = memory.registry.backend("builtin")
    assert offered is not None
    assert offered.spec is not None
    options = validate_backend_options(memory.settings.memory, offered.spec, memory.loaded.origins)
    assert isinstance(options, BuiltinSettings)
    return filled_in(
        options.store.path,
        state_dir=memory.state_dir,
        agent_id=memory.settings.memory.agent_id,
        workspace_id=workspace_id,
    )


def _is_all_notes(target: Target, memory: Memory, settings: PostgresSettings) -> bool:
    """Return whether notes may be anywhere in the folder; true for an empty one."""
    if settings.scope != "auto":
        return settings.scope == "folder"
    kept = kept_note_scope(memory.state_dir, own_workspace(target))
    return kept == "folder" if kept else not has_memory_files(memory.workspace_dir)
