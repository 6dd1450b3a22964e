"""Says how an experiment stands, and what it still needs (pure)."""

from collections.abc import Iterable
from math import log

from composable_memory_feedback.experiments.sequential import SequentialVerdict, judge, log_evidence
from composable_memory_feedback.experiments.values import ExperimentRecord, ExperimentStatus, Outcome, Side

__all__ = ["status_of"]


def status_of(record: ExperimentRecord, outcomes: Iterable[Outcome]) -> ExperimentStatus:
    """Return how an experiment stands by its outcomes; those of other experiments are left out.

    They are taken in the order of the queries and count up to the one that decides, and up to `max_queries`.
    An experiment that has ended keeps its winner and its reason.
    """
    own = sorted((one for one in outcomes if one.experiment_id == record.id), key=lambda one: one.at)
    verdict = judge(own[: record.max_queries], record.alpha)
    return ExperimentStatus(
        record=record,
        queries=verdict.queries,
        wins_a=verdict.wins_a,
        wins_b=verdict.wins_b,
        ties=verdict.ties,
        e_value=verdict.e_value,
        win_rate=verdict.win_rate,
        decision=verdict.decision if record.is_running else record.winner,
        needs=_needs(record, verdict) if record.is_running else record.reason,
    )


def _needs(record: ExperimentRecord, verdict: SequentialVerdict) -> str:
    decisive = verdict.wins_a + verdict.wins_b
    if verdict.decision is not None:
        wins = max(verdict.wins_a, verdict.wins_b)
        return f"{verdict.decision} is better: it won {wins} of the {decisive} queries that told a difference"
    if verdict.queries >= record.max_queries:
        rate = verdict.win_rate
        return (
            f"no difference was found in {verdict.queries} queries: b wins {rate.low:.0%} to {rate.high:.0%} "
            "of those that tell one"
        )
    if not verdict.queries:
        return "no query was served from both tables yet"
    if not decisive:
        return f"none of {verdict.queries} queries told a difference; open, quote or judge some results"
    return _outlook(record, verdict)


def _outlook(record: ExperimentRecord, verdict: SequentialVerdict) -> str:
    """Return how many more queries would decide, were they won as often as those before."""
    left = record.max_queries - verdict.queries
    leader = _leader(verdict)
    more = _more_needed(verdict, record.alpha, left)
    if leader is None or more is None:
        return f"the two are too close to be told apart yet; it ends after {left} more queries at the latest"
    share = verdict.win_rate.mean if leader == "b" else 1.0 - verdict.win_rate.mean
    return f"about {more} more queries, if {leader} keeps winning {share:.0%} of those that tell a difference"


def _leader(verdict: SequentialVerdict) -> Side | None:
    if verdict.wins_a == verdict.wins_b:
        return None
    return "b" if verdict.wins_b > verdict.wins_a else "a"


def _more_needed(verdict: SequentialVerdict, alpha: float, left: int) -> int | None:
    """Return the least number of further queries, at most `left`, after which the evidence suffices.

    The evidence of a steady rate first falls and then grows; so the last number is tried first.
    """
    decisive = verdict.wins_a + verdict.wins_b
    share = decisive / verdict.queries

    def suffices(more: int) -> bool:
        of = decisive + more * share
        return log_evidence(verdict.win_rate.mean * of, of) + log(alpha) >= 0.0

    if not suffices(left):
        return None
    low, high = 0, left
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if suffices(middle) else (middle, high)
    return high
