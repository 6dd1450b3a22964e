"""A world whose truth is known: questions of four kinds, three backends that know each kind differently well.

Each question has a few relevant passages among many. A backend of quality q scores a passage q * relevance +
(1 - q) * chance, so a poor one is confidently wrong and deserves less weight. Only what was shown is judged:
by a model with some noise, by use that depends on the rank, and rarely by a person.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from random import Random

from composable_memory_feedback.advice.evidence import Case
from composable_memory_feedback.judgements import Judgement, JudgementKind
from composable_memory_feedback.logged.logged_query import LoggedList, LoggedQuery, RankedHit, RankingPolicy
from composable_memory_feedback.metrics import dcg
from composable_memory_feedback.weights import IntentKind, WeightTable
from composable_memory_ops_logs import Candidate

BEGINNING = datetime(2026, 3, 2, tzinfo=UTC)
BACKENDS = ("builtin", "graphiti", "qmd")
EQUAL = WeightTable.fixed(dict.fromkeys(BACKENDS, 1.0), made_at=BEGINNING)
DEPTH = 10
PASSAGES = 24
RELEVANCES = (1.0, 0.8, 0.6)
SHARES = {
    IntentKind.GENERAL: 0.4,
    IntentKind.TOPIC: 0.3,
    IntentKind.ENTITY: 0.2,
    IntentKind.TIME: 0.1,
}
QUALITIES: Mapping[IntentKind, tuple[float, ...]] = {
    IntentKind.GENERAL: (0.6, 0.3, 0.5),
    IntentKind.TOPIC: (0.7, 0.3, 0.4),
    IntentKind.ENTITY: (0.4, 0.6, 0.2),
    IntentKind.TIME: (0.2, 0.7, 0.4),
}
Truth = Mapping[str, float]


def plain_ranker(query: LoggedQuery, policy: RankingPolicy) -> Sequence[RankedHit]:
    """The highest score times weight of each passage; scores are calibrated already."""
    best: dict[str, tuple[float, float, str, Candidate]] = {}
    for one in query.lists:
        weight = 0.0 if one.backend in policy.dropped else policy.weights.get(one.backend, 1.0)
        for candidate in one.candidates if weight > 0.0 else ():
            entry = (candidate.score * weight, candidate.score, one.backend, candidate)
            if candidate.path not in best or entry[0] > best[candidate.path][0]:
                best[candidate.path] = entry
    ordered = sorted(best.values(), key=lambda entry: (-entry[0], entry[3].path))
    return [
        RankedHit(
            path=found.path,
            start_line=found.start_line,
            end_line=found.end_line,
            backend=backend,
            score=score,
            calibrated=calibrated,
        )
        for score, calibrated, backend, found in ordered[: policy.max_results]
    ]


def logged(
    lists: Mapping[str, Mapping[str, float]],
    *,
    at: int = 0,
    intent: IntentKind = IntentKind.GENERAL,
    weights: Mapping[str, float] | None = None,
    fallbacks: Sequence[str] = (),
) -> LoggedQuery:
    """A query that was answered with these scores of paths, and what was shown for it."""
    policy = RankingPolicy(
        fusion="weighted",
        dedup="exact",
        rrf_k=60,
        weights=weights or dict.fromkeys(lists, 1.0),
        max_results=DEPTH,
        min_score=0.0,
        depth=DEPTH,
    )
    query = LoggedQuery(
        trace_id=f"trace-{at}",
        query_id=f"query-{at}",
        at=BEGINNING + timedelta(minutes=at),
        query=f"question {at}",
        intent=intent,
        policy=policy,
        lists=tuple(
            LoggedList(
                backend=backend,
                depth=DEPTH,
                candidates=tuple(
                    Candidate(path, 1, 9, score, rank, "memory", "", "")
                    for rank, (path, score) in enumerate(scores.items(), 1)
                ),
                answered_by="other" if backend in fallbacks else None,
            )
            for backend, scores in lists.items()
        ),
        near=frozenset(),
        shown=(),
    )
    return replace(query, shown=tuple(plain_ranker(query, policy)))


def key_of(path: str) -> str:
    """The key of a passage of the world."""
    return f"{path}:1:9"


def judgement(query: LoggedQuery, rank: int, kind: JudgementKind, relevance: float) -> Judgement:
    """What somebody says of the result at a rank."""
    hit = query.shown[rank - 1]
    return Judgement(
        trace_id=query.trace_id,
        query_id=query.query_id,
        at=query.at + timedelta(minutes=1),
        path=hit.path,
        start_line=hit.start_line,
        end_line=hit.end_line,
        rank=rank,
        backend=hit.backend,
        intent=query.intent,
        kind=kind,
        relevance=relevance,
        was_used=kind is not JudgementKind.MODEL,
    )


@dataclass(slots=True)
class World:
    """Asks questions; everything follows from the seed."""

    seed: int
    qualities: Mapping[IntentKind, Sequence[float]] = field(default_factory=lambda: QUALITIES)
    judged_by_model: float = 0.5
    """The share of queries that a model judges."""
    noise: float = 0.1
    """The standard deviation of a model's judgement."""
    used: float = 0.6
    """How likely a fully relevant result at the first rank is used; below, that over the rank."""
    explicit: float = 0.007
    """The share of results that a person judges."""
    _asked: int = 0
    _random: Random = field(init=False)

    def __post_init__(self) -> None:
        self._random = Random(self.seed)

    def ask(self, table: WeightTable = EQUAL) -> tuple[LoggedQuery, Truth]:
        """A query served with the weights of a table, and how relevant each passage really is."""
        random = self._random
        self._asked += 1
        intent = random.choices(list(SHARES), weights=list(SHARES.values()))[0]
        relevances = [*RELEVANCES, *[0.0] * (PASSAGES - len(RELEVANCES))]
        truth = {f"n{place}.md": relevance for place, relevance in enumerate(relevances)}
        lists = {
            backend: self._answer(truth, quality)
            for backend, quality in zip(BACKENDS, self.qualities[intent], strict=True)
        }
        weights = {backend: table.of(backend, intent) for backend in BACKENDS}
        query = logged(lists, at=self._asked, intent=intent, weights=weights)
        found = {path for scores in lists.values() for path in scores}
        return query, {key_of(path): worth for path, worth in truth.items() if path in found}

    def judge(self, query: LoggedQuery, truth: Truth) -> list[Judgement]:
        """What becomes known of a query from a model, from use, and from a person."""
        random = self._random
        is_judged = random.random() < self.judged_by_model
        found = []
        for rank, hit in enumerate(query.shown, 1):
            real = truth[hit.key]
            if is_judged:
                seen = min(1.0, max(0.0, round(random.gauss(real, self.noise), 1)))
                found.append(judgement(query, rank, JudgementKind.MODEL, seen))
            if random.random() < self.used * real / rank:
                found.append(judgement(query, rank, JudgementKind.OPENED, 1.0))
            if random.random() < self.explicit:
                found.append(judgement(query, rank, JudgementKind.EXPLICIT, real))
        return found

    def serve(self, count: int, table: WeightTable = EQUAL) -> tuple[list[LoggedQuery], list[Judgement]]:
        """So many queries served with a table, and all that becomes known of them."""
        asked = [self.ask(table) for _ in range(count)]
        return [query for query, _ in asked], [one for pair in asked for one in self.judge(*pair)]

    def quality(self, table: WeightTable, *, count: int) -> list[float]:
        """The true nDCG@10 of a table on fresh queries; the same of them for every table and world state."""
        fresh = World(self.seed + 1_000_003, self.qualities)
        return [true_ndcg(*fresh.ask(table)) for _ in range(count)]

    def gain(self, table: WeightTable, over: WeightTable, *, count: int = 2000) -> float:
        """The true mean gain of a table over another on fresh queries."""
        new, old = self.quality(table, count=count), self.quality(over, count=count)
        return (sum(new) - sum(old)) / count

    def _answer(self, truth: Truth, quality: float) -> dict[str, float]:
        random = self._random
        scores = {
            path: quality * relevance + (1.0 - quality) * random.random()
            for path, relevance in truth.items()
            if random.random() < 0.8
        }
        best = sorted(scores, key=lambda path: -scores[path])[:DEPTH]
        return {path: scores[path] for path in best}


def true_ndcg(query: LoggedQuery, truth: Truth) -> float:
    """The nDCG of what was shown, were everything known that any backend found."""
    best = dcg(sorted(truth.values(), reverse=True), DEPTH)
    gains = [truth[hit.key] for hit in query.shown]
    return dcg(gains, DEPTH) / best if best > 0.0 else 0.0


def true_cases(queries: Sequence[tuple[LoggedQuery, Truth]]) -> list[Case]:
    """Cases about which everything is known."""
    from composable_memory_feedback.advice.evidence import Evidence

    return [
        Case(
            query=query,
            evidence={
                key: Evidence(relevance=worth, kind=JudgementKind.EXPLICIT) for key, worth in truth.items()
            },
        )
        for query, truth in queries
    ]
