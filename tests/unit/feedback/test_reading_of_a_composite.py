"""What a composite logs of a query is read back as it was answered."""

import asyncio
from pathlib import Path

from composable_memory.query.manager import ComposableMemoryManager
from composable_memory.query.routing import ComposableBackendEntry
from composable_memory.testing import fakes, in_memory
from composable_memory.types import QueryRequest, SearchOptions
from composable_memory_feedback.logged.reading import read_queries
from composable_memory_ops_logs import OpsLog

NOTES = {
    "garden.md": "The greenhouse key hangs behind the shed.\n",
    "house.md": "The key of the house is with Ada; the greenhouse has its own.\n",
}


async def test_every_query_of_a_composite_is_read_back_as_it_was_answered(tmp_path: Path) -> None:
    entries = [
        ComposableBackendEntry(id="one", manager=in_memory.InMemoryBackend(NOTES), weight=0.7),
        ComposableBackendEntry(id="other", manager=in_memory.InMemoryBackend(NOTES), weight=0.3),
        ComposableBackendEntry(id="bad", manager=fakes.RaisingBackend()),
    ]
    asked = QueryRequest(query="greenhouse key", options=SearchOptions(max_results=3, session_key="s"))
    async with OpsLog(tmp_path) as ops_log:
        manager = ComposableMemoryManager(entries, ops_log=ops_log)
        responses = [await manager.query(asked) for _ in range(2)]
        await manager.close()

    read = await asyncio.to_thread(read_queries, tmp_path)

    assert read.incomplete == {}
    assert [query.trace_id for query in read.queries] == [one.trace_id for one in responses]
    for query, response in zip(read.queries, responses, strict=True):
        assert query.backends == ("one", "other", "bad")
        assert [hit.key for hit in query.shown] == [result.key for result in response.results]
        assert [hit.score for hit in query.shown] == [result.score for result in response.results]
        assert [len(one.candidates) for one in query.lists] == [len(one.results) for one in response.answers]
        assert query.lists[2].error is not None
        assert (query.policy.weights["one"], query.session_key) == (0.7, "s")
