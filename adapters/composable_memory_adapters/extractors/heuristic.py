"""The rule-based extractor: no model, thousands of sentences per second, silent unless it is sure.

A sentence states a relation such as `LIVES_IN` only if a pattern of its language is certain of it; of any
other sentence the graph keeps only the text. English, German, Spanish and Chinese are supported.
"""

import asyncio
import re
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from itertools import groupby, pairwise

from composable_memory.content import ExtractedEntity, ExtractedRelation, MemoryContentObject
from composable_memory.front_matter import front_matter
from composable_memory.ingest.extract import Extraction
from composable_memory.ingest.lifetimes import observed_at
from composable_memory.ingest.note_reader import LABELS
from composable_memory.markdown_lines import CodeReader, heading_in
from composable_memory_adapters.extractors import grammar
from composable_memory_adapters.extractors.capitalised_names import (
    UNSURE,
    Mention,
    is_no_entity,
    mentions_in,
    without_files,
)
from composable_memory_adapters.extractors.chinese import chinese_mentions, chinese_relations, is_chinese
from composable_memory_adapters.extractors.grammar import ABBREVIATIONS, NOT_NAMES
from composable_memory_adapters.extractors.relations import Scene, clauses_of, relations_in, states_nothing
from composable_memory_adapters.extractors.sentence_times import without_times
from composable_memory_ops_logs.quick_dataclass import dataclass

MAX_CHARS_ON_THE_LOOP = 300
"""Longer texts are read in a thread; shorter ones, such as messages, take a few milliseconds."""

OWNER = "owner"
"""Who "I" is if a content names nobody: the owner of the memory."""

PROGRAMS = frozenset({"assistant", "ai", "bot", "system", "tool"})
ROLES_IN_TALKS = PROGRAMS | {"user", "human", "me", "i", "you"}

LINE_END = "\n"
"""Marks where a sentence continues on a line of its own."""

MAX_SENTENCE_CHARS = 600
"""Longer sentences, such as pasted logs, are cut."""

MAX_RULE_CHARS = 300

NARROWEST = 40
"""The narrowest width, in characters, at which prose is wrapped."""

_ITEM = re.compile(r"\s*(?:[-*+•]|\d{1,3}[.)])\s+(?:\[[xX]\]\s+)?")
_RULE = re.compile(r"\s*(?:[-*_=]\s*){3,}|[\s|:+-]*-[\s|:+-]*")
_TURN = re.compile(
    r"(?:\[[\d:TZ .+-]{4,30}\]\s*)?(?:\*\*)?(?P<name>[^\W\d_][\w.'’-]{0,30}(?: [^\W\d_][\w.'’-]{0,30}){0,2})"
    r"(?:\*\*)?(?::(?:\*\*)?\s+|：\s*)(?P<words>\S(?s:.*))"
)
_MARKUP = re.compile(
    r"!?\[([^\]\n]{0,300})\]\([^)\s]{0,2000}\)|`([^`\n]{1,300})`|\*{1,3}|(?<!\w)_{1,2}|_{1,2}(?!\w)|~~"
    r"|<!--.{0,1000}?-->"
)
# Possessive, so that a run is tried only once, from its start: a line of dots would take quadratic time.
_END = re.compile(r"(?<![.!?…])[.!?…]++[\"'”’)\]]*+(?=\s|$)|[。！？]+[」』”）]*")
_NEXT = re.compile(r"\s*(\S)")
_LAST_WORD = re.compile(r"(\S+)$")
_LABEL = re.compile(rf"^[\W_]*(?:{'|'.join(LABELS)})[\W_]*(?:[:)–—]| -) ", re.IGNORECASE)
_FIRST_PERSON = re.compile(r"\b(?:I|we|my|our|I['’]\w+|we['’]\w+|me|us)\b|[我俺私僕]", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """One sentence; `paragraph` numbers its paragraph, within which pronouns are resolved."""

    text: str
    paragraph: int
    speaker: str | None = None


class HeuristicExtractor:
    """A rule-based extractor. It has no state, so one instance is enough."""

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

    async def read(self, content: MemoryContentObject) -> Extraction:
        """Return the entities in `content` and its statements about them."""
        if len(content.text or "") > MAX_CHARS_ON_THE_LOOP or not grammar.is_compiled():
            return await asyncio.to_thread(read_by_rules, content)
        return read_by_rules(content)


def read_by_rules(content: MemoryContentObject) -> Extraction:
    """Return the entities in `content` and its statements about them."""
    said = observed_at(content)
    owner = _owner_of(content)
    read = [_Sentence(one, said, owner) for one in statements_of(content)]
    known = {name.casefold() for one in read if one.speaker for name in (one.speaker, one.speaker.split()[0])}
    _name(read, known - ROLES_IN_TALKS)
    relations: list[ExtractedRelation] = []
    for _, paragraph in groupby(read, lambda one: one.paragraph):
        previous: tuple[str, ...] = ()
        for sentence in paragraph:
            speaker = _person(sentence.speaker, owner)
            found = [
                one
                for one in sentence.relations(Scene(speaker=speaker, observed_at=said, previous=previous))
                if not (is_no_entity(one.source) or is_no_entity(one.target))
            ]
            relations += found
            people = tuple(dict.fromkeys(one.source for one in found)) or sentence.first_person
            previous = people if people and people[0] != speaker else previous
    return Extraction(entities=tuple(_entities(read, relations)), relations=tuple(relations))


class _Sentence:
    """A sentence with the names in each of its clauses."""

    def __init__(self, statement: Statement, said: datetime | None, owner: str) -> None:
        self.owner = owner
        self.text = statement.text
        self.paragraph = statement.paragraph
        self.speaker = statement.speaker
        self.is_chinese = is_chinese(statement.text)
        self.clauses = [
            without_times(clause, said)
            for clause in (
                clauses_of(without_files(_LABEL.sub("", self.text))) if not self.is_chinese else [self.text]
            )
        ]
        self.mentions: list[list[Mention]] = []

    @property
    def first_person(self) -> tuple[str, ...]:
        """Return who "she" in the next sentence may be: the only person named."""
        people = {one.label for found in self.mentions for one in found if one.kind == "Person"}
        return tuple(people) if len(people) == 1 else ()

    def relations(self, scene: Scene) -> list[ExtractedRelation]:
        """Return the relations that the sentence states."""
        if states_nothing(self.text):
            return []
        said = self.text.replace(LINE_END, " ")
        fact = f"{self.speaker}: {said}" if self.speaker else said
        if self.is_chinese:
            return chinese_relations(self.text, fact, scene)
        clauses = [
            (text, time, found) for (text, time), found in zip(self.clauses, self.mentions, strict=True)
        ]
        return relations_in(clauses, fact, scene)


def _name(read: Sequence[_Sentence], known: Collection[str]) -> None:
    """Find the names in each sentence; an uncertain one counts if it is a name elsewhere."""
    for one in read:
        find = chinese_mentions if one.is_chinese else partial(mentions_in, known=known)
        one.mentions = [find(text) for text, _ in one.clauses]
    kinds: dict[str, str] = {}
    for mention in (mention for one in read for found in one.mentions for mention in found if mention.sure):
        if kinds.get(mention.label.casefold(), UNSURE) == UNSURE:
            kinds[mention.label.casefold()] = mention.kind
    for one in read:
        one.mentions = [
            [
                replace(mention, kind=kinds.get(mention.label.casefold(), mention.kind),
                        sure=mention.label.casefold() in kinds)
                for mention in found
            ]
            for found in one.mentions
        ]  # fmt: skip


def _owner_of(content: MemoryContentObject) -> str:
    """Return the name of the owner of a memory, who is "I" if nobody else speaks."""
    owner = content.metadata.get("owner")
    return owner.strip() if isinstance(owner, str) and owner.strip() else OWNER


def _person(speaker: str | None, owner: str) -> str:
    """Return who "I" is: the speaker or the owner, or nobody if a program speaks."""
    folded = (speaker or "").casefold()
    if folded in PROGRAMS:
        return ""
    return speaker if speaker and folded not in ROLES_IN_TALKS else owner


def _entities(read: Sequence[_Sentence], relations: Sequence[ExtractedRelation]) -> Iterator[ExtractedEntity]:
    """Yield each entity once: speakers, names, and the ends of relations."""
    kinds: dict[str, tuple[str, str]] = {}

    def add(label: str, kind: str) -> None:
        if is_no_entity(label):
            return
        known = kinds.get(label.casefold())
        if known is None or known[1] == UNSURE:
            kinds[label.casefold()] = (known[0] if known else label, kind)

    for one in read:
        if one.speaker and one.speaker.casefold() not in ROLES_IN_TALKS:
            add(one.speaker, "Person")
        for mention in (mention for found in one.mentions for mention in found if mention.sure):
            add(mention.label, mention.kind)
    for relation in relations:
        source, target = grammar.KINDS_OF_ENDS.get(relation.type, (UNSURE, UNSURE))
        target = UNSURE if relation.mood == "over" else target
        people = {sentence.owner.casefold() for sentence in read}
        for label, kind in ((relation.source, source), (relation.target, target)):
            add(label, "Person" if label.casefold() in people else kind)
    for label, kind in kinds.values():
        yield ExtractedEntity(label=label, type=kind)


def statements_of(content: MemoryContentObject) -> list[Statement]:
    """Return the sentences of a content in order, without code, front matter and horizontal rules."""
    text = content.text or ""
    speaker = _speaker_of(content)
    turns = frozenset() if speaker else _speakers_in(text, is_message=content.kind == "message")
    found: list[Statement] = []
    for number, words in enumerate(_paragraphs(text, turns)):
        speaks, words = _turn(words, turns) if turns else (speaker, words)
        found += [
            Statement(text=sentence, paragraph=number, speaker=speaks)
            for sentence in _sentences(_plain(words))
        ]
    return found


# --- speakers -----------------------------------------------------------------------------------------------


def _speaker_of(content: MemoryContentObject) -> str | None:
    """Return the speaker of an entire content, from its metadata or provenance."""
    named = content.metadata.get("speaker") or (content.provenance.actor_id if content.provenance else None)
    return named.strip() or None if isinstance(named, str) else None


def _speakers_in(text: str, *, is_message: bool) -> frozenset[str]:
    """Return the names before colons if one recurs or says "I": then the text is a conversation."""
    lines = (_TURN.match(_without_mark(line)) for line in text.splitlines())
    turns = [match for match in lines if match and not _is_label(match["name"])]
    counts = Counter(match["name"] for match in turns)
    is_talk = is_message or any(
        counts[match["name"]] > 1 or _FIRST_PERSON.search(match["words"]) for match in turns
    )
    return frozenset(counts) if is_talk else frozenset()


def _is_label(name: str) -> bool:
    words = name.casefold().split()
    return any(word in LABELS or word in NOT_NAMES for word in words) or name[0].islower()


def _turn(words: str, speakers: frozenset[str]) -> tuple[str | None, str]:
    match = _TURN.match(words)
    return (match["name"], match["words"]) if match and match["name"] in speakers else (None, words)


# --- from lines to paragraphs -------------------------------------------------------------------------------


def _paragraphs(text: str, speakers: frozenset[str]) -> Iterator[str]:
    """Yield the text of each paragraph, item or turn, with wrapped lines joined; headings state nothing."""
    held: list[str] = []
    for line in _lines_outside_code(text):
        title = heading_in(line)
        item = _ITEM.match(line)
        begins = bool(title or item or _turn(line, speakers)[0])
        if held and (begins or not line.strip() or line.lstrip().startswith("|")):
            yield _joined(held)
            held = []
        if line.lstrip().startswith("|"):
            continue  # table cells are not sentences
        if not title and line.strip() and not (len(line) < MAX_RULE_CHARS and _RULE.fullmatch(line)):
            held.append(_without_mark(line))
    if held:
        yield _joined(held)


def _joined(lines: Sequence[str]) -> str:
    """Join wrapped lines; mark a line end if the next word would have fitted on the line.

    Such a line was ended on purpose, as in a list or a receipt, so no name continues across it.
    """
    width = max(NARROWEST, *map(len, lines))
    ends = [
        LINE_END if len(line) + 1 + len(after.split(" ", 1)[0]) <= width and not after[0].islower() else " "
        for line, after in pairwise(lines)
    ]
    return "".join(line + end for line, end in zip(lines, [*ends, ""], strict=True))


def _without_mark(line: str) -> str:
    """Return a line without its list or quotation mark."""
    item = _ITEM.match(line)
    words = line[item.end() :] if item else line.lstrip(" \t>")
    return words.strip()


def _lines_outside_code(text: str) -> Iterator[str]:
    code = CodeReader()
    for line in text[front_matter(text).length :].removeprefix("\ufeff").splitlines():
        if not code.is_code(line):
            yield line


def _plain(text: str) -> str:
    """Return a text without its Markdown."""
    if not any(mark in text for mark in "*_`[~<"):
        return text
    return _MARKUP.sub(lambda found: found[1] or found[2] or "", text)


# --- from paragraphs to sentences ---------------------------------------------------------------------------


def _sentences(text: str) -> Iterator[str]:
    start = 0
    for end in _END.finditer(text):
        if text[end.start()] in ".…" and not _ends_here(text, end):
            continue
        yield from _cut(text[start : end.end()])
        start = end.end()
    yield from _cut(text[start:])


def _ends_here(text: str, end: re.Match[str]) -> bool:
    """Return whether a full stop ends a sentence, rather than an abbreviation, an initial or an ordinal."""
    following = _NEXT.match(text, end.end())
    if following and following[1].islower():
        return False
    before = _LAST_WORD.search(text, max(0, end.start() - 24), end.start())
    word = before[1].casefold().lstrip("(\"'“") if before else ""
    is_short = len(word) == 1 and word.isalpha() and word != "i"
    return not (is_short or word in ABBREVIATIONS or (word.isdigit() and len(word) < 3))


def _cut(sentence: str) -> Iterator[str]:
    words = LINE_END.join(" ".join(line.split()) for line in sentence.split(LINE_END) if line.strip())
    if len(words) > MAX_SENTENCE_CHARS:
        words = words[: MAX_SENTENCE_CHARS - 1].rstrip() + "…"
    if words:
        yield words
