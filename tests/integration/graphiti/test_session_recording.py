"""What happens in a session goes into the graph memory: said, summarised, merged when it is old."""

import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from composable_memory.hooks.recorder import SessionRecorder
from composable_memory.hooks.session_events import (
    CompactionSummary,
    MessageReceived,
    PipelineEventEnvelope,
    SessionPayload,
)
from composable_memory.runtime.memory import Memory
from composable_memory.runtime.opening import open_memory

pytest.importorskip("falkordb")
pytestmark = pytest.mark.usefixtures("neighbour")

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
def workspace(tmp_path: Path) -> Path:
    return tmp_path / "notes"


@pytest.fixture
def clock() -> Clock:
    return Clock()


@asynccontextmanager
async def opened(tmp_path: Path, clock: Clock) -> AsyncIterator[Memory]:
    config = {"graphiti": {"enabled": True}}
    workspace = tmp_path / "notes"
    workspace.mkdir(exist_ok=True)
    async with open_memory(workspace, tmp_path / "state", config, clock=clock, long_lived=False) as memory:
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


async def test_a_summary_says_no_fact_again_of_what_it_covers(tmp_path: Path, clock: Clock) -> None:
    said = ("I live in Porto.", "My sister is Ellen.", "Tomas works at Acme Robotics.")
    summary = (
        "Ana lives in Porto, and her sister is Ellen. Mirela lives in Lisbon. Tomas works at Acme Robotics."
    )
    async with opened(tmp_path, clock) as memory:
        recorder = SessionRecorder(memory)
        for number, body in enumerate(said):
            at = MORNING + timedelta(minutes=number)
            message = MessageReceived(
                session_key=KEY, message_id=f"m{number}", body=body, received_at=at, sender_id="Ana"
            )
            await recorder.record(event(number, message))
        await memory.sync()
        at = MORNING + timedelta(minutes=30)
        recorded = await recorder.record(
            event(30, CompactionSummary(session_key=KEY, summary=summary, compacted_at=at))
        )
        await memory.sync()
        facts = await memory.facts_of().facts(limit=100)
        (stands,) = [
            one for one in await memory.facts_of().episodes() if one.content_id == recorded.content_id
        ]

    stated = sorted((fact.source, fact.relation, fact.target) for fact in facts)
    assert stated == sorted(set(stated))
    assert {"Porto", "Acme Robotics", "Lisbon"} <= {fact.target for fact in facts}
    (home,) = [fact for fact in facts if fact.target == "Porto"]
    assert home.text == "Ana: I live in Porto."
    assert home.valid_at == MORNING
    assert stands.id in home.episodes
    assert len(home.episodes) == 2


async def test_a_message_that_was_left_over_is_merged_in_the_next_round(tmp_path: Path, clock: Clock) -> None:
    config = {"graphiti": {"enabled": True, "ingest": {"merge_after_days": 1}}}
    (workspace := tmp_path / "notes").mkdir()
    async with open_memory(workspace, tmp_path / "state", config, clock=clock, long_lived=False) as memory:
        recorder = SessionRecorder(memory)
        for number, body in enumerate(SAID):
            at = MORNING + timedelta(hours=4 * number)
            await recorder.record(
                event(
                    number,
                    MessageReceived(session_key=KEY, message_id=f"m{number}", body=body, received_at=at),
                )
            )
        await memory.sync()
        facts = {fact.text for fact in await memory.facts_of().facts(limit=100)}
        rounds = []
        for hours in (29, 33, 60):
            clock.now = MORNING + timedelta(hours=hours)
            await memory.sync()
            rounds.append([one.content_id.split(":")[0] for one in await memory.facts_of().episodes()])
        (whole,) = await memory.facts_of().episodes()
        page = (await memory.read_file(f"graphiti/{whole.group_id}/{whole.id}")).text

        assert rounds == [["message", "merged"], ["merged"], ["merged"]]
        assert {fact.text for fact in await memory.facts_of().facts(limit=100)} == facts
        assert all(fact.episodes == (whole.id,) for fact in await memory.facts_of().facts(limit=100))
        assert [page.count(text) for text in SAID] == [2, 2, 2], "in the whole, and as it was said"


@pytest.mark.thorough
def test_processes_record_messages_and_the_summary_that_covers_them(tmp_path: Path) -> None:
    (config := tmp_path / "config.yaml").write_text(
        "memory: {graphiti: {enabled: true}, embedding: {provider: none}, hooks: {deadline_ms: 60000}}",
        "utf-8",
    )
    environ = {
        **os.environ,
        "COMPOSABLE_MEMORY_CONFIG": str(config),
        "COMPOSABLE_MEMORY_STATE_DIR": str(tmp_path / "state"),
    }

    def cmem(folder: str, *args: str, **said: object) -> dict[str, Any]:
        (workspace := tmp_path / folder).mkdir(exist_ok=True)
        done = subprocess.run(
            [sys.executable, "-m", "composable_memory.cli", *args, "--workspace", str(workspace)],
            input=json.dumps(said), env=environ, capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        document = json.loads(done.stdout)
        assert isinstance(document, dict)
        return document

    told = "<relevant-memories>Mirela lives in Oslo.</relevant-memories> Tomas lives in Porto."
    first = cmem("notes", "hook", "message", session="k", prompt=told, messageId="m1")
    cmem("other", "hook", "message", session="k", prompt="Ines lives in Faro.", messageId="m2")
    at = "2026-11-02T09:00:00Z"
    payload = {"sessionKey": "k", "body": "Mirela works at Acme Robotics.", "receivedAt": at}
    second = cmem("notes", "hook", "message", id="e", type="message.received", ts=at, payload=payload)
    cmem(
        "notes",
        "hook",
        "summary",
        session="k",
        summary="Tomas lives in Porto. Mirela works at Acme Robotics.",
    )
    cmem("notes", "index", "--json")
    facts = cmem("notes", "graph", "facts", "--json")["facts"]
    episodes = cmem("notes", "graph", "episodes", "--json")["episodes"]

    assert sorted(fact["text"] for fact in facts) == [
        "Mirela works at Acme Robotics.",
        "Tomas lives in Porto.",
    ]
    assert {len(fact["episodes"]) for fact in facts} == {2}, "by what was said, and by the summary"
    assert {first["context"], second["context"]} < {one["contentId"] for one in episodes}
    assert len(episodes) == 3
