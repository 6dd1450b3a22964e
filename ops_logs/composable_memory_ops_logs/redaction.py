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


_MARKS = ("$", "=", "{", "/", "_", ":", ".", "-")
_Hints = Mapping[str, Mapping[str, Sequence[int]]]


def _by_mark(hints: Callable[[Finder], Iterable[str]]) -> _Hints:
    """Group hints, and who has them, by a sign in them: that a text lacks a sign is seen at once."""
    groups: dict[str, dict[str, list[int]]] = {}
    for number, finder in enumerate(FINDERS):
        for hint in hints(finder):
            mark = finder.mark or next((sign for sign in _MARKS if sign in hint), "")
            groups.setdefault(mark, {}).setdefault(hint, []).append(number)
    for group in groups.values():
        for hint in sorted(group, key=len, reverse=True):
            shorter = next(
                (other for other in group if len(other) > 2 and other != hint and other in hint), None
            )
            if shorter:  # one question less
                group[shorter] += group.pop(hint)
    return groups


_WORDS = _by_mark(lambda finder: finder.hints)
_ABROAD = _by_mark(lambda finder: finder.abroad)
_RUNS = _by_mark(lambda finder: finder.runs)


def _present(groups: _Hints, text: str) -> set[int]:
    return {
        number
        for mark, hints in groups.items()
        if mark in text
        for hint, numbers in hints.items()
        if hint in text
        for number in numbers
    }


def _concerned(text: Text) -> list[Finder]:
    """Return the finders whose hints the text holds."""
    low, runs = text.low, long_runs(text.raw)
    numbers = _present(_WORDS, low)
    if not low.isascii():
        numbers |= _present(_ABROAD, low)
    if runs:
        numbers |= _present(_RUNS, runs)
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
