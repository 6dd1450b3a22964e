"""What ranking reads of an index, whatever store it is in, and how it is read from the index file."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import date, tzinfo
from typing import Protocol

from composable_memory_adapters.builtin.search.index_vectors import cosines
from composable_memory_adapters.builtin.store import message_times, read_queries
from composable_memory_adapters.builtin.store.embedding_cache import EmbeddingSpace
from composable_memory_adapters.builtin.store.read_queries import Origin, Passages
from composable_memory_adapters.sqlite_file import Connection
from composable_memory_ops_logs.quick_dataclass import dataclass


class PassageReader(Protocol):
    """Reads passages by their ids from one snapshot of an index; what is not there is left out."""

    def passages(self, ids: Iterable[int]) -> Passages:
        """Return texts and places."""
        ...

    def origins(self, ids: Iterable[int]) -> Mapping[int, Origin]:
        """Return the file of each."""
        ...

    def holders(self, embeddings: Iterable[int]) -> Mapping[int, Sequence[int]]:
        """Return for each embedding the passages whose vector it is, ascending."""
        ...

    def cosines(self, vector: Sequence[float], ids: Iterable[int]) -> Mapping[int, float]:
        """Return the cosine of each passage that has a vector."""
        ...

    def days_of(self, ids: Iterable[int], zone: tzinfo | None) -> Mapping[int, set[date]]:
        """Return the days on which the messages of passages were said, of those that tell."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexPassages:
    """Keeps `PassageReader` within a transaction of the index file; without a `space` it has no vectors."""

    connection: Connection
    space: EmbeddingSpace | None

    def passages(self, ids: Iterable[int]) -> Passages:
        """Return texts and places."""
        return read_queries.passages(self.connection, ids)

    def origins(self, ids: Iterable[int]) -> Mapping[int, Origin]:
        """Return the file of each."""
        return read_queries.origins(self.connection, ids)

    def holders(self, embeddings: Iterable[int]) -> Mapping[int, Sequence[int]]:
        """Return for each embedding the passages whose vector it is, ascending."""
        return read_queries.passages_of_embeddings(self.connection, embeddings)

    def cosines(self, vector: Sequence[float], ids: Iterable[int]) -> Mapping[int, float]:
        """Return the cosine of each passage that has a vector."""
        return cosines(self.connection, self.space, vector, [*ids]) if self.space else {}

    def days_of(self, ids: Iterable[int], zone: tzinfo | None) -> Mapping[int, set[date]]:
        """Return the days on which the messages of passages were said, of those that tell."""
        return message_times.days_of(self.connection, ids, zone)
