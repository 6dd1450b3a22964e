"""Masks passwords, keys and tokens in texts before they are written down.

A secret is recognised by its *name* (`OPENAI_API_KEY=…`, "the password is …"), its *shape* (`ghp_…`, a
private key) or its *context* (`curl -u bob:…`, a column under `password`). All rules read the original text,
and everything they find is masked at once, so that one pass is enough; the time is linear in the length of
the text.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from typing import Self, overload

from composable_memory_ops_logs.events import JsonValue
from composable_memory_ops_logs.lazy import Pattern
from composable_memory_ops_logs.redaction.addresses import ADDRESS_RULES
from composable_memory_ops_logs.redaction.assignments import ASSIGNMENT_RULES
from composable_memory_ops_logs.redaction.command_secrets import COMMAND_RULES
from composable_memory_ops_logs.redaction.numbers import NUMBER_RULES, find_numbers
from composable_memory_ops_logs.redaction.prose import PROSE_RULES, find_loose
from composable_memory_ops_logs.redaction.scanner import Rule, Span, Text, WordScanner
from composable_memory_ops_logs.redaction.secret_names import is_secret_name
from composable_memory_ops_logs.redaction.secret_tables import TABLE_RULES
from composable_memory_ops_logs.redaction.secret_values import is_masked
from composable_memory_ops_logs.redaction.tokens import PEM_HEADER, TOKEN_RULES, find_tokens

REDACTION_VERSION = 11
"""Incremented with every change of the rules, so that stored redacted texts can be redacted again."""

_MASK = "***"
_LEAST_SHOWN = 20
"""A shorter token is masked whole; a longer one keeps its ends, most of which is its public prefix."""


def redact(text: str) -> str:
    """Return the text with every secret masked: `***`, or `first6…last4` of a token with a known prefix."""
    spans = sorted(span for span in _found(Text.of(text)) if span.end > span.start)
    if "…" in text:
        spans = [span for span in spans if not _is_end_of_masked(text, span)]
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
    """Remembers which texts have no secrets, because a log sees the same previews again and again.

    It remembers at most `capacity` texts, then starts over.
    """

    def __init__(self, capacity: int = 4096) -> None:
        self._capacity = capacity
        self._known: set[str] = set()

    def covers(self, texts: Iterable[str]) -> bool:
        """Return whether `redact` would leave all the texts unchanged."""
        new = {text: None for text in texts if text not in self._known}
        if not new:
            return True
        # Checking them together is cheaper than one by one. Each must be judged as on its own: it ends at the
        # end of a line, and the next text must not look like the continuation of a name there.
        together = "\n\0\n".join(new)
        dirty = {text for text in new if redact(text) != text} if redact(together) != together else set()
        if len(self._known) + len(new) > self._capacity:
            self._known.clear()
        self._known |= new.keys() - dirty
        return not dirty


# --- which rules --------------------------------------------------------------------------------------------

RULES = (
    *TOKEN_RULES,
    *ADDRESS_RULES,
    *COMMAND_RULES,
    *ASSIGNMENT_RULES,
    *PROSE_RULES,
    *TABLE_RULES,
    *NUMBER_RULES,
)
_BY_WORD: dict[str, list[int]] = {}
for _number, _rule in enumerate(RULES):
    for _word in _rule.words:
        _BY_WORD.setdefault(_word, []).append(_number)
_SCANNER = WordScanner(_BY_WORD)


def _found(text: Text) -> Iterator[Span]:
    """Yield the secrets in a text, which is read once for all trigger words."""
    yield from find_tokens(text)
    yield from find_numbers(text)
    yield from find_loose(text)
    yield from _find_by_words(text)


def _find_by_words(text: Text) -> list[Span]:
    """Return the secrets found by trigger words. Repeated pieces are judged only once."""
    found: list[Span] = []
    read = [0] * len(RULES)
    flood: Flood | None = None
    start = 0
    while start < len(text.low):
        flood = flood or Flood.at(text.raw, start)
        stop = flood.next_cut if flood else start + _LOOK_EVERY
        for number, places in _SCANNER.places(text.low, start, stop).items():
            read[number] = _apply(RULES[number], text, sorted(places), read[number], found)
        if flood is None or stop >= flood.end:
            start, flood = stop, None
        else:
            start = flood.cut(found, read)
    return found


_LOOK_EVERY = 16_384
"""How often, in characters, to check a text for a flood of equal pieces.

Each rule reads this much before the next one does, so that its data stays in the processor's caches, which
saves a quarter of the time.
"""


def _apply(rule: Rule, text: Text, places: Iterable[int], read: int, found: list[Span]) -> int:
    """Add what a rule finds at some places, and return how far it has read."""
    match_at, written = rule.pattern.match, text.raw if rule.as_written else text.low
    for place in places:
        if place >= read and (match := match_at(written, place)):
            for span in rule.secrets(text, match):
                read = span.end
                if read > span.start:
                    found.append(span)
    return read


def _is_end_of_masked(text: str, span: Span) -> bool:
    """Return whether a span is one of the ends of a token that was masked before."""
    size = span.end - span.start
    return (size <= 6 and text[span.end : span.end + 1] == "…") or (
        size <= 4 and text[span.start - 1 : span.start] == "…"
    )


def _merged(spans: Sequence[Span]) -> Iterable[Span]:
    """Join overlapping spans; a joined span that is not exactly one token is masked whole."""
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

_MASKED_KEY = Pattern(rf"{PEM_HEADER.source}\s…redacted…(?:\s-----END [A-Z0-9 ]{{0,40}}-----)?")


def _mask_token(secret: str) -> str:
    if secret.startswith("-----BEGIN"):
        return _mask_private_key(secret)
    return _MASK if len(secret) < _LEAST_SHOWN else f"{secret[:6]}…{secret[-4:]}"


def _mask_private_key(text: str) -> str:
    """Keep the first and last line, which say what kind of key it is, unless everything is on one line.

    A masked key stays as it is, even if its lines have been joined since.
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


# --- texts that repeat one piece ----------------------------------------------------------------------------

_SAMPLE = 64
"""How much must be repeated before checking how long the repetition goes on."""
_LONGEST = 1_000
"""Maximum length of a piece. Tables are searched in steps of this length, so a stretch has two of them."""
_REACH = 8_192
"""No rule looks further ahead or back, unless the end of a span says how far it has read."""


class Flood:
    """A part of a text, up to `end`, that is one piece repeated.

    Rules look at a bounded part of the text around a word. So if each has read equally far beyond the start
    and beyond the end of a stretch of whole pieces, all stretches give the same, until the end is within
    reach.
    """

    def __init__(self, start: int, piece: int, end: int) -> None:
        self.end = end
        self.next_cut = start + _REACH
        self._stretch = 2 * piece * -(-_LONGEST // piece)
        self._last: tuple[int, list[int]] | None = None

    @classmethod
    def at(cls, raw: str, start: int) -> Self | None:
        """Return the flood that begins at a place, if it is long enough."""
        piece = raw.find(raw[start : start + _SAMPLE], start + 1, start + _SAMPLE + _LONGEST) - start
        if piece <= 0:
            return None
        end, step = start, _SAMPLE
        while step:
            is_same = raw[end : end + step] == raw[end + piece : end + piece + step]
            end, step = (end + step, step * 2) if is_same and end + step <= len(raw) else (end, step // 2)
        return cls(start, piece, end) if end - start > 3 * _REACH else None

    def cut(self, found: list[Span], read: list[int]) -> int:
        """Repeat what was found since the last cut, if all rules are in the same state as then.

        Returns the place to continue from, with `read` as it is there.
        """
        place, length, beyond = self.next_cut, self._stretch, self.end - _REACH
        standing = [one if one >= beyond else max(one - place, -_SAMPLE) for one in read]
        count, before = self._last or (0, [])
        times = (beyond - place) // length
        if standing != before or times <= 0:
            self._last, self.next_cut = (len(found), standing), place + length
            return place
        found += [
            Span(span.start + shift, span.end + shift, span.is_token)
            for shift in range(length, length * (times + 1), length)
            for span in found[count:]
        ]
        read[:] = [one if one >= beyond else one + length * times for one in read]
        self.next_cut = self.end
        return place + length * times
