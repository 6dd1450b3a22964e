"""What was found in a content: entities, what is said of them, and what to know about how it was found."""

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from composable_memory.content import ExtractedEntity, ExtractedRelation, IngestWarning, MemoryContentObject
from composable_memory.interfaces import EntityExtractor, SupportsRelations

__all__ = ["Extraction", "SupportsExtraction", "extract_from"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Extraction:
    """The entities and relations of one content."""

    entities: tuple[ExtractedEntity, ...] = ()
    relations: tuple[ExtractedRelation, ...] = ()
    warnings: tuple[IngestWarning, ...] = ()


@runtime_checkable
class SupportsExtraction(Protocol):
    """An extractor that finds entities and relations in one go, and says if it could not do its best."""

    async def read(self, content: MemoryContentObject) -> Extraction:
        """Return what `content` says."""
        ...


async def extract_from(extractor: EntityExtractor, content: MemoryContentObject) -> Extraction:
    """Return all that `extractor` finds in `content`, by the shortest way that it offers."""
    if isinstance(extractor, SupportsExtraction):
        return await extractor.read(content)
    entities = tuple(await extractor.extract(content))
    if not isinstance(extractor, SupportsRelations):
        return Extraction(entities=entities)
    return Extraction(entities=entities, relations=tuple(await extractor.relate(content, entities)))
