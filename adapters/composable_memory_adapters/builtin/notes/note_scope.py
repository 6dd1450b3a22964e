"""Which files of a workspace are its notes: `memory/` and `MEMORY.md`, or all of the folder.

Without a setting, a folder that has neither of them is all notes. What was chosen once, when there was
something to index, is kept in the registry of workspaces: so a `memory/` that a program makes later hides no
note, and one that is gone for a moment brings no other files in. Extra paths are the choice where none was
made yet; to a folder that has been all notes they are added. Blocks; call it from a thread.
"""

import os
from collections.abc import Set
from contextlib import suppress
from pathlib import Path

from composable_memory.interfaces import BackendServices
from composable_memory.paths import has_memory_files, is_left_out, is_note
from composable_memory.state.workspaces import keep_note_scope, kept_note_scope
from composable_memory_adapters.builtin.notes.documents import note_suffixes
from composable_memory_adapters.builtin.settings import BuiltinSettings
from composable_memory_ops_logs.quick_dataclass import dataclass

WHOLE = Path()
ADDED = (
    "all of the folder has been the notes before, so extra_paths are added to it; for these alone, set"
    " memory.builtin.scope to memory"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class NoteScope:
    """What was chosen, and by whom: by a `setting`, `before`, or `now`.

    `refusal` says why nothing is indexed, `hint` how a setting may have been meant. `settings` are those
    given, with the workspace as an extra path where all of it is notes.
    """

    is_folder: bool
    by: str
    settings: BuiltinSettings
    refusal: str | None = None
    hint: str | None = None


def choose(settings: BuiltinSettings, services: BackendServices) -> NoteScope:
    """Return what the notes of the workspace are.

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
    workspace = services.workspace_dir
    if not has_memory_files(workspace):
        if _holds_a_home(workspace):
            return NoteScope(is_folder=False, by="now", settings=settings, refusal=_refusal(workspace))
        if _holds_a_note(workspace, note_suffixes(settings.documents)):
            return _scope(settings, "folder", by="now")
    return _scope(settings, "memory", by="now")


def keep(scope: NoteScope, services: BackendServices) -> None:
    """Record what was chosen now.

    Raises:
        ConfigError: the registry of workspaces cannot be used.
    """
    if scope.by == "now":
        chosen = "folder" if scope.is_folder else "memory"
        keep_note_scope(services.state_dir, services.workspace_id, chosen)


def _scope(settings: BuiltinSettings, chosen: str, *, by: str) -> NoteScope:
    is_folder = chosen == "folder" and "memory" in settings.sources
    hint = ADDED if is_folder and by == "before" and settings.extra_paths else None
    if is_folder and WHOLE not in settings.extra_paths:
        settings = settings.model_copy(update={"extra_paths": (WHOLE, *settings.extra_paths)})
    return NoteScope(is_folder=is_folder, by=by, settings=settings, hint=hint)


def _holds_a_home(workspace: Path) -> bool:
    """Return whether a folder is the user's home, or above it."""
    real = workspace.resolve()
    with suppress(RuntimeError):  # there is no home
        return Path.home().resolve().is_relative_to(real)
    return real == real.parent


def _holds_a_note(workspace: Path, suffixes: Set[str]) -> bool:
    """Return whether there is any; a folder without notes is not decided on before it has some."""
    for _, below, files in os.walk(workspace):
        if any(is_note(one, suffixes) and not is_left_out(one) for one in files):
            return True
        below[:] = [one for one in below if not is_left_out(one)]
    return False


def _refusal(workspace: Path) -> str:
    return (
        f"{workspace} holds a home folder, so probably not all of it is notes; name the folder of your"
        " notes with --workspace, or put them into its memory/, or set memory.builtin.scope to folder"
    )
