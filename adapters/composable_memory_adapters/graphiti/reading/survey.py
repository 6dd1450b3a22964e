"""What has to be known of a group before its facts are looked for: their number, words and vectors."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from composable_memory.supervision.tasks import all_of
from composable_memory_adapters.graphiti.database.cypher import CypherDatabase
from composable_memory_adapters.graphiti.library.space import stored_space
from composable_memory_adapters.graphiti.reading.dialects import dialect_of
from composable_memory_adapters.graphiti.reading.rows import number_in
from composable_memory_adapters.graphiti.reading.statements import Statements, statements_for
from composable_memory_adapters.graphiti.reading.vector_index import VectorIndex, indexed, wants_index
from composable_memory_adapters.graphiti.reading.words import QuestionWord
from composable_memory_adapters.graphiti.settings import SearchSettings
from composable_memory_adapters.graphiti.stores import Question

__all__ = ["Asked", "Survey", "survey"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A question as a database is asked it; `space` names the space that `vector` is in, if that is known."""

    question: Question
    words: Sequence[QuestionWord]
    vector: Sequence[float] | None
    space: str | None
    settings: SearchSettings

    def statements(self, database: CypherDatabase) -> Statements:
        """Return the statements for this question."""
        return statements_for(database.kind, in_window=self.question.window is not None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """What is known of a group: its number of facts, and how many of them hold each word.

    `engine` finds the facts that are near to the question, "exact" or "hnsw"; None without a vector, and
    where those of the group are another model's: then `mismatch` says whose.
    """

    group_id: str
    facts: int
    frequencies: Mapping[str, int]
    engine: str | None = None
    mismatch: str | None = None


async def survey(database: CypherDatabase, asked: Asked, group_id: str) -> Survey:
    """Look around in one group.

    Raises:
        BackendError: the database cannot be reached.
    """
    facts, words, (stored, index) = await all_of(
        _count_facts(database, asked, group_id),
        _count_words(database, asked, group_id),
        _vectors(database, asked, group_id),
    )
    found = Survey(group_id=group_id, facts=facts, frequencies=words)
    if asked.vector is None:
        return found
    if stored is not None and stored != asked.space:
        return replace(found, mismatch=f"its vectors were made by {stored}, the question's by {asked.space}")
    is_usable = index is not None and index.is_ready and index.dimensions == len(asked.vector)
    return replace(found, engine="hnsw" if is_usable and wants_index(asked.settings, facts) else "exact")


async def _count_facts(database: CypherDatabase, asked: Asked, group_id: str) -> int:
    rows = await database.read(group_id, asked.statements(database).count)
    return number_in(rows[0], "facts") if rows else 0


async def _count_words(database: CypherDatabase, asked: Asked, group_id: str) -> Mapping[str, int]:
    any_of = dialect_of(database.kind).any_of
    texts = {any_of(word.lookups): word.text for word in asked.words if not word.is_pair}
    if not texts:
        return {}
    rows = await database.read(group_id, asked.statements(database).frequencies, lookups=[*texts])
    return {texts[str(row["word"])]: number_in(row, "facts") for row in rows}


async def _vectors(
    database: CypherDatabase, asked: Asked, group_id: str
) -> tuple[str | None, VectorIndex | None]:
    """Return the space of the vectors of a group, and their index, as far as it matters."""
    if asked.vector is None:
        return None, None
    stored = await stored_space(database, group_id) if asked.space else None
    return stored, await indexed(database, group_id) if asked.settings.vector_index != "off" else None
