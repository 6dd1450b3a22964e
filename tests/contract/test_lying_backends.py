"""Backends that lie: whatever one of them returns or raises is its own failure, and the others answer."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass, replace
from math import inf, nan
from pathlib import Path
from typing import Any, cast

import pytest
from mcp.types import CallToolResult

from composable_memory import tools
from composable_memory.errors import BackendError, BackendTimeout
from composable_memory.interfaces import BackendSpec
from composable_memory.query.backend_handle import ComposableBackendEntry
from composable_memory.query.calibration import Calibration
from composable_memory.query.manager import ComposableMemoryManager
from composable_memory.runtime.opening import open_memory
from composable_memory.testing import fakes
from composable_memory.types import (
    Degradation,
    MemoryProviderStatus,
    MemorySearchResult,
    Origin,
    QueryResponse,
    SearchAnswer,
    SearchOptions,
)
from composable_memory_ops_logs import OpsEvent, OpsLog, OpsLogReader

HONEST = fakes.InMemoryBackend({"memory/dock.md": "The dock gate opens at six."}, backend_id="honest")

Lie = Callable[[], Awaitable[object]]


class Liar(fakes.FakeBackend):
    """Answers with whatever it was told to."""

    def __init__(self, lie: Lie) -> None:
        super().__init__("liar")
        self._lie = lie

    async def answer(self, query: str, options: SearchOptions | None = None) -> SearchAnswer:
        return cast("SearchAnswer", await self._lie())

    async def search(
        self, query: str, options: SearchOptions | None = None
    ) -> tuple[MemorySearchResult, ...]:
        return (await self.answer(query, options)).results


class Silent(fakes.HangingBackend):
    """Swallows every cancellation, and answers only when it is let go."""

    def __init__(self) -> None:
        super().__init__(backend_id="silent")
        self.release = asyncio.Event()
        self.let_go = asyncio.Event()

    async def search(self, query: str, options: SearchOptions | None = None) -> list[MemorySearchResult]:
        self.started.set()
        while not self.release.is_set():
            try:
                await self.release.wait()
            except asyncio.CancelledError:
                self.cancelled += 1
        self.let_go.set()
        return [result()]


def result(**changes: object) -> MemorySearchResult:
    sound: dict[str, object] = {"path": "memory/lie.md", "start_line": 1, "end_line": 2, "score": 0.9}
    return MemorySearchResult(**cast("Any", {**sound, "snippet": "a lie about the dock", **changes}))


def says(*results: object, **changes: object) -> Lie:
    async def lie() -> object:
        return SearchAnswer(**cast("Any", {"results": results, **changes}))

    return lie


def gives(answer: object) -> Lie:
    async def lie() -> object:
        return answer

    return lie


def throws(error: BaseException) -> Lie:
    async def lie() -> object:
        raise error

    return lie


class Hostile(Mapping[str, object]):
    """A mapping that raises when it is looked into."""

    def __getitem__(self, key: str) -> object:
        raise RuntimeError("do not look")

    def __iter__(self) -> Any:
        raise RuntimeError("do not look")

    def __len__(self) -> int:
        raise RuntimeError("do not look")


class Foreign(BaseException):
    """An error of a stranger that is no `Exception`."""


UNREADABLE: dict[str, Lie] = {
    "nothing": gives(None),
    "a number": gives(5),
    "bare results": gives([result()]),
    "a dictionary": gives({"results": [result()]}),
    "results that are a number": says(results=5),
    "results that are None": says(results=None),
    "results that are a generator": says(results=(one for one in [result()])),
    "results that are a text": says(results="memory/lie.md"),
    "no results but texts": says("memory/lie.md", "memory/other.md"),
    "results that are dictionaries": says({"path": "memory/lie.md"}),
    "a score of -5": says(result(score=-5)),
    "a score of 7": says(result(score=7.0)),
    "a score of NaN": says(result(score=nan)),
    "an infinite score": says(result(score=inf)),
    "a score that is a text": says(result(score="high")),
    "a score that is None": says(result(score=None)),
    "a path that is None": says(result(path=None)),
    "an empty path": says(result(path="")),
    "a path with a NUL": says(result(path="memory/a\0.md")),
    "a path of half a surrogate pair": says(result(path="memory/\ud83d.md")),
    "a path out of the workspace": says(result(path="../../etc/passwd")),
    "a path that comes back out": says(result(path="memory/../../etc/passwd")),
    "a path of Windows that leads out": says(result(path="memory\\..\\..\\secrets.md")),
    "an absolute path": says(result(path="/etc/passwd")),
    "an absolute path of Windows": says(result(path="C:\\secrets.md")),
    "lines in words": says(result(start_line="one")),
    "lines the wrong way round": says(result(start_line=9, end_line=2)),
    "lines below nothing": says(result(start_line=-4, end_line=-1)),
    "a snippet that is None": says(result(snippet=None)),
    "a snippet of bytes": says(result(snippet=b"dock")),
    "a source that nobody knows": says(result(source="rumour")),
    "a source that is a list": says(result(source=["memory"])),
    "a citation that is a number": says(result(citation=5)),
    "an origin that is a text": says(result(origin="memory/a.md")),
    "an origin without lines": says(result(origin=Origin(path="a.md", start_line=cast("int", None)))),
    "metadata that is a list": says(result(metadata=["a"])),
    "metadata that raises": says(result(metadata=Hostile())),
    "metadata of half a surrogate pair": says(result(metadata={"a": "\ud83d", "\ud83d": 1})),
    "metadata of bytes that are no text": says(result(metadata={"a": b"\xff"})),
    "degraded that is a text": says(result(), degraded="all is well"),
    "degraded that holds a text": says(result(), degraded=("half of it",)),
    "degraded that is None": says(result(), degraded=None),
    "degraded of an unknown kind": says(
        result(), degraded=(Degradation(backend_id="liar", code=cast("Any", "tired"), reason="late"),)
    ),
    "degraded without a reason": says(
        result(), degraded=(Degradation(backend_id="liar", code="stale", reason=cast("str", None)),)
    ),
    "engines that are a text": says(result(), engines="vectors"),
    "legs that take no number of time": says(result(), legs={"vector": (0.0, nan)}),
    "legs that took less than nothing": says(result(), legs={"vector": (-1.0, 2.0)}),
    "legs without names": says(result(), legs={7: (0.0, 1.0)}),
    "countless legs": says(result(), legs={f"leg {n}": (0.0, 1.0) for n in range(1000)}),
    "an exception": throws(RuntimeError("boom")),
    "an exception that cannot be shown": throws(type("Shy", (Exception,), {"__str__": lambda _: 1 / 0})()),
    "out of memory": throws(MemoryError()),
    "a recursion without end": throws(RecursionError()),
    "its own cancellation": throws(asyncio.CancelledError()),
    "the end of the process": throws(SystemExit(3)),
    "the end of a generator": throws(GeneratorExit()),
    "an error that is no Exception": throws(Foreign("mine")),
    "a group of errors that are no Exceptions": throws(BaseExceptionGroup("mine", [Foreign("one")])),
    "a stop of an async iteration": throws(StopAsyncIteration()),
}

HARMLESS: dict[str, Lie] = {
    "a snippet without end": says(result(snippet="dock " * 100_000)),
    "a snippet of half a surrogate pair": says(result(snippet="the \ud83d dock")),
    "a score that is a bool": says(result(score=True)),
    "a cosine a little above 1": says(result(score=1.0000001)),
    "metadata that is no JSON": says(result(metadata={"a": object(), "b": nan})),
    "a list of results": says(results=[result()]),
    "more than it was asked for": says(*(result(start_line=n, end_line=n) for n in range(5_000))),
    "the same result many times": says(*[result()] * 50),
    "an empty answer": says(),
}


@dataclass(frozen=True, slots=True)
class Told:
    """What people and agents are told, once a liar was among those asked."""

    response: QueryResponse
    document: dict[str, Any]
    logged: list[str]


async def told_beside(lie: Lie, folder: Path) -> Told:
    """Ask an honest memory and a liar; write what they say to a log, and to JSON as agents get it."""
    async with OpsLog(folder) as ops_log:
        manager = ComposableMemoryManager(
            [
                ComposableBackendEntry(id="honest", manager=HONEST),
                ComposableBackendEntry(id="liar", manager=Liar(lie)),
            ],
            ops_log=ops_log,
        )
        response = await manager.query("dock gate opens at six")
    hits = tuple(tools.SearchHit.of(one) for one in response.results)
    reply = tools.MemorySearchReply(results=hits, degraded=response.degraded)
    document = json.loads(reply.model_dump_json(by_alias=True, exclude_none=True))
    assert json.loads(json.dumps(reply.as_json())) == document
    page = await asyncio.to_thread(OpsLogReader(folder).read)
    return Told(response, document, [event.action for event in page.events])


@pytest.mark.parametrize("lie", UNREADABLE.values(), ids=UNREADABLE)
async def test_what_nobody_can_read_is_a_failure_of_the_liar_alone(lie: Lie, tmp_path: Path) -> None:
    told = await told_beside(lie, tmp_path)

    honest, liar = told.response.answers
    assert [one.path for one in told.response.results] == ["memory/dock.md"]
    assert (honest.error, liar.results) == (None, ())
    assert isinstance(liar.error, Exception)
    assert [(one["backendId"], one["code"]) for one in told.document["degraded"]] == [("liar", "failed")]
    assert set(told.logged) >= {"query.backend_result", "query.merged"}


@pytest.mark.parametrize("lie", HARMLESS.values(), ids=HARMLESS)
async def test_what_can_be_mended_is_served_within_bounds(lie: Lie, tmp_path: Path) -> None:
    told = await told_beside(lie, tmp_path)

    assert "memory/dock.md" in [one["path"] for one in told.document["results"]]
    assert [answer.error for answer in told.response.answers] == [None, None]
    assert all(0.0 <= one["score"] <= 1.0 for one in told.document["results"])
    assert all(len(one["snippet"]) <= 700 for one in told.document["results"])
    assert len(told.document["results"]) <= 6


async def test_a_sound_result_among_lies_is_served_and_the_lies_are_named(tmp_path: Path) -> None:
    told = await told_beside(says(result(), result(path="../x.md"), result(score=7.0), 42), tmp_path)

    assert {one["path"] for one in told.document["results"]} == {"memory/dock.md", "memory/lie.md"}
    [word] = told.document["degraded"]
    assert (word["backendId"], word["code"]) == ("liar", "garbled")
    assert "3 of 4" in word["reason"]


async def test_scores_of_any_size_are_fine_where_the_settings_calibrate_them() -> None:
    liar = Liar(says(result(score=12.0), result(path="memory/b.md", score=3.0, snippet="another one")))
    entry = ComposableBackendEntry(id="bm25", manager=liar, calibration=Calibration.MAX)

    response = await ComposableMemoryManager([entry]).query("dock")

    assert [one.score for one in response.results] == [1.0, 0.25]


async def test_only_a_backend_with_extra_paths_may_name_files_outside() -> None:
    class Outside(Liar):
        def status(self) -> MemoryProviderStatus:
            return replace(super().status(), extra_paths=("../shared",))

    lie = says(result(path="../shared/dock.md"))
    manager = ComposableMemoryManager(
        [
            ComposableBackendEntry(id="outside", manager=Outside(lie)),
            ComposableBackendEntry(id="liar", manager=Liar(lie)),
        ]
    )

    outside, liar = (await manager.query("dock")).answers

    assert [one.path for one in outside.results] == ["../shared/dock.md"]
    assert isinstance(liar.error, BackendError)


async def test_an_interruption_by_the_user_passes() -> None:
    """A `KeyboardInterrupt` inside a task goes to the event loop; in a group it comes out of the question."""
    group = BaseExceptionGroup("stopped", [KeyboardInterrupt()])
    manager = ComposableMemoryManager([ComposableBackendEntry(id="a", manager=Liar(throws(group)))])

    with pytest.raises(BaseExceptionGroup) as caught:
        await manager.query("dock")

    assert caught.value.subgroup(KeyboardInterrupt)


async def test_a_backend_that_swallows_its_cancellation_is_left_at_its_own_deadline() -> None:
    """It must not hold up the answer for as long as the most patient backend may take."""
    silent, patient = Silent(), fakes.HangingBackend(backend_id="patient")
    failed, came_in = asyncio.Event(), list[str | None]()
    log = OpsLog(None)

    def take_note(event: OpsEvent) -> None:
        if event.backend:
            came_in.append(event.backend)
            failed.set()

    log.subscribe(take_note)
    manager = ComposableMemoryManager(
        [
            ComposableBackendEntry(id="silent", manager=silent, timeout_s=0.01),
            ComposableBackendEntry(id="patient", manager=patient, timeout_s=3600.0),
        ],
        ops_log=log,
    )
    task = asyncio.create_task(manager.query("dock"))
    await asyncio.wait_for(failed.wait(), 5)

    assert not task.done(), "the patient one still thinks"
    silent.release.set()
    await silent.let_go.wait()
    assert came_in == ["silent"], "what came late is not taken in"
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_late_answer_is_not_taken_in_and_its_error_is_nobodys() -> None:
    complaints: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
    silent = Silent()
    entry = ComposableBackendEntry(id="silent", manager=silent, timeout_s=0.01)
    manager = ComposableMemoryManager([entry])

    response = await manager.query("dock")
    silent.release.set()
    await manager.close()

    assert isinstance(response.answers[0].error, BackendTimeout)
    assert response.results == ()
    assert silent.let_go.is_set()
    assert complaints == []


async def test_closing_does_not_wait_for_a_backend_that_never_ends() -> None:
    silent = Silent()
    manager = ComposableMemoryManager([ComposableBackendEntry(id="silent", manager=silent, timeout_s=0.01)])
    await manager.query("dock")

    await asyncio.wait_for(manager.close(), 5)

    assert not silent.let_go.is_set()
    silent.release.set()


async def test_an_agent_is_answered_beside_a_liar(workspace: Path, state_dir: Path) -> None:
    """The whole way: a plug-in in the settings, its lie, and the reply of the tool as JSON."""

    liar = Liar(says(result(), degraded=("half of it",)))
    spec = BackendSpec(
        id="liar", summary="a liar", settings=fakes.InMemorySettings, open=lambda *_: nullcontext(liar)
    )
    config = {"embedding": {"provider": "none"}, "backends": {"liar": {"enabled": True}}}
    async with open_memory(workspace, state_dir, config, backends=[spec]) as memory:
        await memory.sync()
        reply = await tools.memory_search(memory, tools.MemorySearchRequest(query="ferry timetable"))

    document = json.loads(reply.model_dump_json(by_alias=True))
    assert document["results"]
    assert ("liar", "failed") in [(one["backendId"], one["code"]) for one in document["degraded"]]
    assert CallToolResult(content=[], structured_content=reply.as_json())


async def test_a_plug_in_that_cannot_be_opened_keeps_nobody_else_out(
    workspace: Path, state_dir: Path
) -> None:
    @asynccontextmanager
    async def broken(*_: object) -> AsyncIterator[Liar]:
        raise RuntimeError("no such socket")
        yield

    spec = BackendSpec(id="liar", summary="a liar", settings=fakes.InMemorySettings, open=broken)
    config = {"embedding": {"provider": "none"}, "backends": {"liar": {"enabled": True}}}
    async with open_memory(workspace, state_dir, config, backends=[spec]) as memory:
        [lost] = memory.unavailable()

    assert (lost.backend_id, lost.code) == ("liar", "unavailable")
    assert "no such socket" in lost.reason
