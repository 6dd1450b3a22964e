"""The messages to and from the graph service; unknown fields in its answers are ignored."""

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Literal, TypeAlias

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict

from composable_memory.content import MemoryContentObject
from composable_memory.facts import Episode, Fact
from composable_memory.types import JsonValue
from composable_memory_adapters.graphiti.episodes import EpisodeDraft, origin_of
from composable_memory_adapters.graphiti.observed_times import in_utc

RoleType: TypeAlias = Literal["user", "assistant", "system"]


def _listed(value: object) -> object:
    return () if value is None else value


Moment = Annotated[datetime, AfterValidator(in_utc)]
Ids = Annotated[tuple[str, ...], BeforeValidator(_listed)]


class _Reply(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class ServiceFact(_Reply):
    """A fact from the service. It gives only the ids of the entities, not their names."""

    uuid: str
    name: str = ""
    fact: str
    valid_at: Moment | None = None
    invalid_at: Moment | None = None
    created_at: Moment | None = None
    expired_at: Moment | None = None
    source_node_uuid: str = ""
    target_node_uuid: str = ""
    episodes: Ids = ()


class ServiceEpisode(_Reply):
    """An episode from the service; `name` is the id of the content, if we sent it."""

    uuid: str
    group_id: str = ""
    name: str = ""
    content: str = ""
    source: str = ""
    source_description: str = ""
    created_at: Moment | None = None
    valid_at: Moment | None = None
    entity_edges: Ids = ()


class FoundFacts(_Reply):
    """The answer to a search."""

    facts: tuple[ServiceFact, ...]


class TakenMessages(_Reply):
    """The answer to messages: they are queued in the service's memory, nothing more."""

    success: bool
    message: str = ""


class HealthReply(_Reply):
    """The service's answer to a health check."""

    status: str


def as_message(draft: EpisodeDraft, now: datetime) -> Mapping[str, JsonValue]:
    """Convert a draft to a message of the service.

    It never has a `uuid`: the service would look for an episode with it, find none, and its only worker would
    die; so the id of the content is the name.
    """
    return {
        "name": draft.content.id,
        "content": draft.text,
        "role_type": _role_type(draft),
        "role": _role(draft.content),
        "timestamp": dated(draft, now).isoformat(),
        "source_description": draft.description,
    }


def dated(draft: EpisodeDraft, now: datetime) -> datetime:
    """Return the time to send with an episode.

    The service shows no episodes from the future, so one that claims to be gets the time when it reached us.
    """
    observed_at, ingested_at, now = in_utc(draft.observed_at), in_utc(draft.ingested_at), in_utc(now)
    return observed_at if observed_at <= now else min(ingested_at, now)


def message_key(name: str, text: str) -> str:
    """Return the key that identifies a message: its name and its words."""
    return "\n".join((name, " ".join(text.split())))


def as_fact(group_id: str, found: ServiceFact) -> Fact:
    """Convert a fact of a group to our type; its entities are named by their ids."""
    return Fact(
        id=found.uuid,
        group_id=group_id,
        text=found.fact,
        relation=found.name,
        source=found.source_node_uuid,
        target=found.target_node_uuid,
        valid_at=found.valid_at,
        invalid_at=found.invalid_at,
        created_at=found.created_at,
        expired_at=found.expired_at,
        episodes=found.episodes,
    )


def as_episode(group_id: str, found: ServiceEpisode) -> Episode:
    """Convert an episode of a group to our type; the speaker, if any, is in the metadata."""
    text, speaker = _told(found.content)
    return Episode(
        id=found.uuid,
        group_id=group_id,
        content_id=found.name,
        text=text,
        observed_at=found.valid_at,
        ingested_at=found.created_at,
        origin=origin_of(found.source_description),
        source=found.source_description,
        fact_count=len(found.entity_edges),
        metadata=speaker,
    )


def _told(content: str) -> tuple[str, Mapping[str, JsonValue]]:
    """Split a text from its speaker; the service stores both on one line."""
    match = _SPEAKER.match(content)
    if match is None:
        return content, {}
    spoke: dict[str, JsonValue] = {"role": match["role"], "role_type": match["type"]}
    return content[match.end() :], {name: value for name, value in spoke.items() if value}


_SPEAKER = re.compile(r"(?P<role>[^\n()]{0,200})\((?P<type>user|assistant|system)\): ")


def _role_type(draft: EpisodeDraft) -> RoleType:
    """Return the role type of a content: a note is nobody's message."""
    match draft.content.metadata.get("role"):
        case "assistant":
            return "assistant"
        case "system":
            return "system"
        case "user":
            return "user"
    return "user" if draft.source == "message" else "system"


def _role(content: MemoryContentObject) -> str | None:
    """Return the speaker's name; the service writes it before a bracket, so it must not contain one."""
    actor = content.provenance.actor_id if content.provenance else None
    name = " ".join(re.sub(r"[()\0]", " ", actor or "").split())
    return name[:200].rstrip() or None
