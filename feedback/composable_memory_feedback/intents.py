"""The kinds of questions that weights can differ by (pure)."""

from collections.abc import Sized
from enum import StrEnum


class IntentKind(StrEnum):
    """What a question is mostly about, by what its words name."""

    TIME = "time"
    """It speaks of a time, such as "last week"."""
    TOPIC = "topic"
    """It names a topic, as in "about the greenhouse" or "#outage"."""
    ENTITY = "entity"
    """It names something: a person, a file, a product."""
    GENERAL = "general"
    """It names none of these."""


def intent_kind(*, entities: Sized, topics: Sized, time_hints: Sized) -> IntentKind:
    """Return the kind of a question; where several would fit, a time goes before a topic before a name."""
    if len(time_hints):
        return IntentKind.TIME
    if len(topics):
        return IntentKind.TOPIC
    return IntentKind.ENTITY if len(entities) else IntentKind.GENERAL
