"""Backends that lie: whatever one of them returns or raises is its own failure, and the others answer."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from mcp.types import CallToolResult

from benchmarks.hostile import HARMLESS, UNREADABLE, Liar, Lie, Silent, result, says, throws
from composable_memory.errors import BackendError, BackendTimeout
from composable_memory.interfaces import BackendSpec
from composable_memory.query.calibration import Calibration
from composable_memory.query.intent import parse_query_intent
from composable_memory.query.manager import ComposableMemoryManager
from composable_memory.query.routing import ComposableBackendEntry
from composable_memory.runtime.opening import open_memory
from composable_memory.testing import fakes, in_memory
from composable_memory.tools import search as tools
from composable_memory.types import (
    MemoryProviderStatus,
    QueryResponse,
    SyncReport,
)
from composable_memory_ops_logs import OpsEvent, OpsLog, OpsLogReader
from tests.property.test_fallback_properties import HastyLoop

HONEST = in_memory.InMemoryBackend({"memory/dock.md": "The dock gate opens at six."}, backend_id="honest")


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


async def test_a_report_of_a_sync_that_is_none_is_a_failure_of_the_liar_alone() -> None:
    class Synced(in_memory.InMemoryBackend):
        def __init__(self, report: Any) -> None:
            super().__init__({})
            self.report = report

        async def sync(self, **_: Any) -> Any:
            return self.report

    liar = ComposableBackendEntry(id="liar", manager=Synced("fine"))
    honest = ComposableBackendEntry(id="honest", manager=Synced(SyncReport(reason="manual", files_indexed=2)))
    report = await ComposableMemoryManager([liar, honest]).sync()

    assert report.files_indexed == 2
    assert [one.endswith("it returned a str, not a SyncReport") for one in report.problems] == [True]
    with pytest.raises(BackendError, match="not a SyncReport"):
        await ComposableMemoryManager([liar]).sync()


async def test_closing_does_not_wait_for_a_backend_that_never_ends() -> None:
    silent = Silent()
    manager = ComposableMemoryManager([ComposableBackendEntry(id="silent", manager=silent, timeout_s=0.01)])
    await manager.query("dock")

    await asyncio.wait_for(manager.close(), 5)

    assert not silent.let_go.is_set()
    silent.release.set()


@pytest.mark.parametrize("way", ["its close", "its end"])
@pytest.mark.parametrize("problem", [RuntimeError("no way out"), SystemExit("no way out")], ids=repr)
async def test_a_plug_in_that_cannot_be_closed_keeps_nobody_from_the_answer(
    workspace: Path,
    state_dir: Path,
    caplog: pytest.LogCaptureFixture,
    way: str,
    problem: BaseException,
) -> None:
    class Stuck(in_memory.InMemoryBackend):
        async def close(self) -> None:
            if way == "its close":
                raise problem
            await super().close()

    @asynccontextmanager
    async def stuck(*_: object) -> AsyncIterator[Stuck]:
        yield Stuck({"memory/dock.md": "The dock gate opens at six."}, backend_id="stuck")
        if way == "its end":
            raise problem

    spec = BackendSpec(id="stuck", summary="stuck", settings=in_memory.InMemorySettings, open=stuck)
    config = {
        "embedding": {"provider": "none"},
        "builtin": {"enabled": False},
        "backends": {"stuck": {"enabled": True}},
    }
    async with open_memory(workspace, state_dir, config, backends=[spec]) as memory:
        response = await memory.query("dock gate")

    assert response.results
    [told] = caplog.messages
    assert "failed to close" in told
    assert "stuck" in told
    assert "no way out" in told


async def test_the_time_that_a_plug_in_had_to_close_is_told(
    workspace: Path, state_dir: Path, caplog: pytest.LogCaptureFixture
) -> None:
    @asynccontextmanager
    async def slow(*_: object) -> AsyncIterator[in_memory.InMemoryBackend]:
        yield in_memory.InMemoryBackend({}, backend_id="slow")
        raise BackendTimeout("slow", "close", limit_s=5, elapsed_s=5)

    spec = BackendSpec(id="slow", summary="slow", settings=in_memory.InMemorySettings, open=slow)
    config = {"embedding": {"provider": "none"}, "backends": {"slow": {"enabled": True}}}
    async with open_memory(workspace, state_dir, config, backends=[spec]):
        pass

    assert ["no answer after 5.00 s (limit 5 s)" in one for one in caplog.messages] == [True]


def test_a_backend_that_never_closes_is_left() -> None:
    class Endless(in_memory.InMemoryBackend):
        async def close(self) -> None:
            await asyncio.Event().wait()

    async def close() -> None:
        manager = ComposableMemoryManager([ComposableBackendEntry(id="endless", manager=Endless({}))])
        with pytest.raises(BackendError, match=r"'endless' failed to close: no answer after 30\.00 s"):
            await manager.close()

    with asyncio.Runner(loop_factory=HastyLoop) as runner:
        runner.run(close())


@pytest.mark.parametrize("problem", [RuntimeError("no such socket"), SystemExit("no such socket")], ids=repr)
async def test_a_condition_that_raises_keeps_its_backend_out_and_nobody_else(problem: BaseException) -> None:
    def condition(_: object) -> bool:
        raise problem

    manager = ComposableMemoryManager(
        [
            ComposableBackendEntry(id="honest", manager=HONEST),
            ComposableBackendEntry(id="liar", manager=HONEST, condition=condition),
        ],
        intent_parser=parse_query_intent,
    )
    response = await manager.query("dock gate")

    assert response.results
    assert [(one.backend_id, one.code) for one in response.degraded] == [("liar", "failed")]


async def test_an_agent_is_answered_beside_a_liar(workspace: Path, state_dir: Path) -> None:
    """The whole way: a plug-in in the settings, its lie, and the reply of the tool as JSON."""

    liar = Liar(says(result(), degraded=("half of it",)))
    spec = BackendSpec(
        id="liar", summary="a liar", settings=in_memory.InMemorySettings, open=lambda *_: nullcontext(liar)
    )
    config = {"embedding": {"provider": "none"}, "backends": {"liar": {"enabled": True}}}
    async with open_memory(workspace, state_dir, config, backends=[spec]) as memory:
        await memory.sync()
        reply = await tools.memory_search(memory, tools.MemorySearchRequest(query="ferry timetable"))

    document = json.loads(reply.model_dump_json(by_alias=True))
    assert document["results"]
    assert ("liar", "failed") in [(one["backendId"], one["code"]) for one in document["degraded"]]
    assert CallToolResult(content=[], structured_content=reply.as_json())


@pytest.mark.parametrize("problem", [RuntimeError("no such socket"), SystemExit("no such socket")], ids=repr)
async def test_a_plug_in_that_cannot_be_opened_keeps_nobody_else_out(
    workspace: Path, state_dir: Path, problem: BaseException
) -> None:
    @asynccontextmanager
    async def broken(*_: object) -> AsyncIterator[Liar]:
        raise problem
        yield

    spec = BackendSpec(id="liar", summary="a liar", settings=in_memory.InMemorySettings, open=broken)
    config = {"embedding": {"provider": "none"}, "backends": {"liar": {"enabled": True}}}
    async with open_memory(workspace, state_dir, config, backends=[spec]) as memory:
        [lost] = memory.unavailable()

    assert (lost.backend_id, lost.code) == ("liar", "unavailable")
    assert "no such socket" in lost.reason
