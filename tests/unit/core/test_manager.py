"""The composite memory: routing, merging, degradation, logging."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import replace
from typing import Any, cast
from uuid import UUID

import pytest

from composable_memory.errors import (
    BackendError,
    BackendUnavailable,
    ConfigError,
    InvalidArgument,
    MemoryPathError,
    UnsupportedOperation,
)
from composable_memory.interfaces import Capability, MemorySearchManager, QueryOrchestrator
from composable_memory.query.calibration import Calibration
from composable_memory.query.fusion import BackendList, Dedup, Fusion, merge
from composable_memory.query.intent import parse_query_intent
from composable_memory.query.manager import ComposableMemoryManager
from composable_memory.query.ranking import MergePolicy
from composable_memory.query.routing import ComposableBackendEntry
from composable_memory.supervision.breaker import Breaker
from composable_memory.testing import fakes, in_memory
from composable_memory.types import (
    Degradation,
    MemoryFileSlice,
    MemorySearchResult,
    Origin,
    QueryIntent,
    SearchFilters,
    SearchOptions,
    SyncReport,
)
from composable_memory_feedback.weights import WeightTable
from composable_memory_ops_logs import BackendResult, OpsEvent, OpsLog, QueryMerged, QueryStart, trace
from composable_memory_ops_logs.line_format import event_to_wire, to_line
from composable_memory_ops_logs.short_form import events_from_line


class Fixed(in_memory.FakeBackend):
    """Returns the results it was made with."""

    def __init__(self, *results: MemorySearchResult) -> None:
        super().__init__("fixed")
        self.results = results

    async def search(
        self, query: str, options: SearchOptions | None = None
    ) -> tuple[MemorySearchResult, ...]:
        self.note_question(query, options)
        return self.results[: options.max_results if options else None]


def hit(path: str, start: int, end: int, score: float, snippet: str = "") -> MemorySearchResult:
    return MemorySearchResult(
        path=path, start_line=start, end_line=end, score=score, snippet=snippet or f"{path}:{start} alone"
    )


def entry(backend_id: str, manager: MemorySearchManager, **kwargs: object) -> ComposableBackendEntry:
    return ComposableBackendEntry(id=backend_id, manager=manager, **kwargs)  # type: ignore[arg-type]


def logged(
    make: Callable[[OpsLog], ComposableMemoryManager],
) -> tuple[ComposableMemoryManager, list[OpsEvent]]:
    log = OpsLog(None)
    events: list[OpsEvent] = []
    log.subscribe(events.append)
    return make(log), events


async def test_it_keeps_the_promises_of_a_memory_and_of_an_orchestrator() -> None:
    manager = ComposableMemoryManager([])

    assert isinstance(manager, MemorySearchManager)
    assert isinstance(manager, QueryOrchestrator)


async def test_scores_are_multiplied_by_weights_and_duplicates_keep_the_best() -> None:
    manager = ComposableMemoryManager(
        backends=[
            entry("a", Fixed(hit("p.md", 1, 5, 0.6)), weight=1.0),
            entry("b", Fixed(hit("p.md", 1, 5, 0.9), hit("q.md", 1, 2, 0.8)), weight=0.5),
        ]
    )

    results = await manager.search("anything")

    assert [(one.path, one.score, one.source_backend) for one in results] == [
        ("p.md", 0.6, "a"),
        ("q.md", 0.4, "b"),
    ]


async def test_backends_are_under_way_at_the_same_time() -> None:
    one, other = fakes.HangingBackend(), fakes.HangingBackend()
    manager = ComposableMemoryManager([entry("a", one), entry("b", other)])
    task = asyncio.create_task(manager.query("anything"))

    await asyncio.wait_for(asyncio.gather(one.started.wait(), other.started.wait()), 5)
    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_failure_is_part_of_the_answer() -> None:
    manager = ComposableMemoryManager(
        [entry("good", Fixed(hit("p.md", 1, 2, 0.5))), entry("bad", fakes.RaisingBackend())]
    )

    response = await manager.query("anything")

    assert [result.path for result in response.results] == ["p.md"]
    assert [(one.backend_id, one.code) for one in response.degraded] == [("bad", "failed")]


async def test_a_timeout_is_told_from_other_failures() -> None:
    manager = ComposableMemoryManager([entry("slow", fakes.HangingBackend(), timeout_s=0.01)])

    response = await manager.query("anything")

    assert [(one.backend_id, one.code) for one in response.degraded] == [("slow", "timeout")]
    assert "limit 0.01 s" in response.degraded[0].reason


async def test_search_raises_when_every_backend_failed() -> None:
    manager = ComposableMemoryManager([entry("bad", fakes.RaisingBackend())])

    with pytest.raises(BackendUnavailable, match="every backend failed"):
        await manager.search("anything")


async def test_a_backend_that_keeps_failing_rests_and_is_tried_again() -> None:
    now = [0.0]
    flaky = fakes.FlakyBackend(2)
    manager = ComposableMemoryManager(
        [entry("flaky", flaky)],
        make_breaker=lambda: Breaker(threshold=2, cooldown_s=10.0, clock=lambda: now[0]),
    )
    codes = []
    for moment in (0.0, 0.0, 5.0, 10.0):
        now[0] = moment
        response = await manager.query("dock")
        codes.append([one.code for one in response.degraded])

    assert codes == [["failed"], ["failed"], ["breaker-open", "no-backends"], []]


async def test_a_sync_that_succeeds_ends_the_rest_of_a_backend() -> None:
    class Mended(fakes.FlakyBackend):
        async def sync(
            self, *, reason: str = "manual", force: bool = False, progress: object = None
        ) -> SyncReport:
            return SyncReport(reason=reason)

    manager = ComposableMemoryManager(
        [entry("flaky", Mended(1))], make_breaker=lambda: Breaker(threshold=1, cooldown_s=1000.0)
    )
    broken = await manager.query("dock")
    await manager.sync(force=True)
    mended = await manager.query("dock")

    assert [one.code for one in broken.degraded] == ["failed"]
    assert mended.degraded == ()


async def test_a_file_that_two_backends_index_is_counted_once() -> None:
    class Synced(Fixed):
        def __init__(self, report: SyncReport) -> None:
            super().__init__()
            self.report = report

        async def sync(
            self, *, reason: str = "manual", force: bool = False, progress: object = None
        ) -> SyncReport:
            return replace(self.report, reason=reason)

    known = SyncReport(reason="", files_unchanged=3, passed_over={".pdf": 2})
    new = SyncReport(reason="", files_indexed=2, files_unchanged=1, chunks_written=4, passed_over={".pdf": 2})
    manager = ComposableMemoryManager([entry("notes", Synced(known)), entry("team", Synced(new))])
    report = await manager.sync()

    assert report == replace(new, reason="manual")


async def test_a_condition_decides_by_the_intent() -> None:
    def wants_names(intent: QueryIntent) -> bool:
        return bool(intent.entities)

    graph = Fixed(hit("graph/1", 0, 0, 0.9))
    manager = ComposableMemoryManager(
        [entry("notes", Fixed(hit("p.md", 1, 2, 0.5))), entry("graph", graph, condition=wants_names)],
        intent_parser=parse_query_intent,
    )

    named = await manager.query("what did Maria Lopez say")
    plain = await manager.query("which port")

    assert [one.path for one in named.results] == ["graph/1", "p.md"]
    assert [(one.backend_id, one.skipped) for one in plain.answers] == [
        ("notes", None),
        ("graph", "condition"),
    ]


async def test_a_conditional_backend_is_not_asked_without_a_parser_and_status_says_so() -> None:
    manager = ComposableMemoryManager(
        [entry("notes", Fixed()), entry("graph", Fixed(), condition=lambda intent: True)]
    )

    response = await manager.query("anything")

    assert response.answers[-1].skipped == "condition"
    assert manager.status().custom["neverAsked"] == {
        "graph": "it has a condition, but there is no intent parser"
    }


async def test_a_parser_and_a_condition_that_raise_do_not_take_the_answer_down() -> None:
    def broken(_: object) -> QueryIntent:
        raise ValueError("no idea")

    manager = ComposableMemoryManager([entry("notes", Fixed(hit("p.md", 1, 2, 0.5)))], intent_parser=broken)

    response = await manager.query("anything")

    assert len(response.results) == 1
    assert "the intent parser raised ValueError: no idea" in response.degraded[0].reason


async def test_nobody_to_ask_is_said_and_logged() -> None:
    manager, events = logged(lambda log: ComposableMemoryManager([], ops_log=log))

    response = await manager.query("anything")

    assert [one.code for one in response.degraded] == ["no-backends"]
    assert [event.action for event in events] == ["query.start", "query.merged"]


async def test_a_blank_query_is_refused_and_asks_nobody() -> None:
    backend = Fixed(hit("p.md", 1, 2, 0.5))
    manager = ComposableMemoryManager([entry("notes", backend)])

    with pytest.raises(InvalidArgument, match="query"):
        await manager.query("  \n")
    assert not backend.asked
    assert (await manager.query("", filters=SearchFilters(tags=("work",)))).answers


async def test_named_backends_alone_are_asked() -> None:
    manager = ComposableMemoryManager([entry("a", Fixed()), entry("b", Fixed(hit("p.md", 1, 2, 0.5)))])

    response = await manager.query("anything", backends=["b"])

    assert [(one.backend_id, one.skipped) for one in response.answers] == [("b", None), ("a", "not-asked")]


async def test_an_unknown_backend_is_refused_with_the_known_ones() -> None:
    manager = ComposableMemoryManager([entry("a", Fixed())])

    with pytest.raises(ConfigError, match="'z' is not open; open backends: a"):
        await manager.query("anything", backends=["z"])


@pytest.mark.parametrize("fusion", list(Fusion))
async def test_the_first_results_of_a_longer_answer_are_the_shorter_answer(fusion: Fusion) -> None:
    manager = ComposableMemoryManager(
        [entry("flood", fakes.FloodBackend(500)), entry("other", fakes.FloodBackend(300), weight=0.7)],
        policy=MergePolicy(fusion=fusion, dedup=Dedup.OVERLAP, depth=8),
    )
    longest = await manager.query("anything", max_results=60)
    keys = [result.key for result in longest.results]

    for count in (1, 7, 8, 9, 16, 17, 33, 59):
        response = await manager.query("anything", max_results=count)
        assert [result.key for result in response.results] == keys[:count]


@pytest.mark.parametrize("fusion", list(Fusion))
async def test_what_deeper_lists_add_never_scores_above_what_comes_before_it(fusion: Fusion) -> None:
    strong = Fixed(*(hit(f"s{place}.md", 1, 2, 0.9 - place / 100) for place in range(8)))
    weak = Fixed(*(hit(f"w{place}.md", 1, 2, 0.1 - place / 100) for place in range(8)))
    manager = ComposableMemoryManager(
        [entry("strong", strong), entry("weak", weak)], policy=MergePolicy(fusion=fusion, depth=2)
    )

    response = await manager.query("anything", max_results=16)

    scores = [result.score for result in response.results]
    assert len(scores) == 16
    assert scores == sorted(scores, reverse=True)


async def test_a_longer_answer_of_unequal_lists_begins_with_the_shorter_one() -> None:
    long = Fixed(*(hit(f"l{place}.md", 1, 2, 0.9 - place / 100) for place in range(32)))
    short = Fixed(*(hit(f"s{place}.md", 1, 2, 0.2 - place / 100) for place in range(3)))
    manager = ComposableMemoryManager(
        [entry("long", long), entry("short", short)], policy=MergePolicy(depth=4)
    )
    longest = [result.key for result in (await manager.query("anything", max_results=32)).results]

    for count in range(1, 32):
        response = await manager.query("anything", max_results=count)
        assert [result.key for result in response.results] == longest[:count]


async def test_what_overlaps_a_result_is_not_appended_from_a_deeper_list() -> None:
    strong = Fixed(hit("a.md", 1, 9, 0.9), hit("b.md", 1, 9, 0.8), hit("same.md", 1, 10, 0.7))
    weak = Fixed(hit("same.md", 2, 10, 0.1))
    manager = ComposableMemoryManager(
        [entry("strong", strong), entry("weak", weak)], policy=MergePolicy(dedup=Dedup.OVERLAP, depth=2)
    )

    response = await manager.query("anything", max_results=4)

    assert [result.key for result in response.results] == ["a.md:1:9", "b.md:1:9", "same.md:2:10"]


async def test_scores_of_a_backend_that_promises_nothing_are_calibrated() -> None:
    manager = ComposableMemoryManager(
        [
            entry("fused", Fixed(hit("p.md", 1, 2, 0.03)), capabilities=frozenset()),
            entry("notes", Fixed(hit("q.md", 1, 2, 0.5))),
        ]
    )

    response = await manager.query("anything")

    assert [(one.path, one.score) for one in response.results] == [("p.md", 1.0), ("q.md", 0.5)]
    assert response.attributions[0].raw_score == 0.03


async def test_a_calibration_can_be_chosen_per_backend() -> None:
    manager = ComposableMemoryManager(
        [entry("a", Fixed(hit("p.md", 1, 2, 0.2), hit("q.md", 1, 2, 0.1)), calibration=Calibration.MAX)]
    )

    assert [result.score for result in await manager.search("anything")] == [1.0, 0.5]


async def test_a_weight_table_replaces_the_weights_of_the_entries() -> None:
    table = WeightTable.fixed({"a": 0.1, "b": 1.0})
    manager = ComposableMemoryManager(
        [entry("a", Fixed(hit("p.md", 1, 2, 0.9))), entry("b", Fixed(hit("q.md", 1, 2, 0.5)))],
        weights=table,
    )

    response = await manager.query("anything")

    assert [result.path for result in response.results] == ["q.md", "p.md"]
    assert response.weights_version == table.version


async def test_every_event_of_a_query_carries_its_trace_id() -> None:
    manager, events = logged(
        lambda log: ComposableMemoryManager(
            [entry("a", Fixed(hit("p.md", 1, 2, 0.9))), entry("b", fakes.RaisingBackend())], ops_log=log
        )
    )

    response = await manager.query("anything")

    assert [event.action for event in events] == [
        "query.start",
        "query.backend_result",
        "query.backend_result",
        "query.merged",
    ]
    assert {event.trace_id for event in events} == {response.trace_id}
    assert UUID(response.trace_id).version == 4


async def test_a_secret_in_a_query_is_masked_before_it_is_taken_apart() -> None:
    manager, events = logged(
        lambda log: ComposableMemoryManager(
            [entry("a", Fixed())], intent_parser=parse_query_intent, ops_log=log
        )
    )

    await manager.query("client_secret: 'qqqqCLIENTqqqq99' and Bergen")

    [start] = [event.detail for event in events if isinstance(event.detail, QueryStart)]
    assert "CLIENT" not in repr(start)
    assert start.intent is not None
    assert start.intent.entities == ("client_secret",)


async def test_the_log_holds_every_candidate_and_how_they_were_merged() -> None:
    manager, events = logged(
        lambda log: ComposableMemoryManager(
            [entry("a", Fixed(*(hit(f"{n}.md", 1, 2, 0.9 - n / 20) for n in range(9))), weight=0.5)],
            ops_log=log,
            defaults=SearchOptions(max_results=2),
        )
    )

    await manager.query("which port?")

    start, result, merged = (event.detail for event in events)
    assert isinstance(start, QueryStart)
    assert start.query == "which port?"
    assert isinstance(result, BackendResult)
    assert [(one.rank, one.path, one.score) for one in result.results][-1] == (9, "8.md", 0.5)
    assert isinstance(merged, QueryMerged)
    assert (dict(merged.weights), dict(merged.calibration)) == ({"a": 0.5}, {"a": "identity"})
    assert [one.path for one in merged.final_results] == ["0.md", "1.md"]
    assert [*merged.dropped] == []
    assert merged.total_after_dedup == 9


async def test_composites_nest_and_share_the_trace() -> None:
    log = OpsLog(None)
    events: list[OpsEvent] = []
    log.subscribe(events.append)
    inner = ComposableMemoryManager([entry("leaf", Fixed(hit("p.md", 1, 2, 0.9)))], ops_log=log, id="inner")
    outer = ComposableMemoryManager([entry("inner", inner)], ops_log=log, id="outer")

    response = await outer.query("anything")

    assert [result.path for result in response.results] == ["p.md"]
    assert {event.trace_id for event in events} == {response.trace_id}
    assert [event.action for event in events].count("query.merged") == 2


async def test_a_failing_inner_composite_degrades_the_outer_one() -> None:
    inner = ComposableMemoryManager([entry("leaf", fakes.RaisingBackend())], id="inner")
    outer = ComposableMemoryManager([entry("inner", inner)], id="outer")

    response = await outer.query("anything")

    assert [(one.backend_id, one.code) for one in response.degraded] == [("inner", "failed")]


async def test_a_query_inside_a_trace_joins_it() -> None:
    manager = ComposableMemoryManager([])
    with trace() as outer:
        response = await manager.query("anything")

    assert response.trace_id == outer


async def test_the_primary_reads_files_and_others_step_in() -> None:
    notes = in_memory.InMemoryBackend({"memory/a.md": "one\ntwo\n"})
    manager = ComposableMemoryManager([entry("graph", Fixed()), entry("notes", notes)], primary="notes")

    assert (await manager.read_file("memory/a.md", from_line=2, lines=1)).text == "two"


async def test_a_path_that_no_backend_may_read_is_refused() -> None:
    notes = in_memory.InMemoryBackend({"memory/a.md": "one"})
    manager = ComposableMemoryManager([entry("notes", notes)])

    with pytest.raises(MemoryPathError):
        await manager.read_file("../secret.txt")


async def test_reading_without_a_backend_that_reads_is_unsupported() -> None:
    with pytest.raises(UnsupportedOperation):
        await ComposableMemoryManager([]).read_file("memory/a.md")


@pytest.mark.parametrize("operation", ["sync", "read"])
async def test_what_an_unavailable_backend_would_have_done_fails_with_its_reason(operation: str) -> None:
    missing = Degradation(backend_id="notes", code="unavailable", reason="its folder cannot be used")
    manager = ComposableMemoryManager([entry("graph", Fixed())], unavailable=[missing])

    with pytest.raises(BackendError, match="its folder cannot be used"):
        await (manager.sync() if operation == "sync" else manager.read_file("memory/a.md"))


class Graph(Fixed):
    """Reads pages of facts and nothing else."""

    capabilities = frozenset({Capability.CALIBRATED, Capability.READ_FILE})

    async def read_file(
        self, rel_path: str, *, from_line: int | None = None, lines: int | None = None
    ) -> MemoryFileSlice:
        if not rel_path.startswith("graphiti/"):
            raise MemoryPathError(rel_path, "it is no path of a fact", allowed=["graphiti/*"])
        return MemoryFileSlice(text="# a fact" if rel_path.endswith("known") else "", path=rel_path)


class Named(Graph):
    """Reads nothing, and says what it would."""

    async def read_file(
        self, rel_path: str, *, from_line: int | None = None, lines: int | None = None
    ) -> MemoryFileSlice:
        raise MemoryPathError(rel_path, "no folder covers it", allowed=["graphiti/*", "named/*.md"])


@pytest.mark.parametrize(("path", "text"), [("graphiti/main/known", "# a fact"), ("graphiti/main/gone", "")])
async def test_a_fact_is_read_from_the_backend_that_has_it_whatever_the_primary_says(
    path: str, text: str
) -> None:
    notes = in_memory.InMemoryBackend({"memory/a.md": "one"})
    manager = ComposableMemoryManager([entry("notes", notes), entry("graph", Graph())])

    assert (await manager.read_file(path)).text == text


async def test_a_refusal_names_what_every_backend_allows() -> None:
    manager = ComposableMemoryManager([entry("graph", Graph()), entry("named", Named())])

    with pytest.raises(MemoryPathError, match=r"no path of a fact; readable are graphiti/\*, named/\*\.md$"):
        await manager.read_file("../secret.txt")


def a_fact(score: float, origin: object) -> MemorySearchResult:
    return MemorySearchResult(
        path="graphiti/main/1", start_line=0, end_line=0, score=score, snippet="a fact alone",
        origin=origin,  # type: ignore[arg-type]
    )  # fmt: skip


async def test_the_log_alone_is_enough_to_merge_a_fact_with_its_passage_again() -> None:
    origin = Origin(path="p.md", start_line=2, end_line=3)
    manager, events = logged(
        lambda log: ComposableMemoryManager(
            [entry("notes", Fixed(hit("p.md", 1, 9, 0.9))), entry("graph", Graph(a_fact(0.8, origin)))],
            policy=MergePolicy(dedup=Dedup.OVERLAP),
            ops_log=log,
        )
    )

    response = await manager.query("anything")

    lines = [one.detail for event in events for one in events_from_line(to_line(event_to_wire(event)))]
    replayed = merge([_as_logged(one) for one in cast("Any", lines) if "results" in one], dedup=Dedup.OVERLAP)
    assert [one.key for one in replayed.results] == [one.key for one in response.results] == ["p.md:1:9"]
    assert replayed.attributions[0].merged_with == response.attributions[0].merged_with


def _as_logged(detail: Mapping[str, Any]) -> BackendList[MemorySearchResult]:
    found = [
        MemorySearchResult(
            path=one["path"],
            start_line=one["startLine"],
            end_line=one["endLine"],
            score=one["score"],
            snippet=one["snippetPreview"],
            origin=_origin_as_logged(one.get("origin")),
        )
        for one in detail["results"]
    ]
    backend_id = "graph" if found[0].origin else "notes"
    return BackendList(
        backend_id=backend_id, weight=detail["weight"], results=found, calibrated=[one.score for one in found]
    )


def _origin_as_logged(origin: Mapping[str, Any] | None) -> Origin | None:
    if origin is None:
        return None
    return Origin(path=origin["path"], start_line=origin["startLine"], end_line=origin["endLine"])


async def test_a_passage_that_comes_later_is_not_left_out_for_a_fact_that_was_told_before() -> None:
    others = [hit(f"{number}.md", 1, 2, 0.99 - number / 100) for number in range(4)]
    notes = Fixed(*others, hit("p.md", 1, 9, 0.9))
    graph = Graph(a_fact(0.5, Origin(path="p.md", start_line=2, end_line=3)))
    manager = ComposableMemoryManager(
        [entry("notes", notes), entry("graph", graph)], policy=MergePolicy(depth=4, dedup=Dedup.OVERLAP)
    )

    response = await manager.query("anything", max_results=6)

    assert [one.path for one in response.results] == [
        *(f"{number}.md" for number in range(4)),
        "graphiti/main/1",
        "p.md",
    ]


@pytest.mark.parametrize(
    "origin",
    ["p.md#L3", Origin(path="p.md", start_line=5, end_line=2), Origin(path=None)],  # type: ignore[arg-type]
)
async def test_a_fact_from_nowhere_in_particular_is_garbled(origin: object) -> None:
    manager = ComposableMemoryManager([entry("graph", Graph(a_fact(0.5, None), a_fact(0.4, origin)))])

    response = await manager.query("anything")

    assert (len(response.results), [one.code for one in response.degraded]) == (1, ["garbled"])


async def test_backends_are_found_by_what_they_can_do() -> None:
    manager = ComposableMemoryManager(
        [entry("graph", Graph()), entry("notes", in_memory.InMemoryBackend())], primary="notes"
    )

    assert list(manager.backends_with(Capability.READ_FILE)) == ["notes", "graph"]
    assert manager.backends_with(Capability.FACTS) == {}


async def test_a_pack_of_a_bare_question_reads_the_lists_to_their_depth() -> None:
    manager = ComposableMemoryManager(
        [entry("a", fakes.FloodBackend(40))], policy=MergePolicy(dedup=Dedup.EXACT)
    )

    pack = await manager.context_pack("anything", max_chars=5000)

    assert len(pack.sources) == 24


async def test_the_context_pack_holds_the_best_results_within_its_budget() -> None:
    manager, events = logged(
        lambda log: ComposableMemoryManager([entry("a", Fixed(hit("p.md", 1, 2, 0.9)))], ops_log=log)
    )

    pack = await manager.context_pack("anything", max_chars=200)

    assert pack.pack.startswith("#1 p.md:1-2 (score 0.90)")
    assert events[-1].action == "context_pack.build"
    assert {event.trace_id for event in events} == {pack.trace_id}


async def test_after_its_block_it_refuses_and_closing_twice_is_fine() -> None:
    async with ComposableMemoryManager([entry("a", in_memory.InMemoryBackend())]) as manager:
        pass

    with pytest.raises(BackendUnavailable, match="it is closed"):
        await manager.query("anything")
    await manager.close()


async def test_a_backend_that_cannot_be_closed_keeps_no_other_open() -> None:
    class Torn(in_memory.InMemoryBackend):
        def close(self) -> Coroutine[Any, Any, None]:
            raise OSError("the socket is gone")

    other = in_memory.InMemoryBackend(backend_id="b")
    manager = ComposableMemoryManager([entry("a", Torn()), entry("b", other)])

    with pytest.raises(BackendError, match=r"a: .*the socket is gone"):
        await manager.close()
    with pytest.raises(BackendUnavailable, match="closed"):
        await other.search("anything")


def test_two_backends_of_one_id_are_refused() -> None:
    with pytest.raises(ConfigError, match="ids must differ"):
        ComposableMemoryManager([entry("a", Fixed()), entry("a", Fixed())])


def test_an_unknown_primary_is_refused() -> None:
    with pytest.raises(ConfigError, match="'z' is not one of a"):
        ComposableMemoryManager([entry("a", Fixed())], primary="z")


@pytest.mark.parametrize("weight", [-1.0, float("nan"), float("inf")])
def test_a_weight_that_is_no_weight_is_refused(weight: float) -> None:
    with pytest.raises(ConfigError, match="weight"):
        entry("a", Fixed(), weight=weight)
