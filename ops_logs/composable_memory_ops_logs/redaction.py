"""Masks passwords, keys and tokens in texts before they are written down.

Two kinds of rules: what a secret is *called* (`OPENAI_API_KEY=…`, `"accessToken": "…"`, `--password …`), and
what it *looks like* (`ghp_…`, `eyJ….….…`, a private key). Patterns are tried only on texts that hold one
of their hints, have bounded look-around and no nested repetition, so time is linear in the text.
"""

import re
from collections.abc import Iterable, Mapping, Sequence, Set
from typing import overload

from composable_memory_ops_logs.events import JsonValue
from composable_memory_ops_logs.secret_rules import FLAGS, PEM_HEADER, RULES, Rule, long_runs
from composable_memory_ops_logs.secret_words import SECRET_NAME

__all__ = ["REDACTION_VERSION", "CleanTexts", "is_secret_name", "redact", "redact_value"]

REDACTION_VERSION = 2
"""Grows with every change of the rules, so that texts which were kept redacted can be redacted anew."""

_MASK = "***"
_MASKABLE_CHARS = 18
"""A shorter secret is masked whole; of a longer one the ends stay, so that people can tell which it was."""


def redact(text: str) -> str:
    """Return the text with every secret masked: `***`, or from 18 characters on `first6…last4`."""
    return _redact_by(_RULES, _HINTS, text)


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


def is_secret_name(name: str) -> bool:
    """Tell whether a value of this name is a secret: `apiKey`, `DB_PASSWORD`, `token`; not `monkey`."""
    return re.search(SECRET_NAME, name, FLAGS) is not None


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
        # One look at all of them is cheaper than one at each, and leaves few rules for those.
        # The texts must not look like lines of one: a name at a line's end is no hint.
        rules = _concerned(_RULES, _HINTS, "\0".join(new))
        hints = _Hints(rules)
        dirty = {text for text in new if rules and _redact_by(rules, hints, text) != text}
        if len(self._known) + len(new) > self._capacity:
            self._known.clear()
        self._known |= new - dirty
        return not dirty


# --- the rules ----------------------------------------------------------------------------------------------

_RULES = RULES


class _Hints:
    """What to look for in a text before any rule is tried on it: anywhere, and in its long runs."""

    def __init__(self, rules: Sequence[Rule]) -> None:
        self._words = _by_mark(hint for rule in rules if not rule.is_shape for hint in rule.hints)
        self._shapes = _by_mark(hint for rule in rules if rule.is_shape for hint in rule.hints)

    def in_words(self, lowered: str) -> set[str]:
        return _present(self._words, lowered)

    def in_shapes(self, text: str) -> set[str]:
        runs = long_runs(text) if self._shapes else ""
        return _present(self._shapes, runs) if runs else set()


def _by_mark(hints: Iterable[str]) -> dict[str, list[str]]:
    """Group hints by the first sign in them: to see that a text lacks a sign is cheap."""
    groups: dict[str, list[str]] = {}
    for hint in sorted(set(hints)):
        mark = next((character for character in hint if character in _MARKS), "")
        groups.setdefault(mark, []).append(hint)
    return groups


def _present(groups: Mapping[str, Sequence[str]], text: str) -> set[str]:
    return {hint for mark, hints in groups.items() if mark in text for hint in hints if hint in text}


_MARKS = "_-.=@/éü"
_HINTS = _Hints(_RULES)


def _redact_by(rules: Sequence[Rule], hints: _Hints, text: str) -> str:
    """Apply rules until nothing changes, because a mask may uncover what stood beside it.

    It ends: a round that changes anything leaves fewer unmasked characters, or a shorter text.
    """
    concerned = _concerned(rules, hints, text)
    before = None
    while concerned and text != before:
        before = text
        for rule in concerned:
            text = rule.pattern.sub(_mask_match, text)
    return text


def _concerned(rules: Sequence[Rule], hints: _Hints, text: str) -> Sequence[Rule]:
    """Return the rules that may find something in the text; nearly always none."""
    lowered = text.lower()
    words, shapes = hints.in_words(lowered), hints.in_shapes(text)
    if not words and not shapes:
        return ()
    hinted = [rule for rule in rules if not rule.hints.isdisjoint(shapes if rule.is_shape else words)]
    opened = {gate: gate(lowered) for gate in {rule.gate for rule in hinted}}
    return [rule for rule in hinted if opened[rule.gate]]


# --- masking ------------------------------------------------------------------------------------------------

_MASKED = re.compile(r"(?:[*…]+|.{6}….{4})(?:@|\Z)", re.DOTALL)
_MASKED_KEY = re.compile(rf"{PEM_HEADER.pattern}\s…redacted…\s-----END [A-Z0-9 ]{{0,40}}-----")


def _mask_match(match: re.Match[str]) -> str:
    start, end = (position - match.start() for position in match.span("value"))
    return match[0][:start] + _mask(match["value"]) + match[0][end:]


def _mask(secret: str) -> str:
    if secret.startswith("-----BEGIN"):
        return _mask_private_key(secret)
    if _MASKED.match(secret):
        return secret
    return _MASK if len(secret) < _MASKABLE_CHARS else f"{secret[:6]}…{secret[-4:]}"


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
        return _mask(value)
    return redact_value(value)
