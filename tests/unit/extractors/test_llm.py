"""A model is asked once for each content; whatever it answers, something sensible comes of it."""

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

import pytest

from composable_memory.content import (
    ExtractedEntity,
    ExtractedRelation,
    IngestWarning,
    MemoryContentObject,
    MemoryTemporalMetadata,
)
from composable_memory.errors import BackendTimeout
from composable_memory.interfaces import EntityExtractor, SupportsRelations
from composable_memory.types import JsonValue
from composable_memory_adapters.extractors import ChatMessage, LlmExtractor
from composable_memory_adapters.extractors.heuristic import read_by_rules

CONTENT = MemoryContentObject(
    id="c",
    kind="message",
    text="I moved to Oslo yesterday.",
    title="Chat",
    metadata={"speaker": "Anna"},
    temporal=MemoryTemporalMetadata(observed_at=datetime(2026, 5, 13, tzinfo=UTC)),
)
GOOD: dict[str, JsonValue] = {
    "entities": [{"label": "Anna", "type": "person"}, {"label": "Oslo", "type": "Town"}],
    "relations": [
        {
            "source": "Anna",
            "target": "Oslo",
            "type": "lives in",
            "fact": "Anna lives\n in Oslo.",
            "valid_from": "2026-05-12",
            "confidence": 0.8,
        }
    ],
}
RELATION = ExtractedRelation(
    source="Anna",
    target="Oslo",
    type="LIVES_IN",
    fact="Anna lives in Oslo.",
    exclusive=True,
    valid_from=datetime(2026, 5, 12, tzinfo=UTC),
    confidence=0.8,
)


class Model:
    """Answers what it was given, or raises it."""

    def __init__(self, answer: str | Exception) -> None:
        self.answer = answer
        self.asked: list[tuple[Sequence[ChatMessage], Mapping[str, JsonValue]]] = []

    async def complete(self, messages: Sequence[ChatMessage], schema: Mapping[str, JsonValue]) -> str:
        self.asked.append((messages, schema))
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def extractor(answer: str | Exception) -> tuple[LlmExtractor, Model, list[IngestWarning]]:
    model, warnings = Model(answer), list[IngestWarning]()
    return LlmExtractor(model, warn=warnings.append), model, warnings


async def test_the_answer_is_found_whatever_stands_around_it() -> None:
    cases: list[str] = [
        json.dumps(GOOD),
        f"```json\n{json.dumps(GOOD, indent=2)}\n```",
        f"Here {{you}} are: {json.dumps(GOOD)} - anything else?",
        f"<think>First {json.dumps({'note': 1})}.</think>{json.dumps(GOOD)}",
    ]
    for answer in cases:
        reader, _, warnings = extractor(answer)
        found = await reader.read(CONTENT)

        assert found.entities == (
            ExtractedEntity(label="Anna", type="Person"),
            ExtractedEntity(label="Oslo", type="Concept"),
        )
        assert found.relations == (RELATION,)
        assert (warnings, found.warnings) == ([], ())


async def test_rubbish_leaves_it_to_the_rules_and_says_so() -> None:
    cases: list[str] = [
        "",
        "I cannot do that.",
        "[1, 2]",
        '{"entities": "none"}',
        '{"entities": [',
        "{" * 5_000,
        '{"a":' * 5_000,
    ]
    for answer in cases:
        reader, _, warnings = extractor(answer)
        found = await reader.read(CONTENT)
        by_rules = read_by_rules(CONTENT)

        assert (found.entities, found.relations) == (by_rules.entities, by_rules.relations)
        assert [one.code for one in warnings] == ["entity_extract.llm_unreadable"]
        assert found.warnings == tuple(warnings)


@pytest.mark.parametrize(
    "error", [BackendTimeout("chat", "complete", limit_s=1, elapsed_s=1), ConnectionRefusedError("no")]
)
async def test_a_model_that_cannot_be_asked_leaves_it_to_the_rules_and_says_so(error: Exception) -> None:
    reader, _, warnings = extractor(error)

    assert (await reader.read(CONTENT)).relations == read_by_rules(CONTENT).relations
    assert [one.code for one in warnings] == ["entity_extract.llm_unavailable"]


async def test_single_entries_that_make_no_sense_are_left_out() -> None:
    odd: dict[str, JsonValue] = {
        "entities": [{"label": ""}, "Anna", {"label": "Oslo"}],
        "relations": [
            {"source": "Anna"},
            {"source": "Anna", "target": "Oslo", "type": "?", "fact": "It is so.", "valid_to": "soon"},
        ],
    }
    found = await extractor(json.dumps(odd))[0].read(CONTENT)

    assert [one.label for one in found.entities] == ["Oslo"]
    assert [(one.type, one.valid_to) for one in found.relations] == [("STATES", None)]


async def test_what_has_one_holder_at_a_time_is_marked() -> None:
    relation = {"source": "Anna", "target": "Acme", "fact": "Anna is its head."}
    for type_, one_holder in (("ceo of", True), ("LEADS", True), ("WORKS_AT", False)):
        answer = json.dumps({"entities": [], "relations": [{**relation, "type": type_}]})
        (found,) = (await extractor(answer)[0].read(CONTENT)).relations
        assert found.one_holder is one_holder, type_


async def test_the_model_is_asked_once_for_entities_and_relations() -> None:
    reader, model, _ = extractor(json.dumps(GOOD))
    entities = await reader.extract(CONTENT)
    relations = await reader.relate(CONTENT, entities)

    assert isinstance(reader, EntityExtractor)
    assert isinstance(reader, SupportsRelations)
    assert list(relations) == [RELATION]
    assert list(await reader.relate(CONTENT, entities[:1])) == []
    assert len(model.asked) == 1


async def test_the_model_is_told_who_speaks_and_when() -> None:
    reader, model, _ = extractor(json.dumps(GOOD))
    await reader.read(CONTENT)
    ((system, user), schema) = model.asked[0]

    assert (system.role, user.role) == ("system", "user")
    assert "Said by: Anna" in user.content
    assert "Written: 2026-05-13" in user.content
    assert user.content.endswith("I moved to Oslo yesterday.")
    assert set(schema["properties"]) == {"entities", "relations"}  # type: ignore[arg-type]
