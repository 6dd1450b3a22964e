"""`cmem logs`: reads the operations log, draws a trace, ships lines to another store."""

import asyncio
from collections.abc import Mapping, Sequence
from datetime import UTC
from functools import cache
from pathlib import Path
from shutil import get_terminal_size
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from composable_memory.cli.command import Target, command
from composable_memory.cli.log_stats import print_statistics, statistics
from composable_memory.cli.options import (
    AsJson,
    Limit,
    Since,
    TraceId,
    Until,
    WithoutTexts,
    parse_time,
)
from composable_memory.cli.output import can_draw, environment, print_json, print_line, warn
from composable_memory.cli.render import print_table
from composable_memory.json_documents import document
from composable_memory.query.waterfall import Step, bar, note_on, place_of, trace_document, waterfall
from composable_memory.state.folders import OPS_LOG_FOLDER
from composable_memory.state.workspaces import identify, known_workspaces
from composable_memory_ops_logs import EventFilter, OpsEvent, OpsLogError, OpsLogReader, utc_now
from composable_memory_ops_logs.line_format import event_to_wire
from composable_memory_ops_logs.plurals import counted

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

    from composable_memory.interfaces import LogStore

LAST = "last"
LEAST_ID_CHARS = 4
"""Stands for the trace of the last query."""
COLOURS = {"failure": "red", "partial": "yellow"}
NOTE_CHARS = 30
"""How much of a line to reserve for the note on a step."""

app = typer.Typer()
logs = typer.Typer(
    help="Read the operations log: what happened, when, and in which trace.", no_args_is_help=True
)
app.add_typer(logs, name="logs")


@command(logs, "tail")
async def tail(
    target: Target,
    *,
    limit: Limit = 20,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Keep printing new events; stop with Ctrl-C.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show the latest events. With --follow, --json prints one document per line."""
    reader = _reader(target)
    events = await asyncio.to_thread(reader.tail, limit)
    if follow:
        for event in events:
            _print_followed(event, as_json=as_json)
        async for event in reader.follow():
            _print_followed(event, as_json=as_json)
    elif as_json:
        print_json(document(events=[*map(event_to_wire, events)]))
    else:
        _print_events(events)


@command(logs, "show")
async def show(
    target: Target,
    trace_id: TraceId = LAST,
    *,
    html: Annotated[
        Path | None,
        typer.Option(
            "--html", metavar="FILE", help="Write a page that explains the answer, to attach to a report."
        ),
    ] = None,
    without_texts: WithoutTexts = False,
    as_json: AsJson = False,
) -> None:
    """Show one trace as a waterfall, or write it as a single-file page, with secrets masked."""
    events = await read_trace(target, trace_id)
    if html is not None:
        from composable_memory.inspector.answer import write_report  # late, as it is seldom asked for

        async with target.open() as memory:
            trace = trace_document(events)
            await write_report(memory, events[0].trace_id, html, with_texts=not without_texts, trace=trace)
    elif as_json:
        print_json(trace_document(events))
    else:
        print_trace(events)


@command(logs, "query")
async def query(
    target: Target,
    *,
    action: Annotated[
        str | None, typer.Option("--action", metavar="NAME", help="Only this action, such as query.merged.")
    ] = None,
    backend: Annotated[
        str | None, typer.Option("--backend", metavar="ID", help="Only events of this backend.")
    ] = None,
    status: Annotated[
        Literal["success", "failure", "partial"] | None,
        typer.Option("--status", help="Only events with this status."),
    ] = None,
    session: Annotated[
        str | None, typer.Option("--session", metavar="KEY", help="Only events of this session.")
    ] = None,
    since: Since = None,
    until: Until = None,
    limit: Limit = 100,
    offset: Annotated[int, typer.Option("--offset", metavar="N", min=0, help="How many events to skip.")] = 0,
    as_json: AsJson = False,
) -> None:
    """List the events that match all filters, newest first."""
    wanted = EventFilter(
        action=action,
        backend=backend,
        status=status,
        session_key=session,
        start=parse_time(since, "--since"),
        end=parse_time(until, "--until"),
    )
    page = await asyncio.to_thread(_reader(target).read, wanted, limit=limit, offset=offset)
    if as_json:
        print_json(document(events=[*map(event_to_wire, page.events)], has_more=page.has_more))
        return
    _print_events(page.events)
    if page.has_more:
        warn(f"there are more; continue with --offset {offset + len(page.events)}")


@command(logs, "stats", epilog="Example: cmem logs stats --since 7d")
async def stats(
    target: Target,
    *,
    since: Since = None,
    as_json: AsJson = False,
) -> None:
    """Show how long the backends took, and the share of failed and degraded answers."""
    start, reader = parse_time(since, "--since"), _reader(target)
    filters = [EventFilter(action=action, start=start) for action in ("query.backend_result", "query.merged")]
    events = (event for one in filters for event in reader.events(one))
    found = await asyncio.to_thread(statistics, events)
    if as_json:
        print_json(document(backends=found))
    elif found:
        print_statistics(found)
    else:
        print_line("No queries.")


@command(logs, "ship", epilog="Example: cmem logs ship --to http://127.0.0.1:4318 --follow")
async def ship(
    target: Target,
    *,
    to: Annotated[
        str | None,
        typer.Option(
            "--to",
            metavar="TARGET",
            help="A backend that keeps log lines, or the URL of an OTLP collector.",
        ),
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Keep shipping what is added; stop with Ctrl-C.")
    ] = False,
    from_start: Annotated[
        bool, typer.Option("--from-start", help="Send all lines, including those already sent.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Send this workspace's unsent log lines to a server or a collector."""
    from composable_memory.state.log_shipping import keep_shipping, ship  # late, as it is seldom asked for

    workspace_id, opened = await asyncio.to_thread(_log_store, target, to)
    async with opened as store:
        sent = await ship(target.state_folder(), workspace_id, store, from_start=from_start)
        if as_json:
            print_json(document(target=store.name, lines=sent))
        else:
            print_line(f"Sent {counted(sent, 'line')} to {store.name}.")
        if follow:
            await keep_shipping(target.state_folder(), workspace_id, store, on_problem=warn)


def _log_store(target: Target, to: str | None) -> tuple[str, "AbstractAsyncContextManager[LogStore]"]:
    """Return the id of the workspace, and a function that opens the store for its lines; reads files.

    Raises:
        typer.BadParameter: there is no such store, or there are several and none was named.
    """
    from composable_memory.config.layers import load_settings, validate_backend_options
    from composable_memory.interfaces import LogServices
    from composable_memory.registry import discover_backends
    from composable_memory.state.otlp_logs import open_collector

    folder, environ = target.path(target.workspace), environment()
    registry = discover_backends()
    loaded = load_settings(folder, state_dir=target.state_dir, registry=registry, environ=environ)
    memory = loaded.settings.memory
    workspace_id = identify(target.state_folder(), folder, now=utc_now(), name=memory.id).id
    if to is not None and to.startswith(("http://", "https://")):
        return workspace_id, open_collector(to, environ)
    registry = registry.with_kinds(memory.kinds)
    offered = {id_: one for id_ in memory.sections if (one := registry.backend(id_)) and one.spec}
    able = {id_: one.spec for id_, one in offered.items() if one.spec and one.spec.open_log_store}
    used = [id_ for id_ in able if memory.section(id_).enabled]
    chosen = to or (used[0] if len(used) == 1 else "")
    spec = able.get(chosen)
    if spec is None or spec.open_log_store is None:
        known = ", ".join(able) or "there is none"
        problem = f"give the URL of a collector, or a backend that keeps log lines ({known})"
        raise typer.BadParameter(problem, param_hint="--to")
    if missing := offered[chosen].missing:
        raise typer.BadParameter(f"{chosen}: {missing}", param_hint="--to")
    options = validate_backend_options(memory, spec, loaded.origins)
    services = LogServices(backend_id=chosen, workspace_id=workspace_id, environ=environ)
    return workspace_id, spec.open_log_store(options, services)


# --- reading ------------------------------------------------------------------------------------------------


async def read_trace(target: Target, trace_id: str) -> Sequence[OpsEvent]:
    """Return the events of a trace; accepts a unique prefix of its id, or `last` for the last query.

    Raises:
        OpsLogError: there is no such trace, or there are several.
    """
    reader = _reader(target)
    if trace_id == LAST:
        trace_id = await _last_query(target, reader, memory=None)
    events = await asyncio.to_thread(reader.trace, trace_id)
    if not events:
        raise OpsLogError("no such trace", subject=trace_id, advice="`cmem logs tail` shows recent ones")
    return events


async def resolve_trace(target: Target, trace_id: str, *, memory: str | None = None) -> str:
    """Return the id of the requested trace: for `last` that of the last query of the workspace.

    In a folder that is not a workspace it is the last one of all. `memory` is the memory's id, if known.

    Raises:
        OpsLogError: there was no query yet.
    """
    if len(trace_id) < LEAST_ID_CHARS:
        problem = f"{trace_id!r} is no trace id; give at least {LEAST_ID_CHARS} of its characters, or {LAST}"
        raise typer.BadParameter(problem, param_hint="TRACE_ID")
    return await _last_query(target, _reader(target), memory=memory) if trace_id == LAST else trace_id


async def _last_query(target: Target, reader: OpsLogReader, *, memory: str | None) -> str:
    from composable_memory.tools.explain import last_search  # late, because `cmem --help` imports this module

    own = await asyncio.to_thread(_end_of_memory_id, target) if memory is None else memory
    return await asyncio.to_thread(last_search, reader, own)


def _end_of_memory_id(target: Target) -> str:
    """Return the suffix of the memory ids of a workspace; empty for a folder that is not one. Reads files."""
    for one in known_workspaces(target.state_folder()):
        if one.is_there and target.path(target.workspace).resolve() == one.path.resolve():
            return f"-{one.id}"
    return ""


def _reader(target: Target) -> OpsLogReader:
    """Return a reader that warns, once, of lines that it had to skip."""
    folder = target.state_folder() / OPS_LOG_FOLDER
    damaged = f"some lines of the log in {folder} are damaged and were left out"
    return OpsLogReader(folder, on_bad_line=cache(lambda: warn(damaged)))


# --- printing -----------------------------------------------------------------------------------------------


def print_trace(events: Sequence[OpsEvent]) -> None:
    """Print the time line of a trace, then its results."""
    one = waterfall(events)
    started = one.started_at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    print_line(f"trace {one.trace_id}  {started}  {one.total_ms:.1f} ms", bold=True)
    if one.query is not None:
        print_line(f"query {one.query}")
    print_line()
    labels = [
        f"  {step.leg}" if step.leg else f"{step.action} {step.backend or ''}".rstrip() for step in one.steps
    ]
    width = max(10, get_terminal_size().columns - max(map(len, labels)) - NOTE_CHARS - 16)
    print_table(
        (
            (label, f"|{_bar(step, one.total_ms, width)}|", _format_ms(step.duration_ms or None), _note(step))
            for step, label in zip(one.steps, labels, strict=True)
        ),
        right=(2,),
        styles={number: COLOURS.get(step.status, "") for number, step in enumerate(one.steps)},
    )
    _print_list("results", [_format_result(row) for row in one.results])
    _print_list("dropped", [_format_dropped(row) for row in one.dropped])
    _print_list("degraded", [f"{row.get('backend')}: {row.get('reason')}" for row in one.degraded])


def _bar(step: Step, total_ms: float, width: int) -> str:
    drawn = bar(step, total_ms, width)
    return drawn if can_draw() else "".join(" " if char == " " else "#" for char in drawn)


def _note(step: Step) -> str:
    return "; ".join(filter(None, (step.note, step.error)))


def _print_list(title: str, lines: Sequence[str]) -> None:
    if lines:
        print_line()
        print_line(title, bold=True)
    for line in lines:
        print_line(f"  {line}")


def _format_result(row: Mapping[str, object]) -> str:
    score, raw, calibrated = (format_score(row, key) for key in ("score", "rawScore", "calibratedScore"))
    merged = row.get("mergedWith")
    also = f"; merged with {', '.join(map(str, merged))}" if isinstance(merged, list) and merged else ""
    return (
        f"{score} {place_of(row)} [{row.get('backend')}]  raw {raw}, calibrated {calibrated}, "
        f"weight {row.get('weight')}, rank {row.get('backendRank')}{also}"
    )


def _format_dropped(row: Mapping[str, object]) -> str:
    return f"{place_of(row)} [{row.get('backend')}]  {row.get('reason')}: {row.get('detail')}"


def format_score(row: Mapping[str, object], key: str) -> str:
    """Return a score of a row of a trace."""
    value = row.get(key)
    return f"{value:.3f}" if isinstance(value, int | float) else "?"


def _print_events(events: Sequence[OpsEvent]) -> None:
    for event in events:
        _print_event(event)
    if not events:
        print_line("No events.")


def _print_followed(event: OpsEvent, *, as_json: bool) -> None:
    if as_json:
        print_json(event_to_wire(event), compact=True)
    else:
        _print_event(event)


def _print_event(event: OpsEvent) -> None:
    at = event.ts.astimezone().strftime("%Y-%m-%d %H:%M:%S")
    label = f"{event.action} {event.backend or ''}".rstrip()
    took = _format_ms(event.duration_ms)
    line = f"{at}  {event.trace_id[:8]}  {label.ljust(32)} {took.rjust(10)}  {note_on(event)}"
    print_line(line, colour=COLOURS.get(event.status))


def _format_ms(duration: float | None) -> str:
    return "" if duration is None else f"{duration:.1f} ms"
