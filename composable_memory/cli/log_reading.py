"""`cmem logs tail`, `cmem logs show` and `cmem logs query`."""

import asyncio
import os
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta

import typer

from composable_memory.cli.drawing import draw
from composable_memory.cli.log_documents import EventsDocument, TraceDocument
from composable_memory.cli.runner import ExitCode, Place
from composable_memory.cli.screen import say, warn, write_json
from composable_memory.config.layers import default_state_dir
from composable_memory.query.waterfall import note_on, waterfall
from composable_memory.runtime.opening import OPS_LOG_FOLDER
from composable_memory_ops_logs import EventFilter, OpsEvent, OpsLogError, OpsLogReader
from composable_memory_ops_logs.wire import event_to_wire

__all__ = ["named_trace", "parse_time", "query", "read_trace", "show", "tail"]

LAST = "last"
"""Stands for the trace of the last query."""

_SPAN = re.compile(r"(\d+)\s*([smhdw])")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}


def parse_time(text: str | None, option: str) -> datetime | None:
    """Return the time that `text` names: an ISO time, local unless it has a zone, or a span back from now.

    Raises:
        typer.BadParameter: it names no time.
    """
    if text is None:
        return None
    try:
        if span := _SPAN.fullmatch(text.strip().lower()):
            return datetime.now(UTC) - timedelta(seconds=int(span[1]) * _SECONDS[span[2]])
        return datetime.fromisoformat(text.strip()).astimezone(UTC)
    except (ValueError, OverflowError) as error:
        problem = f"{text!r} is no time; write 2026-05-03, 2026-05-03T14:00 or a span such as 2h"
        raise typer.BadParameter(problem, param_hint=option) from error


async def tail(place: Place, *, limit: int, follow: bool, as_json: bool) -> ExitCode:
    """Show the last events, and with `follow` every further one until interrupted."""
    reader = _reader(place)
    events = await asyncio.to_thread(reader.tail, limit)
    if follow:
        for event in events:
            _show_event(event, as_json=as_json)
        async for event in reader.follow():
            _show_event(event, as_json=as_json)
    elif as_json:
        write_json(EventsDocument.of(events).as_json())
    else:
        _show_events(events)
    return ExitCode.FINE


async def show(place: Place, trace_id: str, *, as_json: bool) -> ExitCode:
    """Draw one trace."""
    events = await read_trace(place, trace_id)
    if as_json:
        write_json(TraceDocument.of(events).as_json())
    else:
        draw(waterfall(events))
    return ExitCode.FINE


async def query(place: Place, wanted: EventFilter, *, limit: int, offset: int, as_json: bool) -> ExitCode:
    """List events, newest first."""
    page = await asyncio.to_thread(_reader(place).read, wanted, limit=limit, offset=offset)
    if as_json:
        write_json(EventsDocument.of(page.events, has_more=page.has_more).as_json())
        return ExitCode.FINE
    _show_events(page.events)
    if page.has_more:
        warn(f"there are more; go on with --offset {offset + len(page.events)}")
    return ExitCode.FINE


async def read_trace(place: Place, trace_id: str) -> Sequence[OpsEvent]:
    """Return the events of a trace; the unique beginning of its id will do, or `last` for the last query.

    Raises:
        OpsLogError: there is no such trace, or there are several.
    """
    trace_id = await named_trace(place, trace_id)
    events = await asyncio.to_thread(_reader(place).trace, trace_id)
    if not events:
        raise OpsLogError("no such trace", subject=trace_id, advice="`cmem logs tail` shows recent ones")
    return events


async def named_trace(place: Place, trace_id: str, *, memory: str | None = None) -> str:
    """Return the trace that is meant: for `last` that of the last query, if need be of one memory.

    Raises:
        OpsLogError: there was no query yet.
    """
    if trace_id != LAST:
        return trace_id
    queries = _reader(place).events(EventFilter(action="query.start"))
    found = await asyncio.to_thread(next, (one.trace_id for one in queries if _is_of(one, memory)), None)
    if found is None:
        raise OpsLogError("there was no query yet", subject=LAST, advice="`cmem search` makes one")
    return found


def _is_of(event: OpsEvent, memory: str | None) -> bool:
    return memory is None or (isinstance(event.detail, Mapping) and event.detail.get("memory") == memory)


def _reader(place: Place) -> OpsLogReader:
    state_dir = place.state_dir or default_state_dir(os.environ)
    return OpsLogReader(state_dir.expanduser() / OPS_LOG_FOLDER)


def _show_events(events: Sequence[OpsEvent]) -> None:
    for event in events:
        _show_event(event, as_json=False)
    if not events:
        say("No events.")


def _show_event(event: OpsEvent, *, as_json: bool) -> None:
    if as_json:
        return write_json(event_to_wire(event), compact=True)
    at = event.ts.astimezone().strftime("%Y-%m-%d %H:%M:%S")
    took = f"{event.duration_ms:.1f} ms" if event.duration_ms is not None else ""
    colour = {"failure": "red", "partial": "yellow"}.get(event.status)
    label = f"{event.action} {event.backend or ''}".rstrip()
    return say(
        f"{at}  {event.trace_id[:8]}  {label.ljust(32)} {took.rjust(10)}  {note_on(event)}", colour=colour
    )
