"""What happens in a session becomes contents of a memory."""

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

import pytest

from composable_memory.content import IngestReport, MemoryContentObject, MemoryTemporalMetadata
from composable_memory.errors import BackendError
from composable_memory.hooks.recorder import SessionRecorder
from composable_memory.hooks.session_events import (
    CompactionSummary,
    MessageReceived,
    PipelineEventEnvelope,
    SessionPayload,
    SessionStart,
    parse_event,
)

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
KEY = "agent:main:main"


class Kept:
    """Keeps contents; fails while `error` is set."""

    def __init__(self) -> None:
        self.contents: list[MemoryContentObject] = []
        self.waits: list[bool] = []
        self.error: Exception | None = None

    async def ingest(
        self, contents: Sequence[MemoryContentObject], *, backend: str | None = None, wait: bool = True
    ) -> Mapping[str, IngestReport]:
        if self.error is not None:
            raise self.error
        self.contents += contents
        self.waits.append(wait)
        return {backend or "graph": IngestReport(run_id="1", pending=len(contents))}


def event(payload: SessionPayload, **fields: str) -> PipelineEventEnvelope:
    return PipelineEventEnvelope(id="e1", ts=NOON, payload=payload, **fields)  # type: ignore[arg-type]


def message(
    message_id: str | None, body: str = "Ada runs billing", session: str = KEY
) -> PipelineEventEnvelope:
    return event(
        MessageReceived(
            session_key=session, session_id="s1", message_id=message_id, body=body, received_at=NOON,
            sender_id="ada", channel="telegram",
        )
    )  # fmt: skip


SUMMARY = event(
    CompactionSummary(session_key=KEY, session_id="s1", summary="In short: Ada.", compacted_at=NOON)
)


async def test_a_message_becomes_a_content_with_its_session_speaker_and_time() -> None:
    memory = Kept()

    recorded = await SessionRecorder(memory).record(message("m1"))

    (content,) = memory.contents
    assert (content.id, content.kind, content.text) == (recorded.content_id, "message", "Ada runs billing")
    assert content.provenance is not None
    assert content.temporal is not None
    assert (content.provenance.session_key, content.provenance.source_id) == (KEY, "m1")
    assert (content.provenance.actor_id, content.provenance.channel) == ("ada", "telegram")
    assert content.temporal.observed_at == NOON
    assert memory.waits == [False]


async def test_a_message_has_the_same_id_however_often_it_comes() -> None:
    memory = Kept()
    recorder = SessionRecorder(memory)

    for one in (message("m1"), message("m1"), message(None), message(None), message(None, "something else")):
        await recorder.record(one)

    ids = [content.id for content in memory.contents]
    assert ids[0] == ids[1]
    assert ids[2] == ids[3]
    assert len(set(ids)) == 3


async def test_the_same_message_id_in_two_sessions_are_two_messages() -> None:
    memory = Kept()
    recorder = SessionRecorder(memory)

    await recorder.record(message("m1"))
    await recorder.record(message("m1", session="agent:main:other"))

    assert memory.contents[0].id != memory.contents[1].id


async def test_a_summary_names_the_messages_since_the_one_before_it() -> None:
    memory = Kept()
    recorder = SessionRecorder(memory)

    for one in (
        message("m1"),
        message("m2"),
        message("m9", session="other"),
        SUMMARY,
        message("m3"),
        SUMMARY,
    ):
        await recorder.record(one)

    first, second = (content for content in memory.contents if content.kind == "summary")
    assert first.metadata["covers"] == [memory.contents[0].id, memory.contents[1].id]
    assert second.metadata["covers"] == [memory.contents[4].id]


async def test_a_summary_that_could_not_be_kept_names_its_messages_when_it_comes_again() -> None:
    memory = Kept()
    recorder = SessionRecorder(memory)
    await recorder.record(message("m1"))
    memory.error = BackendError("graph", "ingest", "the disk is full")
    with pytest.raises(BackendError):
        await recorder.record(SUMMARY)

    memory.error = None
    await recorder.record(SUMMARY)

    assert memory.contents[-1].metadata["covers"] == [memory.contents[0].id]


@pytest.mark.parametrize(
    ("nothing", "why"),
    [
        (message("m1", "  \n"), "no text"),
        (event(CompactionSummary(session_key=KEY, summary="", compacted_at=NOON)), "no text"),
        (event(SessionStart(session_key=KEY, started_at=NOON)), "says nothing"),
    ],
)
async def test_an_event_that_says_nothing_is_reported_as_skipped(
    nothing: PipelineEventEnvelope, why: str
) -> None:
    memory = Kept()

    recorded = await SessionRecorder(memory).record(nothing)

    assert (recorded.content_id, memory.contents) == (None, [])
    assert why in (recorded.skipped or "")


def test_a_time_without_a_zone_is_refused() -> None:
    with pytest.raises(ValueError, match="no time zone"):
        event(SessionStart(session_key=KEY, started_at=datetime(2026, 3, 1)))  # noqa: DTZ001 - what is refused


DOCUMENT = {
    "id": "e7", "type": "message.received", "ts": "2026-03-01T12:00:00Z", "source": "hook", "runId": "r1",
    "payload": {
        "sessionKey": KEY, "sessionId": "s1", "messageId": "m1", "body": "hello", "senderId": "ada",
        "receivedAt": "2026-03-01T13:00:00+01:00", "temporal": {"validTo": "2026-04-01T00:00:00Z"},
        "somethingNew": 1,
    },
}  # fmt: skip


def test_an_event_is_read_from_json() -> None:
    parsed = parse_event(json.dumps(DOCUMENT))

    assert parsed == PipelineEventEnvelope(
        id="e7",
        ts=NOON,
        run_id="r1",
        payload=MessageReceived(
            session_key=KEY,
            session_id="s1",
            message_id="m1",
            body="hello",
            sender_id="ada",
            received_at=NOON,
            temporal=MemoryTemporalMetadata(valid_to=datetime(2026, 4, 1, tzinfo=UTC)),
        ),
    )
    assert parsed.type == "message.received"


def test_the_session_of_the_envelope_is_that_of_a_payload_that_names_none() -> None:
    parsed = parse_event(
        {
            "id": "e8", "type": "compaction.summary", "ts": "2026-03-01T12:00:00Z", "sessionKey": KEY,
            "payload": {"summary": "short", "compactedAt": "2026-03-01T12:00:00Z", "tokensBefore": 9},
        }
    )  # fmt: skip

    assert parsed.payload == CompactionSummary(
        session_key=KEY, summary="short", compacted_at=NOON, tokens_before=9
    )


ZONELESS = "2026-03-01T12:00:00"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"type": "query.request"}, "type"),
        ({"ts": ZONELESS}, "ts"),
        ({"id": ""}, "id"),
        ({"payload": {**DOCUMENT["payload"], "receivedAt": "yesterday"}}, "receivedAt"),  # type: ignore[dict-item]
        ({"payload": {"sessionKey": KEY, "receivedAt": "2026-03-01T12:00:00Z"}}, "body"),
        ({"payload": {"body": "hello", "receivedAt": "2026-03-01T12:00:00Z"}}, "sessionKey"),
        ({"payload": {**DOCUMENT["payload"], "sessionKey": ""}}, "session"),  # type: ignore[dict-item]
        ({"payload": {**DOCUMENT["payload"], "temporal": {"validTo": ZONELESS}}}, "valid_to"),  # type: ignore[dict-item]
    ],
)
def test_a_document_that_is_no_event_is_refused_with_what_is_wrong(
    change: Mapping[str, object], said: str
) -> None:
    with pytest.raises(ValueError, match=f"not an event of a session: .*{said}"):
        parse_event({**DOCUMENT, **change})


def test_what_is_no_json_is_refused() -> None:
    with pytest.raises(ValueError, match="not an event of a session"):
        parse_event("{")
