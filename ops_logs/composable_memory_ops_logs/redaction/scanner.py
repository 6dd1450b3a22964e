"""The basis of the rules for secrets: a simplified text, spans, and the search for trigger words."""

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import NamedTuple

from composable_memory_ops_logs.lazy import Pattern
from composable_memory_ops_logs.quick_dataclass import dataclass

JUDGED = 128
"""How much of a value to look at when judging it."""
TRAILING = "\"'`&;<>,.:)}]\\」』。，、；"
WORD_CHARS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-"
TOUCHING = frozenset("abcdefghijklmnopqrstuvwxyz0123456789_-.")
ALNUM = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789")


class Span(NamedTuple):
    """The place of a secret. The ends of a token may be kept, so that people can recognise it.

    An empty span has no secret: it says how far a rule has read, so that it is not called again before that.
    """

    start: int
    end: int
    is_token: bool = False


@dataclass(frozen=True, slots=True)
class Text:
    """A text, and a simplified version: lower case, plain signs, lines joined that end with a backslash.

    Both have the same length.
    """

    raw: str
    low: str
    memo: dict[object, tuple[tuple[int, ...], ...]]
    """Results for parts of the text that may recur."""

    @classmethod
    def of(cls, raw: str) -> "Text":
        """Return the text with its simplified version."""
        low = raw.lower()
        if not raw.isascii():
            if _is_latin(raw):
                low = low.replace("\u00a0", " ")
            else:
                low = raw.replace("İ", "i").lower()
                for sign, simple in _SIMPLE:  # many times faster than `translate`
                    low = low.replace(sign, simple)
                if _ADJACENT.search(low):
                    low = _MIXED.sub(lambda word: word[0].translate(_LOOK_ALIKES), low)
        if "\\\n" in low or "\\\r\n" in low:
            low = low.replace("\\\r\n", "   ").replace("\\\n", "  ")
        return cls(raw, low, {})


def _is_latin(text: str) -> bool:
    """Return whether a text has only letters of Western Europe, which need little simplification."""
    try:
        text.encode("latin-1")
    except UnicodeEncodeError:
        return False
    return True


_SIMPLE = tuple(
    (sign, simple)
    for simple, signs in (
        (" ", "\u200b\u200c\u200d\u2060\ufeff\u00a0\u3000"),
        (":", "："),
        ("=", "＝"),
        ('"', "“”„"),
    )
    for sign in signs
)


_LOOK_ALIKES = str.maketrans("аеорсухіѕјкαορν", "aeopcyxisjkaopv")
_ALIKE = "".join(map(chr, _LOOK_ALIKES))
_MIXED = Pattern(f"(?<![a-z{_ALIKE}])(?:[a-z]+[{_ALIKE}]|[{_ALIKE}]+[a-z])[a-z{_ALIKE}]*")
"""A word of Latin letters, some replaced by Cyrillic or Greek ones that look the same."""
_ADJACENT = Pattern(f"[{_ALIKE}](?:(?=[a-z])|(?<=[a-z].))")
"""A part of every such word, found in a tenth of the time."""


class Rule(NamedTuple):
    """`secrets` yields those in a match of the pattern, which is tried wherever one of the words is.

    What it reads from one place is bounded, or an empty span says how far it has read.
    """

    words: tuple[str, ...]
    pattern: Pattern
    secrets: Callable[[Text, re.Match[str]], Iterable[Span]]
    as_written: bool = False
    """Whether the pattern is for the original text, not the simplified one."""


ANY = Pattern("")
"""For rules whose word is enough."""


def pattern_rule(
    words: Sequence[str], source: str, is_secret: Callable[[str], bool], *, trailing: str = ""
) -> Rule:
    """Return a rule for a pattern that starts with a word; each of its groups is a secret.

    Without groups the whole match is; `trailing` characters do not belong to it.
    """
    apart = "(?<![a-z0-9])" if words[0][0] in ALNUM else ""

    def secrets(text: Text, match: re.Match[str]) -> Iterable[Span]:
        start, end = match.span(match.lastindex or 0)
        value = text.raw[start:end].rstrip(trailing)
        return (Span(start, start + len(value)), Span(end, end)) if is_secret(value) else (Span(end, end),)

    return Rule(tuple(words), Pattern(f"{apart}(?:{source})"), secrets)


# --- finding words ------------------------------------------------------------------------------------------

_ANCHORS = "kjqxz={$vwpcufymgh:b"
"""Letters and signs that are rare in prose and in logs: words are searched for only around them."""


class WordScanner:
    """Finds all occurrences of many words in a text, in one pass.

    Python's regex engine tries an alternative at each character that may begin one, so each word is anchored
    on a rare letter in it. Words in other scripts, and those without a rare letter, are only searched for in
    texts with such letters. The first few texts are searched for one word after another, which is faster than
    compiling the pattern: a command seldom reads more.
    """

    def __init__(self, rules: Mapping[str, Sequence[int]], one_by_one: int = 50_000) -> None:
        """Create a scanner for words, each of which triggers the rules with some numbers.

        The first `one_by_one` characters are searched for one word after another.
        """
        self._rules = rules
        ascii_words = [word for word in rules if word.isascii()]
        self._rare = [word for word in ascii_words if not set(word).isdisjoint(_ANCHORS)]
        self._plain = set(ascii_words) - set(self._rare)
        self._reach = max(map(len, rules))
        self._one_by_one = one_by_one

    # Each takes some milliseconds to compile, and a text seldom needs more than one.

    @cached_property
    def _usual(self) -> "_Anchored":
        return _Anchored(self._rare, self._rules)

    @cached_property
    def _ascii(self) -> "_Anchored":
        return _Anchored([*self._rare, *self._plain], self._rules)

    @cached_property
    def _foreign(self) -> "_Anchored":
        return _Anchored([word for word in self._rules if not word.isascii()], self._rules)

    def places(self, low: str, start: int, stop: int) -> dict[int, list[int]]:
        """Return for each rule where its words are, for words whose anchors are in a part of a text."""
        found: defaultdict[int, list[int]] = defaultdict(list)
        if start == 0 and len(low) <= stop and self._one_by_one > 0:
            self._one_by_one -= len(low)
            for word, announced in self._rules.items():
                place = low.find(word)
                while place >= 0:
                    for rule in announced:
                        found[rule].append(place)
                    place = low.find(word, place + 1)
            return found
        reach = stop + self._reach
        has_plain = any(low.find(word, start, reach) >= 0 for word in self._plain)
        (self._ascii if has_plain else self._usual).look(low, start, stop, reach, found)
        if not low.isascii():
            self._foreign.look(low, start, stop, reach, found)
        return found


_Standing = tuple[str, int]
"""A word, and the offset of its anchor."""


class _Anchored:
    """A pattern that searches for each word around its anchor, with a group for each combination.

    Where words overlap, as in `passphrase` or `otpass`, the longest combination comes first.
    """

    def __init__(self, words: Iterable[str], rules: Mapping[str, Sequence[int]]) -> None:
        words = sorted(words, key=lambda word: (len(word), word))
        anchored: dict[str, set[_Standing]] = {}
        for word in words:
            shortest = next(one for one in words if one in word)
            anchor = _anchor(shortest)
            place = word.index(shortest) + shortest.index(anchor)
            anchored.setdefault(anchor, set()).add((word, place))
        self._rules = rules
        self._groups: list[list[tuple[int, int]]] = [[]]  # groups are counted from 1
        branches = [
            f"{re.escape(anchor)}(?={self._tree(_joined(own), own)})"
            for anchor, own in sorted(anchored.items(), key=lambda one: -_ANCHORS.find(one[0]))
        ]  # the most common first, as Python tries them in order
        self._pattern = Pattern("|".join(branches))

    def _tree(self, standing: set[_Standing], words: set[_Standing], depth: int = 1) -> str:
        """Return the pattern for texts that agree in the first `depth` characters after the anchor."""
        following: dict[str, set[_Standing]] = {}
        for text, offset in sorted(standing):
            sign = text[offset + depth : offset + depth + 1]
            following.setdefault(sign, set()).add((text, offset))
        ends = following.pop("", set())
        branches = [re.escape(sign) + self._tree(own, words, depth + 1) for sign, own in following.items()]
        for text, offset in sorted(ends, key=lambda end: -end[1]):
            within = [word for word in words if _is_within(word, (text, offset))]
            self._groups.append([(place, rule) for word, place in within for rule in self._rules[word]])
            branches.append((f"(?<={re.escape(text)})" if offset else "") + "()")
        return branches[0] if len(branches) == 1 else f"(?:{'|'.join(branches)})"

    def look(self, low: str, start: int, stop: int, reach: int, found: dict[int, list[int]]) -> None:
        """Add for each rule where its words are; what follows them is visible up to `reach`."""
        groups = self._groups
        for match in self._pattern.finditer(low, start, reach):
            anchor = match.start()
            if anchor >= stop:
                break
            for before, rule in groups[match.lastindex or 0]:
                found[rule].append(anchor - before)


def _anchor(word: str) -> str:
    if not word.isascii():
        return next(sign for sign in word if not sign.isascii())
    return word[0] if word[0] in _ANCHORS else next((one for one in _ANCHORS if one in word), word[0])


def _joined(words: set[_Standing]) -> set[_Standing]:
    """Return the words, and the combinations of words that share an anchor."""
    joined = set(words)
    new = joined
    while new:
        new = {both for one in new for two in words if (both := _join(one, two))} - joined
        joined = joined | new
    return joined


def _join(one: _Standing, two: _Standing) -> _Standing | None:
    (left, offset), (right, shift) = (one, two) if one[1] >= two[1] else (two, one)
    start = offset - shift
    rest = left[start:]
    if rest.startswith(right):
        return left, offset
    return (left[:start] + right, offset) if right.startswith(rest) else None


def _is_within(word: _Standing, text: _Standing) -> bool:
    return word[1] <= text[1] and text[0].startswith(word[0], text[1] - word[1])


def places(text: str, word: str) -> Iterator[int]:
    """Yield where a word is."""
    place = text.find(word)
    while place >= 0:
        yield place
        place = text.find(word, place + len(word))


def runs(text: str, kinds: bytes, least: int, start: int) -> Iterator[tuple[int, int]]:
    """Yield the runs of at least this many characters of a kind, from `start` on."""
    data = text.encode("latin-1", "replace").translate(kinds) + b" "
    end = start
    while (start := data.find(b"x" * least, end)) >= 0:
        end = data.index(b" ", start)
        yield start, end


def run_before(text: str, place: int, characters: str = WORD_CHARS, most: int = 48) -> str:
    """Return the run of `characters` that ends at `place`, up to `most` characters."""
    if not place or text[place - 1] not in characters:
        return ""
    part = text[max(0, place - most) : place]
    return part[len(part.rstrip(characters)) :]
