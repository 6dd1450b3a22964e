"""Which files of a workspace are its notes: only `memory/` and `MEMORY.md`, or the whole folder.

Unless a setting decides, a folder that has neither of them is notes as a whole. The first choice made with
something to index is kept in the registry of workspaces: so a `memory/` that a program creates later hides no
notes, and one that is missing for a moment does not bring other files in. Configured extra paths count as the
choice if none was made yet; if the whole folder was chosen before, they are added to it. Blocks; call it from
a thread.
"""

import os
from collections.abc import Set
from contextlib import suppress
from itertools import islice
from pathlib import Path

from composable_memory.interfaces import BackendServices
from composable_memory.paths import MAIN_FILES, MEMORY_FOLDERS, has_memory_files, is_left_out, is_note
from composable_memory.state.workspaces import keep_note_scope, kept_note_scope
from composable_memory_adapters.builtin.notes.documents import note_suffixes
from composable_memory_adapters.builtin.settings import BuiltinSettings
from composable_memory_ops_logs.quick_dataclass import dataclass

WHOLE = Path()
MOST_LOOKED_AT = 1000
"""How many folders to search for notes left out of the scope; a large tree may have none."""
ADDED = (
    "the whole folder was indexed before, so extra_paths are added to it; to index only these, set "
    "memory.builtin.scope to memory"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class NoteScope:
    """The choice, and who made it: a `setting`, a run `before`, or this one (`now`).

    `refusal` says why nothing is indexed, `hint` which setting may have been intended. `settings` are those
    given, with the workspace added to the extra paths if all of it is notes.
    """

    is_folder: bool
    by: str
    settings: BuiltinSettings
    refusal: str | None = None
    hint: str | None = None


def choose(settings: BuiltinSettings, services: BackendServices) -> NoteScope:
    """Choose which files of the workspace are notes.

    Raises:
        ConfigError: the registry of workspaces cannot be used.
    """
    if settings.scope != "auto":
        return _scope(settings, settings.scope, by="setting")
    if "memory" not in settings.sources:
        return _scope(settings, "memory", by="setting")
    kept = kept_note_scope(services.state_dir, services.workspace_id)
    if settings.extra_paths and kept != "folder":
        return _scope(settings, "memory", by="setting")
    if kept is not None:
        return _scope(settings, kept, by="before")
    workspace, suffixes = services.workspace_dir, note_suffixes(settings.documents)
    if not has_memory_files(workspace):
        if _contains_home(workspace):
            return NoteScope(is_folder=False, by="now", settings=settings, refusal=_refusal(workspace))
        if _a_note_in(workspace, suffixes):
            return _scope(settings, "folder", by="now")
    other = _a_note_in(workspace, suffixes, besides={*MAIN_FILES, *MEMORY_FOLDERS}, most=MOST_LOOKED_AT)
    return _scope(settings, "memory", by="now", hint=_hint_at_others(workspace, other) if other else None)


def keep(scope: NoteScope, services: BackendServices) -> None:
    """Record the choice if it was made by this run.

    Raises:
        ConfigError: the registry of workspaces cannot be used.
    """
    if scope.by == "now":
        chosen = "folder" if scope.is_folder else "memory"
        keep_note_scope(services.state_dir, services.workspace_id, chosen)


def _scope(settings: BuiltinSettings, chosen: str, *, by: str, hint: str | None = None) -> NoteScope:
    is_folder = chosen == "folder" and "memory" in settings.sources
    if is_folder and by == "before" and settings.extra_paths:
        hint = ADDED
    if is_folder and WHOLE not in settings.extra_paths:
        settings = settings.model_copy(update={"extra_paths": (WHOLE, *settings.extra_paths)})
    return NoteScope(is_folder=is_folder, by=by, settings=settings, hint=hint)


def _contains_home(workspace: Path) -> bool:
    """Return whether a folder is, or contains, the user's home."""
    real = workspace.resolve()
    with suppress(RuntimeError):  # the user has no home
        return Path.home().resolve().is_relative_to(real)
    return real == real.parent


def _a_note_in(
    workspace: Path, suffixes: Set[str], besides: Set[str] = frozenset(), most: int | None = None
) -> str | None:
    """Return any note in a folder, but none under the names `besides`; visits at most `most` folders."""
    for folder, below, files in islice(os.walk(workspace), most):
        if folder == str(workspace):
            below[:], files = ([one for one in names if one not in besides] for names in (below, files))
        if note := next((one for one in files if is_note(one, suffixes) and not is_left_out(one)), None):
            return Path(folder, note).relative_to(workspace).as_posix()
        below[:] = [one for one in below if not is_left_out(one)]
    return None


def _hint_at_others(workspace: Path, note: str) -> str:
    return (
        f"only MEMORY.md, memory/ and bank/ of {workspace} are indexed, not others such as {note}; set "
        f"memory.builtin.scope to folder to index all of it"
    )


def _refusal(workspace: Path) -> str:
    return (
        f"{workspace} contains a home folder, so probably not all of it is notes; name the folder with "
        f"your notes by --workspace, move them into its memory/, or set memory.builtin.scope to folder"
    )
