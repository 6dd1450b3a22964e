"""`cmem workspace`: the known workspaces, what is stored for each, and which folder each of them is."""

import asyncio
import glob
import os
import shutil
from collections.abc import Iterable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Annotated

import typer
from pydantic import JsonValue

from composable_memory.cli.command import Target, command
from composable_memory.cli.options import AsJson, StateDir
from composable_memory.cli.output import format_bytes, print_json, print_line
from composable_memory.config.layers import default_state_dir, load_settings
from composable_memory.errors import ConfigError
from composable_memory.forget.tombstones import FOLDER as FORGOTTEN
from composable_memory.interfaces import KeptStore
from composable_memory.json_documents import document
from composable_memory.registry import discover_backends
from composable_memory.state.folders import existing_folder, feedback_stores, make_state_folder
from composable_memory.state.workspaces import (
    KnownWorkspace,
    forget,
    identify,
    kept_note_scope,
    known_workspaces,
)
from composable_memory.state.workspaces import adopt as adopt_workspace
from composable_memory_ops_logs import utc_now
from composable_memory_ops_logs.quick_dataclass import dataclass

FORGOTTEN_AFTER = timedelta(days=61)
"""By default log lines are never this old. Until then what was asked in a folder can still be judged."""

app = typer.Typer()
workspaces = typer.Typer(
    help="List known workspaces, clean up, or reconnect one whose folder was replaced.",
    no_args_is_help=True,
)
app.add_typer(workspaces, name="workspace")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kept:
    """A workspace with its stored data; one that is not in the registry has no `known`."""

    id: str
    known: KnownWorkspace | None
    stores: tuple[KeptStore, ...]

    @property
    def is_there(self) -> bool:
        return self.known is not None and self.known.is_there

    @property
    def lasting(self) -> tuple[KeptStore, ...]:
        """Return the stores that cannot be rebuilt."""
        return tuple(store for store in self.stores if not store.is_rebuildable)

    @property
    def bytes(self) -> int:
        """Return the size of all its data."""
        return sum(store.bytes for store in self.stores)

    def document(self) -> dict[str, JsonValue]:
        """Return it as JSON; without a path, it is only known by its data."""
        known = self.known
        return document(
            id=self.id,
            name=known.name if known else None,
            path=known.path if known else None,
            used_at=known.used_at if known else None,
            is_there=self.is_there,
            bytes=self.bytes,
            stores=[*map(_store_document, self.stores)],
        )


def _store_document(store: KeptStore) -> dict[str, JsonValue]:
    return document(kind=store.kind, path=store.path, bytes=store.bytes, rebuildable=store.is_rebuildable)


@command(workspaces, "list")
async def list_(*, state_dir: StateDir = None, as_json: AsJson = False) -> None:
    """List the known workspaces and what is stored for each."""
    kept = [one for one in await asyncio.to_thread(_kept_in, state_dir) if one.is_there or one.stores]
    if as_json:
        print_json(document(workspaces=[one.document() for one in kept]))
        return
    for one in kept:
        _print_workspace(one)
    if not kept:
        print_line("No workspace is known yet.")


@command(workspaces, "adopt", epilog="Example: cmem workspace adopt 3f9c2a7d1e40 --workspace ~/notes")
async def adopt(
    target: Target,
    workspace_id: Annotated[
        str, typer.Argument(metavar="ID", help="The workspace id shown by `cmem workspace list`.")
    ],
    *,
    force: Annotated[
        bool,
        typer.Option("--force", help="Even if its folder still exists, or this folder already has a memory."),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Connect a folder to a known workspace: its facts, judgements, weights and log."""
    folder, adopted, before = await asyncio.to_thread(_adopt, target, workspace_id, force=force)
    if as_json:
        print_json(document(path=folder, id=adopted, before=before))
    else:
        print_line(f"{folder} is now workspace {adopted}; it was {before}.")


@command(workspaces, "prune")
async def prune(
    *,
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Remove them instead of only listing them.")
    ] = False,
    state_dir: StateDir = None,
    as_json: AsJson = False,
) -> None:
    """Remove the indexes of folders that are gone or empty. What cannot be rebuilt is kept."""
    stores, forgotten = await asyncio.to_thread(_prune, state_dir, is_done=yes)
    total = sum(one.bytes for one in stores)
    if as_json:
        print_json(
            document(
                stores=[*map(_store_document, stores)],
                workspaces=[one.id for one in forgotten],
                bytes=total,
                removed=yes,
            )
        )
        return
    for store in stores:
        print_line(f"{format_bytes(store.bytes):>10}  {store.path}")
    for one in forgotten:
        print_line(f"{'no data':>10}  {one.path}, last used {one.used_at.date().isoformat()}")
    done = "Removed" if yes else "`cmem workspace prune --yes` removes"
    count = len(stores) + len(forgotten)
    print_line(f"{done} {count} of {format_bytes(total)}." if count else "There is nothing to remove.")


def _kept_in(state_dir: Path | None) -> list[_Kept]:
    state = make_state_folder(state_dir or default_state_dir(os.environ))
    stores: dict[str, list[KeptStore]] = {}
    for store in _stores(state):
        stores.setdefault(store.workspace_id, []).append(store)
    known = {one.id: one for one in known_workspaces(state)}
    ids = (*known, *sorted(stores.keys() - known.keys()))
    return [_Kept(id=one, known=known.get(one), stores=tuple(stores.get(one, ()))) for one in ids]


def _stores(state: Path) -> Iterator[KeptStore]:
    for path in feedback_stores(state):
        size = sum(file.stat().st_size for file in path.parent.glob(f"{path.name}*"))
        yield KeptStore(workspace_id=path.stem.rpartition("-")[2], kind="judgements", path=path, bytes=size)
    for folder in (state / FORGOTTEN).glob("*/"):
        size = sum(file.stat().st_size for file in folder.iterdir())
        yield KeptStore(workspace_id=folder.name, kind="forgotten", path=folder, bytes=size)
    for found in discover_backends().backends:
        if found.spec is not None:
            yield from found.spec.kept(state)


def _adopt(target: Target, wanted: str, *, force: bool) -> tuple[Path, str, str]:
    """Return the folder, its new workspace, and its previous one."""
    folder = existing_folder(target.workspace)
    state = make_state_folder(target.state_dir or default_state_dir(os.environ))
    if name := load_settings(folder, state_dir=state).settings.memory.id:
        raise ConfigError("memory.id", f"it already says that {folder} is workspace {name!r}; unset it first")
    before = identify(state, folder, now=utc_now())
    kept = _kept_in(target.state_dir)
    found = next((one for one in kept if wanted in (one.id, one.known and one.known.name)), None)
    if found is None:
        known = ", ".join(one.id for one in kept if one.id != before.id) or "none but this"
        raise ConfigError("workspace", f"unknown workspace {wanted!r}; known: {known}")
    own = next((one for one in kept if one.id == before.id), None)
    if found.id != before.id and not force:
        _refuse_two(folder, found, own)
    adopt_workspace(state, folder, found.id, now=utc_now())
    return folder, found.id, before.id


def _refuse_two(folder: Path, target: _Kept, own: _Kept | None) -> None:
    """Refuse if two folders would be one workspace, or if data of this folder would be left behind."""
    if target.known is not None and target.is_there:
        problem = f"{target.known.path} is still workspace {target.id}, so both would share one memory"
        raise ConfigError("workspace", f"{problem}; use --force to do it anyway")
    if own is not None and own.lasting:
        what = " and ".join(sorted({store.kind for store in own.lasting}))
        problem = f"{folder} has {what} of its own, which would be left behind as workspace {own.id}"
        raise ConfigError("workspace", f"{problem}; use --force to do it anyway")


def _prune(state_dir: Path | None, *, is_done: bool) -> tuple[list[KeptStore], list[KnownWorkspace]]:
    """Return data that nobody needs, and workspaces that were only looked at; with `is_done` remove them."""
    state, kept = make_state_folder(state_dir or default_state_dir(os.environ)), _kept_in(state_dir)
    stores = [*_needless(kept)]
    forgotten = [*_only_looked_at(state, kept)]
    if is_done:
        for store in stores:
            _remove(store.path)
        forget(state, forgotten)
    return stores, forgotten


def _only_looked_at(state: Path, kept: Iterable[_Kept]) -> Iterator[KnownWorkspace]:
    """Yield the workspaces of which nothing is left except perhaps log lines."""
    long_ago = utc_now() - FORGOTTEN_AFTER
    for one in kept:
        known = one.known
        if known is None or known.name or one.stores or known.used_at > long_ago:
            continue
        if kept_note_scope(state, one.id) is None:
            yield known


def _needless(kept: Iterable[_Kept]) -> Iterator[KeptStore]:
    for one in kept:
        is_gone = one.known is not None and not one.known.is_there
        for store in one.stores:
            if store.is_rebuildable and (is_gone or (store.is_empty and not one.lasting)):
                yield store


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
        return
    for beside in path.parent.glob(f"{glob.escape(path.name)}-*"):  # a write-ahead log, and derived files
        beside.unlink(missing_ok=True)
    path.unlink(missing_ok=True)


def _print_workspace(one: _Kept) -> None:
    known = one.known
    name = f" ({known.name})" if known and known.name else ""
    where = str(known.path) if known else "its folder is not known"
    missing = "" if one.is_there or not known else "  (gone)"
    print_line(f"{one.id}{name}  {where}{missing}", bold=True)
    if known and known.used_at:
        print_line(f"  last used {known.used_at.date().isoformat()}, {format_bytes(one.bytes)} kept")
    for store in one.stores:
        print_line(f"  {store.kind:<10} {format_bytes(store.bytes):>10}  {store.path}", dim=True)
