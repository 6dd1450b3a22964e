"""A graph behind a REST service as one of the memories: settings, what it took, and when it goes away."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from composable_memory.content import MemoryContentObject, MemoryProvenance
from composable_memory.errors import BackendUnavailable
from composable_memory.interfaces import BackendServices, SupportsHealth
from composable_memory.runtime.memory import Memory
from composable_memory.runtime.opening import open_memory
from composable_memory.testing import FIXED_NOW
from composable_memory_adapters.graphiti import GraphitiSettings, spec
from composable_memory_ops_logs import GraphitiHealth, GraphitiQuery, MemorySink
from tests.integration.embedders.loopback import Reply
from tests.integration.graphiti.graph_service import GraphService, running

KEY = "a-key-of-the-service"
QUESTION = "What does Ada like?"
TEA = MemoryContentObject(id="n1", kind="message", text="Ada likes tea")


class Clock:
    def __init__(self) -> None:
        self.now = FIXED_NOW

    def __call__(self) -> datetime:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def service() -> AsyncIterator[GraphService]:
    async with running(GraphService(now=FIXED_NOW, key=KEY)) as service:
        yield service


@pytest.fixture
async def memory(
    service: GraphService, clock: Clock, workspace: Path, state_dir: Path
) -> AsyncIterator[Memory]:
    """Open a memory with the keys of an openclaw.yml, as the documents write them."""
    host, _, port = service.url.removeprefix("http://").partition(":")
    graphiti = {
        "enabled": True,
        "serverHost": host,
        "servicePort": int(port),
        "apiKey": KEY,
        "timeoutMs": 9000,
    }
    config = {"graphiti": graphiti}
    async with open_memory(workspace, state_dir, config, clock=clock, long_lived=False) as memory:
        yield memory


def group_of(memory: Memory) -> str:
    """Return the group that the workspace has of its own."""
    groups = memory.backend_statuses()["graphiti"].custom["groups"]
    assert isinstance(groups, list)
    return str(groups[0])


async def test_the_keys_of_the_documents_lead_to_the_service(service: GraphService, memory: Memory) -> None:
    service.tell(group_of(memory), "Ada likes tea")

    response = await memory.query(QUESTION, backends=["graphiti"])

    assert [result.source_backend for result in response.results] == ["graphiti"]
    assert service.bodies("/search")[0]["group_ids"] == [group_of(memory)]


async def test_workspaces_that_share_a_group_of_a_service_are_told_apart(
    service: GraphService, tmp_path: Path, clock: Clock
) -> None:
    """The same words under the same id, from a note of the same name, are two episodes."""
    config = {"graphiti": {"enabled": True, "baseUrl": service.url, "apiKey": KEY, "group": "team"}}
    note = MemoryProvenance(source="note", citations=("memory/tea.md#L1",))
    cited: list[str] = []
    for name in "ab":
        await asyncio.to_thread((tmp_path / name).mkdir)
        async with open_memory(
            tmp_path / name, tmp_path / "state", config, clock=clock, long_lived=False
        ) as memory:
            await memory.ingest([replace(TEA, provenance=note)])
            await service.caught_up()
            episodes = await memory.facts_of().episodes()
            cited = [one.origin.path for one in episodes if one.origin]

    assert [body["group_id"] for body in service.bodies("/messages")] == ["team", "team"]
    assert len({one["name"] for body in service.bodies("/messages") for one in body["messages"]}) == 2
    assert sorted(path.startswith("graphiti/team/") for path in cited) == [False, True]
    assert "memory/tea.md" in cited


async def test_what_a_service_took_is_pending_until_it_shows_it(
    service: GraphService, memory: Memory, clock: Clock
) -> None:
    service.reading.clear()
    taken = (await memory.ingest([TEA]))["graphiti"]
    service.reading.set()
    await service.caught_up()
    clock.now += timedelta(minutes=1)

    shown = (await memory.ingest([TEA]))["graphiti"]

    assert (taken.pending, taken.stored, taken.failed) == (1, 0, 0)
    assert not taken.ok
    assert (shown.pending, shown.failed, shown.stored + shown.known) == (0, 0, 1)
    assert service.asked("POST", "/messages") == 1


async def test_a_question_to_the_graph_is_told_with_its_facts_and_when_it_fails(
    service: GraphService, memory: Memory
) -> None:
    events = MemorySink()
    memory.ops_log.subscribe(events)
    service.tell(group_of(memory), "Ada likes tea", episodes=["e1"])

    good = await memory.query(QUESTION, backends=["graphiti"])
    service.fault = lambda _: Reply(status=500)
    bad = await memory.query(QUESTION, backends=["graphiti"])

    told, failed = (event for event in events.events if isinstance(event.detail, GraphitiQuery))
    assert [(one.trace_id, one.status, one.backend) for one in (told, failed)] == [
        (good.trace_id, "success", "graphiti"),
        (bad.trace_id, "failure", "graphiti"),
    ]
    assert isinstance(told.detail, GraphitiQuery)
    assert (told.detail.query, told.detail.fact_count, told.detail.episode_ids) == (QUESTION, 1, ["e1"])
    assert isinstance(failed.detail, GraphitiQuery)
    assert failed.detail.error is not None
    assert "answered 500" in failed.detail.error.message


async def test_a_place_that_goes_away_is_told_once_and_when_it_is_back(
    service: GraphService, services: BackendServices, events: MemorySink
) -> None:
    settings = GraphitiSettings.model_validate({"base_url": service.url, "api_key": KEY})
    async with spec.open(settings, services) as memory:
        await memory.search("Ada")
        service.fault = lambda _: Reply(status=500)
        for _ in range(2):
            with pytest.raises(BackendUnavailable, match="answered 500"):
                await memory.search("Ada")
        service.fault = lambda _: None
        await memory.search("Ada")
        assert isinstance(memory, SupportsHealth)
        health = await memory.health()

    told = [event.detail for event in events.events if isinstance(event.detail, GraphitiHealth)]
    assert health.ok
    assert [one.ok for one in told] == [False, True, True]
    assert "answered 500" in (told[0].message or "")
