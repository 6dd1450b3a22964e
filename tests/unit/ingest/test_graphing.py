"""What was found in a content becomes nodes and edges with ids that never change."""

from dataclasses import replace
from datetime import UTC, datetime

from composable_memory.content import (
    ExtractedEntity,
    ExtractedRelation,
    MemoryContentObject,
    MemoryProvenance,
    MemoryTemporalMetadata,
    TemporalPolicyDecision,
)
from composable_memory.ingest.normalize import origin_of
from composable_memory.ingest.records import edge_id, graph_of, joined, node_id

DAY = datetime(2026, 5, 10, tzinfo=UTC)
LATER = datetime(2026, 6, 1, tzinfo=UTC)

CONTENT = MemoryContentObject(
    id="c1",
    kind="message",
    text="Anna lives in Oslo.",
    provenance=MemoryProvenance(source="note", citations=("memory/people.md#L3-L4",)),
    temporal=MemoryTemporalMetadata(observed_at=DAY),
)
LIVES = ExtractedRelation(
    source="Anna", target="Oslo", type="LIVES_IN", fact="Anna lives in Oslo.", exclusive=True, confidence=0.9
)


def test_an_entity_is_known_by_its_label_whatever_its_case_and_spaces() -> None:
    assert node_id("  Maria\t Lopez ") == node_id("MARIA LOPEZ") == "entity:maria lopez"
    assert node_id("Zoe\u0308") == node_id("Zoë")


def test_a_statement_is_known_by_its_ends_its_type_and_its_words() -> None:
    same = edge_id("ANNA", "LIVES_IN", "oslo", "anna  lives in Oslo.")
    other = {
        edge_id("Anna", "LIVES_IN", "Oslo", "Anna has moved to Oslo."),
        edge_id("Oslo", "LIVES_IN", "Anna", "Anna lives in Oslo."),
        edge_id("Anna", "KNOWS", "Oslo", "Anna lives in Oslo."),
    }

    assert edge_id("Anna", "LIVES_IN", "Oslo", "Anna lives in Oslo.") == same
    assert same not in other
    assert len(other) == 3


def test_an_edge_says_what_was_stated_where_and_for_how_long() -> None:
    decision = TemporalPolicyDecision(ttl_seconds=3600, valid_to=LATER, confidence=0.5)
    part = graph_of(CONTENT, [ExtractedEntity(label="Anna", type="Person")], [LIVES], decision)
    (edge,) = part.edges

    assert [(node.id, node.label, node.properties) for node in part.nodes] == [
        ("entity:anna", "Anna", {"kind": "Person", "text": "", "episodes": ["c1"]}),
        ("entity:oslo", "Oslo", {"kind": "", "text": "", "episodes": ["c1"]}),
    ]
    assert (edge.source_id, edge.type, edge.target_id) == ("entity:anna", "LIVES_IN", "entity:oslo")
    assert edge.properties == {
        "fact": "Anna lives in Oslo.",
        "episodes": ["c1"],
        "told": {"c1": "2026-05-10T00:00:00+00:00"},
        "exclusive": True,
        "confidence": 0.5,
    }
    assert edge.temporal == MemoryTemporalMetadata(
        observed_at=DAY, valid_to=LATER, expires_at=datetime(2026, 5, 10, 1, tzinfo=UTC)
    )
    assert edge.provenance == CONTENT.provenance


def test_a_relation_that_only_ends_says_so() -> None:
    left = ExtractedRelation(source="Bob", target="Acme", type="WORKS_AT", fact="Bob left.", valid_to=DAY)

    assert graph_of(CONTENT, [], [left]).edges[0].properties["ends"] is True


def test_what_a_text_says_further_down_is_told_later_and_one_sentence_tells_all_at_once() -> None:
    written = replace(CONTENT, temporal=MemoryTemporalMetadata(created_at=LATER))
    moved = replace(LIVES, target="Rome", fact="Anna lives in Rome and Bonn.", valid_from=None)
    edges = graph_of(
        written, [], [replace(LIVES, valid_from=None), moved, replace(moved, target="Bonn")]
    ).edges
    written_at = [edge.temporal.created_at for edge in edges if edge.temporal]

    assert len(written_at) == 3
    assert LATER == written_at[0] < written_at[1] == written_at[2]  # type: ignore[operator]


def test_a_relation_without_a_name_at_both_ends_is_left_out() -> None:
    blank = ExtractedRelation(source=" ", target="Oslo", type="STATES", fact="It rains.")

    assert graph_of(CONTENT, [], [blank]).edges == ()


def test_the_place_of_a_content_becomes_a_citation_of_its_edges() -> None:
    placed = MemoryContentObject(
        id="c2", kind="document", metadata={"path": "memory/a.md", "start_line": 2, "end_line": 5}
    )
    (edge,) = graph_of(placed, [], [LIVES]).edges

    assert edge.provenance is not None
    assert edge.provenance.citations == ("memory/a.md#L2-L5",)


def test_the_anchor_of_an_address_is_no_page() -> None:
    for cited in ("https://forum.example/t.php#p120", "https://x.example/#at:12", "a.pdf#p3", "a.md#L2-L5"):
        content = replace(CONTENT, provenance=MemoryProvenance(source="note", citations=(cited,)))
        origin = origin_of(content)

        assert origin is not None
        assert origin.citation == cited


def test_parts_that_state_the_same_are_joined_with_the_episodes_of_both() -> None:
    again = MemoryContentObject(id="c2", kind="message", text=CONTENT.text)
    parts = [
        graph_of(CONTENT, [], [LIVES]),
        graph_of(again, [ExtractedEntity(label="Anna", type="Person")], [LIVES]),
    ]
    whole = joined(parts)

    assert [edge.properties["episodes"] for edge in whole.edges] == [["c1", "c2"]]
    assert [node.properties["kind"] for node in whole.nodes] == ["Person", ""]
