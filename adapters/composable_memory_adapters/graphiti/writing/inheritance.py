"""Which of the episodes that were taken in before workspaces were told apart are of a workspace."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path

from composable_memory_adapters.graphiti.episodes import EpisodeDraft, graph_id
from composable_memory_adapters.graphiti.groups import group_of, is_of, safe_group_id
from composable_memory_adapters.graphiti.settings import GraphitiSettings
from composable_memory_adapters.graphiti.writing.entries import Entry
from composable_memory_ops_logs.redaction import redact

__all__ = ["moved_to", "proven", "stays_in"]

MAX_FILE_BYTES = 16 * 2**20


def proven(entries: Sequence[Entry], workspace: Path) -> tuple[Entry, ...]:
    """Return the episodes whose text is in the file of the workspace that they name; reads files."""
    by_path = sorted(entries, key=_path_of)
    return tuple(
        entry
        for path, of_path in groupby(by_path, key=_path_of)
        for entry in _said_in(workspace, path, of_path)
    )


def stays_in(entry: Entry, settings: GraphitiSettings) -> bool:
    """Say whether an episode is in the group that the settings name, where it may stay as it is."""
    return settings.group is not None and is_of(safe_group_id(settings.group), entry.draft.group_id)


def moved_to(entry: Entry, settings: GraphitiSettings, *, agent_id: str, default: str) -> EpisodeDraft | None:
    """Return an episode of the agent's former group as one of `default`; None for one of another group.

    Nothing is moved to a group that the settings name: others may see it there.
    """
    if settings.group is not None or not is_of(agent_id, entry.draft.group_id):
        return None
    content = entry.draft.content
    if entry.id != entry.draft_id:  # a later text of the same id, with a mark at its end
        content = replace(content, id=content.id.rpartition("@")[0])
    group = group_of(settings, default, content.provenance)
    return replace(entry.draft, id=graph_id(group, content.id), group_id=group, content=content)


def _path_of(entry: Entry) -> str:
    return entry.draft.origin.path if entry.draft.origin else ""


def _said_in(workspace: Path, path: str, entries: Iterator[Entry]) -> Iterator[Entry]:
    text = _text_of(workspace, path) if path else ""
    masked: str | None = None
    for entry in entries:
        wanted = " ".join(entry.draft.text.split())
        if not wanted or not text:
            continue
        if wanted not in text and masked is None:
            masked = " ".join(redact(text).split())
        if wanted in text or (masked is not None and wanted in masked):
            yield entry


def _text_of(workspace: Path, path: str) -> str:
    """Return what a file of the workspace says, its spaces made one; nothing for what is outside of it."""
    try:
        file = (workspace / path).resolve()
        is_inside = not Path(path).is_absolute() and file.is_relative_to(workspace.resolve())
        if not is_inside or file.stat().st_size > MAX_FILE_BYTES:
            return ""
        return " ".join(file.read_text(encoding="utf-8", errors="replace").split())
    except (OSError, ValueError):  # it is gone, or no name of a file
        return ""
