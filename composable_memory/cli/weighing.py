"""`cmem weights` and `cmem advise`: which weights are in force, which were, and which would be better."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from datetime import datetime

import typer

from composable_memory.cli.learning_place import learning_of
from composable_memory.cli.runner import ExitCode, Place
from composable_memory.cli.screen import complain, say, say_lines, warn, write_json
from composable_memory.cli.weight_documents import (
    AdviceDocument,
    DifferenceDocument,
    HistoryDocument,
    WeightChangeDocument,
    WeightsDocument,
)
from composable_memory.cli.weight_drawing import (
    advice_lines,
    difference_lines,
    history_lines,
    table_lines,
    told_in_force,
    weights_lines,
)
from composable_memory.cli.weight_words import told_moment
from composable_memory.learning import Advice, Learning, WeightsReport
from composable_memory_feedback.advice.values import AdvisorName
from composable_memory_feedback.intents import IntentKind
from composable_memory_feedback.weights import is_weight

__all__ = [
    "HOW_TO_JUDGE",
    "AdviceRequest",
    "advise",
    "diff",
    "history",
    "read_weights",
    "rollback",
    "set_",
    "show",
]

ACTOR = "cli"
HOW_TO_JUDGE = "run `cmem feedback evaluate`, or `cmem feedback add TRACE_ID 1 --relevance 1`"
REFUSED = "refused"
"""How the note begins that says what is wrong with the reply of a model."""
NEVER_CHANGED = "The weights were never changed: those of the settings are in force."
WHAT_CHANGES = "hint: `cmem advise` proposes weights, `cmem weights set builtin=0.6` sets some by hand"


@dataclass(frozen=True, slots=True, kw_only=True)
class AdviceRequest:
    """Whom to ask, on judgements since when, and whether to adopt what nothing speaks against."""

    advisor: AdvisorName = "statistical"
    since: datetime | None = None
    applies: bool = False


def read_weights(words: Iterable[str]) -> dict[str, float]:
    """Return the weights that words such as `builtin=0.6` give; several may be joined by commas.

    Raises:
        typer.BadParameter: one of them gives none, or there are none.
    """
    weights: dict[str, float] = {}
    for word in filter(None, (part.strip() for one in words for part in one.split(","))):
        backend, _, number = (part.strip() for part in word.partition("="))
        try:
            weight = float(number)
        except ValueError:
            weight = -1.0
        if not backend or not is_weight(weight):
            problem = (
                f"{word!r} is no weight; write a backend, = and a number of 0 or more, such as builtin=0.6"
            )
            raise typer.BadParameter(problem, param_hint="WEIGHT")
        weights[backend] = weight
    if not weights:
        raise typer.BadParameter("give a weight, such as builtin=0.6", param_hint="WEIGHT")
    return weights


async def show(place: Place, *, as_json: bool) -> ExitCode:
    """Show the weights in force."""
    async with _open(place) as learning:
        report = await learning.weights()
    if as_json:
        write_json(WeightsDocument.of(report).as_json())
    else:
        say_lines(weights_lines(report, _named(learning, report)))
    _tell_set_aside(report)
    return ExitCode.FINE


async def history(place: Place, *, limit: int, as_json: bool) -> ExitCode:
    """List the changes of the weights, the latest first."""
    async with _open(place) as learning:
        changes = await learning.history(limit)
    if as_json:
        document = HistoryDocument(changes=tuple(map(WeightChangeDocument.of, changes)))
        write_json(document.as_json())
    elif changes:
        say_lines(history_lines(changes, learning.backends))
    else:
        say(NEVER_CHANGED)
    if not changes:
        warn(WHAT_CHANGES)
    return ExitCode.FINE


async def set_(
    place: Place, weights: Mapping[str, float], *, intent: str | None, reason: str, as_json: bool
) -> ExitCode:
    """Put weights in force that were chosen by hand; what is not given stays."""
    kind = IntentKind(intent) if intent else None
    async with _open(place) as learning:
        _check_backends(weights, learning)
        await learning.set_weights(weights, intent=kind, reason=reason, actor=ACTOR)
        report = await learning.weights()
    return _answer_changed(report, learning, as_json=as_json)


async def rollback(place: Place, version: str | None, *, as_json: bool) -> ExitCode:
    """Put the table before in force again, or the named one."""
    async with _open(place) as learning:
        await learning.rollback(version, actor=ACTOR)
        report = await learning.weights()
    return _answer_changed(report, learning, as_json=as_json)


async def diff(place: Place, a: str, b: str, *, as_json: bool) -> ExitCode:
    """Compare two tables weight by weight."""
    async with _open(place) as learning:
        one, other = await learning.table(a), await learning.table(b)
        backends = learning.backends
    named = [*backends, *sorted({*one.weights, *other.weights}.difference(backends))]
    document = DifferenceDocument.of(one, other, named)
    if as_json:
        write_json(document.as_json())
    else:
        say_lines(difference_lines(document, names=(a, b)))
    return ExitCode.FINE


async def advise(place: Place, request: AdviceRequest, *, as_json: bool) -> ExitCode:
    """Propose weights, and adopt them if that is asked for and nothing speaks against it."""
    async with _open(place) as learning:
        advice = await learning.advise(request.advisor, since=request.since)
        applied = None
        if request.applies and advice.verdict.is_allowed:
            applied = (await learning.apply(advice, actor=ACTOR)).version
        report = await learning.weights()
    document = AdviceDocument.of(advice, applied=applied)
    if as_json:
        write_json(document.as_json())
    else:
        say_lines(advice_lines(document))
    if not advice.cases:
        warn(f"hint: no judged queries yet: {HOW_TO_JUDGE}")
    _tell_set_aside(report)
    return _judge(advice, request)


def _judge(advice: Advice, request: AdviceRequest) -> ExitCode:
    """Fail where a change was asked for and refused; that the present weights proved the best is fine."""
    is_proven = advice.proposal.gain is not None
    grave = [one.text for one in advice.verdict.objections if one.code != "no-change" or not is_proven]
    grave += [note for note in advice.proposal.notes if note.startswith(REFUSED)]
    if not request.applies or not grave:
        return ExitCode.FINE
    complain(f"the weights stay as they are: {grave[0]}")
    return ExitCode.FAILED


def _answer_changed(report: WeightsReport, learning: Learning, *, as_json: bool) -> ExitCode:
    if as_json:
        write_json(WeightsDocument.of(report).as_json())
    else:
        say_lines([(told_in_force(report), "bold")])
        say_lines(table_lines(report.table, _named(learning, report)))
    _tell_set_aside(report)
    if report.experiment:
        since = told_moment(report.experiment.started_at)
        warn(f"an experiment runs since {since}, and its two tables rank: `cmem experiment status`")
    return ExitCode.FINE


def _open(place: Place) -> AbstractAsyncContextManager[Learning]:
    return learning_of(place)


def _named(learning: Learning, report: WeightsReport) -> Sequence[str]:
    """Return the enabled backends, then those of which the table in force still says a weight."""
    return [*learning.backends, *sorted(report.table.weights.keys() - {*learning.backends})]


def _check_backends(weights: Mapping[str, float], learning: Learning) -> None:
    for name in weights:
        if name not in learning.backends:
            known = ", ".join(learning.backends) or "none"
            problem = f"unknown backend {name!r}; enabled here: {known}"
            raise typer.BadParameter(problem, param_hint="WEIGHT")


def _tell_set_aside(report: WeightsReport) -> None:
    if report.set_aside:
        warn(report.set_aside)
