"""Renames a backup of one memory for another: its groups, and the ids derived from them (pure)."""

from collections.abc import Mapping
from dataclasses import replace

from composable_memory_adapters.graphiti.database.cypher import texts_in
from composable_memory_adapters.graphiti.episodes import graph_id
from composable_memory_adapters.graphiti.fact_stores import VECTORS, LinkLine, NodeLine
from composable_memory_adapters.graphiti.outbox.entries import (
    EntryRow,
    digest_of,
    draft_from_json,
    draft_to_json,
)

UUID_CHARS = 36


class Renaming:
    """Renames groups, ids and paths.

    `groups` maps old group names to new ones; the prefix `before` of ids and paths becomes `after`. An id
    derived from a group is derived again from its new name, so that episodes enqueued or forgotten again are
    found. Call `learn` with everything that has an id first.
    """

    def __init__(self, groups: Mapping[str, str], *, before: str, after: str) -> None:
        self._groups = groups
        self._before = before
        self._after = after
        self._ids: dict[str, str] = {}

    def learn(self, line: EntryRow | NodeLine | LinkLine) -> None:
        """Compute the new id of a line."""
        if isinstance(line, EntryRow):
            self._learn(line.group_id, line.id, [line.content_id])
            return
        properties = line.properties
        own_id = str(properties.get("own_id") or properties.get("name"))
        names = [own_id]
        if isinstance(line, LinkLine):
            stated = texts_in(properties.get("told"))
            moments = [properties.get("valid_at"), *(told.partition(" ")[2] for told in stated)]
            names += [f"{own_id}@{moment}" for moment in moments]
            names.append(_mention(line.source, line.target))
        self._learn(line.group, str(properties.get("uuid")), names, line)

    def _learn(self, group: str, old: str, names: list[str], line: NodeLine | LinkLine | None = None) -> None:
        new_group = self._groups[group]
        if new_group == group and self._before == self._after:
            return
        source_name = next((name for name in names if graph_id(group, name) == old), None)
        if source_name is None:
            self._ids[old] = old if new_group == group else graph_id(new_group, old)
        elif isinstance(line, LinkLine) and source_name == _mention(line.source, line.target):
            self._ids[old] = graph_id(new_group, _mention(self._id(line.source), self._id(line.target)))
        else:
            self._ids[old] = graph_id(new_group, self._text(source_name))

    def row(self, row: EntryRow) -> EntryRow:
        """Return a renamed outbox entry."""
        own_id, group = self._id(row.id), self._groups[row.group_id]
        named = {
            "id": own_id,
            "group_id": group,
            "draft_id": self._draft_id(row),
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
        """Return a renamed node."""
        group = self._groups[node.group]
        return node.model_copy(update={"group": group, "properties": self._properties(node, group)})

    def link(self, link: LinkLine) -> LinkLine:
        """Return a renamed relationship."""
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
        renamed = {
            name: value if name in VECTORS else self._value(value) for name, value in line.properties.items()
        }
        return renamed | {"group_id": group}

    def _value(self, value: object) -> object:
        if isinstance(value, list):
            return [self._value(one) for one in value]
        if not isinstance(value, str):
            return value
        id_, rest = value[:UUID_CHARS], value[UUID_CHARS:]
        if id_ in self._ids and rest[:1] in ("", " "):
            return self._ids[id_] + rest
        return self._text(value)

    def _draft_id(self, row: EntryRow) -> str:
        bare = row.content_id.rpartition("@")[0]  # a later text with the same id ends in a hash
        names = [row.content_id, bare, self._before + row.content_id, self._before + bare]
        name = next((one for one in names if graph_id(row.group_id, one) == row.draft_id), row.content_id)
        return graph_id(self._groups[row.group_id], self._text(name))

    def _id(self, old: str) -> str:
        return self._ids.get(old, old)

    def _text(self, text: str) -> str:
        return text.replace(self._before, self._after)


def _mention(episode: str, entity: str) -> str:
    return f"mention:{episode}:{entity}"
