"""Gives what was copied from one memory the names of another: groups, and ids made from them (pure)."""

from collections.abc import Mapping
from dataclasses import replace

from pydantic import BaseModel, ConfigDict

from composable_memory_adapters.graphiti.episodes import graph_id
from composable_memory_adapters.graphiti.stores import VECTORS, LinkLine, NodeLine
from composable_memory_adapters.graphiti.writing.draft_wire import draft_from_json, draft_to_json
from composable_memory_adapters.graphiti.writing.entries import EntryState, digest_of

__all__ = ["EpisodeRow", "Renaming"]

UUID_CHARS = 36


class EpisodeRow(BaseModel):
    """A row of the ledger, as its columns are called."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: str
    sequence: int
    group_id: str
    draft_id: str
    content_id: str
    part_of: str
    session_key: str | None
    source_path: str | None
    state: EntryState
    draft: str
    hash: str
    attempts: int
    last_error: str | None
    merged_into: str | None
    trace_id: str | None
    observed_at: float
    enqueued_at: float
    since: float
    is_marked: int


class Renaming:
    """Names of one memory as those of another.

    `groups` maps them; ids and paths that begin with `before` begin with `after` then. An id that was made
    from a group is made from the new one: what is told again, or forgotten, is found by it. All that has an
    id is shown to `learn` first.
    """

    def __init__(self, groups: Mapping[str, str], *, before: str, after: str) -> None:
        self._groups = groups
        self._before = before
        self._after = after
        self._ids: dict[str, str] = {}

    def learn(self, line: EpisodeRow | NodeLine | LinkLine) -> None:
        """Note which id something will have."""
        if isinstance(line, EpisodeRow):
            self._learn(line.group_id, line.id, [line.content_id])
            return
        told = line.properties
        own_id = str(told.get("own_id") or told.get("name"))
        names = [own_id]
        if isinstance(line, LinkLine):
            since = [told.get("valid_at"), *(one[UUID_CHARS + 1 :] for one in _texts(told.get("told")))]
            names += [f"{own_id}@{moment}" for moment in since]
            names.append(_mention(line.source, line.target))
        self._learn(line.group, str(told.get("uuid")), names, line)

    def _learn(self, group: str, old: str, names: list[str], line: NodeLine | LinkLine | None = None) -> None:
        new_group = self._groups[group]
        if new_group == group and self._before == self._after:
            return
        made_from = next((name for name in names if graph_id(group, name) == old), None)
        if made_from is None:
            self._ids[old] = old if new_group == group else graph_id(new_group, old)
        elif isinstance(line, LinkLine) and made_from == _mention(line.source, line.target):
            self._ids[old] = graph_id(new_group, _mention(self._id(line.source), self._id(line.target)))
        else:
            self._ids[old] = graph_id(new_group, self._text(made_from))

    def row(self, row: EpisodeRow) -> EpisodeRow:
        """Return a row of the ledger with its new names."""
        own_id, group = self._id(row.id), self._groups[row.group_id]
        named = {
            "id": own_id,
            "group_id": group,
            "draft_id": self._handed_in_as(row),
            "content_id": self._text(row.content_id),
            "part_of": self._text(row.part_of),
            "source_path": row.source_path and self._text(row.source_path),
            "merged_into": row.merged_into and self._id(row.merged_into),
        }
        if row.draft:
            draft = replace(draft_from_json(self._text(row.draft)), id=own_id, group_id=group)
            named |= {"draft": draft_to_json(draft), "hash": digest_of(draft)}
        return row.model_copy(update=named)

    def node(self, node: NodeLine) -> NodeLine:
        """Return a node with its new names."""
        group = self._groups[node.group]
        return node.model_copy(update={"group": group, "properties": self._properties(node, group)})

    def link(self, link: LinkLine) -> LinkLine:
        """Return a relationship with its new names."""
        group = self._groups[link.group]
        return link.model_copy(
            update={
                "group": group,
                "source": self._id(link.source),
                "target": self._id(link.target),
                "properties": self._properties(link, group),
            }
        )

    def _properties(self, line: NodeLine | LinkLine, group: str) -> dict[str, object]:
        told = {
            name: value if name in VECTORS else self._value(value) for name, value in line.properties.items()
        }
        return told | {"group_id": group}

    def _value(self, value: object) -> object:
        if isinstance(value, list):
            return [self._value(one) for one in value]
        if not isinstance(value, str):
            return value
        id_, rest = value[:UUID_CHARS], value[UUID_CHARS:]
        if id_ in self._ids and rest[:1] in ("", " "):
            return self._ids[id_] + rest
        return self._text(value)

    def _handed_in_as(self, row: EpisodeRow) -> str:
        bare = row.content_id.rpartition("@")[0]  # a later text of the same id has a mark at its end
        names = [row.content_id, bare, self._before + row.content_id, self._before + bare]
        name = next((one for one in names if graph_id(row.group_id, one) == row.draft_id), row.content_id)
        return graph_id(self._groups[row.group_id], self._text(name))

    def _id(self, old: str) -> str:
        return self._ids.get(old, old)

    def _text(self, text: str) -> str:
        return text.replace(self._before, self._after)


def _mention(episode: str, entity: str) -> str:
    return f"mention:{episode}:{entity}"


def _texts(value: object) -> list[str]:
    return [one for one in value if isinstance(one, str)] if isinstance(value, list) else []
