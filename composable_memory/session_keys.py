"""Session keys: with whom a session is and over which channel, as far as its key tells (pure).

A key is `agent:<id>:` and a rest, such as `agent:main:telegram:group:-100`; the first part may be missing.
Keys are compared without regard to upper and lower case.
"""

import re
from typing import Literal

from composable_memory_ops_logs.quick_dataclass import dataclass

ChatType = Literal["direct", "group", "channel"]
"""With whom a session is: one person, a group, or all who read a channel."""

_AGENT = re.compile("^agent:[^:]*:")
_SUBAGENT = "subagent:"
_KINDS = frozenset({"group", "channel", "direct", "dm"})
_SHARED = frozenset({"group", "channel"})


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionPlace:
    """Where a session takes place: over which channel, such as `telegram`, and with whom. None is unknown."""

    channel: str | None = None
    chat_type: ChatType | None = None


def place_of(session_key: str | None) -> SessionPlace:
    """Return the place that a session's key tells.

    A key whose second part is `group`, `channel`, `direct` or `dm` names the channel in its first. A session
    is with a group, or with a channel, when any part of its key says so, and with one person when none does.
    Of no key, a blank one, and that of a session which an agent opened for itself, nothing is known.
    """
    key = without_agent(session_key)
    if not key or key.startswith(_SUBAGENT):
        return SessionPlace()
    parts = key.split(":")
    names_channel = len(parts) > 1 and parts[1] in _KINDS
    return SessionPlace(channel=parts[0] or None if names_channel else None, chat_type=_chat_type(parts))


def is_shared(session_key: str | None) -> bool:
    """Return whether others read along in a session, as any part of its key tells, whoever opened it."""
    return not _SHARED.isdisjoint(without_agent(session_key).split(":"))


def without_agent(session_key: str | None) -> str:
    """Return a session's key in lower case without `agent:<id>:`; empty where there is none."""
    return _AGENT.sub("", (session_key or "").strip().lower())


def _chat_type(parts: list[str]) -> ChatType:
    if "group" in parts:
        return "group"
    return "channel" if "channel" in parts else "direct"
