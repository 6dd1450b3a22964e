"""The JSON documents of `cmem graph`."""

from collections.abc import Mapping, Sequence
from datetime import datetime

from composable_memory.facts import Episode, Fact, Forgotten, GraphEntity, Neighbourhood
from composable_memory.tools import Document
from composable_memory.tools.documents import AnyJson
from composable_memory.types import Origin

__all__ = [
    "AdoptedEpisodesDocument",
    "EntitiesDocument",
    "EntityDocument",
    "EpisodeDocument",
    "EpisodesDocument",
    "FactDocument",
    "FactsDocument",
    "ForgottenDocument",
    "NeighbourhoodDocument",
    "OriginDocument",
]


class AdoptedEpisodesDocument(Document):
    """`cmem graph adopt`: how many episodes were taken over, and how many are left of no workspace."""

    episodes: int
    left: int


class OriginDocument(Document):
    """Where something was taken from; lines are 1-based and inclusive, 0 where they are not known."""

    path: str
    start_line: int
    end_line: int

    @classmethod
    def of(cls, origin: Origin) -> "OriginDocument":
        """Return the document of an origin."""
        return cls(path=origin.path, start_line=origin.start_line, end_line=origin.end_line)


class FactDocument(Document):
    """A statement and the time in which it holds; `current` says whether it does now."""

    id: str
    group_id: str
    path: str
    text: str
    relation: str
    source: str
    target: str
    current: bool
    valid_at: datetime | None = None
    invalid_at: datetime | None = None
    created_at: datetime | None = None
    expired_at: datetime | None = None
    expires_at: datetime | None = None
    confidence: float | None = None
    episodes: tuple[str, ...]
    origins: tuple[OriginDocument, ...]

    @classmethod
    def of(cls, fact: Fact, *, path: str, now: datetime) -> "FactDocument":
        """Return the document of a fact that `cmem get` shows under `path`."""
        return cls(
            id=fact.id,
            group_id=fact.group_id,
            path=path,
            text=fact.text,
            relation=fact.relation,
            source=fact.source,
            target=fact.target,
            current=fact.is_current(now),
            valid_at=fact.valid_at,
            invalid_at=fact.invalid_at,
            created_at=fact.created_at,
            expired_at=fact.expired_at,
            expires_at=fact.expires_at,
            confidence=fact.confidence,
            episodes=fact.episodes,
            origins=tuple(map(OriginDocument.of, fact.origins)),
        )


class FactsDocument(Document):
    """`cmem graph facts` and `cmem graph timeline`."""

    facts: tuple[FactDocument, ...]


class EntityDocument(Document):
    """Somebody or something that facts are about."""

    id: str
    group_id: str
    name: str
    kind: str | None = None
    summary: str
    fact_count: int

    @classmethod
    def of(cls, entity: GraphEntity) -> "EntityDocument":
        """Return the document of an entity."""
        return cls.model_validate(entity, from_attributes=True)


class EntitiesDocument(Document):
    """`cmem graph entities`."""

    entities: tuple[EntityDocument, ...]


class EpisodeDocument(Document):
    """A content as a graph keeps it; `path` is what `cmem get` shows it under."""

    id: str
    group_id: str
    path: str
    content_id: str
    text: str
    observed_at: datetime | None = None
    ingested_at: datetime | None = None
    origin: OriginDocument | None = None
    source: str
    fact_count: int
    metadata: Mapping[str, AnyJson]

    @classmethod
    def of(cls, episode: Episode, *, path: str) -> "EpisodeDocument":
        """Return the document of an episode."""
        return cls(
            id=episode.id,
            group_id=episode.group_id,
            path=path,
            content_id=episode.content_id,
            text=episode.text,
            observed_at=episode.observed_at,
            ingested_at=episode.ingested_at,
            origin=OriginDocument.of(episode.origin) if episode.origin else None,
            source=episode.source,
            fact_count=episode.fact_count,
            metadata=dict(episode.metadata),
        )


class EpisodesDocument(Document):
    """`cmem graph episodes`."""

    episodes: tuple[EpisodeDocument, ...]


class ForgottenDocument(Document):
    """`cmem graph forget`: how many facts and entities went with the episode."""

    episode_id: str
    facts: int
    entities: int

    @classmethod
    def of(cls, forgotten: Forgotten) -> "ForgottenDocument":
        """Return the document of what went."""
        return cls.model_validate(forgotten, from_attributes=True)


class NeighbourhoodDocument(Document):
    """`cmem graph export`: entities and the facts between them; `output` is the file that was written."""

    entity: str | None = None
    depth: int
    entities: tuple[EntityDocument, ...]
    facts: tuple[FactDocument, ...]
    output: str | None = None

    @classmethod
    def of(
        cls,
        neighbourhood: Neighbourhood,
        facts: Sequence[FactDocument],
        *,
        entity: str | None,
        depth: int,
        output: str | None = None,
    ) -> "NeighbourhoodDocument":
        """Return the document of a neighbourhood, whose facts are given as documents."""
        return cls(
            entity=entity,
            depth=depth,
            entities=tuple(map(EntityDocument.of, neighbourhood.entities)),
            facts=tuple(facts),
            output=output,
        )
