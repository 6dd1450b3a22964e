"""`cmem workspace`: which workspaces are known, what is kept of each, and which folder each of them is."""

import asyncio
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from composable_memory.cli.runner import ExitCode, Place
from composable_memory.cli.screen import plain, say, write_json
from composable_memory.config.layers import default_state_dir, load_settings
from composable_memory.errors import ConfigError
from composable_memory.interfaces import KeptStore
from composable_memory.runtime.registry import discover_backends
from composable_memory.state.feedback_stores import feedback_stores
from composable_memory.state.folders import existing_folder, made_folder
from composable_memory.state.workspaces import KnownWorkspace, identify, known_workspaces
from composable_memory.state.workspaces import adopt as adopt_workspace
from composable_memory.tools import Document
from composable_memory_ops_logs import utc_now

__all__ = [
    "AdoptedDocument",
    "KeptDocument",
    "PrunedDocument",
    "WorkspaceDocument",
    "WorkspacesDocument",
    "adopt",
    "listing",
    "prune",
]


class KeptDocument(Document):
    """What is kept for a workspace at a path; what is rebuildable can be made anew from the notes."""

    kind: str
    path: str
    bytes: int
    rebuildable: bool

    @classmethod
    def of(cls, store: KeptStore) -> "KeptDocument":
        """Return the document of a store."""
        return cls(kind=store.kind, path=str(store.path), bytes=store.bytes, rebuildable=store.is_rebuildable)


class WorkspaceDocument(Document):
    """A workspace: without a path it is known by what is kept of it alone."""

    id: str
    name: str | None = None
    path: str | None = None
    used_at: datetime | None = None
    is_there: bool
    bytes: int
    stores: tuple[KeptDocument, ...]


class WorkspacesDocument(Document):
    """`cmem workspace list`."""

    workspaces: tuple[WorkspaceDocument, ...]


class AdoptedDocument(Document):
    """`cmem workspace adopt`: the folder, the workspace that it is now, and the one that it was."""

    path: str
    id: str
    before: str


class PrunedDocument(Document):
    """`cmem workspace prune`: what goes, and whether it is gone."""

    stores: tuple[KeptDocument, ...]
    bytes: int
    removed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kept:
    """A workspace with what is kept of it; one that the registry does not know has no `known`."""

    id: str
    known: KnownWorkspace | None
    stores: tuple[KeptStore, ...]

    @property
    def is_there(self) -> bool:
        return self.known is not None and self.known.is_there

    @property
    def lasting(self) -> tuple[KeptStore, ...]:
        """Return what could not be made anew."""
        return tuple(store for store in self.stores if not store.is_rebuildable)

    def document(self) -> WorkspaceDocument:
        known = self.known
        return WorkspaceDocument(
            id=self.id,
            name=known.name if known else None,
            path=str(known.path) if known else None,
            used_at=known.used_at if known else None,
            is_there=self.is_there,
            bytes=sum(store.bytes for store in self.stores),
            stores=tuple(map(KeptDocument.of, self.stores)),
        )


async def listing(place: Place, *, as_json: bool) -> ExitCode:
    """List the workspaces that are there, or of which something is kept."""
    kept = await asyncio.to_thread(_kept_in, place)
    documents = [one.document() for one in kept if one.is_there or one.stores]
    if as_json:
        write_json(WorkspacesDocument(workspaces=tuple(documents)).as_json())
    else:
        for one in documents:
            _show(one)
        if not documents:
            say("No workspace is known yet.")
    return ExitCode.FINE


async def adopt(place: Place, workspace_id: str, *, force: bool, as_json: bool) -> ExitCode:
    """Let the folder be another workspace that is known."""
    document = await asyncio.to_thread(_adopt, place, workspace_id, force=force)
    if as_json:
        write_json(document.as_json())
    else:
        say(f"{plain(document.path)} is workspace {document.id} now; it was {document.before}.")
    return ExitCode.FINE


async def prune(place: Place, *, remove: bool, as_json: bool) -> ExitCode:
    """Show, or remove, what is kept of folders that are gone or have no notes, and can be made anew."""
    stores = tuple(await asyncio.to_thread(lambda: [*_needless(place)]))
    if remove:
        for store in stores:
            await asyncio.to_thread(_remove, store.path)
    told = tuple(map(KeptDocument.of, stores))
    document = PrunedDocument(stores=told, bytes=sum(one.bytes for one in told), removed=remove)
    if as_json:
        write_json(document.as_json())
        return ExitCode.FINE
    for one in told:
        say(f"{_size(one.bytes):>9}  {plain(one.path)}")
    done = "Removed" if remove else "`cmem workspace prune --yes` removes"
    say(f"{done} {len(told)} of {_size(document.bytes)}." if told else "There is nothing to remove.")
    return ExitCode.FINE


def _kept_in(place: Place) -> list[_Kept]:
    state = made_folder(place.state_dir or default_state_dir(os.environ))
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
    for found in discover_backends().backends:
        if found.spec is not None:
            yield from found.spec.kept(state)


def _adopt(place: Place, wanted: str, *, force: bool) -> AdoptedDocument:
    folder = existing_folder(place.workspace)
    state = made_folder(place.state_dir or default_state_dir(os.environ))
    if name := load_settings(folder).settings.memory.id:
        raise ConfigError("memory.id", f"it says already that {folder} is workspace {name!r}; unset it first")
    before = identify(state, folder, now=utc_now())
    kept = _kept_in(place)
    target = next((one for one in kept if wanted in (one.id, one.known and one.known.name)), None)
    if target is None:
        known = ", ".join(one.id for one in kept if one.id != before.id) or "none other"
        raise ConfigError("workspace", f"no workspace {wanted!r} is known; known is {known}")
    own = next((one for one in kept if one.id == before.id), None)
    if target.id != before.id and not force:
        _refuse_two(folder, target, own)
    adopt_workspace(state, folder, target.id, now=utc_now())
    return AdoptedDocument(path=str(folder), id=target.id, before=before.id)


def _refuse_two(folder: Path, target: _Kept, own: _Kept | None) -> None:
    """Object where two folders would be one workspace, or what was learnt of this one would be left."""
    if target.known is not None and target.is_there:
        problem = f"{target.known.path} is still workspace {target.id}, and both would share one memory"
        raise ConfigError("workspace", f"{problem}; --force does it all the same")
    if own is not None and own.lasting:
        what = " and ".join(sorted({store.kind for store in own.lasting}))
        problem = f"{folder} has {what} of its own, which would stay behind as workspace {own.id}"
        raise ConfigError("workspace", f"{problem}; --force does it all the same")


def _needless(place: Place) -> Iterator[KeptStore]:
    for one in _kept_in(place):
        is_gone = one.known is not None and not one.known.is_there
        for store in one.stores:
            if store.is_rebuildable and (is_gone or (store.is_empty and not one.lasting)):
                yield store


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
        return
    for suffix in ("-wal", "-shm", ""):
        path.with_name(path.name + suffix).unlink(missing_ok=True)


def _show(one: WorkspaceDocument) -> None:
    name = f" ({one.name})" if one.name else ""
    where = plain(one.path) if one.path else "its folder is not known"
    missing = "" if one.is_there or not one.path else "  (gone)"
    say(f"{one.id}{name}  {where}{missing}", bold=True)
    if one.used_at:
        say(f"  last used {one.used_at.date().isoformat()}, {_size(one.bytes)} kept")
    for store in one.stores:
        say(f"  {store.kind:<10} {_size(store.bytes):>9}  {plain(store.path)}", dim=True)


def _size(count: int) -> str:
    return f"{count / 1e6:.1f} MB" if count >= 1e6 else f"{count / 1e3:.0f} kB"
