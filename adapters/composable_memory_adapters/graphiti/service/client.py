"""A client of the Graphiti REST service, `graph_service`: sends contents to it and asks it for facts.

The service takes messages into a queue in its memory and reads them later; a message that was taken may
still never become an episode. It knows no scores and, as it comes, no keys.
"""

import asyncio
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from time import perf_counter
from typing import Self, TypeAlias, TypeVar
from urllib.parse import quote

from pydantic import TypeAdapter, ValidationError

from composable_memory.content import Health, IngestWarning, MemoryContentObject
from composable_memory.errors import BackendError
from composable_memory.interfaces import Clock
from composable_memory.types import JsonValue
from composable_memory_adapters.graphiti.episodes import EpisodeDraft, drafts_of, no_text
from composable_memory_adapters.graphiti.fact_stores import BACKEND_ID
from composable_memory_adapters.graphiti.service.connection import (
    ServiceConnection,
    ServiceRequest,
)
from composable_memory_adapters.graphiti.service.messages import (
    FoundFacts,
    HealthReply,
    ServiceEpisode,
    ServiceFact,
    TakenMessages,
    as_message,
)
from composable_memory_ops_logs import (
    QUERY_PREVIEW_CHARS,
    ErrorInfo,
    GraphitiHealth,
    GraphitiIngest,
    GraphitiQuery,
    OpsLog,
    trace,
    utc_now,
)
from composable_memory_ops_logs.quick_dataclass import dataclass

DEFAULT_GROUP = "main"
MAX_EPISODE_CHARS = 4000
"""A longer text is sent in parts."""
PARSED_HERE_BYTES = 256 * 2**10
"""A larger answer is parsed in a thread, where it holds nobody up."""
EXCERPT_BYTES = 4096

T = TypeVar("T")
Reader: TypeAlias = Callable[[bytes], T]

_GROUP = re.compile(r"[A-Za-z0-9_-]+")
_EPISODES = TypeAdapter(tuple[ServiceEpisode, ...])
_FACT = ServiceFact.model_validate_json
_FOUND = FoundFacts.model_validate_json
_HEALTH = HealthReply.model_validate_json
_TAKEN = TakenMessages.model_validate_json


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceIngest:
    """How many contents the service has taken, to read them later; those without a text are `skipped`."""

    accepted: int
    skipped: int = 0
    warnings: tuple[IngestWarning, ...] = ()


class GraphitiClient:
    """Asks the service at `base_url`, or at `server_host` and `service_port`.

    `timeout_ms` counts for each request as a whole. Every call raises a `BackendError` when it fails; an
    empty answer means that there is nothing. Use it as `async with GraphitiClient(...)`, or close it.
    """

    def __init__(
        self,
        *,
        server_host: str = "localhost",
        service_port: int = 8000,
        base_url: str | None = None,
        api_key: str | None = None,
        timeout_ms: float = 10_000,
        ops_log: OpsLog | None = None,
        clock: Clock = utc_now,
    ) -> None:
        self._connection = ServiceConnection(
            base_url or f"http://{server_host}:{service_port}", api_key=api_key, timeout_s=timeout_ms / 1000
        )
        self._ops_log = ops_log or OpsLog(None)
        self._clock = clock

    async def __aenter__(self) -> Self:
        """Return the client; it connects with the first request."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close the client."""
        await self.close()

    @property
    def address(self) -> str:
        """Return where the service is, without user and password."""
        return self._connection.address

    async def ingest_episodes(
        self,
        *,
        episodes: Sequence[MemoryContentObject],
        group_id: str = DEFAULT_GROUP,
        trace_id: str | None = None,
    ) -> ServiceIngest:
        """Send contents as episodes of a group, in their order; the service reads them later.

        Raises:
            BackendError: none of them was taken, as far as is known.
        """
        now = self._clock()
        drafted = [
            drafts_of(content, group_id=group_id, now=now, max_chars=MAX_EPISODE_CHARS)
            for content in episodes
        ]
        drafts = [draft for parts in drafted for draft in parts]
        blank = [content for content, parts in zip(episodes, drafted, strict=True) if not parts]
        with trace(trace_id):
            await self.send(group_id, drafts)
        return ServiceIngest(
            accepted=len(episodes) - len(blank),
            skipped=len(blank),
            warnings=(*(warning for draft in drafts for warning in draft.warnings), *map(no_text, blank)),
        )

    async def send(
        self, group_id: str, drafts: Sequence[EpisodeDraft], *, on_sending: Callable[[], None] | None = None
    ) -> None:
        """Send drafts to a group, in their order; `on_sending` is called just before the body goes out."""
        body: dict[str, JsonValue] = {
            "group_id": _checked(group_id),
            "messages": [dict(as_message(draft, self._clock())) for draft in drafts],
        }
        if not drafts:
            return
        with self._logged_ingest(drafts):
            request = replace(_post("ingest", "messages", body), on_sending=on_sending)
            reply = await self._ask(request, _TAKEN, "whether they were taken")
            if not reply.success:
                raise self._connection.garbled("ingest", reply.message.encode(), "messages to be taken")

    async def query_hybrid(
        self,
        *,
        query: str,
        limit: int = 10,
        group_ids: Sequence[str] | None = None,
        trace_id: str | None = None,
    ) -> tuple[ServiceFact, ...]:
        """Return at most `limit` facts that answer a query, best first; a blank query has no facts.

        Facts that hold no more are among them. The facts of several groups stand one group after the other.
        """
        if not query.strip():
            return ()
        body: dict[str, JsonValue] = {"query": query, "max_facts": limit}
        if group_ids is not None:
            body["group_ids"] = [_checked(group_id) for group_id in group_ids]
        with trace(trace_id):
            return await self._query(body, query, limit)

    async def episodes(self, group_id: str, *, last_n: int = 20) -> tuple[ServiceEpisode, ...]:
        """Return the `last_n` episodes of a group by the time they were observed, the oldest first."""
        request = ServiceRequest(
            operation="list episodes",
            path=f"episodes/{_checked(group_id)}",
            query={"last_n": str(last_n)},
        )
        return await self._ask(request, _EPISODES.validate_json, "a list of episodes")

    async def fact(self, fact_id: str) -> ServiceFact | None:
        """Return one fact, or None if the service finds none.

        On FalkorDB it looks in one graph alone, that of its variable `FALKORDB_DATABASE`.
        """
        request = ServiceRequest(
            operation="read a fact", path=f"entity-edge/{_quoted(fact_id)}", may_miss=True
        )
        body = await self._connection.send(request)
        return None if body is None else await self._parsed(request, body, _FACT, "a fact")

    async def forget(self, episode_id: str) -> bool:
        """Remove an episode, and say whether it was there; the facts that were taken from it stay."""
        return await self._delete("forget an episode", f"episode/{_quoted(episode_id)}")

    async def forget_fact(self, fact_id: str) -> bool:
        """Remove a fact, and say whether it was there."""
        return await self._delete("forget a fact", f"entity-edge/{_quoted(fact_id)}")

    async def health(self) -> Health:
        """Return whether the service answers; it does not look whether its database does. Never raises."""
        started = perf_counter()
        try:
            reply = await self._ask(
                ServiceRequest(operation="probe", path="healthcheck"), _HEALTH, "a status"
            )
            health = Health(ok=reply.status == "healthy", message=reply.status)
        except BackendError as error:
            health = Health(ok=False, message=str(error))
        self._ops_log.emit(
            GraphitiHealth(ok=health.ok, message=health.message),
            status="success" if health.ok else "failure",
            backend=BACKEND_ID,
            duration_ms=_since(started),
        )
        return health

    async def close(self) -> None:
        """Close all connections; calling this again does nothing."""
        await self._connection.close()

    async def _query(self, body: JsonValue, query: str, limit: int) -> tuple[ServiceFact, ...]:
        started = perf_counter()
        preview = query[:QUERY_PREVIEW_CHARS]
        try:
            reply = await self._ask(_post("search", "search", body), _FOUND, "facts")
        except BackendError as error:
            failed = GraphitiQuery(query=preview, limit=limit, fact_count=0, error=ErrorInfo.of(error))
            self._ops_log.emit(failed, status="failure", backend=BACKEND_ID, duration_ms=_since(started))
            raise
        # The service may bring more: its limit counts for each group, and concurrent searches share one.
        facts = reply.facts[:limit]
        found = GraphitiQuery(
            query=preview,
            limit=limit,
            fact_count=len(facts),
            node_ids=_once(node for fact in facts for node in (fact.source_node_uuid, fact.target_node_uuid)),
            episode_ids=_once(episode for fact in facts for episode in fact.episodes),
        )
        self._ops_log.emit(found, backend=BACKEND_ID, duration_ms=_since(started))
        return facts

    @contextmanager
    def _logged_ingest(self, drafts: Sequence[EpisodeDraft]) -> Iterator[None]:
        started = perf_counter()
        ids = [draft.content.id for draft in drafts]
        warnings = [warning.message for draft in drafts for warning in draft.warnings]
        try:
            yield
        except BackendError as error:
            failed = GraphitiIngest(
                episode_count=0, episode_ids=ids, warnings=warnings, error=ErrorInfo.of(error)
            )
            self._ops_log.emit(failed, status="failure", backend=BACKEND_ID, duration_ms=_since(started))
            raise
        taken = GraphitiIngest(episode_count=len(ids), episode_ids=ids, warnings=warnings)
        self._ops_log.emit(taken, backend=BACKEND_ID, duration_ms=_since(started))

    async def _delete(self, operation: str, path: str) -> bool:
        request = ServiceRequest(operation=operation, path=path, method="DELETE", may_miss=True)
        return await self._connection.send(request) is not None

    async def _ask(self, request: ServiceRequest, read: Reader[T], expected: str) -> T:
        return await self._parsed(request, await self._connection.send(request) or b"", read, expected)

    async def _parsed(self, request: ServiceRequest, body: bytes, read: Reader[T], expected: str) -> T:
        try:
            return read(body) if len(body) <= PARSED_HERE_BYTES else await asyncio.to_thread(read, body)
        except ValidationError:  # quotes the answer, so it must not be in the chain of ours
            garbled = self._connection.garbled(request.operation, body[:EXCERPT_BYTES], expected)
        raise garbled


def _post(operation: str, path: str, body: JsonValue) -> ServiceRequest:
    return ServiceRequest(operation=operation, path=path, method="POST", body=body)


def _checked(group_id: str) -> str:
    """Return the id of a group; one with other characters would end the only worker of the service."""
    if not _GROUP.fullmatch(group_id):
        raise ValueError(f"group {group_id!r} holds more than letters, digits, '-' and '_'")
    return group_id


def _quoted(own_id: str) -> str:
    return quote(own_id, safe="")


def _once(ids: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(filter(None, ids)))


def _since(started: float) -> float:
    return (perf_counter() - started) * 1000
