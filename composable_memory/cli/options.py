"""Options shared by several commands, shell completion, and parsing of times."""

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import UTC, date, datetime, time
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from composable_memory_ops_logs.lazy import Pattern
from composable_memory_ops_logs.quick_dataclass import dataclass

if TYPE_CHECKING:
    from composable_memory.runtime.memory import Memory

# --- shell completion ---------------------------------------------------------------------------------------

# Called by the shell at each press of Tab, so it reads little; if it cannot read, it completes nothing.

MOST_TRACES = 20
MOST_NOTES = 200
ID_CHARS = 8
"""How much of a trace id to complete; enough to distinguish those of a log."""


def complete_traces(ctx: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """Return the latest searches: a prefix of the trace id, and the question."""
    from composable_memory_ops_logs import OpsLogError

    latest = [("last", "the latest search")] if "last".startswith(incomplete) else []
    with suppress(OpsLogError, OSError):
        return [*latest, *islice(_traces(ctx, incomplete), MOST_TRACES)]
    return latest


def complete_backends(incomplete: str) -> list[str]:
    """Return the ids of the installed backends."""
    from composable_memory.registry import discover_backends

    return [one for one in discover_backends().backends.ids if one.startswith(incomplete)]


def complete_notes(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the notes and folders with this prefix, one level at a time, as a shell does."""
    with suppress(OSError):
        return sorted(islice(_notes(Path(ctx.params.get("workspace") or "."), incomplete), MOST_NOTES))
    return []


def _traces(ctx: typer.Context, incomplete: str) -> Iterator[tuple[str, str]]:
    from composable_memory.config.layers import default_state_dir
    from composable_memory.state.folders import OPS_LOG_FOLDER
    from composable_memory_ops_logs import EventFilter, OpsLogReader

    state_dir = Path(ctx.params.get("state_dir") or default_state_dir(os.environ)).expanduser()
    for event in OpsLogReader(state_dir / OPS_LOG_FOLDER).events(EventFilter(action="query.start")):
        if event.trace_id.startswith(incomplete):
            yield event.trace_id[:ID_CHARS], " ".join(str(event.logged.get("query")).split())


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


# --- options ------------------------------------------------------------------------------------------------

Here = Path()
"""The current folder."""

TABLE_HELP = "builtin=0.6,graphiti=0.3, or a version such as v3, or now, settings or equal"

Workspace = Annotated[
    Path,
    typer.Option(
        "--workspace", "-w", metavar="DIR", file_okay=False, show_default="the current folder",
        help="The folder with your notes.",
    ),
]  # fmt: skip

StateDir = Annotated[
    Path | None,
    typer.Option(
        "--state-dir", metavar="DIR", file_okay=False, envvar="COMPOSABLE_MEMORY_STATE_DIR",
        help="Where indexes and logs are stored; default: the user's state folder.",
    ),
]  # fmt: skip

Port = Annotated[
    int,
    typer.Option("--port", metavar="N", min=0, max=65535, help="The port for --http; 0 picks a free one."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document to stdout and nothing else.")]
Strict = Annotated[bool, typer.Option("--strict", help="Exit with 3 if the result is degraded.")]

NewFolder = Annotated[
    Path, typer.Argument(metavar="DIR", file_okay=False, help="A folder that is empty or does not exist yet.")
]
TraceId = Annotated[
    str,
    typer.Argument(
        metavar="TRACE_ID",
        help="A trace id or a unique prefix of at least 4 characters; last is the latest query.",
        autocompletion=complete_traces,
    ),
]
Query = Annotated[str, typer.Argument(metavar="QUERY", help="What to search for, in your own words.")]
Session = Annotated[
    str | None,
    typer.Option(
        "--session", metavar="KEY", help="The conversation that asks; groups and channels get no citations."
    ),
]
MaxResults = Annotated[
    int | None, typer.Option("--max-results", "-n", metavar="N", min=1, help="The most results to return.")
]
OnlyBackends = Annotated[
    list[str] | None,
    typer.Option(
        "--backend",
        metavar="ID",
        help="Ask only this backend; repeatable.",
        autocompletion=complete_backends,
    ),
]
Backend = Annotated[
    str | None,
    typer.Option(
        "--backend",
        metavar="ID",
        help="The backend to use; default: the one that stores facts.",
        autocompletion=complete_backends,
    ),
]

Limit = Annotated[
    int,
    typer.Option("--limit", "-n", metavar="N", min=1, max=500, help="The most events to show."),
]
Since = Annotated[
    str | None,
    typer.Option(
        "--since", metavar="TIME", help="Only from this time on: 2026-05-03, 2026-05, last week, or 7d."
    ),
]
Until = Annotated[
    str | None, typer.Option("--until", metavar="TIME", help="Only up to the end of this time.")
]

Paths = Annotated[
    list[str] | None,
    typer.Option(
        "--path",
        metavar="GLOB",
        help="Only this file or folder; * and ** are wildcards; repeatable.",
        autocompletion=complete_notes,
    ),
]
Tags = Annotated[
    list[str] | None,
    typer.Option("--tag", metavar="TAG", help="Only notes with this tag; repeat to require several."),
]
Source = Annotated[
    Literal["memory", "sessions"] | None,
    typer.Option("--source", help="Only notes, or only transcripts."),
]
Types = Annotated[
    list[str] | None,
    typer.Option(
        "--type",
        metavar="TYPE",
        help="Only note, transcript or fact, a retained type such as opinion, or a file ending such as md; "
        "repeatable.",
    ),
]
Now = Annotated[
    str | None,
    typer.Option("--now", metavar="ISO", help='The time that "yesterday" counts from; default: now.'),
]

Weak = Annotated[bool, typer.Option("--weak", help="Show the nearest results even if none matches well.")]
WithoutTexts = Annotated[
    bool, typer.Option("--without-texts", help="Leave the question and the text of notes out of the page.")
]


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchFlags:
    """The options that say which backends to ask, how much to return, and which notes to consider."""

    max_results: MaxResults = None
    weak: Weak = False
    backend: OnlyBackends = None
    since: Since = None
    until: Until = None
    path: Paths = None
    tag: Tags = None
    source: Source = None
    type_: Types = None
    now: Now = None
    session: Session = None


_DAY = Pattern(r"\d{4}-\d{2}-\d{2}")


def check_names(memory: "Memory", names: Sequence[str], hint: str = "--backend") -> None:
    """Refuse an unknown backend; for one that could not be opened the error is different.

    Raises:
        typer.BadParameter: there is no such backend.
    """
    known = {*memory.manager.backend_ids, *(one.backend_id for one in memory.unavailable())}
    for name in names:
        if name not in known:
            problem = f"unknown backend {name!r}; known backends: {', '.join(sorted(known)) or 'none'}"
            raise typer.BadParameter(problem, param_hint=hint)


def parse_time(text: str | None, option: str) -> datetime | None:
    """Return the beginning of the time that an option names, or the end for `--until`, as a search reads it.

    Raises:
        typer.BadParameter: it names no time.
    """
    if text is None:
        return None
    from composable_memory.errors import InvalidArgument  # late, as `cmem --help` imports this module
    from composable_memory.query.filters import parse_since, parse_until
    from composable_memory.time.local_time import LOCAL_TIME

    parse = parse_until if option == "--until" else parse_since
    try:
        return parse(text, datetime.now(UTC).astimezone(LOCAL_TIME), option).astimezone(UTC)
    except InvalidArgument as error:
        raise typer.BadParameter(str(error), param_hint=option) from error


def parse_moment(text: str | None, option: str, *, day_ends: bool = False) -> datetime | None:
    """Return the moment that an option names: local unless it has a zone, a date alone in UTC.

    A date is its beginning, or its last moment with `day_ends`.

    Raises:
        typer.BadParameter: it is not a time.
    """
    if text is None:
        return None
    given = text.strip()
    try:
        if not _DAY.fullmatch(given):
            return datetime.fromisoformat(given).astimezone(UTC)
        return datetime.combine(date.fromisoformat(given), time.max if day_ends else time.min, UTC)
    except (ValueError, OverflowError) as error:
        problem = f"{text!r} is not a time; write 2026-05-03 or 2026-05-03T14:00"
        raise typer.BadParameter(problem, param_hint=option) from error


def moment_of_now(now: str | None) -> datetime | None:
    """Return the time that `--now` names.

    Raises:
        typer.BadParameter: it is not a time.
    """
    from composable_memory.errors import ConfigError  # late, as it is seldom given
    from composable_memory.runtime.opening import parse_iso_time

    try:
        return parse_iso_time(now, "--now") if now is not None else None
    except ConfigError as error:
        raise typer.BadParameter(
            f"{now!r} is not a time; write 2026-05-03T14:00", param_hint="--now"
        ) from error
