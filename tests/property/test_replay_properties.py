"""Replay is exact: with the logged policy it reproduces every logged ranking to the byte."""

import asyncio
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from composable_memory.interfaces import Capability
from composable_memory.query.calibration import Calibration
from composable_memory.query.fusion import Dedup, Fusion
from composable_memory.query.intent import parse_query_intent
from composable_memory.query.manager import ComposableMemoryManager
from composable_memory.query.ranking import ActiveWeights, LiveWeights, MergePolicy
from composable_memory.query.replay import Replayer, can_be_ranked, is_reproduced
from composable_memory.query.routing import ComposableBackendEntry
from composable_memory.testing.fakes import RaisingBackend
from composable_memory.testing.in_memory import FIXED_NOW, FakeBackend
from composable_memory.types import (
    MemorySearchResult,
    Origin,
    QueryRequest,
    QueryResponse,
    SearchOptions,
    SupportingFact,
)
from composable_memory_feedback.experiments import Experiment
from composable_memory_feedback.logged.logged_query import LoggedQueries, RankingPolicy
from composable_memory_feedback.logged.reading import read_queries
from composable_memory_feedback.weights import IntentKind, WeightTable
from composable_memory_ops_logs import OpsLog

BACKENDS = ("notes", "graph", "qmd")
QUESTIONS = ("which port", "what did Maria Lopez say", "what broke last week", "about the greenhouse", "部署")


class Told(FakeBackend):
    """Finds what it was told to, whatever is asked."""

    def __init__(self, results: Sequence[MemorySearchResult]) -> None:
        super().__init__("told")
        self.results = results

    def __repr__(self) -> str:
        return f"Told({self.results})"

    async def search(
        self,
        query: str,
        options: SearchOptions | None = None,
    ) -> list[MemorySearchResult]:
        return list(self.results[: options.max_results if options else None])


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """A composite, and what it is asked."""

    entries: tuple[ComposableBackendEntry, ...]
    policy: MergePolicy
    weights: ActiveWeights
    requests: tuple[QueryRequest, ...]


# --- what there is to draw from -----------------------------------------------------------------------------

PATHS = ["a.md", "b.md", "notes/c d.md", "ノート/部署.md", "a:1.md", "x\n.md"]
SCORES = st.one_of(
    st.sampled_from([0.0, 0.5, 0.5, 0.9, 1.0, -0.0, 1, 2]),
    st.floats(0.0, 1.0),
    st.floats(-4.0, 40.0),
    st.floats(allow_nan=False, allow_infinity=False),
)
SNIPPETS = st.one_of(
    st.lists(st.sampled_from(["port", "dock", "queue", "retry", "部署", "é", "I̓"]), max_size=9).map(" ".join),
    # These are nearly equal, or not, beyond what the log shows of them.
    st.lists(st.integers(0, 40), max_size=4).map(
        lambda odd: " ".join(f"word{one}" if one not in odd else f"other{one}" for one in range(40))
    ),
    st.integers(0, 12).map(lambda start: "港口是一个船舶停靠的地方而码头"[start:] * 3),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=140),
)
PASSAGES = st.builds(
    lambda path, start, length, **rest: MemorySearchResult(
        path=path, start_line=start, end_line=start + length, **rest
    ),
    path=st.sampled_from(PATHS),
    start=st.integers(1, 12),
    length=st.integers(0, 8),
    score=SCORES,
    snippet=SNIPPETS,
    exact=st.booleans(),
    source=st.sampled_from(["memory", "sessions"]),
    metadata=st.sampled_from([{}, {"answered_by": "fallback"}]),
)
ORIGINS = st.builds(
    lambda path, start, length: Origin(path=path, start_line=start, end_line=start + length * bool(start)),
    path=st.sampled_from(PATHS),
    start=st.integers(0, 12),
    length=st.integers(0, 6),
)
FACTS = st.builds(
    lambda number, outdated, **rest: MemorySearchResult(
        path=f"graph/{number}",
        start_line=0,
        end_line=0,
        facts=(
            SupportingFact(text="now"),
            *(SupportingFact(text="then", holds=False, origin=one) for one in outdated),
        ),
        **rest,
    ),
    number=st.integers(1, 4),
    outdated=st.lists(ORIGINS, max_size=3),
    score=SCORES,
    snippet=SNIPPETS,
    origin=st.none() | ORIGINS,
)
WEIGHTS = st.one_of(st.sampled_from([0, 0.0, 0.3, 1, 1.0, 1.0]), st.floats(0.0, 4.0))
POLICIES = st.builds(
    MergePolicy,
    fusion=st.sampled_from(Fusion),
    dedup=st.sampled_from(Dedup),
    depth=st.integers(1, 5),
    rrf_k=st.sampled_from([0, 1, 60]),
)
REQUESTS = st.builds(
    lambda query, max_results, min_score, backends: QueryRequest(
        query=query,
        options=SearchOptions(max_results=max_results, min_score=min_score),
        backends=backends,
    ),
    query=st.sampled_from(QUESTIONS),
    max_results=st.integers(1, 24),
    min_score=st.sampled_from([0, 0.0, 0.3, 1 / 3, 1]),
    backends=st.sampled_from([None, None, ("graph", "notes"), ()]),
)
TABLES = st.builds(
    WeightTable.fixed,
    st.dictionaries(st.sampled_from(BACKENDS), WEIGHTS),
    by_intent=st.dictionaries(
        st.sampled_from(IntentKind), st.dictionaries(st.sampled_from(BACKENDS), WEIGHTS), max_size=2
    ),
)
IN_FORCE = st.builds(
    ActiveWeights,
    table=TABLES,
    experiment=st.none()
    | st.builds(
        Experiment, id=st.sampled_from(["e1", "é2"]), a=TABLES, b=TABLES, started_at=st.just(FIXED_NOW)
    ),
)


@st.composite
def entries(draw: st.DrawFn) -> tuple[ComposableBackendEntry, ...]:
    """Draw backends, of which some know the same passages."""
    common = draw(st.lists(PASSAGES | FACTS, max_size=6))
    return tuple(
        ComposableBackendEntry(
            id=backend_id,
            manager=RaisingBackend()
            if draw(st.integers(0, 9)) == 0
            else Told(_best_first([*draw(st.lists(PASSAGES | FACTS, max_size=8)), *common[place:]])),
            calibration=draw(st.sampled_from(Calibration)),
            capabilities=draw(st.sampled_from([frozenset(), frozenset({Capability.CALIBRATED})])),
        )
        for place, backend_id in enumerate(BACKENDS)
    )


def _best_first(results: Sequence[MemorySearchResult]) -> list[MemorySearchResult]:
    return sorted(results, key=lambda one: -one.score)


TRAFFIC = st.builds(
    Traffic,
    entries=entries(),
    policy=POLICIES,
    weights=IN_FORCE,
    requests=st.lists(REQUESTS, min_size=1, max_size=3).map(tuple),
)


# --- the laws -----------------------------------------------------------------------------------------------


async def asked(traffic: Traffic, folder: Path) -> tuple[list[QueryResponse], LoggedQueries]:
    """Return what a composite answers, and what its log tells of that."""
    async with OpsLog(folder) as ops_log:
        manager = ComposableMemoryManager(
            traffic.entries,
            ops_log=ops_log,
            policy=traffic.policy,
            weights=_live(traffic.weights),
            intent_parser=parse_query_intent,
        )
        responses = [await manager.query(request) for request in traffic.requests]
        await manager.close()
    return responses, await asyncio.to_thread(read_queries, folder)


def _live(weights: ActiveWeights) -> LiveWeights:
    live = LiveWeights(weights.table)
    live.put(weights)
    return live


def put(traffic: Traffic) -> tuple[list[QueryResponse], LoggedQueries]:
    with tempfile.TemporaryDirectory() as folder:
        return asyncio.run(asked(traffic, Path(folder)))


@given(traffic=TRAFFIC)
@settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
def test_every_logged_ranking_is_reproduced_to_the_byte(traffic: Traffic) -> None:
    responses, logged = put(traffic)

    assert (len(logged.queries), logged.incomplete) == (len(responses), {})
    assert all(map(can_be_ranked, logged.queries))
    assert all(map(is_reproduced, logged.queries))
    ranker = Replayer()
    for query, response in zip(logged.queries, responses, strict=True):
        assert [(one.key, one.score) for one in query.shown] == [(r.key, r.score) for r in response.results]
        if query.experiment is None:
            assert tuple(ranker(query, query.policy)) == query.shown


@given(traffic=TRAFFIC, policy=POLICIES, table=TABLES, dropped=st.sampled_from([None, *BACKENDS]))
@settings(max_examples=25, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
def test_another_policy_ranks_the_logged_candidates_as_it_would_have_ranked_them_live(
    traffic: Traffic, policy: MergePolicy, table: WeightTable, dropped: str | None
) -> None:
    policy = replace(policy, depth=traffic.policy.depth)  # or other candidates would have been asked for
    others = tuple(_silent(one) if one.id == dropped else one for one in traffic.entries)
    then, logged = put(traffic)
    live, _ = put(replace(traffic, entries=others, policy=policy, weights=ActiveWeights(table=table)))

    for query, was, response in zip(logged.queries, then, live, strict=True):
        assert query.trace_id == was.trace_id
        changed = RankingPolicy(
            fusion=policy.fusion.value,
            dedup=policy.dedup.value,
            rrf_k=policy.rrf_k,
            weights={one: table.of(one, query.intent) for one in BACKENDS},
            max_results=query.policy.max_results,
            min_score=query.policy.min_score,
            depth=policy.depth,
            dropped=frozenset({dropped} if dropped else ()),
        )
        again = [(one.key, one.score, one.backend) for one in Replayer()(query, changed)]
        assert again == [(one.key, one.score, one.source_backend) for one in response.results]


def _silent(entry: ComposableBackendEntry) -> ComposableBackendEntry:
    return replace(entry, manager=Told([]))


SECRETS = st.sampled_from(
    [
        "token=abcdefgh12345678",
        "password: hunter2hunter2hunter2",
        "api_key=x",
        "ghp_abcdefghijklmnopqrstuvwxyz0123456789",
        "ghp_abcdefghijklmnopqrstuvwxyz0123456788",
        "https://ada:s3cr3tpass@example.org/x",
        "\ud800",
        "plain",
    ]
)


@st.composite
def with_secrets(draw: st.DrawFn) -> Traffic:
    """Draw backends that find secrets in paths and texts, and what cannot be written as it is."""
    found = draw(st.lists(PASSAGES | FACTS, min_size=1, max_size=6))
    told = [
        replace(
            one,
            path=one.path + draw(st.just("") | SECRETS),
            snippet=f"{draw(SECRETS)} {one.snippet} {draw(SECRETS)}",
        )
        for one in found
    ]
    return Traffic(
        entries=tuple(
            ComposableBackendEntry(id=backend_id, manager=Told(_best_first(told[place:])))
            for place, backend_id in enumerate(BACKENDS[:2])
        ),
        policy=draw(POLICIES),
        weights=draw(IN_FORCE),
        requests=(
            QueryRequest(query=draw(SECRETS), options=SearchOptions(max_results=draw(st.integers(1, 9)))),
        ),
    )


@given(traffic=with_secrets())
@settings(max_examples=25)
def test_what_the_log_masks_is_reproduced_or_counted_and_never_an_error(traffic: Traffic) -> None:
    responses, logged = put(traffic)

    assert len(logged.queries) + sum(logged.incomplete.values()) == len(responses)
    scores = {one.trace_id: [result.score for result in one.results] for one in responses}
    for query in logged.queries:
        again = Replayer()(query, query.policy)
        assert len(again) <= query.policy.max_results
        if is_reproduced(query) and query.experiment is None:
            assert tuple(again) == query.shown
            assert [one.score for one in again] == scores[query.trace_id]
