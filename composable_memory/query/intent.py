"""Parses the intent of a query from its words: entities, topics and times (pure, no model).

Entities are quoted texts, paths, identifiers and runs of capitalised words. Topics are hashtags and what
follows "about", "regarding", "related to", "topic" or "re:". Times are what `time_words` finds: dates, months
and years, "yesterday", "in the last 5 days", "as of March", "between May and July".
"""

import re
from collections.abc import Iterable, Iterator

from composable_memory.time.expressions import time_mentions
from composable_memory.types import QueryIntent, TimeHint
from composable_memory_ops_logs.lazy import Pattern

LONGEST_READ = 2000
"""Only this many characters of a query are read; its subject is named at the beginning."""

_QUOTED = re.compile(r'"([^"\n]+)"|“([^”\n]+)”|「([^」\n]+)」|`([^`\n]+)`|(?<!\w)\'([^\'\n]+)\'(?!\w)')
_PATH = re.compile(r"(?<![\w/.-])(?:~?/)?[\w.-]+(?:/[\w.-]+)+")
_IDENTIFIER = re.compile(
    r"\b(?:[A-Za-z][A-Za-z0-9]*_\w+"  # snake_case
    r"|[A-Z]{2,}-\d+"  # ticket ids
    r"|[A-Z][a-z]+[A-Z]\w*"  # CamelCase
    r"|[A-Z]{2,}[A-Z0-9]*)\b"  # abbreviations
)
_CAPITALISED_RUN = re.compile(r"\b[A-Z][\w'’-]*(?:[ \t]+[A-Z][\w'’-]*)+")
_HASHTAG = re.compile(r"(?<!\w)#([^\W_][\w-]*)")
_TOPIC_PHRASE = re.compile(
    r"\b(?:about|regarding|related\s+to|topics?)\s+([^.?;!\n]+)|\bre:\s*([^.?;!\n]+)", re.IGNORECASE
)
_TOPIC_SEPARATOR = Pattern(r"\s*,\s*(?:and\s+)?|\s+and\s+", re.IGNORECASE)
_LEADING_TOPIC_WORD = re.compile(r"^(?:(?:the\s+)?topics?\s+)+", re.IGNORECASE)

_NOT_ENTITIES = frozenset(
    """a after an and any are as at back be before between but by can compare could describe did do does
    during explain find for from get give had has have how i if in is it its last list may me my next no
    not of on open or our past please previous search should show since summarise summarize tell than
    that the then there these they this those today to tomorrow topic topics until was we were what when
    where which who whom whose why will with would yes yesterday you your january february march april
    june july august september october november december monday tuesday wednesday thursday friday
    saturday sunday""".split()
)


def parse_query_intent(query: str) -> QueryIntent:
    """Return the entities, topics and times that `query` names, each in the order of first mention."""
    query = query[:LONGEST_READ]
    return QueryIntent(
        entities=tuple(_distinct(_entities(query))),
        topics=tuple(_distinct(_topics(query))),
        time_hints=tuple(_time_hints(query)),
    )


def _entities(query: str) -> list[str]:
    found: list[tuple[int, str]] = []
    for pattern in (_QUOTED, _PATH, _IDENTIFIER, _CAPITALISED_RUN):
        for match in pattern.finditer(query):
            text = next((group for group in match.groups() if group), match.group()).strip(" .,;:!?")
            if pattern is _CAPITALISED_RUN:
                text = _without_leading_stop_words(text)
            if text and text.casefold() not in _NOT_ENTITIES:
                found.append((match.start(), text))
    found.sort(key=lambda item: item[0])
    texts = [text for _, text in found]
    return [text for text in texts if not _is_part_of_another(text, texts)]


def _without_leading_stop_words(run: str) -> str:
    """Drop the sentence's own capitals: "Did Maria Lopez" is Maria Lopez; a single word left is no name."""
    words = run.split()
    while words and words[0].casefold() in _NOT_ENTITIES:
        words.pop(0)
    return " ".join(words) if len(words) > 1 else ""


def _is_part_of_another(text: str, texts: Iterable[str]) -> bool:
    return any(text != other and re.search(rf"(?<!\w){re.escape(text)}(?!\w)", other) for other in texts)


def _topics(query: str) -> list[str]:
    found = [(match.start(), match.group(1).lower()) for match in _HASHTAG.finditer(query)]
    for match in _TOPIC_PHRASE.finditer(query):
        phrase = _before_time(match.group(1) or match.group(2))
        found.extend((match.start(), topic) for topic in _split_topics(phrase))
    found.sort(key=lambda item: item[0])
    return [topic for _, topic in found]


def _before_time(phrase: str) -> str:
    mentions = time_mentions(phrase)
    return re.sub(r"\b(?:on|in|from|since)\s*$", "", phrase[: mentions[0].start if mentions else None])


def _split_topics(phrase: str) -> Iterator[str]:
    for piece in _TOPIC_SEPARATOR.split(phrase):
        topic = _LEADING_TOPIC_WORD.sub("", _HASHTAG.sub("", piece)).strip(" ,:`\"'").lower()
        if topic and topic not in _NOT_ENTITIES:
            yield topic


def _time_hints(query: str) -> Iterator[TimeHint]:
    seen: set[str] = set()
    for mention in time_mentions(query):
        if mention.hint.phrase not in seen:
            seen.add(mention.hint.phrase)
            yield mention.hint


def _distinct(texts: Iterable[str]) -> Iterator[str]:
    seen: set[str] = set()
    for text in texts:
        if text.casefold() not in seen:
            seen.add(text.casefold())
            yield text
