"""Parses session keys: with whom a session is and over which channel (pure).

A key is `agent:<id>:` and a rest, such as `agent:main:telegram:group:-100`; the first part may be missing.
Case is ignored.
"""

import re
from typing import Literal

from composable_memory_ops_logs.quick_dataclass import dataclass

ChatType = Literal["direct", "group", "channel"]
"""With whom a session is: one person, a group, or all readers of a channel."""

_AGENT = re.compile("^agent:[^:]*:")
_SUBAGENT = "subagent:"
_KINDS = frozenset({"group", "channel", "direct", "dm"})
_SHARED = frozenset({"group", "channel"})


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionPlace:
    """The channel of a session, such as `telegram`, and with whom it is. None means unknown."""

    channel: str | None = None
    chat_type: ChatType | None = None


def place_of(session_key: str | None) -> SessionPlace:
    """Return the place of a session, from its key.

    A key whose second part is `group`, `channel`, `direct` or `dm` names the channel in its first part. A
    session is with a group, or with a channel, if any part of its key says so, and otherwise with one person.
    Without a key, or for a session that an agent opened for itself, nothing is known.
    """
    key = without_agent(session_key)
    if not key or key.startswith(_SUBAGENT):
        return SessionPlace()
    parts = key.split(":")
    names_channel = len(parts) > 1 and parts[1] in _KINDS
    return SessionPlace(channel=parts[0] or None if names_channel else None, chat_type=_chat_type(parts))


def is_shared(session_key: str | None) -> bool:
    """Return whether others read along in a session, as any part of its key may say, whoever opened it."""
    return not _SHARED.isdisjoint(without_agent(session_key).split(":"))


def without_agent(session_key: str | None) -> str:
    """Return a session's key in lower case without `agent:<id>:`; empty if there is none."""
    return _AGENT.sub("", (session_key or "").strip().lower())


def _chat_type(parts: list[str]) -> ChatType:
    if "group" in parts:
        return "group"
    return "channel" if "channel" in parts else "direct"
