"""`cmem replay` and `cmem gate`: what another ranking would have done, and whether it may come into force."""

from dataclasses import dataclass
from datetime import datetime

from composable_memory.cli.learning_place import learning_of
from composable_memory.cli.runner import ExitCode, Place
from composable_memory.cli.screen import complain, counted, say_lines, warn, write_json
from composable_memory.cli.tuning_documents import GateDocument, ReplayDocument
from composable_memory.cli.tuning_drawing import change_lines, gate_lines, proof_lines
from composable_memory.learning import Learning, ReplayRun
from composable_memory_feedback.replay import PolicyChange

__all__ = ["GateRequest", "ReplayRequest", "gate", "replay"]

HOW_TO_JUDGE = "run `cmem feedback evaluate`, or `cmem feedback add TRACE_ID 1 --relevance 1`"
NO_CHANGE = PolicyChange()
NAMED = 5
"""So many queries that came out otherwise are named."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayRequest:
    """Which queries to rank again, and how; what is None stays as it was logged.

    `weights` names a table. `limit` is how many changed queries are shown.
    """

    weights: str | None = None
    fusion: str | None = None
    dedup: str | None = None
    dropped: frozenset[str] = frozenset()
    since: datetime | None = None
    until: datetime | None = None
    k: int | None = None
    limit: int = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class GateRequest:
    """Which tables to compare, by their names, and how far nDCG may fall at the worst."""

    baseline: str
    candidate: str
    tolerance: float = 0.0
    since: datetime | None = None
    k: int | None = None


async def replay(place: Place, request: ReplayRequest, *, as_json: bool) -> ExitCode:
    """Rank logged queries again; without a change, fail where one comes out otherwise."""
    async with learning_of(place) as learning:
        change = await _change(learning, request)
        found = await learning.replay(
            change, since=request.since, until=request.until, k=request.k, keep=request.limit
        )
    is_proof = change == NO_CHANGE
    if as_json:
        write_json(ReplayDocument.of(found).as_json())
    elif found.total:
        say_lines(proof_lines(found))
        say_lines([] if is_proof else change_lines(found.report))
    return _judge_replay(found, request, is_proof=is_proof)


async def gate(place: Place, request: GateRequest, *, as_json: bool) -> ExitCode:
    """Compare two tables on judged queries; fail where the candidate may be worse than is tolerated."""
    async with learning_of(place) as learning:
        baseline = await learning.table(request.baseline)
        candidate = await learning.table(request.candidate)
        depth = request.k or learning.settings.depth
        verdict = await learning.gate(
            PolicyChange(table=baseline),
            PolicyChange(table=candidate),
            since=request.since,
            k=depth,
            tolerance=request.tolerance,
        )
    document = GateDocument.of(verdict, baseline, candidate, k=depth, tolerance=request.tolerance)
    if as_json:
        write_json(document.as_json())
    else:
        say_lines(gate_lines(document))
    return ExitCode.FINE if verdict.passed else ExitCode.FAILED


async def _change(learning: Learning, request: ReplayRequest) -> PolicyChange:
    return PolicyChange(
        table=None if request.weights is None else await learning.table(request.weights),
        fusion=request.fusion,
        dedup=request.dedup,
        dropped=request.dropped,
    )


def _judge_replay(found: ReplayRun, request: ReplayRequest, *, is_proof: bool) -> ExitCode:
    """Say what is missing, and return how it ends."""
    for reason, count in found.incomplete.items():
        warn(f"note: {counted(count, 'query', 'queries')} left out: {reason}")
    if not found.total:
        is_bounded = request.since is not None or request.until is not None
        when, advice = ("of this time ", "name another") if is_bounded else ("", "`cmem search` makes one")
        complain(f"there is no query {when}in the log that could be replayed; {advice}")
        return ExitCode.FAILED
    if not is_proof and found.report.judged is None:
        warn(f"hint: none of these queries is judged, so nothing says which is better; {HOW_TO_JUDGE}")
    if not found.not_reproduced:
        return ExitCode.FINE
    named = ", ".join(one[:8] for one in found.not_reproduced[:NAMED])
    more = f" and {len(found.not_reproduced) - NAMED} more" if len(found.not_reproduced) > NAMED else ""
    told = f"not as logged: {named}{more}; `cmem logs show {found.not_reproduced[0][:8]}` shows one"
    (complain if is_proof else warn)(told)
    return ExitCode.FAILED if is_proof else ExitCode.FINE
