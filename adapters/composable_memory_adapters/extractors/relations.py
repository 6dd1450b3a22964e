"""Finds the relations that a sentence states between the names in it (pure).

A verb of the table gives a relation of its type; any other sentence that states something gives `STATES`.
"""

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from itertools import product

from composable_memory.content import ExtractedRelation
from composable_memory_adapters.extractors.names import UNSURE, Mention
from composable_memory_adapters.extractors.sentence_times import Validity, day_in, validity_of
from composable_memory_adapters.extractors.statements import Statement
from composable_memory_adapters.extractors.verbs import EXCLUSIVE, Verb, verbs_in
from composable_memory_adapters.extractors.word_lists import EMPTY_WORDS
from composable_memory_ops_logs.quick_dataclass import dataclass

STATES = "STATES"
"""The relation of a sentence of which nothing more is known than what it speaks of."""

VERB_CONFIDENCE = 0.9
STATES_CONFIDENCE = 0.6
LEAST_WORDS = 4
LEAST_ASIAN_CHARACTERS = 6
MAX_HEADING_CHARS = 60

_WORD = re.compile(r"[^\W_]+(?:['’-][^\W_]+)*")
_FIELD = re.compile(r"[^\W\d_][\w /-]{1,30}: +\S|[\u3040-\u9fff\uac00-\ud7af]{2,10}[：:] *\S")
_ASIAN_NAME = re.compile("[\u3400-\u9fff\u30a1-\u30fa\u30fc]{2,8}?(?=[了的，。；、！\\s]|$)")
_ASIAN = re.compile("[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")
_QUESTION = re.compile(r"(?:[?？][\"'”’)\]!]*|[吗嗎呢]|ですか|ますか)[。.]?$")
_TAG = re.compile(r",\s*(?:right|isn['’]t it|don['’]t you think|you know|okay|ok|huh|eh)\?$", re.IGNORECASE)

_I = r"(?:I|we)(?:['’](?:m|ve|re|ll|d))?|我们?|私は|나는"
_FILLER = (
    r"(?:has|have|had|is|are|was|were|been|being|be|will|now|currently|recently|also|just|finally|who|still"
    r"|then|always|often|actually|really|already|even|both|all|officially|finally|later|first|soon|once"
    r"|['’]s|['’]ve|['’]m|used to|no longer|not|never|[a-z]+n['’]t)"
)
# Possessive, for many a filler is matched by two alternatives, and trying all ways would take for ever.
_BETWEEN = re.compile(rf"(?:[\s,]|\([^)]*\)|(?<!\w){_FILLER}(?!\w))*+", re.IGNORECASE)
_SELF_BEFORE = re.compile(rf"(?:(?<!\w)(?:{_I})(?!\w)|我们?)(?:\s|(?<!\w){_FILLER}(?!\w))*+$", re.IGNORECASE)
_PRONOUN_BEFORE = re.compile(
    rf"(?<!\w)(?:he|she|it)(?:['’]s)?(?:\s|(?<!\w){_FILLER}(?!\w))*+$", re.IGNORECASE
)
_PRONOUN_FIRST = re.compile(r"(?:he|she)(?:['’]\w+)?\b", re.IGNORECASE)
_THE_THING = re.compile(r"^(?:the|our|my|this)\s+((?:[\w-]+\s+){1,4})$", re.IGNORECASE)
_AND_BEFORE = re.compile(r"(?:,|\band\b|\bbut\b|;)\s*(?:[a-z]+ly\s+|now\s+|then\s+|also\s+)?$", re.IGNORECASE)
_AND = re.compile(r"\s*(?:,|&|,?\s*and|,?\s*y|,?\s*und|,?\s*et|、|和)\s*", re.IGNORECASE)
_NOT = re.compile(r"(?:\bnot|\bnever|\bno longer|n['’]t)\s+(?:\w+\s+)?$|不$|没$", re.IGNORECASE)
_NO_LONGER = re.compile(r"(?:\bno longer|\bused to)\s+$|\b(?:any\s?more|any longer)\b", re.IGNORECASE)
_USED_TO = re.compile(r"\b(?:used to|formerly|previously)\s+$", re.IGNORECASE)
_DETERMINER = re.compile(
    r"[\s:]*(?:(?:the|an?|my|his|her|our|their|your|its|some|both|city of|town of)\s+)*", re.IGNORECASE
)
_ADJECTIVES = re.compile(r"(?:[a-z][\w-]*\s+){0,2}")
_PHRASE_WORD = re.compile(r"\s*([a-zà-öø-ÿ][\w'’-]*|[\u4e00-\u9fff\u3040-\u30ff]{1,8})")
_PHRASE_END = frozenset(
    """a about after and any as at because before but by every for from here if in into it its last me
    more much my next now of off on or our out over since so than that the their them there these
    this those to together too until up very we when where which while who with you your his her
    him us all also i again today yesterday tomorrow tonight how what is are was were be been has
    have had do does did really just""".split()
)
_STATUS_END = frozenset(
    "after although and because before but by due for from if since so until which while who with".split()
)
MAX_PHRASE_WORDS = 3
MAX_STATUS_WORDS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """The surroundings of a sentence: what the content is about, when it was said, its last subject."""

    topic: str
    observed_at: datetime | None
    previous: str | None = None


def is_informative(sentence: str) -> bool:
    """Return whether a sentence states something: no question, not too short, not only words of courtesy."""
    if _QUESTION.search(sentence) and not _TAG.search(sentence):
        return False
    asian = len(_ASIAN.findall(sentence))
    words = _WORD.findall(sentence)
    if asian >= LEAST_ASIAN_CHARACTERS or _FIELD.match(sentence):
        return True
    return len(words) >= LEAST_WORDS and any(
        len(word) > 2 and word.casefold().replace("’", "'") not in EMPTY_WORDS for word in words
    )


def relations_in(statement: Statement, mentions: Sequence[Mention], scene: Scene) -> list[ExtractedRelation]:
    """Return what a sentence states: what its verbs say, else one relation between what it speaks of."""
    if not is_informative(statement.text):
        return []
    sentence = _Sentence(statement, mentions, scene)
    strong = list(_distinct(_by_verbs(sentence)))
    if any(relation.valid_to is None or relation.valid_from is not None for relation in strong):
        return strong
    return [*strong, sentence.states()]


class _Sentence:
    """A sentence with its names, its time, and what is known around it."""

    def __init__(self, statement: Statement, mentions: Sequence[Mention], scene: Scene) -> None:
        self.text = statement.text
        self.mentions = mentions
        self.speaker = statement.speaker
        self.heading = statement.heading
        self.scene = scene
        self.validity = validity_of(statement.text, scene.observed_at)

    @property
    def narrator(self) -> str:
        """Return who says "I", or what is meant where a sentence has no subject."""
        return self.speaker or self.scene.topic

    @property
    def subject(self) -> str:
        """Return whom the sentence as a whole is about."""
        if self.speaker:
            return self.speaker
        if self.speaks_of_previous and self.scene.previous:
            return self.scene.previous
        return self.mentions[0].label if self.mentions else self.scene.topic

    @property
    def speaks_of_previous(self) -> bool:
        return bool(_PRONOUN_FIRST.match(self.text))

    def fact(self) -> str:
        """Return the sentence as it can be understood alone: with who says it, or what it is about."""
        if self.speaker:
            return f"{self.speaker}: {self.text}"
        if self.speaks_of_previous and self.scene.previous:
            return f"{self.scene.previous}: {self.text}"
        stands_alone = self.mentions and not _FIELD.match(self.text)
        if self.heading and not stands_alone and self.heading.casefold() not in self.text.casefold():
            return f"{self.heading[:MAX_HEADING_CHARS]}: {self.text}"
        return self.text

    def states(self) -> ExtractedRelation:
        subject = self.subject
        others = [*(one.label for one in self.mentions), self.heading or "", self.scene.topic]
        target = next((one for one in others if one and one.casefold() != subject.casefold()), subject)
        return self.relation(STATES, subject, target, STATES_CONFIDENCE)

    def relation(self, type_: str, source: str, target: str, confidence: float) -> ExtractedRelation:
        start, end = _held(self.validity, self.scene.observed_at)
        return ExtractedRelation(
            source=source,
            target=target,
            type=type_,
            fact=self.fact(),
            exclusive=type_ in EXCLUSIVE,
            valid_from=start,
            valid_to=end,
            confidence=confidence,
        )


def _held(validity: Validity, observed_at: datetime | None) -> tuple[datetime | None, datetime | None]:
    """Return since when and until when a statement holds; what is planned is stated now, not then."""
    start = validity.start
    if start is None and validity.at and (observed_at is None or validity.at <= observed_at):
        start = validity.at
    end = validity.end if validity.end and (start is None or validity.end > start) else None
    if start is None and end is not None:
        start = min(observed_at, end) if observed_at else None
    return start, end


# --- relations of verbs -------------------------------------------------------------------------------------


def _by_verbs(sentence: _Sentence) -> Iterator[ExtractedRelation]:
    subjects: list[str] = []
    for start, end, verb in verbs_in(sentence.text):
        subjects = _subjects(sentence, start, verb, subjects)
        before, after = sentence.text[:start], sentence.text[end:]
        has_ended = verb.ends or bool(_USED_TO.search(before) or _NO_LONGER.search(before + after))
        if not subjects or (not has_ended and _NOT.search(before)):
            continue
        for target, subject in product(_objects(sentence, end, verb), subjects):
            if subject.casefold() != target.casefold():
                relation = sentence.relation(verb.type, subject, target, VERB_CONFIDENCE)
                yield from _dated(relation, sentence, has_ended=has_ended)


def _dated(
    relation: ExtractedRelation, sentence: _Sentence, *, has_ended: bool
) -> Iterator[ExtractedRelation]:
    """Yield a relation with the time in which it holds; one that ended, only if it is known when."""
    if has_ended:
        moment = sentence.validity.end or sentence.validity.at or sentence.scene.observed_at
        if moment:
            yield replace(relation, valid_from=None, valid_to=moment)
    elif relation.type == "SCHEDULED_FOR":  # the time is its target, and says nothing of when it was decided
        yield replace(relation, valid_from=None, valid_to=None)
    else:
        yield relation


def _subjects(sentence: _Sentence, verb_at: int, verb: Verb, previous: Sequence[str]) -> list[str]:
    """Return the subjects of a verb: the names before it, "I", "she", or those of the verb before it."""
    before = sentence.text[:verb_at]
    if names := _names_before(sentence, verb_at):
        return [one.label for one in names if _fits(one, verb.subject_kind)]
    if _SELF_BEFORE.search(before):
        return [sentence.narrator]
    if _PRONOUN_BEFORE.search(before):
        return [sentence.scene.previous] if sentence.scene.previous else []
    if previous and _AND_BEFORE.search(before):
        return list(previous)
    if not before.strip(" -*>\"'"):
        return [sentence.narrator]
    thing = _THE_THING.match(before) if verb.object in ("status", "time") else None
    return [thing[1].strip()] if thing else []


def _names_before(sentence: _Sentence, verb_at: int) -> list[Mention]:
    """Return the names that a verb follows, with nothing but small words between."""
    named = [one for one in sentence.mentions if one.end <= verb_at]
    if not named or not _BETWEEN.fullmatch(sentence.text[:verb_at], named[-1].end):
        return []
    return _joined_back(sentence.text, named)


def _joined_back(text: str, named: Sequence[Mention]) -> list[Mention]:
    """Return the last name and those joined to it: "Anna, Bob and Eve"."""
    joined = [named[-1]]
    for mention in reversed(named[:-1]):
        if not _AND.fullmatch(text, mention.end, joined[0].start):
            break
        joined.insert(0, mention)
    return joined


def _objects(sentence: _Sentence, at: int, verb: Verb) -> list[str]:
    if verb.object == "status":
        status = _phrase_at(sentence.text, at, longest=MAX_STATUS_WORDS, ends=_STATUS_END)
        return [status] if status else []
    if verb.object == "time":
        moment = day_in(sentence.text[at:], sentence.scene.observed_at)
        return [moment.date().isoformat()] if moment else []
    if verb.object == "anything":
        return [next((one.label for one in sentence.mentions if one.start >= at), sentence.scene.topic)]
    names = _names_at(sentence, at, verb)
    if not names and (asian := _ASIAN_NAME.match(sentence.text, at)):
        return [asian[0]]
    if names or verb.object == "entity":
        return names
    phrase = _phrase_at(sentence.text, at)
    return [phrase] if phrase else []


def _names_at(sentence: _Sentence, at: int, verb: Verb) -> list[str]:
    """Return the names that follow a verb, at most two small words away."""
    start = at + len(_DETERMINER.match(sentence.text, at)[0])  # type: ignore[index]  # it matches nothing as well
    following = [one for one in sentence.mentions if one.start >= at]
    if not following:
        return []
    if following[0].start > start and not _ADJECTIVES.fullmatch(sentence.text, start, following[0].start):
        return []
    joined = [following[0]]
    for mention in following[1:]:
        if not _AND.fullmatch(sentence.text, joined[-1].end, mention.start):
            break
        joined.append(mention)
    return [one.label for one in joined if _fits(one, verb.object_kind)]


def _fits(mention: Mention, kind: str | None) -> bool:
    return kind is None or mention.kind in (kind, UNSURE)


def _phrase_at(
    text: str, at: int, *, longest: int = MAX_PHRASE_WORDS, ends: Collection[str] = _PHRASE_END
) -> str | None:
    """Return the few words that follow a verb up to one that begins something else."""
    at += len(_DETERMINER.match(text, at)[0])  # type: ignore[index]  # it matches nothing as well
    words: list[str] = []
    while len(words) < longest and (match := _PHRASE_WORD.match(text, at)):
        if match[1].casefold() in ends:
            break
        words.append(match[1])
        at = match.end()
    phrase = " ".join(words)
    return phrase if len(phrase) > 2 or not phrase.isascii() else None


def _distinct(relations: Iterator[ExtractedRelation]) -> Iterator[ExtractedRelation]:
    seen: set[tuple[str, str, str]] = set()
    for relation in relations:
        key = (relation.source.casefold(), relation.type, relation.target.casefold())
        if key not in seen:
            seen.add(key)
            yield relation
