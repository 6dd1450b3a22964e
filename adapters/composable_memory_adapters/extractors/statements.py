"""Splits a content into sentences: without markup, each with its speaker (pure)."""

import re
from collections import Counter
from collections.abc import Iterator

from composable_memory.content import MemoryContentObject
from composable_memory.front_matter import front_matter
from composable_memory.markdown_lines import CodeReader, heading_in
from composable_memory_adapters.extractors.word_lists import ABBREVIATIONS, LABELS, NOT_NAMES
from composable_memory_ops_logs.quick_dataclass import dataclass

MAX_SENTENCE_CHARS = 600
"""A longer sentence, such as a pasted log, is cut."""

MAX_RULE_CHARS = 300

_ITEM = re.compile(r"\s*(?:[-*+•]|\d{1,3}[.)])\s+(?:\[[xX]\]\s+)?")
_RULE = re.compile(r"\s*(?:[-*_=]\s*){3,}|[\s|:+-]*-[\s|:+-]*")
_TURN = re.compile(
    r"(?:\[[\d:TZ .+-]{4,30}\]\s*)?(?:\*\*)?(?P<name>[^\W\d_][\w.'’-]{0,30}(?: [^\W\d_][\w.'’-]{0,30}){0,2})"
    r"(?:\*\*)?(?::(?:\*\*)?\s+|：\s*)(?P<words>\S.*)"
)
_MARKUP = re.compile(
    r"!?\[([^\]\n]{0,300})\]\([^)\s]{0,2000}\)|`([^`\n]{1,300})`|\*{1,3}|(?<!\w)_{1,2}|_{1,2}(?!\w)|~~"
    r"|<!--.{0,1000}?-->"
)
# A run of marks is tried once, from its beginning: a line of dots would take the square of its length.
_END = re.compile(r"(?<![.!?…])[.!?…]++[\"'”’)\]]*+(?=\s|$)|[。！？]+[」』”）]*")
_NEXT = re.compile(r"\s*(\S)")
_LAST_WORD = re.compile(r"(\S+)$")
_FIRST_PERSON = re.compile(r"\b(?:I|we|my|our|I['’]\w+|we['’]\w+|me|us)\b|[我俺私僕]", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """One sentence; `paragraph` counts what stands together, so that a pronoun can be looked up in it."""

    text: str
    paragraph: int
    speaker: str | None = None


def statements_of(content: MemoryContentObject) -> list[Statement]:
    """Return the sentences of a content in their order; code, front matter and rules are left out."""
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


# --- who speaks ---------------------------------------------------------------------------------------------


def _speaker_of(content: MemoryContentObject) -> str | None:
    """Return who says all of a content, as its metadata or provenance tells."""
    named = content.metadata.get("speaker") or (content.provenance.actor_id if content.provenance else None)
    return named.strip() or None if isinstance(named, str) else None


def _speakers_in(text: str, *, is_message: bool) -> frozenset[str]:
    """Return the names before a colon, if one of them recurs or speaks of itself: then people talk here."""
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
    """Yield the words of each paragraph, item or turn, wrapped lines joined; headings state nothing."""
    held: list[str] = []
    for line in _lines_outside_code(text):
        title = heading_in(line)
        item = _ITEM.match(line)
        begins = bool(title or item or _turn(line, speakers)[0])
        if held and (begins or not line.strip() or line.lstrip().startswith("|")):
            yield " ".join(held)
            held = []
        if line.lstrip().startswith("|"):
            continue  # the cells of a table are no sentences
        if not title and line.strip() and not (len(line) < MAX_RULE_CHARS and _RULE.fullmatch(line)):
            held.append(_without_mark(line))
    if held:
        yield " ".join(held)


def _without_mark(line: str) -> str:
    """Return a line without the mark of a list or a quotation."""
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
    """Return whether a full stop ends a sentence, and not an abbreviation, an initial or an ordinal."""
    following = _NEXT.match(text, end.end())
    if following and following[1].islower():
        return False
    before = _LAST_WORD.search(text, max(0, end.start() - 24), end.start())
    word = before[1].casefold().lstrip("(\"'“") if before else ""
    is_short = len(word) == 1 and word.isalpha() and word != "i"
    return not (is_short or word in ABBREVIATIONS or (word.isdigit() and len(word) < 3))


def _cut(sentence: str) -> Iterator[str]:
    words = " ".join(sentence.split())
    if len(words) > MAX_SENTENCE_CHARS:
        words = words[: MAX_SENTENCE_CHARS - 1].rstrip() + "…"
    if words:
        yield words
