"""`cmem feedback`: say how well results answered, have a model say it, and look at what is known."""

import asyncio
from datetime import datetime
from pathlib import Path

from composable_memory.cli.chart_blocks import draw_charts
from composable_memory.cli.feedback_documents import (
    EvaluatedDocument,
    EvaluateDocument,
    JudgementDocument,
    PlotDocument,
    StatsDocument,
)
from composable_memory.cli.feedback_drawing import (
    evaluated_line,
    evaluation_lines,
    judgement_lines,
    stats_lines,
)
from composable_memory.cli.learning_charts import charts_of
from composable_memory.cli.learning_place import learning_of
from composable_memory.cli.log_reading import named_trace
from composable_memory.cli.pictures import write_picture
from composable_memory.cli.runner import ExitCode, Place
from composable_memory.cli.screen import complain, say, say_lines, tell_degraded, warn, write_json
from composable_memory.cli.weighing import HOW_TO_JUDGE
from composable_memory.cli.weight_words import told_moment
from composable_memory.learning import EvaluationRun, Learning, LearningStats
from composable_memory.query.weights import WeightTable
from composable_memory.runtime.opening import open_memory
from composable_memory_feedback.judging import EvaluationOutcome
from composable_memory_ops_logs import utc_now

__all__ = ["add", "evaluate", "plot", "stats"]

ALL_CHANGES = 10_000
"""More changes of weights than anybody makes: the gain of one counts from the first."""


async def add(
    place: Place, trace_id: str, result: str, *, relevance: float, was_used: bool, as_json: bool
) -> ExitCode:
    """Remember how well one result answered."""
    async with learning_of(place) as learning:
        trace_id = await named_trace(place, trace_id, memory=learning.mark)
        judgement = await learning.judge(trace_id, result, relevance=relevance, used=was_used)
    if as_json:
        write_json(JudgementDocument.of(judgement).as_json())
    else:
        say_lines(judgement_lines(judgement))
    return ExitCode.FINE


async def evaluate(
    place: Place, *, since: datetime | None, limit: int | None, of_advice: bool, as_json: bool
) -> ExitCode:
    """Gather signals of use, and have a language model judge logged queries; fail where every call fails."""
    async with open_memory(place.workspace, place.state_dir, long_lived=False) as memory:
        tell_degraded(memory.unavailable())
        found = await memory.learning.evaluate(
            since=since,
            limit=limit,
            read=memory.text_of,
            on_outcome=None if as_json else _tell_outcome,
            advice=await _advised(memory.learning, since) if of_advice else None,
        )
    document = EvaluateDocument.of(found)
    if as_json:
        write_json(document.as_json())
    else:
        say_lines(evaluation_lines(document))
    if found.stopped:
        warn(_told_end(found))
    if document.failed and not document.judged:
        complain(f"no query could be judged: {_first_problem(document)}")
        return ExitCode.FAILED
    return ExitCode.FINE


async def stats(place: Place, *, since: datetime | None, as_json: bool) -> ExitCode:
    """Show how the backends did, what is judged, and what that has cost."""
    async with learning_of(place) as learning:
        found = await learning.stats(since)
    if as_json:
        write_json(StatsDocument.of(found).as_json())
    else:
        say_lines(stats_lines(found, learning.backends))
    _tell_if_unjudged(found, since)
    if found.weights.set_aside:
        warn(found.weights.set_aside)
    return ExitCode.FINE


async def plot(place: Place, *, since: datetime | None, output: Path | None, as_json: bool) -> ExitCode:
    """Draw weights over time, quality by day and the gain: into a file, or in the terminal."""
    async with learning_of(place) as learning:
        found = await learning.stats(since)
        history = await learning.history(ALL_CHANGES)
    charts = charts_of(
        found.days,
        history,
        base=found.weights.base,
        backends=learning.backends,
        start=since,
        now=utc_now(),
    )
    if output:
        await asyncio.to_thread(write_picture, charts, output)
    if as_json:
        write_json(PlotDocument(charts=charts, output=str(output) if output else None).as_json())
    elif output:
        say(f"Wrote {len(charts)} charts to {output}.")
    else:
        draw_charts(charts)
    _tell_if_unjudged(found, since)
    return ExitCode.FINE


async def _advised(learning: Learning, since: datetime | None) -> WeightTable:
    """Return the weights that the statistical advice would come to in the end."""
    proposal = (await learning.advise(since=since)).proposal
    return proposal.destination or proposal.table


def _tell_outcome(outcome: EvaluationOutcome) -> None:
    colour = "yellow" if outcome.state == "failed" else None
    say(evaluated_line(EvaluatedDocument.of(outcome)), colour=colour)


def _first_problem(document: EvaluateDocument) -> str:
    return next((one.problem for one in document.queries if one.problem), "no reason was given")


def _told_end(found: EvaluationRun) -> str:
    """Return why an evaluation ended before all queries were judged."""
    if not found.left or found.stopped is None:
        return found.stopped or ""
    return f"{'not all were' if found.outcomes else 'none was'} judged: {found.stopped}"


def _tell_if_unjudged(found: LearningStats, since: datetime | None) -> None:
    if not found.days:
        when = f"since {told_moment(since)}" if since else "yet"
        warn(f"hint: no judgements {when}: {HOW_TO_JUDGE}")
