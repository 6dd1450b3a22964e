"""Credits used results in an experiment, and tests which side wins, validly at every look (pure).

Among the queries that one side won, `b` wins each with an unknown probability. If both are equally good it is
one half, and the wealth of a gambler who bets on the next winner at fair odds is a martingale: it ever
reaches 1/alpha with probability at most alpha (J. Ville, 1939). Ours bets by the mean of a Beta posterior, so
its wealth is the Beta mixture of likelihood ratios (H. Robbins, Annals of Mathematical Statistics 41, 1970).
"""

from collections.abc import Iterable, Mapping
from datetime import datetime
from math import isfinite
from typing import Literal

from composable_memory_feedback.judgements import RELEVANT, Judgement, JudgementKind
from composable_memory_feedback.logged.logged_query import LoggedQuery
from composable_memory_feedback.weights import WeightTable
from composable_memory_ops_logs.plurals import counted
from composable_memory_ops_logs.quick_dataclass import dataclass

Side = Literal["a", "b"]
ExperimentState = Literal["running", "decided", "stopped"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Experiment:
    """Two weight tables that rank the same questions, their results interleaved.

    It ends when it is decided at the error rate `alpha`, in (0, 1), or after `max_queries` queries, including
    ties. `memory` is the id of its memory, for when several share a store. `decided` experiments have a
    winner, `stopped` ones ended without one. `reason` says in words why it ended.
    """

    id: str
    a: WeightTable
    b: WeightTable
    started_at: datetime
    alpha: float = 0.05
    max_queries: int = 2000
    memory: str | None = None
    state: ExperimentState = "running"
    ended_at: datetime | None = None
    reason: str = ""
    winner: Side | None = None

    def __post_init__(self) -> None:
        if not 0.0 < self.alpha < 1.0:
            raise ValueError(f"the error rate of an experiment is between 0 and 1, not {self.alpha}")
        if self.max_queries < 1:
            raise ValueError(f"an experiment needs one query at least, not {self.max_queries}")

    @property
    def is_running(self) -> bool:
        """Return whether queries are still served from both tables."""
        return self.state == "running"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The outcome of one query: the credit for the results of each side, at least 0."""

    experiment_id: str
    trace_id: str
    query_id: str
    at: datetime
    a: float
    b: float

    def __post_init__(self) -> None:
        if not (isfinite(self.a) and isfinite(self.b)):
            raise ValueError(f"credit is a number, not {self.a} and {self.b}")

    @property
    def winner(self) -> Side | None:
        """Return the side with more credit; None if both have the same."""
        if self.a == self.b:
            return None
        return "a" if self.a > self.b else "b"


@dataclass(frozen=True, slots=True, kw_only=True)
class TestResult:
    """What the outcomes up to the decision say; those after it are not counted.

    Each of `queries` was won by a side or is a tie. `e_value` is the evidence against "both are equally
    good", 1 if there is none: by luck alone it ever exceeds 1/alpha with probability at most alpha.
    """

    __test__ = False  # not a pytest class

    queries: int
    wins_a: int
    wins_b: int
    ties: int
    e_value: float
    decision: Side | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExperimentStatus:
    """The status of an experiment; one that has ended keeps its winner and its reason."""

    record: Experiment
    found: TestResult

    @property
    def decision(self) -> Side | None:
        """Return the side that won."""
        return self.found.decision if self.record.is_running else self.record.winner

    @property
    def needs(self) -> str:
        """Return what is missing for a decision, or what was decided, in words."""
        return _needs(self.record, self.found) if self.record.is_running else self.record.reason

    @property
    def is_over(self) -> bool:
        """Return whether there is nothing left to wait for: decided, ended, or all its queries were asked."""
        ended = self.decision is not None or not self.record.is_running
        return ended or self.found.queries >= self.record.max_queries


PRIOR = 3.0
"""Both parameters of the Beta prior; the test is fastest if the better side wins 60 to 90 %."""
USE = (JudgementKind.OPENED, JudgementKind.QUOTED)
CREDITED = (*USE, JudgementKind.EXPLICIT)
"""The kinds of judgements that say whether a result was useful."""


def credit(query: LoggedQuery, judgements: Iterable[Judgement]) -> tuple[float, float]:
    """Return how many results of `a`, and of `b`, were useful; judgements of other queries do not count.

    A result was useful if it was opened or quoted. What a person or an agent said about it takes precedence,
    in the judgement stored last: it was used, or is relevant. A model's opinion does not count. A result
    counts once, whatever duplicates it represents; one that both sides wanted counts for neither, nor does
    one from a fallback.
    """
    if query.experiment is None:
        return 0.0, 0.0
    useful = _useful(query, judgements)
    marks = [
        mark
        for mark, hit in zip(query.experiment.teams, query.shown, strict=False)
        if hit.backend not in query.fallbacks and any(useful.get(key) for key in hit.keys)
    ]
    return float(marks.count("a")), float(marks.count("b"))


def judge(outcomes: Iterable[Outcome], alpha: float = 0.05) -> TestResult:
    """Evaluate outcomes in their order, up to the first that decides at error rate `alpha`."""
    wins: dict[Side | None, int] = {"a": 0, "b": 0, None: 0}
    wealth = 1.0
    for outcome in outcomes:
        winner = outcome.winner
        if winner is not None:
            wealth *= 2.0 * (wins[winner] + PRIOR) / (wins["a"] + wins["b"] + 2.0 * PRIOR)
        wins[winner] += 1
        if wealth * alpha >= 1.0:
            break
    leader: Side = "b" if wins["b"] > wins["a"] else "a"
    return TestResult(
        queries=sum(wins.values()),
        wins_a=wins["a"],
        wins_b=wins["b"],
        ties=wins[None],
        e_value=wealth,
        decision=leader if wealth * alpha >= 1.0 else None,
    )


def status_of(record: Experiment, outcomes: Iterable[Outcome]) -> ExperimentStatus:
    """Return the status of an experiment from its outcomes; those of other experiments are left out.

    They are taken in the order of the queries and count up to the deciding one, and up to `max_queries`.
    """
    own = sorted((one for one in outcomes if one.experiment_id == record.id), key=lambda one: one.at)
    return ExperimentStatus(record=record, found=judge(own[: record.max_queries], record.alpha))


def _useful(query: LoggedQuery, judgements: Iterable[Judgement]) -> Mapping[str, bool]:
    """Return for each key about which anything is known whether it was useful."""
    own = [one for one in judgements if (one.trace_id, one.query_id) == query.key]
    used = {one.key: True for one in own if one.kind in USE and _is_about_use(one)}
    return used | {one.key: _is_about_use(one) for one in own if one.kind is JudgementKind.EXPLICIT}


def _is_about_use(judgement: Judgement) -> bool:
    return judgement.was_used or judgement.relevance > RELEVANT


def _needs(record: Experiment, found: TestResult) -> str:
    decisive = found.wins_a + found.wins_b
    queries = counted(found.queries, "query", "queries")
    if found.decision is not None:
        wins = max(found.wins_a, found.wins_b)
        return f"{found.decision} is better: it won {wins} of the {decisive} queries that showed a difference"
    if found.queries >= record.max_queries:
        won = f"a won {found.wins_a} of them, b won {found.wins_b}"
        return f"no difference was found in {queries}: {won}"
    if not found.queries:
        return "no query has been answered from both tables yet"
    if not decisive:
        return f"none of {queries} showed a difference; open, quote or judge some results"
    left = record.max_queries - found.queries
    return f"no difference is certain yet; the experiment ends after {left} more queries at the latest"
