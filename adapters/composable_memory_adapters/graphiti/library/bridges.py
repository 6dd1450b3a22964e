"""Adapts our database, embedders and records to graphiti-core, and saves with its bulk statements."""

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import chain, groupby
from typing import Any, TypeAlias

from composable_memory.content import EmbedderInput
from composable_memory.interfaces import EmbedderAdapter
from composable_memory_adapters.graphiti.database.cypher import CypherDatabase, batches, iso
from composable_memory_adapters.graphiti.episodes import EpisodeDraft, graph_id
from composable_memory_adapters.graphiti.library.core import (
    STOPWORDS,
    CrossEncoderClient,
    EmbedderClient,
    EntityEdge,
    EntityNode,
    EpisodeType,
    EpisodicEdge,
    EpisodicNode,
    GraphDriver,
    GraphDriverSession,
    GraphProvider,
    add_nodes_and_edges_bulk,
    build_falkor_fulltext_query,
    sanitize_falkor_fulltext_query,
)
from composable_memory_adapters.graphiti.library.graph_records import (
    EVER,
    EntityRecord,
    FactRecord,
    told_text,
)

MAX_QUERY_WORDS = 30
"""A query of 64 words or more would silently become empty."""
VECTORS = frozenset({"fact_embedding", "name_embedding", "search_vector"})
PROVIDERS = {"falkordb": GraphProvider.FALKORDB, "neo4j": GraphProvider.NEO4J}

Statement: TypeAlias = tuple[str, Mapping[str, Any]]
Answer: TypeAlias = tuple[list[dict[str, object]], list[str], None]


class GroupDriver(GraphDriver):  # type: ignore[misc]  # graphiti-core is not typed here
    """Runs graphiti-core's statements in one group.

    graphiti-core's own drivers are no basis for it. They open connections with failure modes of their own,
    start to build indexes in a task that nobody awaits, repeat that for every copy, and index dates; FalkorDB
    then drops conditions on these, so that future facts appear in the past.
    """

    def __init__(self, database: CypherDatabase, group_id: str) -> None:
        super().__init__()
        self.provider = PROVIDERS[database.kind]
        is_falkordb = self.provider == GraphProvider.FALKORDB
        self.fulltext_syntax = "@" if is_falkordb else ""
        self.default_group_id = "_" if is_falkordb else ""
        self._database = group_id  # graphiti-core compares it with the requested group
        self._place = database

    async def execute_query(self, cypher_query_: str, **kwargs: Any) -> Answer:
        """Run one statement. Arguments that end in `_` are for the driver, the others are parameters."""
        parameters = {**kwargs.pop("params", {}), **kwargs}
        run = self._place.read if parameters.get("routing_") == "r" else self._place.write
        rows = await run(self._database, cypher_query_, **_for_database(parameters))
        records = [dict(row) for row in rows]
        return records, list(records[0]) if records else [], None

    def session(self, database: str | None = None) -> "_Session":
        """Return a session in this group or another."""
        return _Session(self if database is None else self.clone(database))

    def clone(self, database: str) -> "GroupDriver":
        """Return the driver of another group."""
        return GroupDriver(self._place, database)

    async def close(self) -> None:
        """Do nothing: the connection belongs to the database."""

    async def delete_all_indexes(self) -> None:
        """Do nothing: the indexes belong to the database."""

    async def build_indices_and_constraints(self, delete_existing: bool = False) -> None:
        """Do nothing: the database creates the indexes before its first write."""

    def build_fulltext_query(
        self, query: str, group_ids: list[str] | None = None, max_query_length: int = 128
    ) -> str:
        """Return a query in FalkorDB's syntax; of too many words, the longest are kept."""
        words = dict.fromkeys(sanitize_falkor_fulltext_query(query).split())
        telling = [word for word in words if word.lower() not in STOPWORDS]
        longest = set(sorted(telling, key=len, reverse=True)[:MAX_QUERY_WORDS])
        kept = " ".join(word for word in telling if word in longest)
        return str(build_falkor_fulltext_query(kept, group_ids, max_query_length))


class _Session(GraphDriverSession):  # type: ignore[misc]  # graphiti-core is not typed here
    """Runs statements one after the other; each is durable when it returns."""

    def __init__(self, driver: GroupDriver) -> None:
        self.provider = driver.provider
        self._driver = driver

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Do nothing: nothing is open."""

    async def execute_write(
        self, func: Callable[..., Awaitable[object]], *args: Any, **kwargs: Any
    ) -> object:
        """Call `func` with this session."""
        return await func(self, *args, **kwargs)

    async def run(self, query: str | list[Statement], **kwargs: Any) -> None:
        """Run one or several statements, except those with nothing to unwind."""
        statements = [(query, kwargs)] if isinstance(query, str) else _joined(query)
        for cypher, parameters in statements:
            if not parameters or any(parameters.values()):
                await self._driver.execute_query(cypher, **parameters)


def _joined(statements: Sequence[Statement]) -> Iterator[Statement]:
    """Join statements that differ only in the lists they unwind: graphiti-core makes one per node."""
    ordered = sorted(statements, key=lambda one: one[0])
    for cypher, group in groupby(ordered, key=lambda one: one[0]):
        parameters = [one for _, one in group]
        yield cypher, {name: list(chain(*(one[name] for one in parameters))) for name in parameters[0]}


def _for_database(parameters: Mapping[str, object]) -> dict[str, object]:
    """Return the parameters of the statement, without the group, which the database adds."""
    own = {name: value for name, value in parameters.items() if name[-1] != "_" and name != "group_id"}
    return {
        name: [_without_empty_vectors(row) if isinstance(row, dict) else row for row in value]
        if isinstance(value, list)
        else value
        for name, value in _without_empty_vectors(own).items()
    }


def _without_empty_vectors(values: Mapping[str, object]) -> dict[str, object]:
    """Replace vectors of length zero by null: they would fit no other vector of the graph."""
    return {name: None if name in VECTORS and value == [] else value for name, value in values.items()}


class EmbedderBridge(EmbedderClient):  # type: ignore[misc]  # graphiti-core is not typed here
    """Embeds with one of our embedders; without one every vector is empty, and stored as null."""

    def __init__(self, embedder: EmbedderAdapter | None) -> None:
        self._embedder = embedder

    async def create(
        self, input_data: str | list[str] | Iterable[int] | Iterable[Iterable[int]]
    ) -> list[float]:
        """Embed a text, or the first one of a list, which is what graphiti-core passes."""
        first = input_data if isinstance(input_data, str) else next(iter(input_data))
        return (await self.create_batch([str(first)]))[0]

    async def create_batch(self, input_data_list: list[str]) -> list[list[float]]:
        """Embed several texts."""
        if self._embedder is None or not input_data_list:
            return [[] for _ in input_data_list]
        inputs = [EmbedderInput(text=text) for text in input_data_list]
        return [[float(value) for value in vector] for vector in await self._embedder.embed_batch(inputs)]


class NoReranker(CrossEncoderClient):  # type: ignore[misc]  # graphiti-core is not typed here
    """Leaves passages in their order: graphiti-core requires a reranker, and we use none."""

    async def rank(self, query: str, passages: Sequence[str]) -> list[tuple[str, float]]:  # noqa: ARG002 - as demanded
        """Return the passages unchanged."""
        return [(passage, 0.0) for passage in passages]


Vector = list[float]


class Saver:
    """Writes records of one group, with vectors if there is an embedder; writing twice is harmless."""

    def __init__(self, driver: GroupDriver, group_id: str, embedder: EmbedderAdapter | None) -> None:
        self._driver = driver
        self._group_id = group_id
        self._vectors = EmbedderBridge(embedder)

    async def save_episodes(self, drafts: Sequence[EpisodeDraft], facts: Mapping[str, Sequence[str]]) -> None:
        """Store episodes; `facts` has the ids of the facts each is known to state."""
        for batch in batches(drafts):
            await self._save([episodic_node(draft, facts.get(draft.id, ())) for draft in batch], [], [], [])

    async def save_entities(self, records: Sequence[EntityRecord]) -> None:
        """Store entities, with the vectors of their names."""
        vectors = await self._vectors.create_batch([_line(record.name) for record in records])
        for batch in batches(zip(records, vectors, strict=True)):
            await self._save([], [], [_entity_node(self._group_id, *one) for one in batch], [])

    async def save_facts(self, records: Sequence[FactRecord]) -> None:
        """Store facts, with the vectors of their texts; their entities must exist."""
        vectors = await self._vectors.create_batch([_line(record.fact) for record in records])
        for batch in batches(zip(records, vectors, strict=True)):
            await self._save([], [], [], [_entity_edge(self._group_id, *one) for one in batch])

    async def save_mentions(self, pairs: Iterable[tuple[str, str]], now: datetime) -> None:
        """Store which episodes mention which entities, as pairs of UUIDs; skip pairs with a missing one."""
        for batch in batches(dict.fromkeys(pairs)):
            await self._save([], [_episodic_edge(self._group_id, *pair, now) for pair in batch], [], [])

    async def _save(
        self,
        episodes: list[EpisodicNode],
        mentions: list[EpisodicEdge],
        nodes: list[EntityNode],
        edges: list[EntityEdge],
    ) -> None:
        await add_nodes_and_edges_bulk(self._driver, episodes, mentions, nodes, edges, self._vectors)


def episodic_node(draft: EpisodeDraft, facts: Sequence[str] = ()) -> EpisodicNode:
    """Convert an episode to graphiti-core's type."""
    return EpisodicNode(
        uuid=draft.id,
        name=draft.content.id,
        group_id=draft.group_id,
        source=EpisodeType(draft.source),
        source_description=draft.description,
        content=draft.text,
        created_at=draft.ingested_at,
        valid_at=draft.observed_at,
        entity_edges=list(facts),
    )


def _entity_node(group_id: str, record: EntityRecord, vector: Vector) -> EntityNode:
    return EntityNode(
        uuid=record.uuid,
        name=record.name,
        group_id=group_id,
        labels=["Entity"],
        created_at=record.created_at,
        name_embedding=vector,
        summary=record.summary,
        attributes={
            "own_id": record.own_id,
            "kind": record.kind,
            "properties": record.properties,
            "provenance": record.provenance,
            "temporal": record.temporal,
        },
    )


def _entity_edge(group_id: str, record: FactRecord, vector: Vector) -> EntityEdge:
    return EntityEdge(
        uuid=record.uuid,
        source_node_uuid=record.source,
        target_node_uuid=record.target,
        name=record.relation,
        fact=record.fact,
        group_id=group_id,
        fact_embedding=vector,
        episodes=list(record.episodes),
        created_at=record.created_at,
        valid_at=record.valid_at,
        invalid_at=record.invalid_at,
        expired_at=record.expired_at,
        reference_time=record.reference_time,
        attributes={
            "own_id": record.own_id,
            "said_at": _said_at(record),
            "told": [told_text(one) for one in record.told],
            "confidence": record.confidence,
            "exclusive": record.exclusive,
            "one_holder": record.one_holder,
            "ends": record.ends,
            "ends_at": _iso(record.ends_at),
            "retired_at": _iso(record.retired_at),
            "expires_at": _iso(record.expires_at),
            "properties": record.properties,
            "provenance": record.provenance,
            "temporal": record.temporal,
        },
    )


def _said_at(record: FactRecord) -> str | None:
    """Return the sort key of a fact among those that begin on the same day."""
    order = record.end if record.ends else record.start
    return None if order == EVER else f"{order[0]} {iso(order[1])}"


def _episodic_edge(group_id: str, episode: str, entity: str, now: datetime) -> EpisodicEdge:
    return EpisodicEdge(
        uuid=graph_id(group_id, f"mention:{episode}:{entity}"),
        group_id=group_id,
        source_node_uuid=episode,
        target_node_uuid=entity,
        created_at=now,
    )


def _line(text: str) -> str:
    return " ".join(text.split())


def _iso(moment: datetime | None) -> str | None:
    return moment.isoformat() if moment else None
