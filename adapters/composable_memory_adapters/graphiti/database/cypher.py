"""What every graph database behind the memory does: take Cypher, return rows."""

from collections.abc import Mapping, Sequence
from typing import Literal, Protocol, TypeAlias

from composable_memory.content import Health
from composable_memory.errors import BackendUnavailable

__all__ = ["CutOff", "CypherDatabase", "DatabaseKind", "Row"]

DatabaseKind = Literal["falkordb", "neo4j"]
Row: TypeAlias = Mapping[str, object]
"""One row of an answer, by the names after RETURN; times come as ISO texts."""


class CutOff(BackendUnavailable):
    """The connection broke while a statement was under way: nobody knows whether it was done."""


class CypherDatabase(Protocol):
    """A place for graphs in the schema of graphiti-core.

    In FalkorDB each group has a graph of its own, named like it; in Neo4j all groups share one database. So
    conditions name the group too: `$group_id` stands for the `group_id` of the call. Times are handed over as
    aware datetimes; FalkorDB stores them as ISO texts in UTC, Neo4j as times. A time from an answer is a text
    in both. Every call raises a `BackendError`: what failed, and what to do.
    """

    @property
    def kind(self) -> DatabaseKind:
        """Return whose dialect it speaks."""
        ...

    async def read(self, group_id: str, cypher: str, **parameters: object) -> list[Row]:
        """Run a statement that changes nothing; a group without a graph has no rows."""
        ...

    async def write(self, group_id: str, cypher: str, **parameters: object) -> list[Row]:
        """Run a statement that may change the graph; when it returns the change is kept."""
        ...

    async def groups(self) -> Sequence[str]:
        """Return the ids of all groups that have a graph."""
        ...

    async def drop(self, group_id: str) -> None:
        """Remove a group with everything in it; one that is not there is fine."""
        ...

    def describe(self) -> Mapping[str, str]:
        """Return what is known of the server, such as its kind, version and address without secrets."""
        ...

    async def health(self) -> Health:
        """Say whether it answers; never raises for one that is down."""
        ...

    async def close(self) -> None:
        """Close connections, and stop what was started; calling it again does nothing."""
        ...
