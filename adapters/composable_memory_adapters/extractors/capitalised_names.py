"""Finds the names in a sentence of a language with capital letters, and guesses their kinds (pure)."""

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from typing import TypeAlias

from composable_memory_adapters.extractors.grammar import (
    ARTICLES,
    EVENT_WORDS,
    FIRST_NAMES,
    GERMAN_NOUNS,
    NOT_NAMES,
    OF_A_PLACE,
    OPENERS,
    ORGANISATION_WORDS,
    PLACES,
    TECHNOLOGIES,
    TITLES,
    TOOLS,
    any_of,
)
from composable_memory_adapters.extractors.sentence_times import DAY_NAMES, MONTH_NAMES
from composable_memory_ops_logs.quick_dataclass import dataclass

UNSURE = "Concept"
"""The kind of a name about which nothing more is known."""

MAX_NAME_WORDS = 6

# Regular expressions have no class for capital letters, and `\w` and `\b` see no boundary between Latin and
# Chinese.
UPPER = "".join(re.escape(chr(n)) for n in range(0x530) if chr(n).isupper())
LETTER = r"0-9A-Za-zÀ-ÖØ-öø-ɏͰ-ԯ"
_WORD = rf"[{UPPER}](?:[{LETTER}+#]|['’.&-](?=[{LETTER}]))*"
_NUMBER = r"(?:[ \t]+\d+(?:\.\d+)*(?![,:]\d|-\d|[ \t]?[%€$£]|[ \t]?(?i:eur|usd|euros?|uhr|km|kg|cm|mm|ml)\b))"
_LINK = r"(?:[ \t]+(?:of(?:[ \t]+the)?|de(?:[ \t]+la)?|del|van(?:[ \t]+der)?|von|da|do|di|du|&))?"
_PART = rf"(?:(?:Dr|Mr|Mrs|Ms|Prof|St|Sr|Sra)\.(?=[ \t])|{_WORD})"
_RUN = re.compile(rf"(?<![{LETTER}'’_./-]){_PART}(?:{_LINK}[ \t]+{_PART})*{_NUMBER}?(?![{LETTER}/_])")
_FILE_NAME = (
    r"(?<!\w)[\w-]+\.(?:md|py|js|ts|ya?ml|toml|json|jsonl|txt|csv|xlsx?|docx?|pdf|html?|sh|sql|log|cfg"
    r"|ini|png"
    r"|jpe?g)\b(?:#L?\d+(?:-L?\d+)?)?"
)
_FILE = re.compile(rf"(?:https?://|www\.)\S+|[\w.~-]*(?:/[\w.~*-]+)+/?|{_FILE_NAME}|[^\s@]+@\S+\.\w+")
_LOWER_WORD = re.compile(rf"(?<![\w'’])[^\W\d_{UPPER}]")
_CODE = re.compile(r"^[^\s]*(?:\d[^\s]*-|-[^\s]*\d|_|#\d)[^\s]*$")
_REPOSITORY = re.compile(r"(?:github|gitlab)\.com/([\w.-]+/[\w.-]+?)(?:\.git)?(?:[/#?].*)?$")
_MARKED = re.compile(
    r"(?<![\w.@])@(?P<Person>[A-Za-z][\w-]{1,38})|(?<![\w#&])(?P<Project>#\d{1,7}|[A-Z]{2,10}-\d+)(?![\w-])"
    rf"|(?<![{LETTER}_-])(?P<Concept>[A-Z][A-Z0-9]*(?:-[A-Z0-9]+)*-[A-Z0-9]*\d[A-Z0-9]*(?:-[A-Z0-9]+)*)(?![\w-])"
    rf"|(?<![{LETTER}_.])(?P<Technology>[A-Z][a-z0-9]+(?:[A-Z][a-z0-9]+)+"
    rf"|[a-z][a-z0-9]*(?:_[a-z0-9]+)+|[a-z][A-Z][a-z]\w+)(?!\w)"
    r"|[\"“„](?P<Title>[^\"“”\n]{2,60})[\"”“]"
)
_PERSON_BEFORE = re.compile(
    r"\b(?:met|told|asked|named|heißt|llama|(?:talk|spoke|speak)\w* (?:to|with))\s+$", re.IGNORECASE
)
_PERSON_AFTER = re.compile(
    r"['’]s\s+(?:wife|husband|sister|brother|mother|father|boss|birthday|son|daughter)\b"
    r"|\s+(?:says?|said|thinks?|thought|told|asks?|asked|believes?|wants?|likes|loves|hates|married"
    r"|lives|prefers|wrote"
    r"|opens|sagt|fragt|dice)\b"
)
_PLACE_BEFORE = re.compile(
    r"\b(?:(?:sent|came|comes|back|flew|travelled) from|near|visit(?:ed|ing)?|(?:moved?|moving|trip"
    r"|travel\w*|flight|went|flew|drove) to|nach)\s+$",
    re.I,
)
_VERB_AFTER = re.compile(
    r"(?:['’]s\b|, (?:the|a|an|our|my|who|ceo|cto|head|die|der|la|el)\b"
    rf"|\s+(?:(?:now|also|still|jetzt|ahora|ya|no|auch|nicht)\s+)*(?:{any_of('verbs_after')})\b)"
)
_GERMAN = re.compile(rf"\b(?:{any_of('german')})\b", re.IGNORECASE)
_NAME_BEFORE = re.compile(r"(?:^|\s)(?:in|nach|bei|von|aus|mit|und|wohnt|arbeitet|heißt|statt)\s+$")
_ARTICLE_BEFORE = re.compile(
    rf"(?:^|\s)(?:{'|'.join(ARTICLES)})\s+(?:(?-i:[a-zäöü]+e[nmrs]?)\s+)?$", re.IGNORECASE
)
_NO_ENTITY = re.compile(
    rf"[\d\s.:/,-]+|(?:{'|'.join((*MONTH_NAMES, *DAY_NAMES))})\.?(?: \d.*)?(?<!\bjan)"
    r"|.*\d月.*|\d+[年日号]|(?:星期|周|礼拜)[一二三四五六日天]"
    rf"|memory|.?|{_FILE_NAME}",
    re.IGNORECASE,
)
_SHE = re.compile(rf"Ella (?:(?:ya|no|ahora|también|se) )*(?:{any_of('spanish_verbs')})\b")
_PLAIN_LETTERS = str.maketrans("áéíóúàèâêôñçü", "aeiouaeaeoncu")
_NO_NAME_ENDING = re.compile(r".{3,}(?:ing|ed|ly|ung|heit|keit|schaft|ción)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Mention:
    """A name and its position; unless it is `sure`, it counts only if the name occurs elsewhere."""

    start: int
    end: int
    label: str
    kind: str = UNSURE
    sure: bool = True


def is_no_entity(label: str) -> bool:
    """Return whether a label is a date, a day, a number or a file name, which are never entities."""
    return _NO_ENTITY.fullmatch(label.strip()) is not None


def without_files(text: str) -> str:
    """Remove addresses and file names from a sentence; repositories stay."""

    def kept(match: re.Match[str]) -> str:
        repository = _REPOSITORY.search(match[0])
        return f"“{repository[1]}”" if repository else "␣"

    return _FILE.sub(kept, text) if any(mark in text for mark in "./@") else text


def mentions_in(text: str, known: Collection[str] = ()) -> list[Mention]:
    """Return the names in a sentence in order, without overlaps.

    `known` has casefolded names of people that are certain, such as the speakers.
    """
    found: list[Mention] = []
    candidates = (*_marked(text), *_capitalised(text, known))
    # In "Ticket DSP-118" the ticket is the name; "GitHub" in "GitHub Actions" is part of one.
    for mention in sorted(candidates, key=lambda one: (not _CODE.search(one.label), one.start - one.end)):
        if all(mention.end <= one.start or mention.start >= one.end for one in found):
            found.append(mention)
    return sorted(found, key=lambda mention: mention.start)


def _marked(text: str) -> Iterator[Mention]:
    """Yield names recognisable by their form: handles, tickets, identifiers, and quoted text."""
    for match in _MARKED.finditer(text):
        kind = match.lastgroup or UNSURE
        label = match[kind]
        if kind == "Title":
            kind = "Project" if re.fullmatch(r"[\w.-]+/[\w.-]+", label) else UNSURE
            if kind == UNSURE and not (label[0].isupper() and label[-1] not in ".!?," and " " in label):
                continue
        if label.casefold() in PLACES | ORGANISATION_WORDS or (label.isupper() and len(label) < 3):
            continue
        yield Mention(
            start=match.start(), end=match.end(), label=label, kind=_listed_kind(label.casefold()) or kind
        )


_Words: TypeAlias = Sequence[tuple[int, str]]
"""Words and their positions in the sentence."""


def _capitalised(text: str, known: Collection[str]) -> Iterator[Mention]:
    is_german = len(_GERMAN.findall(text)) > 0
    for run in _RUN.finditer(text):
        before = text[: run.start()].rpartition("\n")[2].rpartition(": ")[2]
        opens = run.start() if not before.strip(" \"'“”‘(*-–—:,¿¡") else None
        is_title = _is_title(before + text[run.start() :].partition("\n")[0])
        words = [(run.start() + word.start(), word[0]) for word in re.finditer(r"\S+", run[0])]
        for part in _split(words, known, opens, is_german=is_german):
            mention = _mention(text, part, known)
            if mention is None:
                continue
            is_unsure = mention.kind == UNSURE and mention.label.casefold() not in known
            is_single = is_unsure and sum(not word[0].isdigit() for _, word in part) == 1
            if is_german and (is_single or _ARTICLE_BEFORE.search(text, 0, mention.start)):
                mention = _german(text, mention)
            elif (is_single and len(part) == 1 and mention.label.isupper()) or (is_unsure and is_title):
                mention = replace(mention, sure=False)
            elif is_single and mention.start == opens:
                mention = replace(mention, sure=_opens_surely(text, mention))
            if mention is not None:
                yield mention


def _is_title(line: str) -> bool:
    """Return whether a line is a title or a list item, without the words that make a sentence."""
    first = line.split(None, 1)[0]
    return not (_LOWER_WORD.search(line) or _bare(first.rstrip(",!:")).casefold() in NOT_NAMES | OPENERS)


def _german(text: str, mention: Mention) -> Mention | None:
    """Return a name among German nouns, which are all capitalised: no article, and often a preposition."""
    folded = mention.label.casefold()
    if mention.kind == "Technology" or mention.kind == "Tool":
        return mention
    if _ARTICLE_BEFORE.search(text, 0, mention.start) and mention.kind not in ("Organization", "Project"):
        return None
    if folded in GERMAN_NOUNS or _NO_NAME_ENDING.fullmatch(folded):
        return None
    is_sure = bool(_NAME_BEFORE.search(text, 0, mention.start) or _VERB_AFTER.match(text, mention.end))
    return replace(mention, sure=is_sure)


def _split(words: _Words, known: Collection[str], opens: int | None, *, is_german: bool) -> Iterator[_Words]:
    """Split a run at words that are not part of a name, such as the month in "Oslo March"."""
    part: list[tuple[int, str]] = []
    following = [_bare(word).casefold() for _, word in words[1:]] + [""]
    for (start, word), after in zip(words, following, strict=True):
        folded = _bare(word).casefold()
        is_name = folded in known or _is_first_name(folded)
        is_none = (
            folded in NOT_NAMES
            or (
                is_german
                and folded in GERMAN_NOUNS
                and after not in ORGANISATION_WORDS
                and not (start == opens and folded in TITLES)
            )
            or (start == opens and folded in OPENERS and folded not in PLACES)
        )
        if word[0].isupper() and not is_name and is_none:
            yield from _trimmed(part)
            part = []
        elif part or not word.islower():
            part.append((start, word))
            if word.endswith(("'s", "’s")) and after not in ORGANISATION_WORDS:  # "Mirelle's Bakery" is hers
                yield from _trimmed(part)
                part = []
    yield from _trimmed(part)


def _trimmed(words: _Words) -> Iterator[_Words]:
    while words and (words[-1][1].islower() or words[-1][1] == "&"):
        words = words[:-1]
    if words and not words[0][1][0].isdigit():
        yield words


def _mention(text: str, words: _Words, known: Collection[str]) -> Mention | None:
    """Return the name that the words form, without a preceding title; None if they form none."""
    has_title = len(words) > 1 and _bare(words[0][1]).casefold() in TITLES
    named = words[1:] if has_title else words
    start, label = named[0][0], _bare(" ".join(word for _, word in named))
    if label == "Ella" and _SHE.match(text, start):
        return None
    if len(label) < 2 or label.isdigit() or len(words) > MAX_NAME_WORDS or _bare(label).casefold() in TITLES:
        return None
    mention = Mention(start=words[0][0], end=start + len(label), label=label)
    return replace(mention, kind="Person" if has_title else _kind(text, mention, known))


def _opens_surely(text: str, mention: Mention) -> bool:
    """Return whether the first word of a sentence is a name: by its form, or because it acts."""
    folded = mention.label.casefold()
    if folded in PLACES:
        return True
    return bool(_VERB_AFTER.match(text, mention.end)) and not _NO_NAME_ENDING.fullmatch(folded)


def _kind(text: str, mention: Mention, known: Collection[str]) -> str:
    """Guess the kind of a name: by lists, by its last word, then by the words around it."""
    folded = mention.label.casefold()
    words = folded.split()
    if folded in known or (_is_first_name(words[0]) and len(words) < 4):
        return "Person"
    if words[0] in ("project", "projekt", "proyecto") and len(words) > 1:
        return "Project"
    if listed := _listed_kind(folded) or _listed_kind(words[0]):
        return listed
    last = words[-1].rstrip(".")
    if last in EVENT_WORDS:
        return "Event"
    if len(words) > 1 and (last in ORGANISATION_WORDS or words[0] in ORGANISATION_WORDS):
        return "Organization"
    if folded in PLACES or last in OF_A_PLACE:
        return "Location"
    before = text[max(0, mention.start - 24) : mention.start]
    if _PLACE_BEFORE.search(before):
        return "Location"
    is_person = _PERSON_BEFORE.search(before) or _PERSON_AFTER.match(text, mention.end)
    return "Person" if is_person and not mention.label.isupper() else UNSURE


def _is_first_name(folded: str) -> bool:
    if folded in FIRST_NAMES:
        return True
    return not folded.isascii() and folded.translate(_PLAIN_LETTERS) in FIRST_NAMES


def _listed_kind(folded: str) -> str | None:
    if folded in TECHNOLOGIES:
        return "Technology"
    return "Tool" if folded in TOOLS else None


def _bare(word: str) -> str:
    """Return a word without possessive and trailing punctuation."""
    word = word.rstrip(".&-'’")
    return word[:-2] if word.endswith(("'s", "’s")) else word
