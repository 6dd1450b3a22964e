"""Credit what was used in an experiment, and test which side wins, validly at every look (pure).

Among the queries that one side won, `b` wins each with an unknown chance. Where both are equally good it is
one half, and the wealth of a gambler who bets on the next winner at fair odds is a martingale: it ever
reaches 1/alpha with a chance of alpha at most (J. Ville, 1939). Ours bets by the mean of a Beta posterior, so
its wealth is the Beta mixture of likelihood ratios (H. Robbins, Annals of Mathematical Statistics 41, 1970).
"""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Literal

from composable_memory_feedback.judgements import RELEVANT, Judgement, JudgementKind
from composable_memory_feedback.logged.logged_query import LoggedQuery
from composable_memory_feedback.weights import WeightTable
from composable_memory_ops_logs.quick_dataclass import dataclass

Side = Literal["a", "b"]
ExperimentState = Literal["running", "decided", "stopped"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Experiment:
    """Two weight tables that rank the same questions, their results interleaved.

    It ends when it is decided at the error rate `alpha`, in (0, 1), or after `max_queries` queries, ties
    among them. `memory` is the mark of the memory that it runs in, where several share a store. `decided`
    ones have a winner; `stopped` ones ended without. `reason` says in words why it ended.
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
    """What one query told: the credit of the results that each side put up, at least 0."""

    experiment_id: str
    trace_id: str
    query_id: str
    at: datetime
    a: float
    b: float

    @property
    def winner(self) -> Side | None:
        """Return the side with more credit; None where both have the same."""
        if self.a == self.b:
            return None
        return "a" if self.a > self.b else "b"


@dataclass(frozen=True, slots=True, kw_only=True)
class TestResult:
    """What the outcomes up to the decision tell; those after it are not counted.

    Each of `queries` was won by a side or is a tie. `e_value` is the evidence against "both are equally
    good", 1 where there is none: by luck alone it ever exceeds 1/alpha with a chance of alpha at most.
    """

    __test__ = False  # no test class of pytest

    queries: int
    wins_a: int
    wins_b: int
    ties: int
    e_value: float
    decision: Side | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExperimentStatus:
    """How an experiment stands: one that has ended keeps its winner and its reason."""

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
        """Return whether nothing is left to wait for: decided, ended, or all its queries were put."""
        ended = self.decision is not None or not self.record.is_running
        return ended or self.found.queries >= self.record.max_queries


PRIOR = 3.0
"""Both parameters of the Beta prior; the test is quickest where the better side wins 60 to 90 %."""
USE = (JudgementKind.OPENED, JudgementKind.QUOTED)
CREDITED = (*USE, JudgementKind.EXPLICIT)
"""The kinds of judgements that say whether a result was of use."""


def credit(query: LoggedQuery, judgements: Iterable[Judgement]) -> tuple[float, float]:
    """Return how many results of `a`, and of `b`, were of use; judgements of other queries do not count.

    A result was of use when it was opened or quoted. What a person or an agent said of it stands above that,
    the judgement stored last: it was used, or is relevant. What a model thinks of it is no use. A result
    counts once, whatever duplicates it stands for; one that both sides wanted counts for neither, nor does
    one that a fallback brought.
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
    """Return what outcomes tell, taken in their order, up to the first that decides at error rate `alpha`."""
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
    """Return how an experiment stands by its outcomes; those of other experiments are left out.

    They are taken in the order of the queries and count up to the one that decides, and up to `max_queries`.
    """
    own = sorted((one for one in outcomes if one.experiment_id == record.id), key=lambda one: one.at)
    return ExperimentStatus(record=record, found=judge(own[: record.max_queries], record.alpha))


def _useful(query: LoggedQuery, judgements: Iterable[Judgement]) -> Mapping[str, bool]:
    """Return for each key that anything is known of whether it was of use."""
    own = [one for one in judgements if (one.trace_id, one.query_id) == query.key]
    used = {one.key: True for one in own if one.kind in USE and _tells_use(one)}
    return used | {one.key: _tells_use(one) for one in own if one.kind is JudgementKind.EXPLICIT}


def _tells_use(judgement: Judgement) -> bool:
    return judgement.was_used or judgement.relevance > RELEVANT


def _needs(record: Experiment, found: TestResult) -> str:
    decisive = found.wins_a + found.wins_b
    if found.decision is not None:
        wins = max(found.wins_a, found.wins_b)
        return f"{found.decision} is better: it won {wins} of the {decisive} queries that told a difference"
    if found.queries >= record.max_queries:
        won = f"a won {found.wins_a} of them, b won {found.wins_b}"
        return f"no difference was found in {found.queries} queries: {won}"
    if not found.queries:
        return "no query was served from both tables yet"
    if not decisive:
        return f"none of {found.queries} queries told a difference; open, quote or judge some results"
    left = record.max_queries - found.queries
    return f"the two cannot be told apart yet; it ends after {left} more queries at the latest"
