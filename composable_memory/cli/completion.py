"""What a shell completes: traces by their questions, backends, and notes of the workspace.

Called by the shell at each press of Tab, so it looks at little; where it cannot look, it completes nothing.
"""

import os
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path

import typer

MOST_TRACES = 20
MOST_NOTES = 200
ID_CHARS = 8
"""Of a trace id; enough to tell those of a log apart."""


def traces(ctx: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """Return the latest searches: the beginning of the trace id, and the question."""
    from composable_memory_ops_logs import OpsLogError

    latest = [("last", "the latest search")] if "last".startswith(incomplete) else []
    with suppress(OpsLogError, OSError):
        return [*latest, *islice(_traces(ctx, incomplete), MOST_TRACES)]
    return latest


def backends(incomplete: str) -> list[str]:
    """Return the ids of the installed backends."""
    from composable_memory.registry import discover_backends

    return [one for one in discover_backends().backends.ids if one.startswith(incomplete)]


def notes(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the notes and folders of the workspace that begin so, one level at a time, as a shell does."""
    with suppress(OSError):
        return sorted(islice(_notes(Path(ctx.params.get("workspace") or "."), incomplete), MOST_NOTES))
    return []


def _traces(ctx: typer.Context, incomplete: str) -> Iterator[tuple[str, str]]:
    from composable_memory.config.layers import default_state_dir
    from composable_memory.state.folders import OPS_LOG_FOLDER
    from composable_memory_ops_logs import EventFilter, OpsLogReader

    state_dir = Path(ctx.params.get("state_dir") or default_state_dir(os.environ)).expanduser()
    for event in OpsLogReader(state_dir / OPS_LOG_FOLDER).events(EventFilter(action="query.start")):
        if event.trace_id.startswith(incomplete) and isinstance(event.detail, dict):
            yield event.trace_id[:ID_CHARS], " ".join(str(event.detail.get("query")).split())


def _notes(workspace: Path, incomplete: str) -> Iterator[str]:
    from composable_memory.paths import is_left_out, is_note

    folder, _, name = incomplete.rpartition("/")
    with os.scandir(workspace.expanduser() / folder) as entries:
        for entry in entries:
            if entry.name.startswith(name) and not is_left_out(entry.name):
                path = f"{folder}/{entry.name}" if folder else entry.name
                if entry.is_dir():
                    yield f"{path}/"
                elif is_note(entry.name):
                    yield path
