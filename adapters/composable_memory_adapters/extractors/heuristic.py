"""The extractor by rules: no model, thousands of sentences a second, every sentence accounted for.

A sentence with a known verb becomes a relation such as `LIVES_IN`; any other that states something becomes
one fact between what it speaks of. English is read best; names, quotations, code and dates are found in any
language that has them, and the commonest verbs in some.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby

from composable_memory.content import ExtractedEntity, ExtractedRelation, MemoryContentObject
from composable_memory.ingest.extract import Extraction
from composable_memory.ingest.lifetimes import observed_at
from composable_memory_adapters.extractors.names import UNSURE, Mention, mentions_in
from composable_memory_adapters.extractors.relations import Scene, relations_in
from composable_memory_adapters.extractors.statements import Statement, statements_of, subject_of

MAX_CHARS_ON_THE_LOOP = 300
"""A longer text is read in a thread; a shorter one, such as a message, takes a few milliseconds."""


class ReadingExtractor(ABC):
    """An extractor that reads a content once for both its entities and its relations."""

    @abstractmethod
    async def read(self, content: MemoryContentObject) -> Extraction:
        """Return the entities in `content` and what it says of them."""

    async def extract(self, content: MemoryContentObject) -> Sequence[ExtractedEntity]:
        """Return the entities in `content`, in the order of their first mention."""
        return (await self.read(content)).entities

    async def relate(
        self, content: MemoryContentObject, entities: Sequence[ExtractedEntity]
    ) -> Sequence[ExtractedRelation]:
        """Return the relations between `entities` that `content` states, in the order of the text."""
        known = {entity.label.casefold() for entity in entities}
        return [
            relation
            for relation in (await self.read(content)).relations
            if {relation.source.casefold(), relation.target.casefold()} <= known
        ]


class HeuristicExtractor(ReadingExtractor):
    """An extractor that works by rules. It keeps nothing, so one will do for all."""

    async def read(self, content: MemoryContentObject) -> Extraction:
        """Return the entities in `content` and what it says of them."""
        if len(content.text or "") > MAX_CHARS_ON_THE_LOOP:
            return await asyncio.to_thread(read_by_rules, content)
        return read_by_rules(content)


def read_by_rules(content: MemoryContentObject) -> Extraction:
    """Return the entities in `content` and what it says of them."""
    statements = statements_of(content)
    named = _named(statements)
    scene = Scene(topic=subject_of(content), observed_at=observed_at(content))
    relations = [
        relation
        for _, paragraph in groupby(zip(statements, named, strict=True), lambda pair: pair[0].paragraph)
        for relation in _relations(list(paragraph), scene)
    ]
    kinds = {statement.speaker: "Person" for statement in statements if statement.speaker}
    for mention in (mention for mentions in named for mention in mentions):
        kinds.setdefault(mention.label, mention.kind)
    for relation in relations:
        for label in (relation.source, relation.target):
            kinds.setdefault(label, UNSURE)
    return Extraction(entities=tuple(_entities(kinds)), relations=tuple(relations))


def _named(statements: Sequence[Statement]) -> list[list[Mention]]:
    """Return the names in each sentence; one that may be any word counts if it is a name elsewhere."""
    known = {
        name.casefold() for one in statements if one.speaker for name in (one.speaker, one.speaker.split()[0])
    }
    found = [mentions_in(one.text, known) for one in statements]
    kinds: dict[str, str] = {}
    for mention in (mention for mentions in found for mention in mentions if mention.sure):
        folded = mention.label.casefold()
        if kinds.get(folded, UNSURE) == UNSURE:
            kinds[folded] = mention.kind
    return [
        [
            replace(mention, kind=kinds[mention.label.casefold()])
            for mention in mentions
            if mention.label.casefold() in kinds
        ]
        for mentions in found
    ]


def _relations(
    paragraph: Sequence[tuple[Statement, Sequence[Mention]]], scene: Scene
) -> Iterator[ExtractedRelation]:
    """Yield what the sentences of a paragraph state; "she" is the person whom the one before spoke of."""
    previous: str | None = None
    for statement, mentions in paragraph:
        yield from relations_in(statement, mentions, replace(scene, previous=previous))
        if mentions:
            previous = mentions[0].label


def _entities(kinds: dict[str, str]) -> Iterator[ExtractedEntity]:
    """Yield an entity for each label, the first spelling of it."""
    seen: set[str] = set()
    for label, kind in kinds.items():
        if label.casefold() not in seen:
            seen.add(label.casefold())
            yield ExtractedEntity(label=label, type=kind)
