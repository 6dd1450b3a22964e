"""Weights, their history, differences and advice as lines for the terminal (pure)."""

from collections.abc import Iterable, Iterator, Sequence

from composable_memory.cli.screen import Line, counted, one_line
from composable_memory.cli.tuning_drawing import told_table
from composable_memory.cli.weight_documents import AdviceDocument, DifferenceDocument
from composable_memory.cli.weight_words import (
    ALL_QUESTIONS,
    SETTINGS,
    columns,
    kinds_of,
    told_gain,
    told_moment,
    told_range,
    told_weight,
    told_weights,
)
from composable_memory.learning import WeightsReport
from composable_memory_feedback.advice.values import Objection
from composable_memory_feedback.experiments.values import ExperimentRecord
from composable_memory_feedback.store.values import WeightChange
from composable_memory_feedback.weights import WeightTable

__all__ = [
    "advice_lines",
    "difference_lines",
    "history_lines",
    "table_lines",
    "told_in_force",
    "weights_lines",
]

REASON_CHARS = 160
NONE = "-"


def weights_lines(report: WeightsReport, backends: Sequence[str]) -> Iterator[Line]:
    """Yield the weights in force, beside them those of the settings, and what else matters to them."""
    yield told_in_force(report), "bold"
    if report.since and report.table.reason:
        yield one_line(report.table.reason, REASON_CHARS), "plain"
    if not backends:
        yield "No backend is enabled.", "plain"
        return
    yield from table_lines(report.table, backends, beside=report.base if report.since else None)
    if report.experiment:
        yield _told_experiment(report.experiment), "plain"


def told_in_force(report: WeightsReport) -> str:
    """Return in a few words which weights are in force and since when."""
    if report.since is None:
        return "The weights of the settings are in force."
    return f"Weights {report.table.version}, in force since {told_moment(report.since)}"


def table_lines(
    table: WeightTable, backends: Sequence[str], *, beside: WeightTable | None = None
) -> Iterator[Line]:
    """Yield a line for each backend, a column for each kind of question; `beside` is the settings' table."""
    kinds = kinds_of(table)
    head = ["backend", ALL_QUESTIONS if kinds else "weight", *kinds, *([SETTINGS] if beside else [])]
    rows = [head]
    for one in backends:
        cells = [one, *(told_weight(table.of(one, kind)) for kind in (None, *kinds))]
        rows.append([*cells, *([told_weight(beside[one])] if beside else [])])
    yield from _table(rows, right=range(1, len(head)))


def history_lines(changes: Sequence[WeightChange], backends: Sequence[str]) -> Iterator[Line]:
    """Yield the changes, each with its weights, its gain and its reason."""
    rows = [["when", "version", "by", "change", "expected gain", "weights"]]
    rows += [_change_row(one, backends) for one in changes]
    head, *lines = columns(rows)
    yield head, "dim"
    for line, change in zip(lines, changes, strict=True):
        yield line, "plain"
        for kind, weights in sorted(change.by_intent.items()):
            yield f"  {kind} questions: {told_weights(weights, backends)}", "plain"
        if change.reason:
            yield f"  {one_line(change.reason, REASON_CHARS)}", "dim"


def difference_lines(found: DifferenceDocument, *, names: tuple[str, str]) -> Iterator[Line]:
    """Yield two tables weight by weight, the heaviest as 1; `names` is how they were asked for."""
    sides = ("A", "B") if any("=" in name for name in names) else names
    rows = [["questions", "backend", *sides, "change"]]
    for one in found.weights:
        change = f"{one.b - one.a:+.3f}".removesuffix("0") if abs(one.b - one.a) >= 0.0005 else NONE
        rows.append(
            [one.intent or ALL_QUESTIONS, one.backend, told_weight(one.a), told_weight(one.b), change]
        )
    yield from _table(rows, right=(2, 3, 4))
    if found.ranks_alike:
        yield "They rank alike: only the proportions of weights matter.", "plain"
    yield "The heaviest weight is shown as 1.", "dim"


def advice_lines(advice: AdviceDocument) -> Iterator[Line]:
    """Yield a proposal: weights, gain and reasons; then what speaks against it, or how it is adopted."""
    proposal = advice.proposal
    yield f"Advice of the {proposal.advisor} advisor, from {_told_samples(advice)}", "bold"
    yield from _proposed(advice)
    gain = (
        told_gain(proposal.gain) if proposal.gain else "unknown, for too few judged queries can be replayed"
    )
    yield "", "plain"
    yield f"Expected gain in nDCG: {gain}", "plain"
    for kind, one in sorted(proposal.gain_by_intent.items()):
        yield f"  {kind} questions: {told_gain(one)}", "plain"
    if proposal.destination is not None and proposal.destination_gain is not None:
        way = told_weights(proposal.destination.weights)
        yield f"All of the way, to {way}: {told_gain(proposal.destination_gain)}", "plain"
    for text in advice.adjustments:
        yield f"Held in check: {one_line(text)}", "dim"
    for text in _unsaid(proposal.notes, advice.objections):
        yield f"Note: {one_line(text)}", "dim"
    yield "", "plain"
    yield from _judged(advice)


def _change_row(change: WeightChange, backends: Sequence[str]) -> list[str]:
    return [
        told_moment(change.at),
        change.version or SETTINGS,
        one_line(change.actor) or NONE,
        change.action,
        told_gain(change.gain) if change.gain else NONE,
        told_weights(change.weights, backends) or "those of the settings",
    ]


def _told_experiment(record: ExperimentRecord) -> str:
    sides = f"{told_table(record.a)} against {told_table(record.b)}"
    return f"An experiment runs, {sides}, since {told_moment(record.started_at)}: `cmem experiment status`"


def _told_samples(advice: AdviceDocument) -> str:
    """Return how many queries it rests on; one where nothing was relevant tells nothing of a ranking."""
    told = counted(advice.proposal.sample_size, "judged query", "judged queries")
    return f"{told} with a relevant result"


def _unsaid(notes: Iterable[str], objections: Sequence[Objection]) -> Iterator[str]:
    """Yield the notes that no objection repeats."""
    return (text for text in notes if not any(text in one.text for one in objections))


def _proposed(advice: AdviceDocument) -> Iterator[Line]:
    """Yield the proposed weights, and below each the advisor's reason."""
    weights = advice.proposal.weights
    rows = [["questions", "backend", "now", "suggested", "plausible", "queries"]]
    for one in weights:
        plausible = told_range(one.plausible) if one.plausible else NONE
        now, then = told_weight(one.current), told_weight(one.suggested)
        count = str(one.sample_size or NONE)
        rows.append([one.intent or ALL_QUESTIONS, one.backend, now, then, plausible, count])
    head, *lines = columns(rows, right=(2, 3, 5))
    yield head, "dim"
    for line, one in zip(lines, weights, strict=True):
        yield line, "bold" if abs(one.suggested - one.current) >= 0.0005 else "plain"
        if one.rationale:
            yield f"  {one_line(one.rationale)}", "dim"
    where = (
        "; plausible is where the best one lies, with 95 %" if any(one.plausible for one in weights) else ""
    )
    yield f"The heaviest weight is shown as 1{where}.", "dim"


def _judged(advice: AdviceDocument) -> Iterator[Line]:
    if advice.applied:
        yield f"Adopted as {advice.applied}; `cmem weights rollback` takes it back.", "bold"
    elif advice.allowed:
        yield "Nothing speaks against it; the same command with --apply adopts it.", "bold"
    else:
        yield "Against it:", "bold"
        yield from ((f"  - {one_line(one.text)}", "plain") for one in advice.objections)


def _table(rows: Sequence[Sequence[str]], *, right: Sequence[int]) -> Iterator[Line]:
    head, *lines = columns(rows, right=right)
    yield head, "dim"
    yield from ((line, "plain") for line in lines)
