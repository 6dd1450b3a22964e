"""`cmem replay` and `cmem gate`: what another ranking would have done, and whether it may be adopted."""

from typing import Annotated, Literal

import typer
from pydantic import JsonValue

from composable_memory.citations import format_place
from composable_memory.cli.command import ExitCode, Target, command
from composable_memory.cli.options import TABLE_HELP, AsJson, Since, Until, parse_time
from composable_memory.cli.output import error, one_line, print_json, print_line, warn
from composable_memory.cli.render import print_pairs, print_table
from composable_memory.cli.weights import (
    HOW_TO_JUDGE,
    format_gain,
    format_table,
    format_time,
    named_table,
    opened_learning,
    table_document,
)
from composable_memory.json_documents import document
from composable_memory_feedback.replay import Judged, Move, PolicyChange, QueryReplay, ReplayReport
from composable_memory_ops_logs.plurals import counted

NO_CHANGE = PolicyChange()
NAMED = 5
"""How many queries that were not reproduced to name."""
QUESTION_CHARS = 90
MOVES = 6
"""How many moves of one query to show, those nearest to the top."""

app = typer.Typer()

OfMemory = Annotated[
    str | None,
    typer.Option(
        "--memory",
        metavar="ID",
        help="Use the log and judgements of another workspace, by id, name or folder.",
    ),
]
Depth = Annotated[
    int | None,
    typer.Option(
        "-k",
        metavar="N",
        min=1,
        max=1000,
        help="How many top results count; default: 10.",
    ),
]


# --- replay -------------------------------------------------------------------------------------------------


@command(app, "replay", epilog="Example: cmem replay --weights builtin=0.6,graphiti=0.3 --since 7d")
async def replay(
    target: Target,
    *,
    weights: Annotated[
        str | None, typer.Option("--weights", metavar="W", help=f"Use these weights: {TABLE_HELP}.")
    ] = None,
    fusion: Annotated[
        Literal["weighted", "rrf", "convex"] | None,
        typer.Option("--fusion", help="Use this fusion method."),
    ] = None,
    dedup: Annotated[
        Literal["exact", "overlap", "near"] | None,
        typer.Option("--dedup", help="Use this deduplication."),
    ] = None,
    drop: Annotated[
        list[str] | None,
        typer.Option("--drop", metavar="ID", help="Rank as if this backend had not answered; repeatable."),
    ] = None,
    since: Since = None,
    until: Until = None,
    k: Depth = None,
    of_memory: OfMemory = None,
    limit: Annotated[
        int,
        typer.Option("--limit", "-n", metavar="N", min=0, help="The most changed queries to show."),
    ] = 5,
    as_json: AsJson = False,
) -> ExitCode:
    """Rank logged queries again and show what a change of ranking would do.

    Without a change, checks that every logged ranking is reproduced byte for byte, and fails otherwise.
    """
    start, end = parse_time(since, "--since"), parse_time(until, "--until")
    async with opened_learning(target, of_memory) as learning:
        change = PolicyChange(
            table=None if weights is None else await named_table(learning, weights, "--weights"),
            fusion=fusion,
            dedup=dedup,
            dropped=frozenset(drop or ()),
        )
        found = await learning.replay(change, since=start, until=end, k=k, keep=limit)
    is_proof = change == NO_CHANGE
    if as_json:
        print_json(_replay_document(found))
    elif found.total:
        print_reproduced(found)
        if not is_proof:
            print_report(found)
    for reason, count in found.incomplete.items():
        warn(f"note: {counted(count, 'query', 'queries')} left out: {reason}")
    if not found.total:
        when, advice = (
            ("of this time ", "name another") if since or until else ("", "`cmem search` makes one")
        )
        error(f"the log has no query {when}that can be replayed; {advice}")
        return ExitCode.FAILED
    if not is_proof and found.judged is None:
        warn(
            f"hint: none of these queries is judged, so the results do not say which is better; "
            f"{HOW_TO_JUDGE}"
        )
    if not found.not_reproduced:
        return ExitCode.FINE
    (error if is_proof else warn)(_format_not_reproduced(found.not_reproduced))
    return ExitCode.FAILED if is_proof else ExitCode.FINE


def _replay_document(report: ReplayReport) -> dict[str, JsonValue]:
    """Return a replay as JSON: how exact it was, what changes, and what the judgements say about it.

    `queries` has those that change most, at most as many as requested; `changed` counts all that do.
    """
    change = report.change
    changes = document(table=table_document(change.table), fusion=change.fusion, dedup=change.dedup)
    return document(
        k=report.k,
        change=changes | {"dropped": sorted(change.dropped)},
        total=report.total,
        reproduced=report.reproduced,
        not_reproduced=report.not_reproduced,
        incomplete=report.incomplete,
        changed=report.changed,
        queries=[*map(_query_document, report.queries)],
        judged=report.judged,
    )


def _query_document(one: QueryReplay) -> dict[str, JsonValue]:
    """Return one query whose ranking changes; with nDCG values if it was judged."""
    return document(
        trace_id=one.query.trace_id,
        query_id=one.query.query_id,
        at=one.query.at,
        query=one.query.query,
        intent=one.query.intent,
        ndcg_before=one.ndcg_before,
        ndcg_after=one.ndcg_after,
        moves=[*map(_move_document, one.moves)],
    )


def _move_document(move: Move) -> dict[str, JsonValue]:
    """Return a result that has moved; ranks count from 1, and one outside the top k is left out."""
    hit = document(move.hit, score=None, calibrated=None, others=None, start_char=move.hit.start_char or None)
    return hit | document(move=move.kind, before=move.before, after=move.after)


def print_reproduced(report: ReplayReport) -> None:
    """Print how many logged rankings were reproduced."""
    if report.reproduced == report.total:
        whole = f"all {report.total} logged rankings" if report.total > 1 else "the logged ranking"
        print_line(f"Ranked again, {whole} matched the log byte for byte.")
    else:
        which = f"{report.reproduced} of {report.total} logged rankings"
        print_line(f"Ranked again, {which} matched the log.", bold=True)


def _format_not_reproduced(traces: tuple[str, ...]) -> str:
    named = ", ".join(one[:8] for one in traces[:NAMED])
    more = f" and {len(traces) - NAMED} more" if len(traces) > NAMED else ""
    return f"not as logged: {named}{more}; `cmem logs show {traces[0][:8]}` shows one"


def print_report(report: ReplayReport) -> None:
    """Print what a change does: how many rankings, which ones and how, and what the judgements say."""
    print_line(f"With {_format_change(report.change)}:")
    print_line(f"{report.changed} of {report.total} rankings change in their top {report.k}.", bold=True)
    for one in report.queries:
        print_line()
        _print_query(one)
    if left := report.changed - len(report.queries):
        print_line()
        print_line(f"{left} more; --limit {report.changed} shows all.", dim=True)
    if report.judged is not None:
        print_line()
        _print_judged(report.judged, report.k)


def _format_change(change: PolicyChange) -> str:
    parts = [f"the weights {format_table(change.table)}"] if change.table else []
    parts += [f"{change.fusion} fusion"] if change.fusion else []
    parts += [f"{change.dedup} dedup"] if change.dedup else []
    parts += [f"{one} dropped" for one in sorted(change.dropped)]
    return ", ".join(parts)


def _print_query(one: QueryReplay) -> None:
    query = one.query
    print_line(one_line(query.query, QUESTION_CHARS) or "(no words were logged)", bold=True)
    about = f"  {query.trace_id[:8]}  {format_time(query.at)}  {query.intent}"
    if one.ndcg_before is not None and one.ndcg_after is not None:
        about += f"  nDCG {one.ndcg_before:.3f} -> {one.ndcg_after:.3f}"
    print_line(about, dim=True)
    nearest = sorted(one.moves, key=_nearest)
    shown = sorted(nearest[:MOVES], key=_place_after)
    lost = [number for number, move in enumerate(shown) if move.kind in ("down", "out")]
    print_table(map(_move_row, shown), right=(1, 3), styles=dict.fromkeys(lost, "dim"), indent=2)
    if left := len(nearest[MOVES:]):
        print_line(f"  {counted(left, 'move')} more, further down", dim=True)


def _nearest(move: Move) -> int:
    """Return the better of the two places of a result."""
    return min(place for place in (move.before, move.after) if place is not None)


def _place_after(move: Move) -> tuple[bool, int]:
    """Order by the new place, and those that are out by their old one."""
    return move.after is None, move.after or move.before or 0


def _move_row(move: Move) -> tuple[str, ...]:
    hit = move.hit
    where = f"{one_line(format_place(hit))} [{hit.backend}]"
    return move.kind, str(move.before or "-"), "->", str(move.after or "-"), where


def _print_judged(judged: Judged, k: int) -> None:
    print_line(f"What {counted(judged.queries, 'judged query says', 'judged queries say')}", bold=True)
    print_line(f"  nDCG@{k} {judged.ndcg_before:.3f} -> {judged.ndcg_after:.3f}")
    differences = [("all questions", judged.difference), *sorted(judged.by_intent.items())]
    rows = [(str(name), format_gain(one), one.verdict) for name, one in differences]
    print_table(rows, indent=2)
    print_line(f"  {judged.coverage:.0%} of the top {k} is judged, the rest is estimated", dim=True)


# --- gate ---------------------------------------------------------------------------------------------------


@command(app, "gate", epilog="Example: cmem gate --candidate builtin=0.6,graphiti=0.3 --tolerance 0.01")
async def gate(
    target: Target,
    *,
    candidate: Annotated[
        str, typer.Option("--candidate", metavar="W", help=f"The weights to test: {TABLE_HELP}.")
    ],
    baseline: Annotated[
        str, typer.Option("--baseline", metavar="W", help="The weights to compare with.")
    ] = "now",
    tolerance: Annotated[
        float,
        typer.Option("--tolerance", metavar="D", min=0.0, max=1.0, help="How much nDCG may drop."),
    ] = 0.0,
    since: Since = None,
    k: Depth = None,
    of_memory: OfMemory = None,
    as_json: AsJson = False,
) -> ExitCode:
    """Test weights on judged queries; exit with 1 if they may rank worse than the baseline.

    They may if the lower bound of the nDCG difference is below the tolerance, or if too few queries are
    judged to tell.
    """
    start = parse_time(since, "--since")
    async with opened_learning(target, of_memory) as learning:
        before = await named_table(learning, baseline, "--baseline")
        after = await named_table(learning, candidate, "--candidate")
        depth = k or learning.settings.depth
        verdict = await learning.gate(
            PolicyChange(table=before),
            PolicyChange(table=after),
            since=start,
            k=depth,
            tolerance=tolerance,
        )
    if as_json:
        sides = document(baseline=table_document(before), candidate=table_document(after))
        about = document(
            verdict,
            k=depth,
            tolerance=tolerance,
            judged=None,
            difference=verdict.judged.difference,
            judged_queries=verdict.judged.queries,
        )
        print_json(about | sides)
    else:
        measure = f"nDCG@{depth}, tolerance {tolerance:g}"
        tables = [("baseline", format_table(before)), ("candidate", format_table(after))]
        print_pairs([*tables, ("measure", measure)], indent=0)
        print_line(f"{'Passed' if verdict.passed else 'Not passed'}: {verdict.reason}.", bold=True)
    return ExitCode.FINE if verdict.passed else ExitCode.FAILED
