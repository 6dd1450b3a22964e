"""`cmem search`."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import JsonValue

from composable_memory.citations import format_place
from composable_memory.cli.command import ExitCode, Target, command
from composable_memory.cli.options import (
    AsJson,
    Query,
    SearchFlags,
    Strict,
    WithoutTexts,
    check_names,
    moment_of_now,
)
from composable_memory.cli.output import (
    columns,
    error,
    line_spans,
    print_json,
    print_line,
    print_linked,
    print_marked,
    tell_scope,
    warn,
    warn_degraded,
    warn_if_empty,
)
from composable_memory.errors import InvalidArgument
from composable_memory.highlights import Line, best_lines, lines_of, readable, snippet_of, whole_text
from composable_memory.json_documents import document
from composable_memory.paths import FOREIGN
from composable_memory.query.context_pack import timed_facts
from composable_memory.query.filters import day_of, parse_since, parse_until, read_filters
from composable_memory.tools.search import (
    MemorySearchRequest,
    query_cited,
    unknown_filter,
    why_unavailable,
    why_weak,
    without_legs,
)
from composable_memory.types import (
    Attribution,
    BackendAnswer,
    DropReason,
    MemoryProviderStatus,
    MemorySearchResult,
    QueryIntent,
    QueryResponse,
    SupportingFact,
)

SEE_WEAK = "use other words, or add --weak to see them"
NEAREST = "these are the nearest"
TERMINAL_LINES = 4
"""Lines of each result on a terminal, so that the usual six fit into a window."""
LEAST_WIDTH, MARGIN = 20, 6
"""Columns of a result: the minimum for its text, and the space for the indent and the marks of a cut."""
WHERE_TO_LOOK = "hint: `cmem index` brings the index up to date, `cmem status` shows what is in it"

app = typer.Typer()


@command(app, "search", epilog='Example: cmem search "who has the spare key?" -n 3 --workspace ~/notes')
async def search(
    target: Target,
    query: Query,
    *,
    min_score: Annotated[
        float | None,
        typer.Option(
            "--min-score",
            metavar="S",
            min=0.0,
            max=1.0,
            help="Drop results that score lower (0 to 1); one with every word of the query is kept.",
        ),
    ] = None,
    asked: SearchFlags,
    explain: Annotated[
        bool,
        typer.Option("--explain", help="Show how each result was ranked, what was dropped, and why."),
    ] = False,
    lines: Annotated[
        int | None,
        typer.Option("--lines", metavar="N", min=1, help="Show only the N best lines of each result."),
    ] = None,
    text: Annotated[bool, typer.Option("--full", "--text", help="Show whole passages.")] = False,
    report: Annotated[
        Path | None,
        typer.Option(
            "--report",
            metavar="FILE",
            help="Also write a page that explains the answer, with secrets masked.",
        ),
    ] = None,
    without_texts: WithoutTexts = False,
    strict: Strict = False,
    as_json: AsJson = False,
) -> ExitCode:
    """Search all memories and show the best passages."""
    request = MemorySearchRequest(query=query, min_score=min_score, **fields_of(query, asked))
    async with target.open() as memory:
        check_names(memory, request.backends or ())
        response = await query_cited(memory, request)
        status = memory.status()
        unknown = None if response.results else await unknown_filter(memory, request)
        if report is not None:
            from composable_memory.inspector.answer import (
                write_report,  # late, as it is seldom asked for
            )

            file = target.path(report)
            await write_report(memory, response.trace_id, file, with_texts=not without_texts)
    failure = why_unavailable(response)
    if as_json:
        print_json(search_document(response, explain=explain, lines=lines, text=text))
    elif failure is None:
        print_response(response, explain=explain, lines=lines, text=text, folder=memory.workspace_dir)
    warn_degraded(response.degraded)
    tell_scope(status)
    warn_of_nothing(bool(response.results), why_weak(response), unknown, status, as_json=as_json)
    if failure is not None:
        error(failure)
        return ExitCode.FAILED
    return ExitCode.DEGRADED if strict and response.degraded else ExitCode.FINE


def fields_of(query: str, asked: SearchFlags) -> dict[str, Any]:
    """Return the fields of a request that these options set.

    Raises:
        typer.BadParameter: a time is invalid, in an option or the query, or there is nothing to search for.
    """
    moment = moment_of_now(asked.now)
    since, until, present = asked.since, asked.until, moment or datetime.now(UTC)
    try:
        read_filters(query, present)
        first = parse_since(since, present, "--since") if since is not None else None
        last = parse_until(until, present, "--until") if until is not None else None
        if first and last and first > last:
            raise InvalidArgument("--since", "no later than --until", str(since))
    except InvalidArgument as error:
        hint = error.argument if error.argument.startswith("--") else "QUERY"
        raise typer.BadParameter(str(error), param_hint=hint) from error
    lists = {
        "paths": asked.path,
        "tags": asked.tag,
        "sources": (asked.source,) if asked.source else None,
        "types": asked.type_,
    }
    given: dict[str, Any] = {name: tuple(values) for name, values in lists.items() if values}
    given |= {name: value for name, value in (("since", since), ("until", until)) if value}
    if not (query.strip() or given):
        raise typer.BadParameter("the query is empty; say what to look for", param_hint="QUERY")
    return given | {
        "max_results": asked.max_results,
        "weak": asked.weak or None,
        "session_key": asked.session,
        "backends": tuple(asked.backend) if asked.backend else None,
        **({"now": moment} if moment else {}),
    }


# --- as JSON ------------------------------------------------------------------------------------------------


def search_document(
    response: QueryResponse, *, explain: bool = False, lines: int | None = None, text: bool = False
) -> dict[str, JsonValue]:
    """Return the answer, its backends, what is missing from it, and on request how it came about.

    With `lines` each result has that many of its lines, those that match best, with `text` its passage.
    """
    return document(
        trace_id=response.trace_id,
        weak=response.weak or None,
        results=[_result_document(one, lines, text=text, weak=response.weak) for one in response.results],
        backends=[_answer_document(one) for one in response.answers],
        degraded=response.degraded,
        intent=response.intent or QueryIntent(),
        took_ms=round(response.latency_ms, 3),
        explain=_explanation(response) if explain else None,
    )


def _result_document(
    result: MemorySearchResult, lines: int | None = None, *, text: bool = False, weak: bool = False
) -> dict[str, JsonValue]:
    return document(
        result,
        exact=None,
        start_char=result.start_char or None,
        metadata=without_legs(result.metadata),
        highlights=result.highlights or None,
        facts=result.facts or None,
        title=result.title or None,
        headings=result.headings or None,
        lines=[line.text for line in best_lines(result, lines)] if lines else None,
        text=whole_text(result).text if text else None,
        weak=weak or None,
    )


def _answer_document(answer: BackendAnswer) -> dict[str, JsonValue]:
    return document(
        id=answer.backend_id,
        result_count=len(answer.results),
        took_ms=round(answer.took_ms, 3),
        engines=answer.engines,
        skipped=answer.skipped,
        error=str(answer.error) if answer.error else None,
    )


def _explanation(response: QueryResponse) -> dict[str, JsonValue]:
    dropped = [
        document(
            backend_id=backend_id,
            path=result.path,
            start_line=result.start_line,
            end_line=result.end_line,
            start_char=result.start_char or None,
            score=result.score,
            reason=reason,
            detail=detail,
        )
        for backend_id, result, reason, detail in _dropped(response)
    ]
    return document(weights_version=response.weights_version, results=response.attributions, dropped=dropped)


def _dropped(
    response: QueryResponse,
) -> Iterator[tuple[str, MemorySearchResult, DropReason | str, str]]:
    """Yield what was not returned, and why: first what came after the last result, then what was dropped."""
    ruled_out = [(one.backend_id, one.result, one.reason, one.detail) for one in response.dropped]
    weak = [one for one in ruled_out if one[2] == "weak"]
    yield from weak
    shown = len(response.results) + len(weak)
    total = shown + len(response.overflow)
    for place, (backend_id, result) in enumerate(response.overflow, shown + 1):
        yield backend_id, result, "max-results", f"place {place} of {total}"
    yield from ruled_out[len(weak) :]


def warn_of_nothing(
    has_some: bool, weak: str | None, hint: str | None, status: MemoryProviderStatus, *, as_json: bool
) -> None:
    """Print to stderr why an answer is weak, as far as stdout does not say so, or what to do about none."""
    if weak and (as_json or has_some):
        warn(f"{weak}; {NEAREST if has_some else SEE_WEAK}")
    elif not (weak or has_some):
        if hint and status.files != 0:
            warn(f"hint: {hint}")
        warn_if_empty(status)


# --- as text ------------------------------------------------------------------------------------------------


def print_response(
    response: QueryResponse,
    *,
    explain: bool = False,
    lines: int | None = None,
    text: bool = False,
    folder: Path | None = None,
) -> None:
    """Print the results; a fact that is itself a result above is not repeated as support of another.

    If the terminal supports links, a click opens the note, if the folder of the notes is known.
    """
    if not response.results:
        weak = why_weak(response)
        print_line(f"{weak}; {SEE_WEAK}".capitalize() if weak else "No matches.")
        if any(one.code != "scope-denied" for one in response.degraded):
            warn(WHERE_TO_LOOK)
    attributions: Sequence[Attribution | None] = response.attributions if explain else ()
    said: set[tuple[object, ...]] = set()
    for number, result in enumerate(response.results):
        untold = tuple(fact for fact in result.facts if _identity(fact) not in said)
        said.update(_identity(fact) for fact in result.facts if result.snippet.startswith(fact.text))
        print_result(replace(result, facts=untold), _shown(result, lines, text=text), folder)
        if explain and (attribution := attributions[number]):
            _print_attribution(attribution)
        print_line()
    if explain:
        for backend_id, result, reason, detail in _dropped(response):
            if reason != "max-results":
                print_line(f"dropped {_location(result)} [{backend_id}] {reason}: {detail}", dim=True)
        if response.overflow:
            (_, following), more = response.overflow[0], len(response.overflow)
            print_line(
                f"{more} more below the last result; next {_location(following)}, {following.score:.3f}",
                dim=True,
            )
        took = f"{response.latency_ms:.1f} ms"
        print_line(f"trace {response.trace_id}, weights {response.weights_version}, {took}", dim=True)


def _identity(fact: SupportingFact) -> tuple[object, ...]:
    """Return what identifies a fact, wherever it was taken from."""
    return fact.text, fact.valid_from, fact.valid_to


def _shown(result: MemorySearchResult, lines: int | None, *, text: bool) -> Sequence[Line]:
    """Return the lines to show: on a terminal, few enough that several results are visible at once."""
    if lines:
        return best_lines(result, lines, marks_cuts=True)
    if text:
        return lines_of(whole_text(result))
    if width := columns():
        return best_lines(result, TERMINAL_LINES, width=max(LEAST_WIDTH, width - MARGIN), marks_cuts=True)
    return lines_of(snippet_of(result))


def print_result(result: MemorySearchResult, lines: Sequence[Line], folder: Path | None = None) -> None:
    """Print how well a result matches, its place, its backend, its day, and these lines."""
    backend, stand_in = result.source_backend or "memory", result.metadata.get("answered_by")
    answerer = f"{stand_in} for {backend}" if stand_in else backend
    is_note = result.source == "memory" and result.start_line > 0 and FOREIGN not in result.path
    link = (folder / result.path).as_uri() if folder and is_note else None
    shown = "\n".join((result.path, *(line.text for line in lines)))
    day = day_of(result)
    told_day = f" {day}" if day and day.isoformat() not in shown else ""
    print_linked(f"{result.score:.0%} ", _location(result), f" [{answerer}]{told_day}", link=link)
    if above := [one for one in (result.title, *result.headings) if one and one not in shown]:
        print_line(f"  {' > '.join(above)}", dim=True)
    for line in lines:
        print_line_of(line, indent=2)
    for fact in timed_facts(result):
        print_line(f"  fact: {fact}", dim=True)
    if result.origin is not None and result.citation:
        gone = " (gone)" if result.origin.gone else ""
        print_line(f"  from {' '.join(result.citation.splitlines())}{gone}", dim=True)


def print_line_of(line: Line, *, indent: int) -> None:
    """Print a line of a result; links are shown as text.

    On a terminal the matches are highlighted, and a long line is wrapped between words.
    """
    line, width = readable(line), columns()
    for begin, end in line_spans(line.text, width - indent if width else None):
        marks = [
            (max(first, begin) - begin + indent, min(last, end) - begin + indent)
            for first, last in line.highlights
            if first < end and last > begin
        ]
        print_marked(" " * indent + line.text[begin:end], marks)


def _print_attribution(one: Attribution) -> None:
    print_line(
        f"  raw {one.raw_score:.3f}, calibrated {one.calibrated_score:.3f}, weight {one.weight:g}, "
        f"rank {one.backend_rank} in {one.backend_id}",
        dim=True,
    )
    if one.support:
        facts, passage = "by facts from its lines", "because its source passage did not come up"
        print_line(f"  support {one.support:+.3f} {facts if one.support > 0 else passage}", dim=True)
    for other in one.merged_with:
        print_line(f"  merged with {other}", dim=True)


def _location(result: MemorySearchResult) -> str:
    return " ".join(format_place(result).splitlines())  # a line break in a name could fake another result
