"""What the log tells of a query: enough to know it from others, and to rank it again."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from composable_memory.errors import BackendUnavailable
from composable_memory.interfaces import Capability, MemorySearchManager
from composable_memory.query.calibration import Calibration
from composable_memory.query.manager import ComposableMemoryManager
from composable_memory.query.replay import is_reproduced
from composable_memory.query.routing import ComposableBackendEntry
from composable_memory.supervision.breaker import Breaker
from composable_memory.testing import InMemoryBackend
from composable_memory.testing.fakes import HangingBackend, RaisingBackend
from composable_memory.testing.in_memory import FakeBackend
from composable_memory.types import MemorySearchResult, SearchOptions
from composable_memory_feedback.logged.logged_query import LoggedQueries
from composable_memory_feedback.logged.reading import LINES_MISSING, read_queries
from composable_memory_ops_logs import (
    BackendResult,
    MemorySink,
    NearPair,
    OpsLog,
    QueryMerged,
    QueryStart,
    trace,
)
from composable_memory_ops_logs.short_form import short_line


class Told(FakeBackend):
    """Finds what it was told to, after it let others have their turn."""

    def __init__(self, *results: MemorySearchResult, turns: int = 0) -> None:
        super().__init__("told")
        self.results, self.turns = results, turns

    async def search(self, query: str, options: SearchOptions | None = None) -> list[MemorySearchResult]:
        for _ in range(self.turns):
            await asyncio.sleep(0)
        return list(self.results[: options.max_results if options else None])


def hit(path: str, score: float = 0.9, snippet: str = "", **metadata: str) -> MemorySearchResult:
    return MemorySearchResult(
        path=path,
        start_line=1,
        end_line=2,
        score=score,
        snippet=snippet or f"{path} alone",
        metadata=metadata,
    )


def entry(backend_id: str, manager: MemorySearchManager) -> ComposableBackendEntry:
    return ComposableBackendEntry(id=backend_id, manager=manager)


def starts(events: MemorySink) -> list[QueryStart]:
    return [one.detail for one in events.events if isinstance(one.detail, QueryStart)]


def answers(events: MemorySink) -> list[BackendResult]:
    return [one.detail for one in events.events if isinstance(one.detail, BackendResult)]


def merges(events: MemorySink) -> list[QueryMerged]:
    return [one.detail for one in events.events if isinstance(one.detail, QueryMerged)]


async def read(folder: Path) -> LoggedQueries:
    return await asyncio.to_thread(read_queries, folder)


def are_reproduced(logged: LoggedQueries) -> bool:
    return all(map(is_reproduced, logged.queries))


# --- single fields ------------------------------------------------------------------------------------------


async def test_every_line_of_a_query_names_it_and_no_line_of_another_does(
    ops_log: OpsLog, events: MemorySink
) -> None:
    manager = ComposableMemoryManager(
        [entry("notes", Told(hit("a.md"))), entry("bad", RaisingBackend())], ops_log=ops_log
    )
    for _ in range(3):
        await manager.query("which port")

    ids = [one.query_id for one in starts(events)]
    assert len(set(ids)) == 3
    assert [one.query_id for one in answers(events)] == [one for one in ids for _ in range(2)]
    assert [one.query_id for one in merges(events)] == ids
    assert all(len(one) == 8 for one in ids)


async def test_each_backend_is_logged_with_the_calibration_that_is_set_and_what_it_promises(
    ops_log: OpsLog, events: MemorySink
) -> None:
    manager = ComposableMemoryManager(
        [
            ComposableBackendEntry(id="notes", manager=Told(hit("a.md"))),
            ComposableBackendEntry(
                id="graph", manager=Told(hit("b.md", 7.0), hit("c.md", 3.5)), capabilities=frozenset()
            ),
            ComposableBackendEntry(
                id="qmd",
                manager=Told(hit("d.md")),
                calibration=Calibration.RANK,
                capabilities=frozenset({Capability.CALIBRATED}),
            ),
        ],
        ops_log=ops_log,
    )

    await manager.query("which port")

    assert [(one.calibration, one.is_absolute) for one in answers(events)] == [
        ("auto", True),
        ("auto", False),
        ("rank", True),
    ]
    assert dict(merges(events)[0].calibration) == {"notes": "identity", "graph": "max", "qmd": "rank"}


async def test_who_stood_in_for_a_backend_is_logged(ops_log: OpsLog, events: MemorySink) -> None:
    manager = ComposableMemoryManager(
        [
            entry("bad", Told(hit("a.md", answered_by="fallback"))),
            entry("good", Told(hit("b.md"))),
            entry("empty", Told()),
        ],
        ops_log=ops_log,
    )

    await manager.query("which port")

    assert [one.answered_by for one in answers(events)] == ["fallback", None, None]


async def test_a_strange_word_on_who_answered_is_not_logged(ops_log: OpsLog, events: MemorySink) -> None:
    strange = MemorySearchResult(
        path="a.md", start_line=1, end_line=2, score=0.5, snippet="a", metadata={"answered_by": [7]}
    )
    await ComposableMemoryManager([entry("notes", Told(strange))], ops_log=ops_log).query("which port")

    assert answers(events)[0].answered_by is None


async def test_texts_that_are_nearly_equal_are_logged_as_pairs_across_the_lists(
    ops_log: OpsLog, events: MemorySink
) -> None:
    same = " ".join(f"word{number}" for number in range(40))
    manager = ComposableMemoryManager(
        [
            entry("notes", Told(hit("a.md", 0.9, same), hit("b.md", 0.8))),
            entry("bad", RaisingBackend()),
            entry("graph", Told(hit("b.md", 0.7), hit("a.md", 0.6, same), hit("c.md", 0.5, same + " more"))),
        ],
        ops_log=ops_log,
    )

    await manager.query("which port")

    assert list(merges(events)[0].near) == [NearPair(0, 4), NearPair(3, 4)]


async def test_the_id_of_the_memory_begins_its_queries(tmp_path: Path) -> None:
    async with OpsLog(tmp_path) as ops_log:
        for memory_id in ("one", "other", None):
            manager = ComposableMemoryManager(
                [entry("notes", Told(hit("a.md")))], ops_log=ops_log, memory_id=memory_id
            )
            await manager.query("which port")

    logged = await read(tmp_path)
    of_one = await asyncio.to_thread(read_queries, tmp_path, memory="one")

    assert [query.memory for query in logged.queries] == ["one", "other", None]
    assert [query.memory for query in of_one.queries] == ["one"]


# --- several queries under one trace ------------------------------------------------------------------------


async def test_nested_composites_are_read_back_as_a_query_each(tmp_path: Path) -> None:
    async with OpsLog(tmp_path) as ops_log:
        inner = ComposableMemoryManager(
            [entry("leaf", Told(hit("a.md", 0.4))), entry("twig", Told(hit("b.md")))],
            ops_log=ops_log,
            id="inner",
        )
        outer = ComposableMemoryManager(
            [entry("inner", inner), entry("notes", Told(hit("a.md", 0.8)))], ops_log=ops_log, id="outer"
        )
        response = await outer.query("which port", session_key="s")

    logged = await read(tmp_path)

    assert {one.manager: one.backends for one in logged.queries} == {
        "outer": ("inner", "notes"),
        "inner": ("leaf", "twig"),
    }
    assert {one.trace_id for one in logged.queries} == {response.trace_id}
    assert {one.session_key for one in logged.queries} == {"s"}
    assert are_reproduced(logged)


async def test_queries_that_are_under_way_together_under_one_trace_do_not_mix(tmp_path: Path) -> None:
    async with OpsLog(tmp_path) as ops_log:
        managers = [
            ComposableMemoryManager(
                [
                    entry("notes", Told(hit(f"a{number}.md"), turns=number)),
                    entry("graph", Told(hit(f"b{number}.md"), turns=7 - 2 * number % 7)),
                ],
                ops_log=ops_log,
            )
            for number in range(6)
        ]
        with trace() as trace_id:
            responses = await asyncio.gather(*(one.query("which port") for one in managers))

    logged = await read(tmp_path)

    assert (logged.incomplete, {one.trace_id for one in logged.queries}) == ({}, {trace_id})
    assert _paths(logged) == {tuple(result.path for result in one.results) for one in responses}
    assert len({one.query_id for one in logged.queries}) == 6
    assert are_reproduced(logged)


async def test_a_query_that_was_cancelled_is_counted_and_hurts_no_other_of_its_trace(tmp_path: Path) -> None:
    hanging = HangingBackend()
    async with OpsLog(tmp_path) as ops_log:
        slow = ComposableMemoryManager([entry("slow", hanging)], ops_log=ops_log)
        quick = ComposableMemoryManager([entry("notes", Told(hit("a.md")))], ops_log=ops_log)
        with trace():
            task = asyncio.create_task(slow.query("which port"))
            await hanging.started.wait()
            await quick.query("which port")
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    logged = await read(tmp_path)

    assert (_paths(logged), logged.incomplete) == ({("a.md",)}, {LINES_MISSING: 1})
    assert are_reproduced(logged)


# --- queries that did not go well ---------------------------------------------------------------------------


async def test_a_query_with_overdue_failing_and_resting_backends_is_reproduced(tmp_path: Path) -> None:
    async with OpsLog(tmp_path) as ops_log:
        manager = ComposableMemoryManager(
            [
                entry("notes", Told(hit("a.md"))),
                entry("bad", RaisingBackend()),
                ComposableBackendEntry(id="slow", manager=HangingBackend(), timeout_s=0.01),
                ComposableBackendEntry(id="choosy", manager=Told(), condition=lambda intent: False),
            ],
            ops_log=ops_log,
            make_breaker=lambda: Breaker(threshold=1, cooldown_s=1000.0),
        )
        for _ in range(2):
            await manager.query("which port")

    logged = await read(tmp_path)

    assert [query.backends for query in logged.queries] == [("notes", "bad", "slow"), ("notes",)]
    assert [one.error is None for one in logged.queries[0].lists] == [True, False, False]
    assert are_reproduced(logged)


async def test_a_query_that_nobody_answered_is_read_back_empty(tmp_path: Path) -> None:
    async with OpsLog(tmp_path) as ops_log:
        for entries in ([], [entry("bad", RaisingBackend())]):
            manager = ComposableMemoryManager(entries, ops_log=ops_log)
            await manager.query("which port")
            with pytest.raises(BackendUnavailable):
                await ComposableMemoryManager([entry("bad", RaisingBackend())]).search("which port")

    logged = await read(tmp_path)

    assert (len(logged.queries), logged.incomplete, _paths(logged)) == (2, {}, {()})
    assert are_reproduced(logged)


def _paths(logged: LoggedQueries) -> set[Sequence[str]]:
    return {tuple(hit.path for hit in query.shown) for query in logged.queries}


async def test_of_too_many_texts_that_are_alike_the_log_says_only_that(tmp_path: Path) -> None:
    """Three hundred equal texts make 44,850 pairs, which nobody would want in every line."""
    notes = {f"n{number}.md": "the gate code is four three two one" for number in range(300)}
    backend = ComposableBackendEntry(id="notes", manager=InMemoryBackend(notes))
    async with (
        OpsLog(tmp_path) as ops_log,
        ComposableMemoryManager([backend], ops_log=ops_log, memory_id="m") as manager,
    ):
        response = await manager.query("gate code", max_results=300)
        await ops_log.flush()

    logged = await asyncio.to_thread(read_queries, tmp_path)

    assert len(response.results) == 1
    assert (logged.queries, sum(logged.incomplete.values())) == ((), 1)


async def test_what_is_written_of_results_by_rank_is_what_listeners_read_of_them() -> None:
    twin = " ".join(f"word{number}" for number in range(40))
    lists = {
        "notes": (hit("a.md"), hit("b.md", 0.8, twin), hit("c.md", 0.7), hit("d.md", 0.1)),
        "graph": (hit("c.md"), hit("e.md", 0.6, f"{twin} more"), hit("f.md", 0.2)),
        "silent": (hit("a.md"),),
    }
    weights = {"notes": 1.0, "graph": 0.5, "silent": 0.0}
    events, ops_log = MemorySink(), OpsLog(None)
    ops_log.subscribe(events)
    entries = [
        ComposableBackendEntry(id=name, manager=Told(*found), weight=weights[name])
        for name, found in lists.items()
    ]
    await ComposableMemoryManager(entries, ops_log=ops_log).query("which port", max_results=4, min_score=0.3)

    (_, *heard, last), (merged,) = events.events, merges(events)
    assert {one.reason for one in merged.dropped} == {
        "duplicate", "near-duplicate", "min-score", "weight-zero",
    }  # fmt: skip
    read_first = replace(merged, final_results=[*merged.final_results], dropped=[*merged.dropped])
    assert short_line(last, heard, dict) == short_line(replace(last, detail=read_first), heard, dict)
