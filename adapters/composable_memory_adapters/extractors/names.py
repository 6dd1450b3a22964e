"""Finds the names in a sentence and guesses the kind of each (pure)."""

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from typing import TypeAlias

from composable_memory_adapters.extractors.word_lists import (
    EMPTY_WORDS,
    EVENT_WORDS,
    FIRST_NAMES,
    NOT_NAMES,
    ORGANISATION_WORDS,
    TECHNOLOGIES,
    TITLES,
    TOOLS,
)
from composable_memory_ops_logs.quick_dataclass import dataclass

UNSURE = "Concept"
"""The kind of a name of which nothing more is known."""

MAX_NAME_WORDS = 6

# Patterns have no class for capital letters, and `\w` and `\b` see no edge between Latin and Chinese.
_UPPER = "".join(re.escape(chr(n)) for n in range(0x530) if chr(n).isupper())
_LETTER = r"0-9A-Za-zÀ-ÖØ-öø-ɏͰ-ԯ"
_WORD = rf"[{_UPPER}](?:[{_LETTER}+#]|['’.&-](?=[{_LETTER}]))*"
_LINK = r"(?:[ \t]+(?:of(?:[ \t]+the)?|the|de(?:[ \t]+la)?|del|van(?:[ \t]+der)?|von|da|do|di|du|la|le|&))?"
_PART = rf"(?:(?:Dr|Mr|Mrs|Ms|Prof|St)\.(?=[ \t])|{_WORD})"
_RUN = re.compile(rf"(?<![{_LETTER}'’]){_PART}(?:{_LINK}[ \t]+{_PART})*")
_URL = re.compile(
    r"https?://(?:www\.)?(?P<host>[\w.-]+\w)(?P<path>/[^\s)\]>\"']*)?|www\.(?P<bare>[\w.-]+\w)\S*"
)
_REPOSITORY = re.compile(r"/([\w.-]+/[\w.-]+?)(?:\.git)?(?:[/#?].*)?")
_AT = re.compile(r"(?<![\w.@])@(?P<name>[A-Za-z][\w-]{1,38})")
_QUOTED = re.compile(
    r"[\"“„](?P<q1>[^\"“”\n]{2,60})[\"”“]|「(?P<q2>[^」\n]{1,40})」|『(?P<q3>[^』\n]{1,40})』|《(?P<q4>[^》\n]{1,40})》"
)
_ISSUE = re.compile(r"(?<![\w#&])#(?P<n>\d{1,7})(?!\w)")
_CODE = re.compile(
    rf"(?<![{_LETTER}_-])(?:[A-Z][A-Z0-9]*(?:-[A-Z0-9]+)*-[A-Z0-9]*\d[A-Z0-9]*(?:-[A-Z0-9]+)*)(?![\w-])"
)
_IDENTIFIER = re.compile(
    rf"(?<![{_LETTER}_.])(?:[A-Z][a-z0-9]+(?:[A-Z][a-z0-9]+)+|[a-z][a-z0-9]*(?:_[a-z0-9]+)+|[a-z]+[A-Z]\w*)(?![\w])"
)
_TICKET = re.compile(r"[A-Z]{2,10}-\d+")
_HONORIFIC = re.compile(
    r"(?P<ja>[\u4e00-\u9fff]{1,3}|[\u30a1-\u30fa\u30fc]{2,8})(?:さん|くん|ちゃん|様|先生)"
    r"|(?P<zh>(?:小|老|阿)[\u4e00-\u9fff])(?![\u4e00-\u9fff]*(?:时|是|师|家|板))|(?P<ko>[\uac00-\ud7af]{2,4})(?:씨|님)"
)
_ASIAN_PLACE = re.compile(
    r"(?<=[在去到从於于])(?P<zh>[\u4e00-\u9fff]{1,5}?(?P<end>大学|公司|医院|银行|市|省|县))"
    r"|(?P<ja>[\u4e00-\u9fff\u30a1-\u30fa\u30fc]{2,6}(?P<jend>株式会社|大学|駅|市|県))"
)

_PLACE_BEFORE = re.compile(r"(?:\b(?:in|from|near|around|visit(?:ed|ing)?|leaving|reached|across)|\b(?:"
                           r"mov|relocat|travel|driv|fl[ye]|went|go|going|gone|trip|back|return|flight|train|drove|"
                           r"hik)\w*\s+to)\s+$", re.IGNORECASE)  # fmt: skip
_PERSON_BEFORE = re.compile(
    r"\b(?:with|mit|con|avec|met|told|asked|called|named|friend|sister|brother|mother|mom|mum|father|dad|wife|husband|"
    r"partner|son|daughter|cousin|uncle|aunt|boss|manager|colleague|by)\s+$|\b(?:talk|spoke|speak)\w*\s+(?:to|with)"
    r"\s+$",
    re.IGNORECASE,
)
_PERSON_AFTER = re.compile(
    r"['’]s\s+(?:wife|husband|sister|brother|mother|father|boss|birthday|son|daughter)\b"
    r"|\s+(?:says?|said|thinks?|thought|told|asks?|asked|believes?|wants?|likes|loves|hates|married|lives)\b"
)
_ORGANISATION_BEFORE = re.compile(
    r"\b(?:works?|worked|working|employed)\s+(?:at|for)\s+$|\bjob\s+at\s+$", re.I
)
_PROJECT_BEFORE = re.compile(r"\bproject\s+$", re.IGNORECASE)
_PROJECT_AFTER = re.compile(r"\s+(?:project|repo|repository|codebase)\b", re.IGNORECASE)
_VERB_AFTER = re.compile(
    r"(?:['’]s\b|,?\s+(?:and\s+[A-Z]\w*|is|was|has|had|will|lives?|lived|works?|worked|moved?|joined|left|uses?|used|"
    r"owns?|owned|bought|likes?|loves?|prefers?|married|knows?|met|reports?|leads?|manages?|maintains?|runs?|ran|"
    r"plays?|wants?|plans?|decided|started|visited|went|said|says|told|thinks?|keeps?|became|got|sold|quit|studies|"
    r"studied|teaches|vive|trabaja|lebt|wohnt|arbeitet|habite|travaille|mora|lavora)\b)"
)
_GERMAN = re.compile(
    r"\b(?:der|die|das|dem|den|und|ist|nicht|ein|eine|einen|wir|ich|mit|haben|hat|für)\b", re.I
)
_NO_NAME_ENDING = re.compile(r".{3,}(?:ing|ed|ly)$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Mention:
    """A name where it stands; one that only opens the sentence is not `sure`: any word may stand there."""

    start: int
    end: int
    label: str
    kind: str
    sure: bool = True


def mentions_in(text: str, known: Collection[str] = ()) -> list[Mention]:
    """Return the names in a sentence in their order, none within another.

    `known` are casefolded names of people that are certain, such as those who speak. A mention that is not
    sure is worth something only if the same name is found elsewhere.
    """
    found: list[Mention] = []
    taken: list[tuple[int, int]] = []
    for mention in _candidates(text, known):
        if all(mention.end <= start or mention.start >= end for start, end in taken):
            found.append(mention)
            taken.append((mention.start, mention.end))
    found.sort(key=lambda mention: mention.start)
    return found


def _candidates(text: str, known: Collection[str]) -> Iterator[Mention]:
    """Yield the surest kinds of names first."""
    for find in (_urls, _handles, _quotations, _issues, _codes, _identifiers):
        yield from find(text)
    yield from _capitalised(text, known)
    if not text.isascii():
        yield from _asian(text)


# --- names that are marked as such --------------------------------------------------------------------------


def _urls(text: str) -> Iterator[Mention]:
    """Yield the repositories that addresses lead to, else their hosts."""
    if "://" not in text and "www." not in text:
        return
    for match in _URL.finditer(text):
        host = (match["host"] or match["bare"]).lower()
        is_forge = host in ("github.com", "gitlab.com")
        repository = _REPOSITORY.fullmatch(match["path"] or "") if is_forge else None
        yield _at(match, repository[1], "Project") if repository else _at(match, host, "Tool")


def _handles(text: str) -> Iterator[Mention]:
    if "@" in text:
        yield from (_at(match, match["name"], "Person") for match in _AT.finditer(text))


def _quotations(text: str) -> Iterator[Mention]:
    for match in _QUOTED.finditer(text):
        title = next(group for group in match.groups() if group)
        if _is_title(title):
            yield _at(match, title.strip(), UNSURE)


def _is_title(quoted: str) -> bool:
    words = quoted.split()
    if not quoted.isascii() and not words[0][0].islower():
        return quoted[-1] not in "。！？.!?"
    return 1 <= len(words) <= 8 and words[0][0].isupper() and quoted[-1] not in ".!?,"


def _issues(text: str) -> Iterator[Mention]:
    if "#" in text:
        yield from (_at(match, match[0], "Project") for match in _ISSUE.finditer(text))


def _codes(text: str) -> Iterator[Mention]:
    for match in _CODE.finditer(text):
        yield _at(match, match[0], "Project" if _TICKET.fullmatch(match[0]) else UNSURE)


def _identifiers(text: str) -> Iterator[Mention]:
    for match in _IDENTIFIER.finditer(text):
        yield _at(match, match[0], _listed_kind(match[0].casefold()) or "Technology")


def _asian(text: str) -> Iterator[Mention]:
    for match in _HONORIFIC.finditer(text):
        name = match["ja"] or match["zh"] or match["ko"]
        yield Mention(start=match.start(), end=match.start() + len(name), label=name, kind="Person")
    for match in _ASIAN_PLACE.finditer(text):
        is_town = (match["end"] or match["jend"]) in ("市", "省", "县", "駅", "県")
        yield _at(match, match["zh"] or match["ja"], "Location" if is_town else "Organization")


def _at(match: re.Match[str], label: str, kind: str) -> Mention:
    return Mention(start=match.start(), end=match.end(), label=label, kind=kind)


# --- names that are known by their capitals -----------------------------------------------------------------


_Words: TypeAlias = Sequence[tuple[int, str]]
"""Words with where each begins in the sentence."""


def _capitalised(text: str, known: Collection[str]) -> Iterator[Mention]:
    names = (name for run in _RUN.finditer(text) for name in _names_in_run(text, run, known))
    if len(_GERMAN.findall(text)) > 1:  # where every noun has a capital, one alone says nothing
        names = (name for name in names if name.kind != UNSURE or " " in name.label)
    yield from names


def _names_in_run(text: str, run: re.Match[str], known: Collection[str]) -> Iterator[Mention]:
    """Yield the names in a run of capitalised words."""
    words = [(run.start() + word.start(), word[0]) for word in re.finditer(r"\S+", run[0])]
    opens_sentence = not text[: run.start()].strip(" \"'“”‘(*-–—:,")
    first = run.start() if opens_sentence else None
    for part in _split(_trimmed(words, known, first)):
        mention = _mention(text, part, known)
        if mention is not None:
            may_be_any_word = len(part) == 1 and mention.start == first
            yield replace(mention, sure=not may_be_any_word or _is_certain(text, mention, known))


def _trimmed(words: _Words, known: Collection[str], first: int | None) -> _Words:
    """Return a run without the words at its ends that are no names; `first` is where the sentence begins."""
    start, end = 0, len(words)
    while start < end and _is_no_name(
        words[start][1], known, opens=words[start][0] == first, is_alone=start + 1 == end
    ):
        start += 1
    while end > start and _cannot_end_a_name(words[end - 1][1]):
        end -= 1
    return words[start:end]


def _cannot_end_a_name(word: str) -> bool:
    return word.islower() or word.casefold().rstrip(".") in NOT_NAMES


def _mention(text: str, words: _Words, known: Collection[str]) -> Mention | None:
    """Return the name that words make, without a title before it; None if they make none."""
    has_title = len(words) > 1 and _bare(words[0][1]).casefold() in TITLES
    named = words[1:] if has_title else words
    start, label = named[0][0], _bare(" ".join(word for _, word in named))
    if len(label) < 2 or label.isdigit() or len(words) > MAX_NAME_WORDS:
        return None
    mention = Mention(start=start, end=start + len(label), label=label, kind=UNSURE)
    return replace(mention, kind="Person" if has_title else _kind(text, mention, known))


def _split(words: _Words) -> Iterator[_Words]:
    """Cut a run at words that are no names, such as the month in "Oslo March"."""
    part: list[tuple[int, str]] = []
    for start, word in words:
        folded = _bare(word).casefold()
        if word[0].isupper() and (folded in NOT_NAMES or (word.isupper() and folded in EMPTY_WORDS)):
            if part:
                yield part
            part = []
        elif part or not word.islower():
            part.append((start, word))
    if part:
        yield part


def _is_no_name(word: str, known: Collection[str], *, opens: bool, is_alone: bool) -> bool:
    folded = _bare(word).casefold()
    if folded in known or folded in FIRST_NAMES:
        return False
    if folded in EMPTY_WORDS and (opens or word.isupper()):
        return True
    if opens and not is_alone and _NO_NAME_ENDING.fullmatch(folded):
        return True
    return folded in NOT_NAMES


def _is_certain(text: str, mention: Mention, known: Collection[str]) -> bool:
    """Return whether the first word of a sentence is a name: a known one, or one that does something."""
    folded = mention.label.casefold()
    if mention.kind != UNSURE or folded in known or (mention.label.isupper() and len(folded) > 1):
        return True
    return bool(_VERB_AFTER.match(text, mention.end)) and not _NO_NAME_ENDING.fullmatch(folded)


def _kind(text: str, mention: Mention, known: Collection[str]) -> str:
    """Guess what a name stands for: by lists, by its last word, then by the words around it."""
    folded = mention.label.casefold()
    words = folded.split()
    if folded in known or (words[0] in FIRST_NAMES and len(words) < 4):
        return "Person"
    if words[0] == "project" and len(words) > 1:
        return "Project"
    if listed := _listed_kind(folded):
        return listed
    last = words[-1].rstrip(".")
    if last in EVENT_WORDS:
        return "Event"
    if len(words) > 1 and (last in ORGANISATION_WORDS or words[0] in ("university", "universität", "bank")):
        return "Organization"
    return _kind_by_context(text, mention)


def _listed_kind(folded: str) -> str | None:
    if folded in TECHNOLOGIES:
        return "Technology"
    return "Tool" if folded in TOOLS else None


def _kind_by_context(text: str, mention: Mention) -> str:
    before, after = text[max(0, mention.start - 32) : mention.start], text[mention.end : mention.end + 32]
    if _PROJECT_BEFORE.search(before) or _PROJECT_AFTER.match(after):
        return "Project"
    if _ORGANISATION_BEFORE.search(before):
        return "Organization"
    if _PLACE_BEFORE.search(before):
        return "Location"
    if _PERSON_BEFORE.search(before) or _PERSON_AFTER.match(after):
        return "Person"
    return UNSURE


def _bare(word: str) -> str:
    """Return a word without the possessive and the stops at its end."""
    word = word.rstrip(".&-'’")
    return word[:-2] if word.endswith(("'s", "’s")) else word
