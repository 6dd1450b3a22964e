"""Masks passwords, keys and tokens in texts before they are written down.

A secret is known by what it is *called* (`OPENAI_API_KEY=…`, "the password is …"), by what it *looks like*
(`ghp_…`, a private key) or by where it *stands* (`curl -u bob:…`, a column under `password`). All rules read
the text as it was written and the places that they find are masked at once, so that one pass is enough; time
is linear in the text.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from typing import overload

from composable_memory_ops_logs.events import JsonValue
from composable_memory_ops_logs.secret_rules import FINDERS, Finder, Span, Text, is_secret_name
from composable_memory_ops_logs.secret_shapes import PEM_HEADER, long_runs
from composable_memory_ops_logs.secret_values import is_masked

__all__ = ["REDACTION_VERSION", "CleanTexts", "is_secret_name", "redact", "redact_value"]

REDACTION_VERSION = 4
"""Grows with every change of the rules, so that texts which were kept redacted can be redacted anew."""

_MASK = "***"
_LEAST_SHOWN = 20
"""A shorter token is masked whole; of a longer one the ends stay, most of which is its public prefix."""


def redact(text: str) -> str:
    """Return the text with every secret masked: `***`, or `first6…last4` of a token with a known prefix."""
    simple = Text.of(text)
    finders = _concerned(simple)
    if not finders:
        return text
    spans = sorted(span for finder in finders for span in finder.find(simple) if _is_unmasked(text, span))
    if not spans:
        return text
    parts: list[str] = []
    end = 0
    for start, stop, is_token in _merged(spans):
        parts += text[end:start], _mask_token(text[start:stop]) if is_token else _MASK
        end = stop
    return "".join([*parts, text[end:]])


@overload
def redact_value(value: Mapping[str, JsonValue]) -> dict[str, JsonValue]: ...
@overload
def redact_value(value: JsonValue) -> JsonValue: ...
def redact_value(value: JsonValue) -> JsonValue:
    """Return JSON-like data with every text redacted; a text under a secret's name is masked as a whole."""
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, Mapping):
        return {redact(key): _redact_named(key, item) for key, item in value.items()}
    if isinstance(value, Sequence | Set):
        return [redact_value(item) for item in value]
    return value


class CleanTexts:
    """Remembers which texts hold no secret, because a log meets the same previews again and again.

    At most `capacity` texts are remembered; then it starts afresh.
    """

    def __init__(self, capacity: int = 4096) -> None:
        self._capacity = capacity
        self._known: set[str] = set()

    def covers(self, texts: Iterable[str]) -> bool:
        """Tell whether `redact` would change none of the texts."""
        new = set(texts) - self._known
        if not new:
            return True
        # One look at all of them is cheaper than one at each.
        # The texts must not look like lines of one: a name at a line's end is no hint.
        dirty = (
            {text for text in new if redact(text) != text} if _concerned(Text.of("\0".join(new))) else set()
        )
        if len(self._known) + len(new) > self._capacity:
            self._known.clear()
        self._known |= new - dirty
        return not dirty


# --- which rules --------------------------------------------------------------------------------------------


_MARKS = ("$", "=", "{", "/", "_", ":", ".", "-", "j", "q", "z", "x")
_Hints = Mapping[str, Mapping[str, Sequence[int]]]
_START = 2
"""How much of a token's prefix is looked at first."""
_STARTS = re.compile(rf"(?<![A-Za-z0-9])[A-Za-z0-9].{{{_START - 1}}}")


def _by_mark(hints: Callable[[Finder], Iterable[str]]) -> _Hints:
    """Group hints, and who has them, by a sign in them: that a text lacks a sign is seen at once."""
    groups: dict[str, dict[str, list[int]]] = {}
    for number, finder in enumerate(FINDERS):
        for hint in hints(finder):
            mark, _, word = hint.rpartition("&")
            mark = mark or next((sign for sign in _MARKS if sign in word), "")
            groups.setdefault(mark, {}).setdefault(word, []).append(number)
    for group in groups.values():
        for hint in sorted(group, key=len, reverse=True):
            shorter = next(
                (other for other in group if len(other) > 2 and other != hint and other in hint), None
            )
            if shorter:  # one question less
                group[shorter] += group.pop(hint)
    return groups


def _by_start() -> _Hints:
    """Group the prefixes of tokens by their first characters."""
    groups: dict[str, dict[str, list[int]]] = {}
    for number, finder in enumerate(FINDERS):
        for prefix in finder.prefixes:
            groups.setdefault(prefix[:_START], {}).setdefault(prefix, []).append(number)
    return groups


_WORDS = _by_mark(lambda finder: finder.hints)
_PROSE = _by_mark(lambda finder: finder.hints if finder.in_prose else ())
_NUMERIC = _by_mark(lambda finder: finder.numeric)
_ABROAD = _by_mark(lambda finder: finder.abroad)
_RUNS = _by_mark(lambda finder: finder.runs)
_PREFIXES = _by_start()


def _present(groups: _Hints, text: str, marks: Iterable[str]) -> set[int]:
    return {
        number
        for mark in marks
        for hint, numbers in groups[mark].items()
        if hint in text
        for number in numbers
    }


_KINDS = bytes(
    ord(
        "a" if sign.isalpha() else "1" if sign.isdigit() else "." if sign in ".,?)"
        else sign if sign in " ('-" else "x"
    )
    if code < 128
    else ord("x")
    for code, sign in ((code, chr(code)) for code in range(256))
)  # fmt: skip


def _is_prose(text: str) -> bool:
    """Tell whether a text has words and numbers alone: no sign, nothing long, nothing that mixes both."""
    if not text.isascii():
        return False
    kinds = b" " + text.encode().translate(_KINDS)
    if b"x" in kinds or b".a" in kinds or b"a" * 16 in kinds:
        return False
    if b"1" in kinds and any(unusual in kinds for unusual in (b"a1", b"1a", b".1", b"1" * 6)):
        return False
    if b"-" in kinds and (kinds.count(b"-") != kinds.count(b"a-a") or _LONG_WORD.search(kinds)):
        return False
    if b"'" in kinds and kinds.count(b"'") != kinds.count(b"a'a"):
        return False
    return b"(" not in kinds or kinds.count(b"(") == kinds.count(b" (a")


_LONG_WORD = re.compile(rb"[a-]{16}")


def _concerned(text: Text) -> list[Finder]:
    """Return the finders whose hints the text holds."""
    low, runs = text.low, long_runs(text.raw)
    words = _PROSE if _is_prose(text.raw) else _WORDS
    numbers = _present(words, low, (mark for mark in words if mark in low))
    if any(digit in low for digit in "1234567890"):
        numbers |= _present(_NUMERIC, low, _NUMERIC)
    if not low.isascii():
        numbers |= _present(_ABROAD, low, (mark for mark in _ABROAD if mark in low))
    if runs:
        numbers |= _present(_RUNS, runs, (mark for mark in _RUNS if mark in runs))
        numbers |= _present(_PREFIXES, runs, _PREFIXES.keys() & set(_STARTS.findall(runs)))
    return [FINDERS[number] for number in sorted(numbers)]


def _is_unmasked(text: str, span: Span) -> bool:
    """Tell whether a span is not empty and no end of a token that was masked before."""
    size = span.end - span.start
    return size > 0 and not (
        (size <= 6 and text[span.end : span.end + 1] == "…")
        or (size <= 4 and text[span.start - 1 : span.start] == "…")
    )


def _merged(spans: Sequence[Span]) -> Iterable[Span]:
    """Join spans that overlap; what is not exactly one token is masked whole."""
    current = spans[0]
    for span in spans[1:]:
        if span.start >= current.end:
            yield current
            current = span
        elif (span.start, span.end) == (current.start, current.end):
            current = Span(span.start, span.end, current.is_token or span.is_token)
        elif not (current.is_token and span.end <= current.end):
            is_token = span.is_token and current.start == span.start and span.end >= current.end
            current = Span(current.start, max(current.end, span.end), is_token)
    yield current


# --- masking ------------------------------------------------------------------------------------------------

_MASKED_KEY = re.compile(rf"{PEM_HEADER.pattern}\s…redacted…(?:\s-----END [A-Z0-9 ]{{0,40}}-----)?")


def _mask_token(secret: str) -> str:
    if secret.startswith("-----BEGIN"):
        return _mask_private_key(secret)
    return _MASK if len(secret) < _LEAST_SHOWN else f"{secret[:6]}…{secret[-4:]}"


def _mask_private_key(text: str) -> str:
    """Keep the first and the last line, which say what kind of key it is, unless all of it is on one line.

    One that is masked stays as it is, also when its lines have been joined since.
    """
    if _MASKED_KEY.fullmatch(text):
        return text
    header = PEM_HEADER.match(text)
    if header is None or "\n" not in text:
        return _MASK
    _, end, footer = text.rpartition("\n-----END")
    return f"{header[0]}\n…redacted…{end}{footer if end else ''}"


def _redact_named(name: str, value: JsonValue) -> JsonValue:
    if isinstance(value, str) and value and is_secret_name(name):
        masked = redact(value)
        return masked if is_masked(masked) or _MASKED_KEY.fullmatch(masked) else _MASK
    return redact_value(value)
