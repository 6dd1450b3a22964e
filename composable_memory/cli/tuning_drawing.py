"""Replays, gates, experiments and golden scores as lines for the terminal (pure)."""

from collections.abc import Iterator, Sequence

from composable_memory.cli.experiment_documents import ExperimentDocument
from composable_memory.cli.golden_documents import EvalDocument, FloorDocument, MeasuresDocument
from composable_memory.cli.screen import Line, counted, one_line
from composable_memory.cli.tuning_documents import GateDocument, TableDocument
from composable_memory.cli.weight_words import columns, told_gain, told_moment, told_weights
from composable_memory.learning import QuestionScore, ReplayRun
from composable_memory_feedback.metrics import Interval
from composable_memory_feedback.replay import Judged, Move, PolicyChange, QueryReplay, ReplayReport
from composable_memory_feedback.weights import WeightTable

__all__ = [
    "change_lines",
    "eval_lines",
    "experiment_lines",
    "gate_lines",
    "proof_lines",
    "told_table",
]

QUESTION_CHARS = 90
MOVES = 6
"""So many moves of one query are shown, those nearest to the top."""
MISSES = 20
"""So many missed questions are shown."""
BY_HAND = "fixed-"
"""How the versions of tables begin that were given as weights, and have no name."""


def told_table(table: WeightTable | TableDocument) -> str:
    """Return a table on one line: `v3 (builtin 1.00, graphiti 0.50; time: builtin 0.40)`."""
    rows = [told_weights(table.weights) or "each backend 1.00"]
    rows += [f"{kind}: {told_weights(weights)}" for kind, weights in sorted(table.by_intent.items())]
    told = "; ".join(rows)
    return told if table.version.startswith(BY_HAND) else f"{table.version} ({told})"


# --- replay -------------------------------------------------------------------------------------------------


def proof_lines(run: ReplayRun) -> Iterator[Line]:
    """Yield how many logged rankings come out as they were."""
    if run.reproduced == run.total:
        whole = f"all {run.total} logged rankings" if run.total > 1 else "the logged ranking"
        yield f"Ranked again as then, {whole} came out as logged, to the byte.", "plain"
    else:
        text = f"Ranked again as then, {run.reproduced} of {run.total} logged rankings came out as logged."
        yield text, "bold"


def change_lines(report: ReplayReport) -> Iterator[Line]:
    """Yield what a change does: how many rankings, which ones and how, and what the judgements say."""
    yield f"With {_told_change(report.change)}:", "plain"
    yield f"{report.changed} of {report.total} rankings change in their top {report.k}.", "bold"
    for one in report.queries:
        yield "", "plain"
        yield from _query_lines(one)
    if left := report.changed - len(report.queries):
        yield "", "plain"
        yield f"{left} more; --limit {report.changed} shows all.", "dim"
    if report.judged is not None:
        yield "", "plain"
        yield from _judged_lines(report.judged, report.k)


def _told_change(change: PolicyChange) -> str:
    told = [f"the weights {told_table(change.table)}"] if change.table else []
    told += [f"{change.fusion} fusion"] if change.fusion else []
    told += [f"{change.dedup} dedup"] if change.dedup else []
    told += [f"{one} dropped" for one in sorted(change.dropped)]
    return ", ".join(told)


def _query_lines(one: QueryReplay) -> Iterator[Line]:
    query = one.query
    yield one_line(query.query, QUESTION_CHARS) or "(no words were logged)", "bold"
    told = f"  {query.trace_id[:8]}  {told_moment(query.at)}  {query.intent}"
    if one.ndcg_before is not None and one.ndcg_after is not None:
        told += f"  nDCG {one.ndcg_before:.3f} -> {one.ndcg_after:.3f}"
    yield told, "dim"
    nearest = sorted(one.moves, key=_nearest)
    for move in sorted(nearest[:MOVES], key=_place_after):
        yield _told_move(move), "dim" if move.kind in ("down", "out") else "plain"
    if left := len(nearest[MOVES:]):
        yield f"  {counted(left, 'move')} more, further down", "dim"


def _nearest(move: Move) -> int:
    """Return the better of the two places of a result."""
    return min(place for place in (move.before, move.after) if place is not None)


def _place_after(move: Move) -> tuple[bool, int]:
    """Order by the new place, and those that are out by their old one."""
    return move.after is None, move.after or move.before or 0


def _told_move(move: Move) -> str:
    before, after = (str(place or "-").rjust(3) for place in (move.before, move.after))
    hit = move.hit
    lines = f":{hit.start_line}-{hit.end_line}" if hit.start_line else ""
    return f"  {move.kind.ljust(4)} {before} ->{after}  {one_line(hit.path)}{lines} [{hit.backend}]"


def _judged_lines(judged: Judged, k: int) -> Iterator[Line]:
    yield f"What {counted(judged.queries, 'judged query', 'judged queries')} say", "bold"
    yield f"  nDCG@{k} {judged.ndcg_before:.3f} -> {judged.ndcg_after:.3f}", "plain"
    differences = [("all questions", judged.difference), *sorted(judged.by_intent.items())]
    rows = [(str(name), told_gain(one), _told_verdict(one)) for name, one in differences]
    for line in columns(rows):
        yield f"  {line}", "plain"
    known = f"{judged.coverage:.0%} of the top {k} is judged, the rest is estimated"
    yield f"  {known}; worth {judged.effective:.0f} independent queries", "dim"


def _told_verdict(difference: Interval) -> str:
    if difference.low > 0.0:
        return "better"
    return "worse" if difference.high < 0.0 else "no clear difference"


# --- gate ---------------------------------------------------------------------------------------------------


def gate_lines(document: GateDocument) -> Iterator[Line]:
    """Yield the two tables, what is measured, and the verdict with its reason."""
    rows = [
        ("baseline", told_table(document.baseline)),
        ("candidate", told_table(document.candidate)),
        ("measure", f"nDCG@{document.k}, tolerance {document.tolerance:g}"),
    ]
    for line in columns(rows):
        yield line, "plain"
    yield f"{'Passed' if document.passed else 'Not passed'}: {document.reason}.", "bold"


# --- experiments --------------------------------------------------------------------------------------------


def experiment_lines(document: ExperimentDocument) -> Iterator[Line]:
    """Yield the tables, what each won, how sure that is, and what is missing."""
    yield f"Experiment {document.id}, {_told_state(document)}", "bold"
    decisive = document.wins_a + document.wins_b
    e_value = "beyond measure" if document.e_value is None else f"{document.e_value:.3g}"
    rows = [
        ("a", told_table(document.a)),
        ("b", told_table(document.b)),
        (
            "queries",
            f"{document.queries}: a won {document.wins_a}, b won {document.wins_b}, {_told_ties(document)}",
        ),
        ("b wins", _told_share(document.win_rate) if decisive else "-"),
        ("evidence", f"{e_value}, decided from {1.0 / document.alpha:.3g} on"),
    ]
    for line in columns(rows):
        yield f"  {line}", "plain"
    if document.needs:
        yield document.needs[:1].upper() + document.needs[1:] + ".", "plain"


def _told_state(document: ExperimentDocument) -> str:
    if document.ended_at is None:
        return f"{document.state} since {told_moment(document.started_at)}"
    won = f", {document.decision} won" if document.decision else ""
    return f"{document.state} {told_moment(document.ended_at)}{won}"


def _told_ties(document: ExperimentDocument) -> str:
    return f"{document.ties} told no difference"


def _told_share(one: Interval) -> str:
    return f"{one.mean * 100:.0f} % ({one.low * 100:.0f} .. {one.high * 100:.0f} %) of those that told one"


# --- golden questions ---------------------------------------------------------------------------------------


def eval_lines(document: EvalDocument) -> Iterator[Line]:
    """Yield the measures of all together and of each backend, the misses, and how the floor holds."""
    asked = counted(document.composite.questions, "question")
    yield f"{asked}, the first {document.k} results of each", "bold"
    rows = [("", "recall", "MRR", "nDCG"), _measures("all together", document.composite)]
    rows += [_measures(one_line(one), score) for one, score in document.backends.items()]
    for line in columns(rows, right=(1, 2, 3)):
        yield f"  {line}", "plain"
    yield from _miss_lines([one for one in document.questions if one.recall < 1.0], document.k)
    if document.floor is not None:
        yield "", "plain"
        yield from _floor_lines(document.floor)
    if document.kept:
        yield (
            f"Kept {counted(document.kept, 'question')}; no weights are adopted that do worse on them.",
            "plain",
        )


def _measures(name: str, score: MeasuresDocument) -> tuple[str, str, str, str]:
    return name, f"{score.recall:.3f}", f"{score.mrr:.3f}", f"{score.ndcg:.3f}"


def _miss_lines(missed: Sequence[QuestionScore], k: int) -> Iterator[Line]:
    if not missed:
        return
    yield "", "plain"
    yield f"{counted(len(missed), 'question')} with answers missing from the first {k}", "bold"
    rows = [
        (one_line(one.id, 20), _told_miss(one), one_line(one.question, QUESTION_CHARS))
        for one in sorted(missed, key=lambda one: one.recall)[:MISSES]
    ]
    for line in columns(rows):
        yield f"  {line}", "plain"
    if left := max(0, len(missed) - MISSES):
        yield f"  {left} more; --json lists all", "dim"


def _told_miss(one: QuestionScore) -> str:
    if one.first_rank is None:
        return "none found"
    return f"{one.recall:.0%} found, first at {one.first_rank}"


def _floor_lines(floor: FloorDocument) -> Iterator[Line]:
    then, now = floor.then, floor.now
    yield "The answers kept before, as ranked then -> with the weights in force", "bold"
    recall, mrr = f"recall {then.recall:.3f} -> {now.recall:.3f}", f"MRR {then.mrr:.3f} -> {now.mrr:.3f}"
    yield f"  {recall}, {mrr}, nDCG {then.ndcg:.3f} -> {now.ndcg:.3f}", "plain"
    if floor.worse:
        named = ", ".join(one_line(one) for one in floor.worse[:MISSES])
        more = f" and {len(floor.worse) - MISSES} more" if len(floor.worse) > MISSES else ""
        yield f"  worse: {named}{more}", "plain"
