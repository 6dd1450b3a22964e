"""Decides which group of the graph a content goes to, and which groups a question searches (pure)."""

import re
import unicodedata
from hashlib import sha256

from composable_memory.content import MemoryProvenance
from composable_memory_adapters.graphiti.settings import GraphitiSettings
from composable_memory_ops_logs.quick_dataclass import dataclass

SAFE = re.compile(r"[A-Za-z0-9_-]{1,64}")
UNSAFE_RUN = re.compile(r"[^A-Za-z0-9]+")
TAKEN = frozenset({"_", "default_db"})
"""The default graph names of Graphiti and FalkorDB."""
SLUG_CHARS = 40
HASH_CHARS = 12
AGENT_CHARS = 8
HASHED = re.compile(rf"(?:-[A-Za-z0-9-]*)?-[0-9a-f]{{{HASH_CHARS}}}")
DIRECT = frozenset({"direct", "dm"})
"""The session key part that precedes the other person's id in a direct conversation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupScope:
    """The groups that one workspace of an agent reads and writes.

    `claimed` groups belong only to the workspace although they are not named after it.
    """

    settings: GraphitiSettings
    agent_id: str
    workspace_id: str
    claimed: frozenset[str] = frozenset()

    @property
    def base(self) -> str:
        """Return the group that the settings name, or else the workspace's own."""
        return self.settings.group or self._default

    @property
    def searched(self) -> tuple[str, ...]:
        """Return the groups that every session may search, the workspace's own first."""
        return self.searched_by(None)

    @property
    def owner_in_ids(self) -> str | None:
        """Return the workspace id that marks our episodes in a group that the settings name."""
        return self.workspace_id if self.settings.group else None

    @property
    def _default(self) -> str:
        is_claimed = safe_group_id(self.agent_id) in self.claimed
        return self.agent_id if is_claimed else default_group(self.agent_id, self.workspace_id)

    def searched_by(self, session_key: str | None) -> tuple[str, ...]:
        """Return the groups that a question from a session searches, its own first.

        Content that belongs to no particular user, such as notes, is in the agent's group and open to
        everybody.
        """
        own = self.group_of(MemoryProvenance(source="search", session_key=session_key))
        others = (safe_group_id(key) for key in (self.base, *self.settings.also_search))
        return tuple(dict.fromkeys((own, *others)))

    def group_of(self, provenance: MemoryProvenance | None) -> str:
        """Return the group that a content goes to."""
        return group_of(self.settings, self._default, provenance)

    def may_read(self, group_id: str) -> bool:
        """Return whether a path may name a group: a searched one, or one of a user or session.

        Which session requests a path is not known, so within an agent, paths are open to all its sessions.
        """
        if group_id in self.searched:
            return True
        kind = self.settings.ingest.group_by
        return kind != "agent" and _is_within(self.base, kind, group_id)

    def is_private(self, group_id: str) -> bool:
        """Return whether a group belongs only to this workspace."""
        return group_id in self.claimed or is_of(self._default, group_id)


def default_group(agent_id: str, workspace_id: str) -> str:
    """Return the group of an agent's memory of one workspace, shared with no other workspace.

    It is short enough to be a prefix of the names of all groups within it.
    """
    room = SLUG_CHARS - len(f"_{workspace_id}-session")
    if len(agent_id) > room:
        agent_id = sha256(agent_id.encode()).hexdigest()[:AGENT_CHARS]
    return f"{agent_id}_{workspace_id}"


def group_of(settings: GraphitiSettings, default: str, provenance: MemoryProvenance | None) -> str:
    """Return the group that a content goes to.

    If neither user nor session is known, this is the group that the settings name, or `default`.
    """
    base = settings.group or default
    if provenance is None:
        return safe_group_id(base)
    match settings.ingest.group_by:
        case "user":
            return _group_within(base, "user", _user_of(provenance))
        case "session":
            return _group_within(base, "session", provenance.session_key)
        case _:
            return safe_group_id(base)


def is_of(base: str, group_id: str) -> bool:
    """Return whether a group is `base` itself, or that of a user or a session within it."""
    within = any(_is_within(base, kind, group_id) for kind in ("user", "session"))
    return group_id == safe_group_id(base) or within


def safe_group_id(key: str) -> str:
    """Return `key` as a name valid in every graph database; different keys get different names.

    A name of up to 64 letters, digits, `_` and `-` stays as it is. Any other key keeps its readable part,
    with a hash of the whole.
    """
    if SAFE.fullmatch(key) and key not in TAKEN:
        return key
    digest = sha256(key.encode("utf-8", "surrogatepass")).hexdigest()[:HASH_CHARS]
    return f"{_slug(key) or 'group'}-{digest}"


def _slug(key: str) -> str:
    plain = unicodedata.normalize("NFKD", key).encode("ascii", "ignore").decode()
    return UNSAFE_RUN.sub("-", plain)[:SLUG_CHARS].strip("-")


def _group_within(base: str, kind: str, key: str | None) -> str:
    # The line break separates "a" with user "b" from an agent whose name is both together.
    return safe_group_id(f"{base}\n{kind}\n{key}" if key else base)


def _is_within(base: str, kind: str, group_id: str) -> bool:
    begins = _slug(f"{base}\n{kind}\n")
    return group_id.startswith(begins) and HASHED.fullmatch(group_id, len(begins)) is not None


def _user_of(provenance: MemoryProvenance) -> str | None:
    """Name the user after a direct conversation if it is one: a question comes with nothing else."""
    partner = _partner_in(provenance.session_key)
    if partner or not provenance.actor_id:
        return partner
    return f"{provenance.channel}:{provenance.actor_id}" if provenance.channel else provenance.actor_id


def _partner_in(session_key: str | None) -> str | None:
    """Return channel and user from a key such as `agent:main:telegram:direct:170`; None for other keys."""
    parts = (session_key or "").split(":")
    place = next((at for at, part in enumerate(parts) if part in DIRECT), None)
    if place is None or parts[0] != "agent" or place < 2:
        return None
    user = ":".join(parts[place + 1 :])
    # The key may name one of several accounts, but the user is the same: use only the channel.
    return ":".join((*parts[2 : min(place, 3)], user)) if user else None
