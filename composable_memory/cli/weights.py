"""`cmem weights`: active and earlier weights, and how two tables differ; also formats tables and gains."""

from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Annotated, Literal

import typer
from pydantic import JsonValue

from composable_memory.cli.command import Target, command
from composable_memory.cli.options import TABLE_HELP, AsJson
from composable_memory.cli.output import one_line, print_json, print_line, warn
from composable_memory.cli.render import print_table
from composable_memory.json_documents import document
from composable_memory.learning import Learning, WeightsReport, open_learning
from composable_memory_feedback.errors import FeedbackError
from composable_memory_feedback.metrics import Interval
from composable_memory_feedback.weights import (
    IntentKind,
    WeightChange,
    WeightTable,
    kinds_of,
    same_proportions,
)

HOW_TO_JUDGE = "run `cmem feedback evaluate`, or `cmem feedback add TRACE_ID 1 --relevance 1`"
ALL_QUESTIONS = "all"
"""The label of the weights for all kinds of questions."""
SETTINGS = "settings"
"""The version of the settings' own weights, while no table is adopted."""
BY_HAND = "fixed-"
"""Prefix of the versions of tables that were given as weights, and have no name."""
LEAST_PLAIN, OVER_PLAIN = 0.0005, 100_000.0
"""Between these, a weight is written as a plain decimal."""
ACTOR = "cli"
REASON_CHARS = 160
NONE = "-"
NEVER_CHANGED = "The weights have never been changed: the settings' weights are active."
WHAT_CHANGES = "hint: `cmem advise` proposes weights, `cmem weights set builtin=0.6` sets them by hand"

app = typer.Typer()
weights = typer.Typer(help="Show, set and roll back the weights of the backends.", no_args_is_help=True)
app.add_typer(weights, name="weights")


# --- the active weights -------------------------------------------------------------------------------------


@command(weights, "show", epilog="Example: cmem weights show")
async def show(target: Target, *, as_json: AsJson = False) -> None:
    """Show the active weights, for all questions and per kind of question."""
    async with opened_learning(target) as learning:
        report = await learning.weights.report()
    if as_json:
        print_json(weights_document(report))
    else:
        print_report(report, _backends_of(learning, report))
    warn_if_set_aside(report)


@command(weights, "set", epilog="Example: cmem weights set builtin=0.6 graphiti=0.3 --intent time")
async def set_(
    target: Target,
    given: Annotated[
        list[str],
        typer.Argument(metavar="WEIGHT...", help="A backend and its weight, such as builtin=0.6."),
    ],
    *,
    intent: Annotated[
        Literal["time", "topic", "entity", "general"] | None,
        typer.Option("--intent", help="Only for questions of this kind."),
    ] = None,
    reason: Annotated[
        str, typer.Option("--reason", metavar="TEXT", help="The reason, recorded in the history.")
    ] = "",
    as_json: AsJson = False,
) -> None:
    """Set weights by hand; the others stay. They apply at once, even in a running memory."""
    kind = IntentKind(intent) if intent else None
    async with opened_learning(target) as learning:
        chosen = _parse_weights(given, learning, "WEIGHT")
        await learning.weights.set(chosen, intent=kind, reason=reason, actor=ACTOR)
        report = await learning.weights.report()
    _print_changed(report, learning, as_json=as_json)


@command(weights, "rollback", epilog="Example: cmem weights rollback v2")
async def rollback(
    target: Target,
    version: Annotated[
        str | None,
        typer.Argument(
            metavar="VERSION",
            help="The version to restore, or `settings`; default: the previous one.",
            show_default=False,
        ),
    ] = None,
    *,
    as_json: AsJson = False,
) -> None:
    """Restore earlier weights."""
    async with opened_learning(target) as learning:
        await learning.weights.rollback(version, actor=ACTOR)
        report = await learning.weights.report()
    _print_changed(report, learning, as_json=as_json)


def weights_document(report: WeightsReport) -> dict[str, JsonValue]:
    """Return the active weights and those of the settings as JSON; without `since`, they are the same."""
    return document(
        table=table_document(report.table),
        settings=table_document(report.base),
        reason=report.table.reason,
        since=report.since,
        set_aside=report.set_aside,
        experiment=report.experiment.id if report.experiment else None,
    )


async def named_table(learning: Learning, name: str, option: str) -> WeightTable:
    """Return the table that an option names.

    Raises:
        typer.BadParameter: it gives invalid weights, or weights of no backend of this memory.
        FeedbackError: there is no such table.
    """
    if "=" in name:
        _parse_weights([name], learning, option)
    return await learning.weights.named(name)


def _parse_weights(words: Iterable[str], learning: Learning, option: str) -> dict[str, float]:
    """Parse weights such as `builtin=0.6`; several may be joined by commas.

    Raises:
        typer.BadParameter: one of them is invalid, is of no backend of this memory, or there are none.
    """
    given = [*filter(None, (part.strip() for one in words for part in one.split(",")))]
    if not given:
        raise typer.BadParameter("give a weight, such as builtin=0.6", param_hint=option)
    try:
        return learning.weights.read(given)
    except FeedbackError as error:
        raise typer.BadParameter(str(error), param_hint=option) from None


def _backends_of(learning: Learning, report: WeightsReport) -> Sequence[str]:
    """Return the enabled backends, then any others with a weight in the active table."""
    return [*learning.backends, *sorted(report.table.weights.keys() - {*learning.backends})]


def print_report(report: WeightsReport, backends: Sequence[str]) -> None:
    """Print the active weights, next to those of the settings, and a running experiment."""
    print_line(_format_active(report), bold=True)
    if report.since and report.table.reason:
        print_line(one_line(report.table.reason, REASON_CHARS))
    if not backends:
        print_line("No backend is enabled.")
        return
    _print_weights(report.table, backends, beside=report.base if report.since else None)
    if experiment := report.experiment:
        sides = f"{format_table(experiment.a)} against {format_table(experiment.b)}"
        since = format_time(experiment.started_at)
        print_line(f"An experiment runs, {sides}, since {since}: `cmem experiment status`")


def _print_changed(report: WeightsReport, learning: Learning, *, as_json: bool) -> None:
    if as_json:
        print_json(weights_document(report))
    else:
        print_line(_format_active(report), bold=True)
        _print_weights(report.table, _backends_of(learning, report))
    warn_if_set_aside(report)
    if report.experiment:
        since = format_time(report.experiment.started_at)
        warn(f"an experiment runs since {since}, and ranks by both of its tables: `cmem experiment status`")


def _format_active(report: WeightsReport) -> str:
    if report.since is None:
        return "The settings' weights are active."
    return f"Weights {report.table.version}, active since {format_time(report.since)}"


def _print_weights(table: WeightTable, backends: Sequence[str], *, beside: WeightTable | None = None) -> None:
    """Print a row for each backend, a column for each kind of question; `beside` is the settings' table."""
    kinds = kinds_of(table)
    head = ["backend", ALL_QUESTIONS if kinds else "weight", *kinds, *([SETTINGS] if beside else [])]
    rows = [
        [one, *(format_weight(table.of(one, kind)) for kind in (None, *kinds))]
        + ([format_weight(beside[one])] if beside else [])
        for one in backends
    ]
    print_table(rows, head=head, right=range(1, len(head)))


def warn_if_set_aside(report: WeightsReport) -> None:
    """Print to stderr why adopted weights are not active, if they are not."""
    if report.set_aside:
        warn(report.set_aside)


# --- history ------------------------------------------------------------------------------------------------


@command(weights, "history", epilog="Example: cmem weights history -n 5")
async def history(
    target: Target,
    *,
    limit: Annotated[
        int, typer.Option("--limit", "-n", metavar="N", min=1, max=1000, help="The most changes to show.")
    ] = 20,
    as_json: AsJson = False,
) -> None:
    """List weight changes, latest first."""
    async with opened_learning(target) as learning:
        changes = await learning.weights.history(limit)
    if as_json:
        print_json(document(changes=[*map(_change_document, changes)]))
    elif changes:
        print_table(
            (row for one in changes for row in _change_rows(one, learning.backends)),
            head=("when", "version", "by", "change", "expected gain", "weights"),
        )
    else:
        print_line(NEVER_CHANGED)
    if not changes:
        warn(WHAT_CHANGES)


def _change_document(change: WeightChange) -> dict[str, JsonValue]:
    table = change.table
    weights, by_intent = (table.weights, table.by_intent) if table else ({}, {})
    about = document(change, table=None, base=None)
    return about | document(version=change.version, weights=weights, by_intent=by_intent)


def _change_rows(change: WeightChange, backends: Sequence[str]) -> Iterator[Sequence[str]]:
    yield (
        format_time(change.at),
        change.version or SETTINGS,
        one_line(change.actor) or NONE,
        change.action,
        format_gain(change.gain) if change.gain else NONE,
        format_weights(change.table.weights, backends) if change.table else "those of the settings",
    )
    for kind, own in sorted(change.table.by_intent.items()) if change.table else ():
        yield (*[""] * 5, f"{kind} questions: {format_weights(own, backends)}")
    if change.reason:
        yield (*[""] * 5, one_line(change.reason, REASON_CHARS))


# --- differences --------------------------------------------------------------------------------------------


@command(weights, "diff", epilog="Example: cmem weights diff settings now")
async def diff(
    target: Target,
    a: Annotated[str, typer.Argument(metavar="A", help=f"One table: {TABLE_HELP}.")],
    b: Annotated[str, typer.Argument(metavar="B", help="The other table.")],
    *,
    as_json: AsJson = False,
) -> None:
    """Compare two weight tables."""
    async with opened_learning(target) as learning:
        one, other = await named_table(learning, a, "A"), await named_table(learning, b, "B")
    enabled = learning.backends
    backends = [*enabled, *sorted({*one.weights, *other.weights}.difference(enabled))]
    found = [*differences(one, other, backends)]
    ranks_alike = same_proportions(one, other, backends=backends)
    if as_json:
        pairs = [document(backend=name, intent=kind, a=left, b=right) for kind, name, left, right in found]
        sides = document(a=table_document(one), b=table_document(other))
        print_json(sides | document(ranks_alike=ranks_alike, weights=pairs))
        return
    names = ("A", "B") if any("=" in name for name in (a, b)) else (a, b)
    rows = [(kind or ALL_QUESTIONS, *_format_difference(name, x, y)) for kind, name, x, y in found]
    print_table(rows, head=("questions", "backend", *names, "change"), right=(2, 3, 4))
    if ranks_alike:
        print_line("They rank alike: only the ratios of weights matter.")
    print_line("The heaviest weight is shown as 1.", dim=True)


def differences(
    a: WeightTable, b: WeightTable, backends: Sequence[str]
) -> Iterator[tuple[IntentKind | None, str, float, float]]:
    """Yield for each kind of question and backend the weight in both tables, with the heaviest as 1."""
    for kind in (None, *kinds_of(a, b)):
        others = b.proportions(backends, kind)
        for backend, weight in a.proportions(backends, kind).items():
            yield kind, backend, weight, others[backend]


def _format_difference(backend: str, a: float, b: float) -> tuple[str, str, str, str]:
    change = f"{b - a:+.3f}".removesuffix("0") if abs(b - a) >= 0.0005 else NONE
    return backend, format_weight(a), format_weight(b), change


# --- for all commands that show weights ---------------------------------------------------------------------


@asynccontextmanager
async def opened_learning(target: Target, of: str | None = None) -> AsyncIterator[Learning]:
    """Open the learning of a memory, or `of` another folder's; remarks on its store are printed last."""
    async with open_learning(target.workspace, of=of, state_dir=target.state_dir) as learning:
        try:
            yield learning
        finally:
            if learning.context.remark:
                warn(learning.context.remark)


def table_document(table: WeightTable | None) -> dict[str, JsonValue] | None:
    """Return a table as JSON; `byIntent` has what differs for questions of a kind."""
    if table is None:
        return None
    return document(version=table.version, weights=table.weights, by_intent=table.by_intent)


def format_table(table: WeightTable) -> str:
    """Format a table on one line: `v3 (builtin 1.00, graphiti 0.50; time: builtin 0.40)`."""
    rows = [format_weights(table.weights) or "each backend 1.00"]
    rows += [f"{kind}: {format_weights(weights)}" for kind, weights in sorted(table.by_intent.items())]
    text = "; ".join(rows)
    return text if table.version.startswith(BY_HAND) else f"{table.version} ({text})"


def format_weight(value: float) -> str:
    """Format a weight with two decimals, or three if it has them: `0.60`, `0.625`.

    One too large or too small for that is written as `1e+06` or `2e-05`, so that only 0 looks like 0.
    """
    if value and not LEAST_PLAIN <= value < OVER_PLAIN:
        return f"{value:.3g}"
    return f"{value:.3f}".removesuffix("0")


def format_weights(weights: Mapping[str, float], backends: Sequence[str] = ()) -> str:
    """Format weights as `builtin 0.60, graphiti 0.30`: those of `backends` first, in their order."""
    order = [*(one for one in backends if one in weights), *sorted(weights.keys() - {*backends})]
    return ", ".join(f"{one} {format_weight(weights[one])}" for one in order)


def format_gain(gain: Interval) -> str:
    """Format a mean and its 95 % interval: `+0.012 (+0.004 .. +0.020)`."""
    return f"{gain.mean:+.3f} ({gain.low:+.3f} .. {gain.high:+.3f})"


def format_time(moment: datetime) -> str:
    """Format a time to the minute, in local time."""
    return moment.astimezone().strftime("%Y-%m-%d %H:%M")
