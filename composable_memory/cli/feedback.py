"""`cmem feedback`: rates results, by hand or by a model, and shows what is known."""

import asyncio
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from math import isfinite
from pathlib import Path
from typing import Annotated

import typer
from pydantic import JsonValue

from composable_memory.citations import format_place
from composable_memory.cli.charts import charts_of, print_charts
from composable_memory.cli.command import ExitCode, Target, command
from composable_memory.cli.logs import resolve_trace
from composable_memory.cli.options import AsJson, Since, TraceId, parse_time
from composable_memory.cli.output import (
    error,
    one_line,
    print_json,
    print_line,
    warn,
    warn_degraded,
)
from composable_memory.cli.pictures import SUFFIXES, write_picture
from composable_memory.cli.render import print_pairs, print_table
from composable_memory.cli.weights import (
    ALL_QUESTIONS,
    HOW_TO_JUDGE,
    format_time,
    format_weights,
    opened_learning,
    warn_if_set_aside,
    weights_document,
)
from composable_memory.json_documents import document
from composable_memory.learning import EvaluationRun, Learning, LearningStats, WeightsReport
from composable_memory_feedback.judgements import BackendDay, Judgement, JudgementKind, total_of
from composable_memory_feedback.judging import EvaluationOutcome
from composable_memory_feedback.weights import IntentKind, WeightTable
from composable_memory_ops_logs import utc_now
from composable_memory_ops_logs.plurals import counted

ALL_CHANGES = 10_000
"""More than anyone's number of changes of weights."""
QUESTION_CHARS = 60
STDOUT = Path("-")

app = typer.Typer()
feedback = typer.Typer(
    help="Rate results, have a model rate them, and see how good each backend is.",
    no_args_is_help=True,
)
app.add_typer(feedback, name="feedback")


# --- judgements by hand -------------------------------------------------------------------------------------


@command(feedback, "add", epilog="Example: cmem feedback add 1f2e3d4c 2 --relevance 0.8 --used")
async def add(
    target: Target,
    trace_id: TraceId,
    result: Annotated[
        str,
        typer.Argument(
            metavar="RESULT", help="The result: its rank from 1, its path, or its citation, as in PATH#L3-L5."
        ),
    ],
    *,
    relevance: Annotated[
        float,
        typer.Option(
            "--relevance",
            "-r",
            metavar="R",
            min=0.0,
            max=1.0,
            help="From 0 (useless) to 1 (answers the question).",
        ),
    ] = 1.0,
    used: Annotated[bool, typer.Option("--used", help="The answer was based on it.")] = False,
    as_json: AsJson = False,
) -> None:
    """Rate one result of a search. A later rating replaces an earlier one."""
    if not isfinite(relevance):
        raise typer.BadParameter("give a number from 0 to 1", param_hint="--relevance")
    async with opened_learning(target) as learning:
        trace_id = await resolve_trace(target, trace_id, memory=learning.context.memory_id)
        judgement = await learning.judging.judge(trace_id, result, relevance=relevance, used=used)
    if as_json:
        print_json(document(judgement, rationale=None, by=None, start_char=judgement.start_char or None))
    else:
        _print_judgement(judgement)


def _print_judgement(one: Judgement) -> None:
    quality = f"{one.relevance:.2f}{', used' if one.was_used else ''}"
    print_line(f"Judged result {one.rank} of trace {one.trace_id[:8]}: {quality}", bold=True)
    print_line(f"  {one_line(format_place(one))} [{one.backend or 'a fallback'}]")


# --- judgements by a model ----------------------------------------------------------------------------------


@command(feedback, "evaluate", epilog="Example: cmem feedback evaluate --since 7d --limit 10")
async def evaluate(
    target: Target,
    *,
    since: Since = None,
    limit: Annotated[
        int | None, typer.Option("--limit", "-n", metavar="N", min=1, help="The most queries to judge.")
    ] = None,
    of_advice: Annotated[
        bool,
        typer.Option(
            "--advice",
            help="Judge results that the current advice would show and that nobody has judged yet.",
        ),
    ] = False,
    as_json: AsJson = False,
) -> ExitCode:
    """Have a language model judge logged searches, and collect signals of use.

    The model is the one in memory.feedback.llm; it receives the question and the text of the results.
    """
    start = parse_time(since, "--since")
    async with target.open() as memory:
        warn_degraded(memory.unavailable())
        found = await memory.learning.judging.evaluate(
            since=start,
            limit=limit,
            read=memory.text_of,
            on_outcome=None if as_json else print_outcome,
            advice=await _advised(memory.learning, start) if of_advice else None,
        )
    judged = [one.evaluation for one in found.outcomes if one.state == "judged"]
    if as_json:
        print_json(_evaluation_document(found))
    else:
        print_evaluation(found)
    if found.stopped:
        unfinished = "not all were" if found.outcomes else "none was"
        warn(f"{unfinished} judged: {found.stopped}" if found.left else found.stopped)
    if not judged and any(one.state == "failed" for one in found.outcomes):
        problem = next((one.problem for one in found.outcomes if one.problem), "no reason was given")
        error(f"no query could be judged: {problem}")
        return ExitCode.FAILED
    return ExitCode.FINE


async def _advised(learning: Learning, since: datetime | None) -> WeightTable:
    """Return the weights that statistical advice would lead to in the end."""
    proposal = (await learning.advising.advise("statistical", since=since)).proposal
    return proposal.destination or proposal.table


def _outcome_document(outcome: EvaluationOutcome) -> dict[str, JsonValue]:
    """Return a query judged by the model as JSON; `problem` says why there are no judgements."""
    found = outcome.evaluation
    if found is None:
        empty = document(judged=0, used=0, input_tokens=0, output_tokens=0, duration_ms=0.0)
        return document(state=outcome.state, problem=outcome.problem) | empty
    means = {} if found.judged_count else {"precision": None, "mean_relevance": None}
    known = document(found, at=None, model=None, error=None, used_count=None, judged_count=None, **means)
    return known | document(
        state=outcome.state,
        judged=found.judged_count,
        used=found.used_count,
        duration_ms=round(found.duration_ms, 3),
        problem=outcome.problem,
    )


def _evaluation_document(run: EvaluationRun) -> dict[str, JsonValue]:
    """Return as JSON what a model said about logged queries, and what it cost.

    `signals` counts the judgements implied by use. `left` queries are not judged yet; `stopped` says why the
    run ended before they were. `precision` is the mean over the judged queries.
    """
    done = run.evaluations
    return document(
        signals=run.signals,
        judged=sum(one.state == "judged" for one in run.outcomes),
        failed=sum(one.state == "failed" for one in run.outcomes),
        judgements=sum(one.judged_count for one in done),
        precision=run.precision,
        input_tokens=sum(one.input_tokens for one in done),
        output_tokens=sum(one.output_tokens for one in done),
        left=run.left,
        stopped=run.stopped,
        queries=[*map(_outcome_document, run.outcomes)],
    )


def print_outcome(outcome: EvaluationOutcome) -> None:
    """Print what a model said about one query, and what that cost."""
    found = outcome.evaluation
    question = one_line(found.query, QUESTION_CHARS) if found else ""
    head = f"{outcome.state.replace('-', ' ').ljust(6)}  {(found.trace_id if found else '').ljust(8)[:8]}"
    if outcome.state != "judged" or found is None or not found.judged_count:
        text = one_line(outcome.problem or "no judgements")
    else:
        quality = f"precision {found.precision:.2f}  relevance {found.mean_relevance:.2f}"
        text = f"{quality}  used {found.used_count}  {found.input_tokens + found.output_tokens:>6,} tokens"
    colour = "yellow" if outcome.state == "failed" else None
    print_line(f"{head}  {text}  {question}".rstrip(), colour=colour)


def print_evaluation(run: EvaluationRun) -> None:
    """Print the result of a whole evaluation, its cost, and what is left."""
    states = [one.state for one in run.outcomes]
    done = run.evaluations
    judgements = counted(sum(one.judged_count for one in done), "result")
    mean = "" if run.precision is None else f"; mean precision {run.precision:.2f}"
    failed = f"; {states.count('failed')} failed" if "failed" in states else ""
    queries = counted(states.count("judged"), "query", "queries")
    print_line(f"Judged {queries}, {judgements}{mean}{failed}.", bold=True)
    if run.outcomes:
        tokens = _format_tokens(sum(one.input_tokens for one in done), sum(one.output_tokens for one in done))
        print_line(f"Cost: {tokens}, {sum(one.duration_ms for one in done) / 1000:.1f} s.")
    print_line(f"Signals of use: {run.signals} new.")
    if run.left:
        print_line(f"{counted(run.left, 'query is', 'queries are')} left to judge.")


# --- what is known ------------------------------------------------------------------------------------------


@command(feedback, "stats", epilog="Example: cmem feedback stats --since 30d")
async def stats(target: Target, *, since: Since = None, as_json: AsJson = False) -> None:
    """Show the quality of each backend, who judged how much, and what it cost."""
    start = parse_time(since, "--since")
    async with opened_learning(target) as learning:
        found = await learning.judging.stats(start)
    if as_json:
        print_json(stats_document(found))
    else:
        print_stats(found, learning.backends)
    _warn_if_unjudged(found, start)
    warn_if_set_aside(found.weights)


@command(feedback, "plot", epilog="Example: cmem feedback plot --since 90d --output quality.svg")
async def plot(
    target: Target,
    *,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", metavar="FILE", dir_okay=False, help="Write to this file, .png or .svg."
        ),
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", dir_okay=False, hidden=True)] = None,
    since: Since = None,
    as_json: AsJson = False,
) -> None:
    """Plot weights over time, and quality of each backend by day."""
    file = output or out  # --out is its former name
    if file is not None and file.suffix.lower() not in SUFFIXES:
        raise typer.BadParameter(f"{file.name!r} ends in neither .png nor .svg", param_hint="--output")
    start = parse_time(since, "--since")
    async with opened_learning(target) as learning:
        found = await learning.judging.stats(start)
        changes = await learning.weights.history(ALL_CHANGES)
    charts = charts_of(
        found.days,
        changes,
        base=found.weights.base,
        backends=learning.backends,
        start=start,
        now=utc_now(),
    )
    if file:
        await asyncio.to_thread(write_picture, charts, file)
    if as_json:
        print_json(document(charts=charts, output=file))
    elif file:
        print_line(f"Wrote {len(charts)} charts to {file}.")
    else:
        print_charts(charts)
    _warn_if_unjudged(found, start)


def _warn_if_unjudged(found: LearningStats, since: datetime | None) -> None:
    if not found.days:
        when = f"since {format_time(since)}" if since else "yet"
        warn(f"hint: no judgements {when}: {HOW_TO_JUDGE}")


def stats_document(found: LearningStats) -> dict[str, JsonValue]:
    """Return what is known as JSON."""
    return document(
        found,
        kinds=None,
        judgements={kind: found.kinds[kind] for kind in JudgementKind if found.kinds.get(kind)},
        weights=weights_document(found.weights),
    )


def print_stats(found: LearningStats, backends: Sequence[str]) -> None:
    """Print what is judged and by whom, the weights, and how the backends did."""
    kinds = [f"{found.kinds[kind]} {kind}" for kind in JudgementKind if found.kinds.get(kind)]
    queries = counted(found.judged_queries, "judged query", "judged queries")
    failed = f", {found.failed_evaluations} failed" if found.failed_evaluations else ""
    evaluations = f"{counted(found.evaluations, 'evaluation')}{failed}"
    cost = _format_tokens(found.input_tokens, found.output_tokens)
    rows = [
        ("Judgements", f"{', '.join(kinds) or 'none'}; {queries}"),
        ("Model", f"{evaluations}; {cost}; {found.quota_left} left this hour"),
        ("Weights", _format_report(found.weights, backends)),
    ]
    print_pairs(rows, indent=0)
    if quality := [*_quality_rows(found.days)]:
        print_line()
        print_line("Quality, as judged", bold=True)
        head = ("backend", "questions", "queries", "precision", "relevance", "used")
        print_table(quality, head=head, right=(2, 3, 4, 5))


def _quality_rows(days: Iterable[BackendDay]) -> Iterator[Sequence[str]]:
    """Yield a row for every backend over all questions, then one for each kind if there are several."""
    found: dict[str, dict[IntentKind, list[BackendDay]]] = defaultdict(lambda: defaultdict(list))
    for one in days:
        found[one.backend][one.intent].append(one)
    for backend, kinds in sorted(found.items()):
        yield backend, ALL_QUESTIONS, *_quality([one for own in kinds.values() for one in own])
        if len(kinds) > 1:
            yield from (("", kind, *_quality(kinds[kind])) for kind in IntentKind if kind in kinds)


def _quality(days: Sequence[BackendDay]) -> tuple[str, ...]:
    """Return the number of queries, the means over them, and the number of used results."""
    total = total_of(days)
    used = f"{total.used} of {total.results}"
    return str(total.queries), f"{total.precision:.2f}", f"{total.mean_relevance:.2f}", used


def _format_report(report: WeightsReport, backends: Sequence[str]) -> str:
    weights = format_weights({one: report.table[one] for one in backends}, backends)
    weights = weights or "no backend is enabled"
    if report.since is None:
        return f"those of the settings: {weights}"
    return f"{report.table.version} since {format_time(report.since)}: {weights}"


def _format_tokens(asked: int, answered: int) -> str:
    return f"{asked:,} tokens in, {answered:,} out"


# --- out and in ---------------------------------------------------------------------------------------------


@command(feedback, "export", epilog="Example: cmem feedback export --output judged.jsonl")
async def export(
    target: Target,
    *,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", metavar="FILE", dir_okay=False, help="Write to this file; - is stdout."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Export judgements, weights, golden answers and experiments as JSON lines."""
    output = None if output == STDOUT else output
    if as_json and output is None:
        raise typer.BadParameter("the export is written to stdout; give --output", param_hint="--json")
    async with opened_learning(target) as learning:
        if output is None:
            sys.stdout.flush()
            await learning.export(sys.stdout.buffer.write)
            sys.stdout.buffer.flush()
            return
        counts = await learning.export_into(output)
    if as_json:
        print_json(document(output=output, rows=counts))
    else:
        print_line(f"Wrote {counted(sum(counts.values()), 'row')} to {output}.")


@command(feedback, "import", epilog="Example: cmem feedback import judged.jsonl")
async def import_(
    target: Target,
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE", exists=True, dir_okay=False, help="A file written by `cmem feedback export`."
        ),
    ],
    *,
    as_json: AsJson = False,
) -> None:
    """Import an export; rows already here are kept. One invalid line rejects the whole file."""
    async with opened_learning(target) as learning:
        found = await learning.import_from(file)
    if as_json:
        print_json(document(found))
    else:
        added = [f"{table.replace('_', ' ')}: {count}" for table, count in found.added.items() if count]
        known = counted(sum(found.known.values()), "row")
        print_line(f"Added {', '.join(added) or 'nothing'}; there already: {known}.")
    for one in found.left_out:
        warn(f"left out: {one}")
