"""A Graphiti REST service on loopback that behaves as the real one was seen to do, its defects included.

Its facts come by a rule in place of a language model: each message states one about its first and last word.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit
from uuid import NAMESPACE_URL, uuid4, uuid5

from tests.integration.embedders.loopback import Loopback, Received, Reply, listening

__all__ = ["GraphService", "at", "running"]

Fact = dict[str, Any]
Episode = dict[str, Any]

NOT_FOUND = Reply.of({"detail": "Not Found"}, 404)


def at(text: str) -> str:
    """Return a day as the service writes times."""
    return datetime.fromisoformat(text).replace(tzinfo=UTC).isoformat()


@dataclass(kw_only=True)
class GraphService:
    """The service. Messages are taken at once and read while `reading` is set, one after the other.

    `database` is what FALKORDB_DATABASE says: single facts and episodes are found in the graph of that group
    alone; None is Neo4j. `fault` may answer in place of the service. `now` is the service's clock.
    """

    key: str | None = None
    database: str | None = None
    fault: Callable[[Received], Reply | None] = lambda _: None
    now: datetime = datetime(2026, 3, 10, tzinfo=UTC)
    facts: dict[str, list[Fact]] = field(default_factory=dict)
    stored: dict[str, list[Episode]] = field(default_factory=dict)
    received: list[Received] = field(default_factory=list)
    url: str = ""

    def __post_init__(self) -> None:
        self.reading = asyncio.Event()
        self.reading.set()
        self.died = asyncio.Event()
        self._queue: asyncio.Queue[tuple[str, Mapping[str, Any]]] = asyncio.Queue()
        self._loopback: Loopback | None = None

    @property
    def deserted(self) -> asyncio.Event:
        assert self._loopback is not None
        return self._loopback.deserted

    def bodies(self, path: str) -> list[Any]:
        """Return what was posted to a path."""
        return [one.json for one in self.received if one.path == path]

    def asked(self, method: str, path: str) -> int:
        """Return how often something was asked, by the beginning of its path."""
        return sum(one.method == method and one.path.startswith(path) for one in self.received)

    def tell(self, group_id: str, fact: str, **known: Any) -> Fact:
        """Put a fact into a graph, as if an episode had said so."""
        told = {
            "uuid": str(uuid4()),
            "name": "RELATES_TO",
            "fact": fact,
            "valid_at": None,
            "invalid_at": None,
            "created_at": self.now.isoformat(),
            "expired_at": None,
            "source_node_uuid": _node(fact.split()[0]),
            "target_node_uuid": _node(fact.split()[-1]),
            "episodes": [],
            **known,
        }
        self.facts.setdefault(group_id, []).append(told)
        return told

    async def caught_up(self) -> None:
        """Wait until all that was taken has been read."""
        async with asyncio.timeout(10):
            await self._queue.join()

    async def work(self) -> None:
        """Read what is taken. Whatever goes wrong ends it, and nothing starts it again."""
        while not self.died.is_set():
            await self.reading.wait()
            group_id, message = await self._queue.get()
            await self.reading.wait()
            if message.get("uuid") or not re.fullmatch(r"[\w-]+", group_id):
                self.died.set()
                return
            self.read(group_id, message)
            self._queue.task_done()

    def read(self, group_id: str, message: Mapping[str, Any]) -> Episode:
        """Make an episode of a message, and a fact."""
        episode = {
            "uuid": str(uuid4()),
            "name": message.get("name", ""),
            "group_id": group_id,
            "labels": [],
            "created_at": self.now.isoformat(),
            "source": "message",
            "source_description": message.get("source_description", ""),
            "content": f"{message['role'] or ''}({message['role_type']}): {message['content']}",
            "valid_at": message.get("timestamp", self.now.isoformat()),
            "entity_edges": [],
        }
        fact = self.tell(
            group_id, message["content"], valid_at=episode["valid_at"], episodes=[episode["uuid"]]
        )
        episode["entity_edges"] = [fact["uuid"]]
        self.stored.setdefault(group_id, []).append(episode)
        return episode

    async def answer(self, received: Received) -> Reply:
        self.received.append(received)
        if (reply := self.fault(received)) is not None:
            return reply
        if self.key and received.headers.get("authorization") != f"Bearer {self.key}":
            return Reply.of({"detail": "Not authenticated"}, 401)
        url = urlsplit(received.path)
        parts = [unquote(part) for part in url.path.strip("/").split("/")]
        match received.method, parts:
            case "GET", ["healthcheck"]:
                return Reply.of({"status": "healthy"})
            case "POST", ["messages"]:
                return self._take(received.json)
            case "POST", ["search"]:
                return self._search(received.json)
            case "GET", ["episodes", group_id]:
                return self._last(group_id, int(parse_qs(url.query)["last_n"][0]))
            case ("GET" | "DELETE") as method, ["entity-edge" | "episode" as kind, own_id]:
                return self._one(method, kind, own_id)
        return NOT_FOUND

    def _take(self, body: Mapping[str, Any]) -> Reply:
        for message in body["messages"]:
            if "role" not in message or message.get("role_type") not in ("user", "assistant", "system"):
                return Reply.of({"detail": [{"loc": ["body", "messages"], "msg": "Field required"}]}, 422)
        for message in body["messages"]:
            self._queue.put_nowait((body["group_id"], message))
        return _done("Messages added to processing queue", 202)

    def _search(self, body: Mapping[str, Any]) -> Reply:
        """Find the nearest, however far away they are; the limit counts for each group."""
        groups = body.get("group_ids") or list(self.facts)
        wanted = set(body["query"].casefold().split())
        found: list[Fact] = []
        for group_id in groups:
            facts = self.facts.get(group_id, [])
            ranked = sorted(facts, key=lambda fact: -len(wanted & set(fact["fact"].casefold().split())))
            found += ranked[: body["max_facts"]]
        return Reply.of({"facts": found})

    def _last(self, group_id: str, last_n: int) -> Reply:
        past = [one for one in self.stored.get(group_id, []) if _moment(one["valid_at"]) <= self.now]
        return Reply.of(sorted(past, key=lambda one: _moment(one["valid_at"]))[-last_n:])

    def _one(self, method: str, kind: str, own_id: str) -> Reply:
        kept = self.facts if kind == "entity-edge" else self.stored
        for group_id, things in kept.items():
            for thing in things:
                if thing["uuid"] == own_id and self.database in (None, group_id):
                    if method == "GET":
                        return Reply.of(thing)
                    things.remove(thing)
                    return _done(f"{kind} deleted")
        return Reply.of({"detail": f"edge {own_id} not found"}, 404)


@asynccontextmanager
async def running(service: GraphService) -> AsyncIterator[GraphService]:
    """Open a service; its worker ends with it."""
    async with listening(service.answer) as loopback:
        service.url = loopback.url
        service._loopback = loopback
        worker = asyncio.create_task(service.work())
        try:
            yield service
        finally:
            worker.cancel()
            await asyncio.wait({worker})


def _done(message: str, status: int = 200) -> Reply:
    return Reply.of({"message": message, "success": True}, status)


def _node(name: str) -> str:
    return str(uuid5(NAMESPACE_URL, name.casefold().strip(".")))


def _moment(text: str) -> datetime:
    moment = datetime.fromisoformat(text)
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
