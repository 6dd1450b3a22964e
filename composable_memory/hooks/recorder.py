"""Turns the events of a session into contents, and passes them to a memory without waiting for its graph."""

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from hashlib import sha256
from typing import Protocol

from composable_memory.content import (
    IngestReport,
    MemoryContentObject,
    MemoryProvenance,
    MemoryTemporalMetadata,
)
from composable_memory.hooks.session_events import (
    CompactionSummary,
    MessageReceived,
    PipelineEventEnvelope,
    SessionPayload,
    SessionStart,
)
from composable_memory_ops_logs.quick_dataclass import dataclass

MOST_COVERED = 10_000
"""How many messages of a session to remember, at most, for the summary that will cover them."""
MOST_SESSIONS = 1_000
HASH_CHARS = 24


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """What became of an event: the content made from it and the reports, or why there is none."""

    content_id: str | None = None
    reports: Mapping[str, IngestReport] = field(default_factory=dict)
    skipped: str | None = None


class TakesContents(Protocol):
    """What contents are passed to; an open `Memory` is one."""

    async def ingest(
        self, contents: Sequence[MemoryContentObject], *, backend: str | None = None, wait: bool = True
    ) -> Mapping[str, IngestReport]:
        """Ingest contents; with `wait` false, return as soon as they are safe."""
        ...


class SessionRecorder:
    """Records the events of sessions in a memory. Recording an event twice changes nothing."""

    def __init__(self, memory: TakesContents, *, backend: str | None = None, wait: bool = False) -> None:
        """Record into `backend`, or into every backend that ingests contents.

        With `wait` a call returns once the memory has processed a content, else as soon as it is safe.
        """
        self._memory = memory
        self._backend = backend
        self._wait = wait
        self._unsummarised: dict[str, list[str]] = {}

    def resume(self, event: PipelineEventEnvelope, content_ids: Sequence[str]) -> None:
        """Take over the messages of an event's session that another recorder has recorded."""
        for content_id in content_ids:
            self._remember(_session_of(event.payload), content_id)

    async def record(self, event: PipelineEventEnvelope) -> Recorded:
        """Record an event; a summary names the messages since the previous one, as `covers`.

        Raises:
            ConfigError: no open backend ingests contents.
            BackendError: the content could not be stored; record the event again.
        """
        session = _session_of(event.payload)
        match event.payload:
            case SessionStart():
                return Recorded(skipped="a session's beginning says nothing")
            case MessageReceived(body=text) | CompactionSummary(summary=text) if not text.strip():
                return Recorded(skipped="it has no text")
            case MessageReceived() as message:
                content = _message(event, message)
                recorded = await self._hand_over(content)
                self._remember(session, content.id)
                return recorded
            case CompactionSummary() as summary:
                covered = tuple(self._unsummarised.get(session, ()))
                recorded = await self._hand_over(_summary(event, summary, covered))
                self._forget(session, covered)
                return recorded

    async def _hand_over(self, content: MemoryContentObject) -> Recorded:
        reports = await self._memory.ingest([content], backend=self._backend, wait=self._wait)
        return Recorded(content_id=content.id, reports=reports)

    def _remember(self, session: str, content_id: str) -> None:
        ids = self._unsummarised.pop(session, [])  # added again below, as the most recent session
        if content_id not in ids[-MOST_SESSIONS:]:
            ids.append(content_id)
        self._unsummarised[session] = ids[-MOST_COVERED:]
        while len(self._unsummarised) > MOST_SESSIONS:
            del self._unsummarised[next(iter(self._unsummarised))]

    def _forget(self, session: str, covered: Sequence[str]) -> None:
        gone = set(covered)
        left = [one for one in self._unsummarised.pop(session, ()) if one not in gone]
        if left:  # said while the summary was being made
            self._unsummarised[session] = left


def _session_of(payload: SessionPayload) -> str:
    return f"{payload.session_key}/{payload.session_id or ''}"


def _message(event: PipelineEventEnvelope, message: MessageReceived) -> MemoryContentObject:
    told = message.temporal or MemoryTemporalMetadata()
    own_id = message.message_id or _digest(
        message.received_at.isoformat(), message.sender_id or "", message.body
    )
    return MemoryContentObject(
        id=f"message:{_session_of(message)}:{own_id}",
        kind="message",
        text=message.body,
        metadata={"sessionId": message.session_id} if message.session_id else {},
        provenance=_provenance(
            event, source_id=message.message_id, channel=message.channel, actor_id=message.sender_id
        ),
        temporal=replace(
            told,
            created_at=told.created_at or message.received_at,
            observed_at=told.observed_at or message.received_at,
        ),
    )


def _summary(
    event: PipelineEventEnvelope, summary: CompactionSummary, covered: Sequence[str]
) -> MemoryContentObject:
    known = {
        "sessionId": summary.session_id,
        "tokensBefore": summary.tokens_before,
        "tokensAfter": summary.tokens_after,
    }
    digest = _digest(summary.compacted_at.isoformat(), summary.summary)
    return MemoryContentObject(
        id=f"summary:{_session_of(summary)}:{digest}",
        kind="summary",
        text=summary.summary,
        metadata={
            **{name: value for name, value in known.items() if value is not None},
            "covers": list(covered),
        },
        provenance=_provenance(event),
        temporal=MemoryTemporalMetadata(created_at=summary.compacted_at, observed_at=summary.compacted_at),
    )


def _provenance(
    event: PipelineEventEnvelope,
    *,
    source_id: str | None = None,
    channel: str | None = None,
    actor_id: str | None = None,
) -> MemoryProvenance:
    return MemoryProvenance(
        source=event.source,
        source_id=source_id or event.id,
        channel=channel,
        actor_id=actor_id,
        session_key=event.payload.session_key,
        run_id=event.run_id,
        trace_id=event.trace_id,
    )


def _digest(*parts: str) -> str:
    return sha256("\n".join(parts).encode("utf-8", "surrogatepass")).hexdigest()[:HASH_CHARS]
