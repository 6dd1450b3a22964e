"""`cmem explain`: how an answer came about, in words, and why a note was not found."""

from collections.abc import Mapping, Sequence
from typing import Annotated

import typer

from composable_memory.cli.command import ExitCode, Target, command
from composable_memory.cli.logs import LAST, format_score, resolve_trace
from composable_memory.cli.options import AsJson, TraceId, complete_notes
from composable_memory.cli.output import print_json, print_line
from composable_memory.query.waterfall import place_of
from composable_memory.tools.document import ErrorReply
from composable_memory.tools.explain import MemoryExplainRequest, memory_explain
from composable_memory_ops_logs import OpsLogError
from composable_memory_ops_logs.plurals import counted

ADVICE = "`cmem logs query --action query.start` lists searches"

app = typer.Typer()

Row = Mapping[str, object]


@command(app, "explain", epilog="Example: cmem explain last --why-not memory/2026-05-04.md")
async def explain(
    target: Target,
    trace_id: TraceId = LAST,
    *,
    why_not: Annotated[
        str | None,
        typer.Option(
            "--why-not",
            metavar="PLACE",
            help="Explain why this note, or these lines (a.md#L3-L7), did not come up.",
            autocompletion=complete_notes,
        ),
    ] = None,
    as_json: AsJson = False,
) -> ExitCode | None:
    """Explain in words how a search arrived at its answer.

    Matching words are looked up in the notes as they are now: they may have changed since.
    """
    async with target.open() as memory:
        trace_id = await resolve_trace(target, trace_id, memory=memory.context.memory_id)
        reply = await memory_explain(memory, MemoryExplainRequest(trace_id=trace_id, path=why_not))
    if isinstance(reply, ErrorReply):
        raise OpsLogError("it is not a search of this memory", subject=trace_id, advice=ADVICE)
    told = reply.as_json()
    if as_json:
        print_json(told)
    else:
        _print(told, why_not)
    return None


def _print(told: Row, why_not: str | None) -> None:
    print_line(f"{told.get('query')}", bold=True)
    for one in _rows(told, "backends"):
        print_line(f"  {_backend(one)}", dim=True)
    print_line()
    if why_not is not None:
        print_line(f"{why_not}: {told.get('why')}.")
        return
    hidden = told.get("hidden")
    for number, row in enumerate(_rows(told, "results"), 1):
        print_line(f"{number}. {format_score(row, 'score')} {place_of(row)} [{row.get('backend')}]")
        if isinstance(hidden, list) and number in hidden:
            print_line("   matches weakly, so it was not shown", dim=True)
        for line in _reasons(row):
            print_line(f"   {line}", dim=True)
    _print_dropped(_rows(told, "dropped"), told.get("moreDropped"))
    for row in _rows(told, "degraded"):
        print_line(f"{row.get('backend')}: {row.get('reason')}")


def _backend(one: Row) -> str:
    took = f"in {one.get('tookMs')} ms{_legs(one)}, weight {one.get('weight')}"
    error = one.get("error")
    if isinstance(error, Mapping):
        return f"{one.get('id')} failed {took}: {error.get('message')}"
    if one.get("skipped"):
        return f"{one.get('id')} was not asked: {one.get('skipped')}"
    count = one.get("resultCount")
    return f"{one.get('id')} found {counted(count if isinstance(count, int) else 0, 'passage')} {took}"


def _legs(one: Row) -> str:
    legs = one.get("legs")
    times = [f"{leg} {span[1]:.1f}" for leg, span in legs.items()] if isinstance(legs, Mapping) else []
    return f" ({', '.join(times)})" if times else ""


def _reasons(row: Row) -> list[str]:
    matched, given = row.get("matched"), row.get("words")
    words = f"matches {', '.join(map(str, matched))}" if isinstance(matched, list) and matched else ""
    if isinstance(given, list) and given:
        words = "matches " + ", ".join(f"{one['word']} {format_score(one, 'score')}" for one in given)
    legs = [
        f"{name} {format_score(row, key)}"
        for name, key in (("by words", "byWords"), ("by meaning", "byMeaning"))
        if key in row
    ]
    raw, calibrated = format_score(row, "rawScore"), format_score(row, "calibratedScore")
    calibration = f"{raw} there" + (f", {calibrated} on the common scale" if raw != calibrated else "")
    lines = ["; ".join(filter(None, (words, ", ".join(legs))))]
    lines.append(
        f"number {row.get('backendRank')} of {row.get('backend')}, {calibration}, times {row.get('weight')}"
    )
    if isinstance(row.get("support"), float):
        lines.append(f"facts change it by {row['support']:+.3f}")
    merged = row.get("mergedWith")
    if isinstance(merged, list) and merged:
        lines.append(f"also found as {', '.join(map(str, merged))}")
    return [line for line in lines if line]


def _print_dropped(rows: Sequence[Row], more: object) -> None:
    for reason in dict.fromkeys(row.get("reason") for row in rows):
        of_reason = [row for row in rows if row.get("reason") == reason]
        others = f" and {len(of_reason) - 3} more" if len(of_reason) > 3 else ""
        print_line(f"left out ({reason}): {', '.join(map(place_of, of_reason[:3]))}{others}")
    if more:
        print_line(f"{more} more were left out; --json names them")


def _rows(told: Row, key: str) -> list[Row]:
    rows = told.get(key)
    return [row for row in rows if isinstance(row, Mapping)] if isinstance(rows, list) else []
