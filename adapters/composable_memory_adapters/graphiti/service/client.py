"""A client of the Graphiti REST service, `graph_service`: sends contents and searches facts.

The service queues messages in memory and reads them later; an accepted message may still never become an
episode. It returns no scores and, by default, checks no keys.
"""

import asyncio
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from time import perf_counter
from typing import Self, TypeAlias, TypeVar
from urllib.parse import quote, urlsplit

from pydantic import TypeAdapter, ValidationError

from composable_memory.content import Health, IngestWarning, MemoryContentObject
from composable_memory.errors import (
    BackendError,
    BackendGarbled,
    BackendRejected,
    BackendTimeout,
    BackendUnavailable,
)
from composable_memory.interfaces import Clock
from composable_memory.types import JsonValue
from composable_memory_adapters.graphiti.episodes import EpisodeDraft, drafts_of, no_text
from composable_memory_adapters.graphiti.fact_stores import BACKEND_ID
from composable_memory_adapters.graphiti.service.messages import (
    FoundFacts,
    HealthReply,
    ServiceEpisode,
    ServiceFact,
    TakenMessages,
    as_message,
)
from composable_memory_adapters.http_client import JSON, HttpClient, HttpRequest, read_whole
from composable_memory_adapters.http_failures import FailureKind, HttpFailure
from composable_memory_ops_logs import (
    QUERY_PREVIEW_CHARS,
    ErrorInfo,
    GraphitiHealth,
    GraphitiIngest,
    GraphitiQuery,
    OpsLog,
    redact,
    trace,
    utc_now,
)
from composable_memory_ops_logs.quick_dataclass import dataclass

DEFAULT_GROUP = "main"
MAX_EPISODE_CHARS = 4000
"""A longer text is sent in parts."""
PARSED_HERE_BYTES = 256 * 2**10
"""A larger answer is parsed in a thread, so as not to block the event loop."""
EXCERPT_BYTES = 4096
REPLY_CHARS = 200
"""How much of a reply an error quotes."""
KEEPALIVE_S = 3.0
"""The server closes a connection that idles for five seconds; ours is dropped before that."""
NO_ROUTE = "Not Found"
"""The service's reply for an unknown address, as opposed to a missing fact."""
_FIXES = {
    FailureKind.UNREACHABLE: "start it, or correct memory.graphiti.base_url",
    FailureKind.BROKEN: "try again, and check its log",
    FailureKind.REDIRECTED: "redirects are not followed; correct memory.graphiti.base_url",
    FailureKind.KEY: "check memory.graphiti.api_key",
    FailureKind.NOT_FOUND: "there seems to be no Graphiti service there; correct memory.graphiti.base_url",
    FailureKind.CLOSED: "open a new client",
}

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
    """How many contents the service accepted, to read later; those without text are `skipped`."""

    accepted: int
    skipped: int = 0
    warnings: tuple[IngestWarning, ...] = ()


class GraphitiClient:
    """Connects to the service at `base_url`, or at `server_host` and `service_port`.

    `timeout_ms` limits each request as a whole. Every call raises a `BackendError` if it fails; an empty
    answer means that there is nothing. Use it as `async with GraphitiClient(...)`, or close it.

    `api_key` is sent as a bearer token and never appears in an error. Redirects are not followed: they would
    send texts and key elsewhere. Requests may run concurrently; cancelling one closes its connection.
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
        self._base = (base_url or f"http://{server_host}:{service_port}").rstrip("/")
        self._key = api_key or ""
        self._timeout_s = timeout_ms / 1000
        self._http: HttpClient | None = None
        self._opening = asyncio.Lock()
        self._is_closed = False
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
        """Return the address of the service, without user and password."""
        parts = urlsplit(self._base)
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"

    async def ingest_episodes(
        self,
        *,
        episodes: Sequence[MemoryContentObject],
        group_id: str = DEFAULT_GROUP,
        trace_id: str | None = None,
    ) -> ServiceIngest:
        """Send contents as episodes of a group, in order; the service reads them later.

        Raises:
            BackendError: none of them was accepted, as far as is known.
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
        """Send drafts to a group, in order; `on_sending` is called just before the body is sent."""
        body: dict[str, JsonValue] = {
            "group_id": _checked(group_id),
            "messages": [dict(as_message(draft, self._clock())) for draft in drafts],
        }
        if not drafts:
            return
        with self._logged_ingest(drafts):
            answer = await self._send("ingest", "messages", method="POST", body=body, on_sending=on_sending)
            reply = await self._parsed("ingest", answer, _TAKEN, "whether they were taken")
            if not reply.success:
                raise self._garbled("ingest", reply.message.encode(), "messages to be taken")

    async def query_hybrid(
        self,
        *,
        query: str,
        limit: int = 10,
        group_ids: Sequence[str] | None = None,
        trace_id: str | None = None,
    ) -> tuple[ServiceFact, ...]:
        """Return at most `limit` facts that answer a query, best first; a blank query has no facts.

        Facts that no longer hold are included. With several groups, the results come group by group.
        """
        if not query.strip():
            return ()
        body: dict[str, JsonValue] = {"query": query, "max_facts": limit}
        if group_ids is not None:
            body["group_ids"] = [_checked(group_id) for group_id in group_ids]
        with trace(trace_id):
            return await self._query(body, query, limit)

    async def episodes(self, group_id: str, *, last_n: int = 20) -> tuple[ServiceEpisode, ...]:
        """Return the last `last_n` episodes of a group by observation time, oldest first."""
        operation, query = "list episodes", {"last_n": str(last_n)}
        answer = await self._send(operation, f"episodes/{_checked(group_id)}", query=query)
        return await self._parsed(operation, answer, _EPISODES.validate_json, "a list of episodes")

    async def fact(self, fact_id: str) -> ServiceFact | None:
        """Return one fact, or None if the service finds none.

        On FalkorDB the service only looks in one graph, that of its variable `FALKORDB_DATABASE`.
        """
        operation = "read a fact"
        body = await self._find(operation, f"entity-edge/{_quoted(fact_id)}")
        return None if body is None else await self._parsed(operation, body, _FACT, "a fact")

    async def forget(self, episode_id: str) -> bool:
        """Remove an episode, and return whether it existed; the facts extracted from it stay."""
        path = f"episode/{_quoted(episode_id)}"
        return await self._find("forget an episode", path, method="DELETE") is not None

    async def forget_fact(self, fact_id: str) -> bool:
        """Remove a fact, and return whether it existed."""
        path = f"entity-edge/{_quoted(fact_id)}"
        return await self._find("forget a fact", path, method="DELETE") is not None

    async def health(self) -> Health:
        """Return whether the service answers; it does not check its database. Never raises."""
        started = perf_counter()
        try:
            reply = await self._parsed("probe", await self._send("probe", "healthcheck"), _HEALTH, "a status")
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
        """Close all connections; calling it again does nothing."""
        self._is_closed = True
        if self._http is not None:
            await self._http.close()

    async def _query(self, body: JsonValue, query: str, limit: int) -> tuple[ServiceFact, ...]:
        started = perf_counter()
        preview = query[:QUERY_PREVIEW_CHARS]
        try:
            answer = await self._send("search", "search", method="POST", body=body)
            reply = await self._parsed("search", answer, _FOUND, "facts")
        except BackendError as error:
            failed = GraphitiQuery(query=preview, limit=limit, fact_count=0, error=ErrorInfo.of(error))
            self._ops_log.emit(failed, status="failure", backend=BACKEND_ID, duration_ms=_since(started))
            raise
        # The service may return more: its limit is per group, and concurrent searches share one.
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

    # --- requests -------------------------------------------------------------------------------------------

    async def _find(self, operation: str, path: str, *, method: str = "GET") -> bytes | None:
        """Send a request; return None if its subject does not exist, which is not an error."""
        try:
            return await self._request(HttpRequest(path=path, method=method, headers=self._bearer))
        except HttpFailure as failure:
            if failure.kind is FailureKind.NOT_FOUND and failure.detail != NO_ROUTE:
                return None
            error = self._error(operation, failure)
        raise error

    async def _send(
        self,
        operation: str,
        path: str,
        *,
        method: str = "GET",
        body: JsonValue | None = None,
        query: Mapping[str, str] | None = None,
        on_sending: Callable[[], None] | None = None,
    ) -> bytes:
        """Return the body of a successful answer.

        Raises:
            BackendUnavailable: the service cannot be reached, or has a problem itself.
            BackendTimeout: the complete answer did not arrive in time.
            BackendRejected: it refuses this request, and would refuse it again.
            BackendGarbled: the answer does not end.
        """
        request = HttpRequest(
            path=path,
            method=method,
            query=query or {},
            content=b"" if body is None else _encoded(body),
            headers=({} if body is None else JSON) | self._bearer,
            on_sending=on_sending,
        )
        try:
            return await self._request(request)
        except HttpFailure as failure:
            error = self._error(operation, failure)
        raise error  # outside `except`: the service's reply must not be in the chain of our error

    async def _request(self, request: HttpRequest) -> bytes:
        async with self._opening:
            if self._is_closed:
                raise HttpFailure(FailureKind.CLOSED, "is no longer asked: the client was closed")
            if self._http is None:
                # Loading the trusted certificates takes a while.
                self._http = await asyncio.to_thread(self._open)
        return await self._http.send(request, read_whole)

    def _open(self) -> HttpClient:
        return HttpClient(
            self._base, timeout_s=self._timeout_s, clock=utc_now, keepalive_s=KEEPALIVE_S, max_redirects=0
        )

    @property
    def _bearer(self) -> dict[str, str]:
        return {"authorization": f"Bearer {self._key}"} if self._key else {}

    async def _parsed(self, operation: str, body: bytes, read: Reader[T], expected: str) -> T:
        try:
            return read(body) if len(body) <= PARSED_HERE_BYTES else await asyncio.to_thread(read, body)
        except ValidationError:  # quotes the answer, so it must not be in the chain of our error
            garbled = self._garbled(operation, body[:EXCERPT_BYTES], expected)
        raise garbled

    def _garbled(self, operation: str, body: bytes, expected: str) -> BackendGarbled:
        excerpt = self._censored(body.decode("utf-8", "replace"))
        return BackendGarbled(BACKEND_ID, operation, excerpt=excerpt, expected=expected)

    def _error(self, operation: str, failure: HttpFailure) -> BackendError:
        detail = self._censored(failure.detail)
        match failure.kind:
            case FailureKind.SLOW:
                limit_s = self._timeout_s
                return BackendTimeout(BACKEND_ID, operation, limit_s=limit_s, elapsed_s=limit_s)
            case FailureKind.TOO_LARGE:
                return BackendGarbled(
                    BACKEND_ID, operation, excerpt="", expected=f"less: it {failure.problem}"
                )
            case FailureKind.REJECTED:
                status = failure.problem.removeprefix("answered ")
                return BackendRejected(BACKEND_ID, operation, status=status, body=detail)
        problem = f"the graph service at {self.address} {failure.problem}" + (f": {detail}" if detail else "")
        fix = _FIXES.get(failure.kind, "try again later, and check its log")
        return BackendUnavailable(BACKEND_ID, problem, fix=fix, operation=operation)

    def _censored(self, reply: str) -> str:
        """Return a reply on one line, without the key, shortened."""
        text = reply.replace(self._key, "***") if self._key else reply
        text = " ".join(redact(text).split())
        return text if len(text) <= REPLY_CHARS else f"{text[:REPLY_CHARS]}…"


def _encoded(body: JsonValue) -> bytes:
    # A lone surrogate cannot be encoded; the service would refuse the whole request.
    return json.dumps(body, ensure_ascii=False).encode("utf-8", "replace")


def _checked(group_id: str) -> str:
    """Return the id of a group; other characters would kill the service's only worker."""
    if not _GROUP.fullmatch(group_id):
        raise ValueError(f"group {group_id!r} has characters other than letters, digits, '-' and '_'")
    return group_id


def _quoted(own_id: str) -> str:
    return quote(own_id, safe="")


def _once(ids: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(filter(None, ids)))


def _since(started: float) -> float:
    return (perf_counter() - started) * 1000
