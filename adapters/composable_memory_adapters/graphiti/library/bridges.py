"""Our database, embedders and no reranker, as graphiti-core wants them."""

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, groupby
from typing import Any, TypeAlias

from composable_memory.content import EmbedderInput
from composable_memory.interfaces import EmbedderAdapter
from composable_memory_adapters.graphiti.database.cypher import CypherDatabase
from composable_memory_adapters.graphiti.library.core import (
    STOPWORDS,
    CrossEncoderClient,
    EmbedderClient,
    GraphDriver,
    GraphDriverSession,
    GraphProvider,
    build_falkor_fulltext_query,
    sanitize_falkor_fulltext_query,
)

MAX_QUERY_WORDS = 30
"""A query of 64 words or more would silently become an empty one."""
VECTORS = frozenset({"fact_embedding", "name_embedding", "search_vector"})
PROVIDERS = {"falkordb": GraphProvider.FALKORDB, "neo4j": GraphProvider.NEO4J}

Statement: TypeAlias = tuple[str, Mapping[str, Any]]
Answer: TypeAlias = tuple[list[dict[str, object]], list[str], None]


class Drivers:
    """The drivers of the groups of one database."""

    def __init__(self, database: CypherDatabase) -> None:
        self._database = database
        self._drivers: dict[str, GroupDriver] = {}

    def of(self, group_id: str) -> "GroupDriver":
        """Return the driver of a group, always the same one."""
        if group_id not in self._drivers:
            self._drivers[group_id] = GroupDriver(self._database, group_id, self)
        return self._drivers[group_id]


class GroupDriver(GraphDriver):  # type: ignore[misc]  # graphiti-core is not typed here
    """Runs graphiti-core's statements in one group.

    graphiti-core's own drivers are no base for it. They open connections that fail in ways of their own,
    start to build indexes in a task that nobody awaits, do so again for every copy, and index dates, of
    which FalkorDB then drops conditions: facts of the future come into the past.
    """

    def __init__(self, database: CypherDatabase, group_id: str, drivers: Drivers) -> None:
        super().__init__()
        self.provider = PROVIDERS[database.kind]
        is_falkordb = self.provider == GraphProvider.FALKORDB
        self.fulltext_syntax = "@" if is_falkordb else ""
        self.default_group_id = "_" if is_falkordb else ""
        self._database = group_id  # graphiti-core compares it with the group it is asked for
        self._place = database
        self._drivers = drivers

    async def execute_query(self, cypher_query_: str, **kwargs: Any) -> Answer:
        """Run one statement. Arguments that end in `_` are for the driver, the others for the database."""
        parameters = {**kwargs.pop("params", {}), **kwargs}
        run = self._place.read if parameters.get("routing_") == "r" else self._place.write
        rows = await run(self._database, cypher_query_, **_for_database(parameters))
        records = [dict(row) for row in rows]
        return records, list(records[0]) if records else [], None

    def session(self, database: str | None = None) -> "_Session":
        """Return a session in this group, or in another one."""
        return _Session(self if database is None else self.clone(database))

    def clone(self, database: str) -> "GroupDriver":
        """Return the driver of another group."""
        return self._drivers.of(database)

    async def close(self) -> None:
        """Do nothing: the connection belongs to the database."""

    async def delete_all_indexes(self) -> None:
        """Do nothing: the indexes belong to the database."""

    async def build_indices_and_constraints(self, delete_existing: bool = False) -> None:
        """Do nothing: the database makes the indexes before it first writes."""

    def build_fulltext_query(
        self, query: str, group_ids: list[str] | None = None, max_query_length: int = 128
    ) -> str:
        """Return a query in FalkorDB's syntax, of the longest words where there are many."""
        words = dict.fromkeys(sanitize_falkor_fulltext_query(query).split())
        telling = [word for word in words if word.lower() not in STOPWORDS]
        longest = set(sorted(telling, key=len, reverse=True)[:MAX_QUERY_WORDS])
        kept = " ".join(word for word in telling if word in longest)
        return str(build_falkor_fulltext_query(kept, group_ids, max_query_length))


class _Session(GraphDriverSession):  # type: ignore[misc]  # graphiti-core is not typed here
    """Runs statements one after the other; each is kept when it returns."""

    def __init__(self, driver: GroupDriver) -> None:
        self.provider = driver.provider
        self._driver = driver

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Do nothing: there is nothing open."""

    async def execute_write(
        self, func: Callable[..., Awaitable[object]], *args: Any, **kwargs: Any
    ) -> object:
        """Call `func` with this session."""
        return await func(self, *args, **kwargs)

    async def run(self, query: str | list[Statement], **kwargs: Any) -> None:
        """Run one statement, or several; those that have nothing to unwind are left out."""
        statements = [(query, kwargs)] if isinstance(query, str) else _joined(query)
        for cypher, parameters in statements:
            if not parameters or any(parameters.values()):
                await self._driver.execute_query(cypher, **parameters)


def _joined(statements: Sequence[Statement]) -> Iterator[Statement]:
    """Join statements that differ in the lists they unwind only: graphiti-core makes one for each node."""
    ordered = sorted(statements, key=lambda one: one[0])
    for cypher, group in groupby(ordered, key=lambda one: one[0]):
        parameters = [one for _, one in group]
        yield cypher, {name: list(chain(*(one[name] for one in parameters))) for name in parameters[0]}


def _for_database(parameters: Mapping[str, object]) -> dict[str, object]:
    """Return what the statement itself is given, without the group, which the database adds."""
    own = {name: value for name, value in parameters.items() if name[-1] != "_" and name != "group_id"}
    return {
        name: [_without_empty_vectors(row) if isinstance(row, dict) else row for row in value]
        if isinstance(value, list)
        else value
        for name, value in _without_empty_vectors(own).items()
    }


def _without_empty_vectors(values: Mapping[str, object]) -> dict[str, object]:
    """Return values with null for vectors of no length: these would fit to no other vector of the graph."""
    return {name: None if name in VECTORS and value == [] else value for name, value in values.items()}


class EmbedderBridge(EmbedderClient):  # type: ignore[misc]  # graphiti-core is not typed here
    """Embeds with one of our embedders; without one every vector is empty, which `drivers` stores as none."""

    def __init__(self, embedder: EmbedderAdapter | None) -> None:
        self._embedder = embedder

    async def create(
        self, input_data: str | list[str] | Iterable[int] | Iterable[Iterable[int]]
    ) -> list[float]:
        """Return one vector: of a text, or of the first in a list, which is what graphiti-core hands over."""
        first = input_data if isinstance(input_data, str) else next(iter(input_data))
        return (await self.create_batch([str(first)]))[0]

    async def create_batch(self, input_data_list: list[str]) -> list[list[float]]:
        """Return the vectors of several texts."""
        if self._embedder is None or not input_data_list:
            return [[] for _ in input_data_list]
        inputs = [EmbedderInput(text=text) for text in input_data_list]
        return [[float(value) for value in vector] for vector in await self._embedder.embed_batch(inputs)]


class NoReranker(CrossEncoderClient):  # type: ignore[misc]  # graphiti-core is not typed here
    """Leaves passages in their order: graphiti-core must be given a reranker, and we ask for none."""

    async def rank(self, query: str, passages: Sequence[str]) -> list[tuple[str, float]]:  # noqa: ARG002 - as demanded
        """Return the passages as they are."""
        return [(passage, 0.0) for passage in passages]
