"""Entities, facts and mentions as they are written to a graph (pure)."""

from dataclasses import dataclass
from datetime import datetime

__all__ = ["EntityRecord", "FactRecord", "MentionRecord"]


@dataclass(frozen=True, slots=True, kw_only=True)
class EntityRecord:
    """An entity. `properties`, `provenance` and `temporal` are JSON texts, given back as they came."""

    uuid: str
    own_id: str
    name: str
    created_at: datetime
    summary: str = ""
    kind: str = ""
    properties: str = "{}"
    provenance: str | None = None
    temporal: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FactRecord:
    """A fact between the entities `source` and `target`, which are UUIDs as `uuid` is.

    It ends by itself at `ends_at` and was taken back at `retired_at`; `invalid_at` is when it ends because of
    these or of another fact, and `expired_at` when that became known. One that is `exclusive` allows no other
    target at a time; one that `ends` says that what was stated of its entities before holds no more. `told`
    has the episodes with the times from which each says that it holds. For the JSON texts see `EntityRecord`.
    """

    uuid: str
    own_id: str
    source: str
    target: str
    relation: str
    fact: str
    created_at: datetime
    episodes: tuple[str, ...] = ()
    told: tuple[tuple[str, datetime], ...] = ()
    valid_at: datetime | None = None
    invalid_at: datetime | None = None
    expired_at: datetime | None = None
    ends_at: datetime | None = None
    retired_at: datetime | None = None
    reference_time: datetime | None = None
    expires_at: datetime | None = None
    confidence: float | None = None
    exclusive: bool = False
    ends: bool = False
    properties: str = "{}"
    provenance: str | None = None
    temporal: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MentionRecord:
    """That an episode speaks of an entity; all are UUIDs."""

    uuid: str
    episode: str
    entity: str
    created_at: datetime
