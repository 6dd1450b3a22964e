"""The SQL of a rebuild: new tables beside the live ones, filled and then swapped in by one transaction.

Readers see either the old tables or the new ones; a killed process leaves the old ones, and the next process
drops what it had begun. Both share the vectors, so none is computed twice.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeAlias

from composable_memory_adapters.builtin.store import (
    document_cache,
    embedding_cache,
    index_meta,
    index_writes,
    message_times,
    schema,
)
from composable_memory_adapters.builtin.store.embedding_cache import EmbeddingSpace
from composable_memory_adapters.builtin.store.index_meta import REBUILD, IndexSnapshot
from composable_memory_adapters.builtin.store.schema import GENERATION_BITS, LIVE, NEXT, Tables
from composable_memory_adapters.sqlite_file import Connection
from composable_memory_adapters.sqlite_transactions import data_version
from composable_memory_ops_logs.plurals import counted
from composable_memory_ops_logs.quick_dataclass import dataclass

TEXTS_TO_EMBED = """
SELECT count(*), coalesce(sum(length(text)), 0) FROM chunks WHERE NOT EXISTS (
  SELECT 1 FROM embedding_cache AS cached
  WHERE cached.hash = chunks.hash AND provider_key = ? AND model = ? AND provider = ?
)
"""
ALL_TEXTS = "SELECT count(*), coalesce(sum(length(text)), 0) FROM chunks"
START_IDS = "INSERT INTO sqlite_sequence (name, seq) VALUES (?, ?)"
LAST_IDS = "SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = ?"
LET_GO_OF_VECTORS = """
UPDATE embedding_cache SET updated_at = ?1
WHERE provider_key = ?2 AND model = ?3 AND provider = ?4
  AND id IN (SELECT embedding_id FROM chunks WHERE embedding_id IS NOT NULL)
  AND id NOT IN (SELECT embedding_id FROM next_chunks WHERE embedding_id IS NOT NULL)
"""
REPLACE = "".join(
    f"DROP TABLE {old}; ALTER TABLE {new} RENAME TO {old};"
    for old, new in (
        (LIVE.files, NEXT.files),
        (LIVE.chunks, NEXT.chunks),
        (LIVE.keywords, NEXT.keywords),
        (LIVE.words, NEXT.words),
    )
)
ONE_SEGMENT = "INSERT INTO {keywords} ({keywords}) VALUES ('optimize')"
"""Merges the segments that a rebuild has written, so that a question looks up each word once."""
ANY_VECTOR_CHANGED = "INSERT INTO vector_changes (embedding_id) VALUES (NULL)"
OF_REBUILD = (NEXT.files, NEXT.chunks, NEXT.keywords, NEXT.words)
DROP = "".join(f"DROP TABLE IF EXISTS {name};" for name in OF_REBUILD)


@dataclass(frozen=True, slots=True, kw_only=True)
class RebuildCost:
    """The upper bound of what a rebuild must embed, in passages and characters; a token is 4 characters."""

    reasons: tuple[str, ...]
    is_of_other_space: bool
    is_free: bool
    passages: int
    characters: int

    def describe(self) -> str:
        """Describe the reasons, what triggers the rebuild, and what it costs if it is not free."""
        why = "; ".join(self.reasons)
        if self.is_free:
            return f"{why}; the next sync rebuilds it, `cmem index` at once"
        price = f"about {counted(self.tokens, 'token')} in {counted(self.passages, 'passage')} to embed"
        return f"{why}; `cmem index --force` rebuilds it: {price}"

    @property
    def tokens(self) -> int:
        """Return the estimated number of tokens to embed."""
        return -(-self.characters // 4)


CostOf: TypeAlias = Callable[[Connection, IndexSnapshot], RebuildCost | None]
StockVersion: TypeAlias = tuple[int, EmbeddingSpace | None]
"""The version of an index as a connection counts it, and the space that the settings ask for."""


def cost(
    connection: Connection, said: IndexSnapshot, space: EmbeddingSpace | None, recipe: str, *, is_free: bool
) -> RebuildCost | None:
    """Return what a rebuild would cost; None if the index matches the settings, or is empty."""
    is_of_other_space = space is not None and said.space not in (None, space)
    is_cut_differently = said.recipe not in (None, recipe)
    if not (is_of_other_space or is_cut_differently):
        return None
    if not connection.execute("SELECT EXISTS (SELECT 1 FROM chunks)").get:
        return None
    reasons = []
    if is_of_other_space:
        reasons.append(f"the vectors are from {_named(said.space)}, but the settings name {_named(space)}")
    if is_cut_differently:
        reasons.append("passages are now cut, or their words indexed, in a different way")
    passages, characters = _to_embed(connection, space, is_cut_differently=is_cut_differently)
    return RebuildCost(
        reasons=tuple(reasons),
        is_of_other_space=is_of_other_space,
        is_free=is_free,
        passages=passages,
        characters=characters,
    )


class Stock(NamedTuple):
    """The counts of the index and the cost of a rebuild at one moment, with what they depend on."""

    connection: Connection
    version: StockVersion
    snapshot: IndexSnapshot
    cost: RebuildCost | None


def stock(
    connection: Connection,
    cost_of: CostOf,
    *,
    space: EmbeddingSpace | None,
    counted_at: Mapping[Connection, StockVersion],
) -> Stock | None:
    """Return the stock of the index; None if nothing has changed since the version it was counted at."""
    version = data_version(connection), space
    if counted_at.get(connection) == version:
        return None
    snapshot = index_meta.snapshot(connection)
    return Stock(connection, version, snapshot, cost_of(connection, snapshot))


class StoredState(NamedTuple):
    """An index's metadata when a sync begins, and what a rebuild would cost."""

    said: IndexSnapshot
    cost: RebuildCost | None
    pending: int
    """How many passages lack a vector that they should have."""


def stored_state(connection: Connection, cost_of: CostOf, *, has_vectors: bool) -> StoredState:
    """Return an index's metadata; `has_vectors` says whether its passages should have vectors."""
    said = index_meta.said(connection)
    pending = index_writes.count_pending(connection, LIVE) if has_vectors else 0
    return StoredState(said, cost_of(connection, said), pending)


def begin(connection: Connection, tables: Tables) -> None:
    """Create empty `tables` for their owner, dropping those of an earlier rebuild."""
    connection.execute(DROP)
    last = connection.execute(LAST_IDS, (LIVE.chunks,)).get
    generation = (last >> GENERATION_BITS) + 1
    schema.create_passages(connection, tables, f"_{generation}")
    connection.execute("DELETE FROM sqlite_sequence WHERE name = ?", (tables.chunks,))
    connection.execute(START_IDS, (tables.chunks, generation << GENERATION_BITS))
    index_meta.set_value(connection, REBUILD, tables.owner)


def give_up(connection: Connection, tables: Tables) -> None:
    """Drop `tables` unless they were swapped in or another rebuild has begun."""
    if index_meta.value(connection, REBUILD) == tables.owner:
        drop_tables(connection)


def swap(
    connection: Connection, tables: Tables, *, space: EmbeddingSpace | None, recipe: str, now_ms: int
) -> None:
    """Replace the live tables by `tables`.

    Raises:
        IndexProblem: another rebuild has taken them over.
    """
    tables.check_owner(connection)
    connection.execute(tables.sql(ONE_SEGMENT))
    if space is not None:
        connection.execute(LET_GO_OF_VECTORS, (now_ms, *space.identity))
        index_meta.store_space(connection, space)
    connection.execute(REPLACE + schema.WATCH_VECTORS)
    connection.execute(ANY_VECTOR_CHANGED)
    index_meta.set_value(connection, index_meta.RECIPE, recipe)
    index_meta.set_value(connection, REBUILD, None)
    index_meta.bump_revision(connection)


def drop_leftovers(connection: Connection) -> bool:
    """Drop the tables of a rebuild whose process has died; return whether there were any."""
    if not is_under_way(connection) or not index_meta.LEASE.is_free(connection):
        return False
    drop_tables(connection)
    return True


def is_under_way(connection: Connection) -> bool:
    """Return whether the tables of a rebuild exist."""
    return index_meta.value(connection, REBUILD) is not None


def prune_cache(connection: Connection, max_entries: int) -> int:
    """Remove unused vectors above `max_entries`; none during a rebuild, which may use them."""
    return 0 if is_under_way(connection) else embedding_cache.prune(connection, max_entries)


def prune_kept(connection: Connection) -> None:
    """Drop cached data of files that are no longer in the index; nothing during a rebuild."""
    if not is_under_way(connection):
        document_cache.prune(connection)
        message_times.prune(connection)


def _to_embed(
    connection: Connection, space: EmbeddingSpace | None, *, is_cut_differently: bool
) -> tuple[int, int]:
    """Return the most passages and characters that would have to be embedded."""
    if space is None:
        return 0, 0
    if is_cut_differently:
        passages, characters = next(connection.execute(ALL_TEXTS))
    else:
        passages, characters = next(connection.execute(TEXTS_TO_EMBED, space.identity))
    return passages, characters


def drop_tables(connection: Connection) -> None:
    """Drop the tables of a rebuild, if there are any."""
    connection.execute(DROP)
    index_meta.set_value(connection, REBUILD, None)


def _named(space: EmbeddingSpace | None) -> str:
    return f"{space.provider} ({space.model}, {space.dims} numbers)" if space else "no embedder"
