"""Ids that were made from a group are made from the new one, all others are still told apart."""

from datetime import UTC, datetime

from composable_memory.content import MemoryContentObject
from composable_memory_adapters.graphiti.episodes import EpisodeDraft, graph_id
from composable_memory_adapters.graphiti.fact_stores import LinkLine, NodeLine
from composable_memory_adapters.graphiti.outbox.entries import (
    EntryRow,
    digest_of,
    draft_from_json,
    draft_to_json,
)
from composable_memory_adapters.graphiti.outbox.renaming import Renaming

FOUND_BY_MODEL = "0b6c1f0a-9c4e-4d8e-8f2e-3a1f5f1c7d11"
SINCE = "2026-03-01T00:00:00+00:00"


def node(group: str, name: str, uuid: str | None = None) -> NodeLine:
    told: dict[str, object] = {"uuid": uuid or graph_id(group, name), "group_id": group, "name": name}
    return NodeLine(group=group, labels=("Entity",), properties=told | ({} if uuid else {"own_id": name}))


def fact(group: str, own_id: str, source: str, target: str, *, uuid: str, episode: str) -> LinkLine:
    told: dict[str, object] = {
        "uuid": uuid,
        "own_id": own_id,
        "group_id": group,
        "valid_at": SINCE,
        "episodes": [episode],
        "told": [f"{episode} {SINCE}"],
        "fact_embedding": [0.5, 0.25],
    }
    return LinkLine(
        group=group,
        type="RELATES_TO",
        source_label="Entity",
        source=source,
        target_label="Entity",
        target=target,
        properties=told,
    )


def row(group: str, own_id: str, handed_in_as: str, text: str) -> EntryRow:
    moment = datetime(2026, 3, 1, tzinfo=UTC)
    draft = EpisodeDraft(
        id=graph_id(group, own_id),
        group_id=group,
        content=MemoryContentObject(id=own_id, kind="fact", text=text),
        text=text,
        observed_at=moment,
        ingested_at=moment,
    )
    return EntryRow(
        id=draft.id,
        sequence=1,
        group_id=group,
        draft_id=graph_id(group, handed_in_as),
        content_id=own_id,
        part_of=handed_in_as,
        session_key=None,
        source_path=None,
        state="done",
        draft=draft_to_json(draft),
        hash=digest_of(draft),
        attempts=0,
        last_error=None,
        merged_into=None,
        trace_id=None,
        observed_at=0.0,
        enqueued_at=0.0,
        since=0.0,
        is_marked=1,
    )


def test_entities_facts_and_what_supports_them_get_the_ids_of_the_new_group() -> None:
    episode = row("old", "note", "note", "Alice works at Acme.")
    alice, acme = node("old", "alice"), node("old", "acme", FOUND_BY_MODEL)
    again = graph_id("old", f"works@{SINCE}")
    ends = (str(alice.properties["uuid"]), FOUND_BY_MODEL)
    works = fact("old", "works", *ends, uuid=again, episode=episode.id)
    renaming = Renaming({"old": "new"}, before="workspace:a/", after="")
    for line in (episode, alice, acme, works):
        renaming.learn(line)

    named = renaming.link(works)

    assert renaming.node(alice).properties == node("new", "alice").properties
    assert named.source == graph_id("new", "alice")
    assert named.target == renaming.node(acme).properties["uuid"] not in (FOUND_BY_MODEL, None)
    assert named.properties["uuid"] == graph_id("new", f"works@{SINCE}")
    assert named.properties["episodes"] == [graph_id("new", "note")]
    assert named.properties["told"] == [f"{graph_id('new', 'note')} {SINCE}"]
    assert named.properties["fact_embedding"] == [0.5, 0.25]
    assert named.properties["group_id"] == "new"


def test_a_later_text_of_an_id_is_still_found_by_the_id_that_it_was_handed_in_with() -> None:
    later = row("team", "workspace:a/note@12345678", "workspace:a/note", "Alice works at Globex.")
    renaming = Renaming({"team": "team"}, before="workspace:a/", after="workspace:b/")
    renaming.learn(later)

    named = renaming.row(later)

    assert named.draft_id == graph_id("team", "workspace:b/note")
    assert named.id == graph_id("team", "workspace:b/note@12345678")
    draft = draft_from_json(named.draft)
    assert (draft.id, draft.content.id, digest_of(draft)) == (named.id, named.content_id, named.hash)


def test_in_the_same_memory_everything_is_called_as_it_was() -> None:
    episode, bob = row("old", "note", "note", "Bob works at Acme."), node("old", "bob", FOUND_BY_MODEL)
    renaming = Renaming({"old": "old"}, before="workspace:a/", after="workspace:a/")
    for line in (episode, bob):
        renaming.learn(line)

    assert renaming.row(episode) == episode
    assert renaming.node(bob) == bob
