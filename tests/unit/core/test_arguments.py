"""What callers hand over by mistake, and the event loop that they call from."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from composable_memory import ComposableBackendEntry, ComposableMemoryError, ComposableMemoryManager
from composable_memory.content import MemoryContentObject
from composable_memory.errors import BackendUnavailable, InvalidArgument
from composable_memory.runtime.memory import Memory
from composable_memory.runtime.opening import open_memory
from composable_memory.testing import InMemoryBackend
from composable_memory.types import QueryRequest, SearchOptions

CONFIG = {"embedding": {"provider": "none"}}

Call = Callable[[Any], Awaitable[object]]

MISTAKES: dict[str, tuple[str, Call]] = {
    "a query that is a number": ("query", lambda memory: memory.query(5)),
    "a query that is None": ("query", lambda memory: memory.query(None)),
    "a query in bytes": ("query", lambda memory: memory.query(b"ferry")),
    "a request for a number": ("query", lambda memory: memory.query(QueryRequest(query=5))),  # type: ignore[arg-type]
    "a request with other options": (
        "options",
        lambda memory: memory.query(QueryRequest(query="a", options=5)),  # type: ignore[arg-type]
    ),
    "a number of results in words": ("max_results", lambda memory: memory.query("a", max_results="six")),
    "half a result": ("max_results", lambda memory: memory.query("a", max_results=2.5)),
    "no result": ("max_results", lambda memory: memory.query("a", max_results=0)),
    "a score in words": ("min_score", lambda memory: memory.query("a", min_score="high")),
    "a score above 1": ("min_score", lambda memory: memory.query("a", min_score=7)),
    "a session that is a number": ("session_key", lambda memory: memory.query("a", session_key=5)),
    "one backend in place of a list": ("backends", lambda memory: memory.query("a", backends="builtin")),
    "backends that are numbers": ("backends", lambda memory: memory.query("a", backends=[1])),
    "a search for a number": ("query", lambda memory: memory.search(5)),
    "a search with a number of options": ("options", lambda memory: memory.search("a", 3)),
    "a pack about a number": ("query", lambda memory: memory.context_pack(5)),
    "a pack of a size in words": ("max_chars", lambda memory: memory.context_pack("a", max_chars="long")),
    "a pack without room": ("max_tokens", lambda memory: memory.context_pack("a", max_tokens=0)),
    "a path that is a number": ("rel_path", lambda memory: memory.read_file(5)),
    "a path that is a Path": ("rel_path", lambda memory: memory.read_file(Path("MEMORY.md"))),
    "a line in words": ("from_line", lambda memory: memory.read_file("MEMORY.md", from_line="one")),
    "lines in words": ("lines", lambda memory: memory.read_file("MEMORY.md", lines="all")),
    "a reason that is a number": ("reason", lambda memory: memory.sync(reason=5)),
    "progress to a number": ("progress", lambda memory: memory.sync(progress=5)),
    "contents that are a text": ("contents", lambda memory: memory.ingest("Alice works at Acme.")),
    "contents that are texts": ("contents", lambda memory: memory.ingest(["Alice works at Acme."])),
    "a source that is a number": ("path", lambda memory: memory.ingest_source(5, [])),
    "a backend that is a number": ("backend", lambda memory: memory.ingest([], backend=5)),
}


async def test_a_mistake_of_the_caller_is_named(workspace: Path, state_dir: Path) -> None:
    async with open_memory(workspace, state_dir, CONFIG, long_lived=False) as memory:
        for mistake, (argument, call) in MISTAKES.items():
            with pytest.raises(InvalidArgument) as caught:
                await call(memory)

            assert caught.value.argument == argument, mistake
            assert argument in str(caught.value), mistake
        await memory.query("ferry")  # it is as good as before


@pytest.mark.parametrize("argument", ["workspace", "state_dir", "config"])
async def test_a_memory_is_not_opened_with_what_is_no_folder_and_no_settings(
    argument: str, workspace: Path, state_dir: Path
) -> None:
    given: dict[str, Any] = {"workspace": workspace, "state_dir": state_dir, argument: 5}
    with pytest.raises(InvalidArgument, match=argument):
        async with open_memory(**given):
            pass


def test_a_mistake_is_an_error_of_ours_and_of_values() -> None:
    with pytest.raises(ComposableMemoryError) as caught:
        SearchOptions(max_results=-1)

    assert isinstance(caught.value, ValueError)


def test_a_record_of_an_answer_takes_texts(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="answer"):
        Memory.record_answer(None, "abcd", 5)  # type: ignore[arg-type]


# --- event loops --------------------------------------------------------------------------------------------

DOORS: dict[str, Call] = {
    "query": lambda memory: memory.query("ferry"),
    "search": lambda memory: memory.search("ferry"),
    "context_pack": lambda memory: memory.context_pack("ferry"),
    "read_file": lambda memory: memory.read_file("MEMORY.md"),
    "sync": lambda memory: memory.sync(),
    "probe_embedding_availability": lambda memory: memory.probe_embedding_availability(),
    "probe_vector_availability": lambda memory: memory.probe_vector_availability(),
    "ingest": lambda memory: memory.ingest([MemoryContentObject(id="a", kind="text", text="Ana is here.")]),
}


def outcome_elsewhere(call: Callable[[], Awaitable[object]]) -> object:
    """Return what a call raises or returns on an event loop of another thread."""
    found: list[object] = []

    async def caught() -> None:
        try:
            found.append(await call())
        except Exception as error:  # noqa: BLE001 - it is what the test looks at
            found.append(error)

    thread = threading.Thread(target=lambda: asyncio.run(caught()))
    thread.start()
    thread.join()
    return found[0]


@pytest.mark.parametrize("door", DOORS)
async def test_another_event_loop_is_turned_away_at_the_door(
    door: str, workspace: Path, state_dir: Path
) -> None:
    async with open_memory(workspace, state_dir, CONFIG, long_lived=False) as memory:
        refused = await asyncio.to_thread(outcome_elsewhere, lambda: DOORS[door](memory))
        answered = await memory.query("ferry")

    assert isinstance(refused, BackendUnavailable)
    assert "event loop" in str(refused)
    assert answered.degraded == () or all(one.code != "failed" for one in answered.degraded)


async def test_another_event_loop_may_not_close_it() -> None:
    manager = ComposableMemoryManager([ComposableBackendEntry(id="a", manager=InMemoryBackend())])
    await manager.query("ferry")

    refused = await asyncio.to_thread(outcome_elsewhere, manager.close)

    assert isinstance(refused, BackendUnavailable)
    assert (await manager.query("ferry timetable")).results


def test_loops_one_after_the_other_may_share_a_manager_made_outside() -> None:
    """As in a script that calls `asyncio.run` twice."""
    manager = ComposableMemoryManager([ComposableBackendEntry(id="a", manager=InMemoryBackend())])

    first, second = (asyncio.run(manager.query("ferry timetable")) for _ in range(2))

    assert first.results == second.results != ()
