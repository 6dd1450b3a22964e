"""What happens in a session goes into the graph memory: said, summarised, merged when it is old."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from composable_memory.content import MemoryContentObject
from composable_memory.hooks import (
    CompactionSummary,
    MessageReceived,
    PipelineEventEnvelope,
    SessionPayload,
    SessionRecorder,
)
from composable_memory.runtime.memory import Memory
from composable_memory.runtime.opening import open_memory
from tests.integration.graphiti.neighbour import beside_a_neighbour

pytest.importorskip("falkordb")

KEY = "agent:main:main"
MORNING = datetime(2026, 11, 2, 9, tzinfo=UTC)
SAID = ("Mirela works at Acme Robotics.", "Tomas lives in Porto.", "The dog of Tomas is called Biscuit.")
SUMMARY = "Mirela and Tomas introduced themselves, and Oriane joined the chess club."


class Clock:
    def __init__(self) -> None:
        self.now = MORNING + timedelta(hours=1)

    def __call__(self) -> datetime:
        return self.now


def event(number: int, payload: SessionPayload) -> PipelineEventEnvelope:
    return PipelineEventEnvelope(id=f"e{number}", ts=MORNING + timedelta(minutes=number), payload=payload)


def session() -> list[PipelineEventEnvelope]:
    """Return what was said, and the summary that took its place."""
    messages = [
        event(
            number,
            MessageReceived(
                session_key=KEY,
                message_id=f"m{number}",
                body=body,
                received_at=MORNING + timedelta(minutes=number),
            ),
        )
        for number, body in enumerate(SAID)
    ]
    later = MORNING + timedelta(minutes=30)
    return [*messages, event(30, CompactionSummary(session_key=KEY, summary=SUMMARY, compacted_at=later))]


@pytest.fixture
def clock() -> Clock:
    return Clock()


@asynccontextmanager
async def opened(tmp_path: Path, clock: Clock) -> AsyncIterator[Memory]:
    config = {"graphiti": {"enabled": True}}
    workspace = tmp_path / "notes"
    workspace.mkdir(exist_ok=True)
    async with open_memory(workspace, tmp_path / "state", config, clock=clock, long_lived=False) as memory:
        theirs = [MemoryContentObject(id=f"event-{number}", kind="message") for number in range(3)]
        async with beside_a_neighbour(memory, theirs, config, root=tmp_path, clock=clock):
            yield memory


async def record(memory: Memory) -> list[str]:
    """Record the session, and return the ids of its contents."""
    recorder = SessionRecorder(memory)
    recorded = [await recorder.record(one) for one in session()]
    return [one.content_id or "" for one in recorded]


async def found(memory: Memory, query: str) -> list[str]:
    response = await memory.query(query, backends=["graphiti"], session_key=KEY)
    return [result.snippet.split(" (")[0] for result in response.results]


async def test_a_session_is_found_as_messages_and_by_its_summary(tmp_path: Path, clock: Clock) -> None:
    async with opened(tmp_path, clock) as memory:
        ids = await record(memory)
        before = await memory.query("Mirela", backends=["graphiti"])
        await memory.sync()

        assert [one.code for one in before.degraded] == ["stale"]
        assert SAID[0] in await found(memory, "Where does Mirela work?")
        assert any("chess club" in text for text in await found(memory, "What did Oriane join?"))
        (summary,) = [one for one in await memory.facts_of().episodes() if one.content_id == ids[-1]]
        assert summary.text == SUMMARY


async def test_an_event_that_comes_again_changes_nothing(tmp_path: Path, clock: Clock) -> None:
    async with opened(tmp_path, clock) as memory:
        first = await record(memory)
        await memory.sync()
        facts = await memory.facts_of().facts(limit=100)
        again = await record(memory)
        report = await memory.sync()

        assert again == first
        assert report.files_indexed == 0
        assert await memory.facts_of().facts(limit=100) == facts


async def test_old_messages_are_one_episode_and_their_facts_stay(tmp_path: Path, clock: Clock) -> None:
    async with opened(tmp_path, clock) as memory:
        await record(memory)
        await memory.sync()
        facts = {fact.text for fact in await memory.facts_of().facts(limit=100)}
        clock.now += timedelta(days=9)
        await memory.sync()
        episodes = await memory.facts_of().episodes()
        (merged,) = [one for one in episodes if one.content_id.startswith("merged:")]
        page = (await memory.read_file(f"graphiti/{merged.group_id}/{merged.id}")).text

        assert len(episodes) == 2, "the merged messages, and the summary"
        assert {fact.text for fact in await memory.facts_of().facts(limit=100)} == facts
        assert SAID[1] in await found(memory, "Where does Tomas live?")
        assert all(text in page for text in SAID)
