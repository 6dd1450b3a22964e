"""Masks passwords, keys and tokens in texts before they are written down.

Two kinds of rules: what a secret is *called* (`OPENAI_API_KEY=…`, `"accessToken": "…"`, `--password …`), and
what it *looks like* (`ghp_…`, `eyJ….….…`, a private key). Patterns are tried only on texts that hold one
of their hints, have bounded look-around and no nested repetition, so time is linear in the text.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import overload

from composable_memory_ops_logs.events import JsonValue

__all__ = ["CleanTexts", "is_secret_name", "redact", "redact_value"]

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
    return re.search(_SECRET_NAME, name, _FLAGS) is not None


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
        rules = _concerned(_RULES, _HINTS, "\n".join(new))
        hints = _hints_of(rules)
        dirty = {text for text in new if rules and _redact_by(rules, hints, text) != text}
        if len(self._known) + len(new) > self._capacity:
            self._known.clear()
        self._known |= new - dirty
        return not dirty


# --- the rules ----------------------------------------------------------------------------------------------

_FLAGS = re.VERBOSE | re.ASCII


@dataclass(frozen=True, slots=True)
class _Rule:
    """A pattern whose group `value` is masked.

    Every text it matches holds one of the hints and passes the gate, both in lower case.
    """

    hints: frozenset[str]
    source: str
    gate: Callable[[str], bool]

    @property
    def pattern(self) -> re.Pattern[str]:
        """The pattern, compiled when first needed and kept by `re`; most runs need none of them."""
        return re.compile(self.source, _FLAGS)


def _rule(hints: str, pattern: str, gate: Callable[[str], bool] = bool) -> _Rule:
    return _Rule(frozenset(hints.split()), pattern, gate)


def _has_telling_name(lowered: str) -> bool:
    """Tell whether the word before any sign holds the name of a secret."""
    *before, _ = lowered.replace("=", ":").split(":")
    words = (part[-_NAME_CHARS:].rstrip(_CLOSING).rpartition(" ")[2] for part in before)
    return any(hint in word for word in words for hint in _TELLING)


_LEFT = r"(?<![A-Za-z0-9])"
_NOT_NEUTRAL = "".join(f"(?<!{word})(?<!{word}[_-])" for word in ("public", "primary", "foreign", "session"))
_NAME = rf"""
    (?i: {_LEFT} (?: token | secret | passphrase )
       | {_LEFT} (?: api | access | auth | bearer | client | private | refresh | secret )
         [ ]? (?: key | token | secret )
       | (?<=[a-z0-9][_-]) {_NOT_NEUTRAL} key
       | passw(?:or)?d
       | (?-i: (?<=[a-z0-9]) (?: Token | Secret | Passphrase | (?i:{_NOT_NEUTRAL}) Key ) ) )
    (?: (?i:_base) | [_-]?[0-9]{{1,2}} )? (?![A-Za-z0-9])
"""
# What stands between a name and its value: "name": …, env['name'] = …, **name:** …
_SIGN = r"""["'`\\\]*]{0,4} \s{0,2} (?: => | := | =(?!=) | :(?!:|//) ) \*{0,2} [ \t]{0,8}"""
_NO_PLACEHOLDER = r"""(?! (?i: none | null | nil | true | false | undefined | str | string | bytes )
        (?: [\s"'`&;<>,.:)}\]|\\] | \Z ) | \$[{(] | \{\{ | -----BEGIN )"""
_UNQUOTED = r"""[^\s"'`&;<>]* [^\s"'`&;<>,.:)}\]\\]"""
_VALUE = rf"""
    (?P<quote>\\{{0,3}}["'`])? {_NO_PLACEHOLDER}
    (?P<value> (?(quote) (?: (?!(?P=quote)) (?:\\.|[^\n]) )+ | {_UNQUOTED} ) )
"""
_RANDOM = r"""(?P<value> (?=[\w+/.~-]{0,256}[A-Z]) (?=[\w+/.~-]{0,256}[a-z]) (?=[\w+/.~-]{0,256}[0-9])
    [\w+/.~-]{16,}={0,2} | [0-9a-fA-F]{32,} )"""

_SECRET_NAME = rf"{_NAME}\Z"

_TELLING = ("key", "token", "secret", "passw", "passphrase")
_NAME_HINTS = " ".join(_TELLING)
_NAME_CHARS = 160
"""At least the longest name and what may stand between it and its sign."""
_CLOSING = " \t\n\r\v\f\"'`\\]*"

_PEM_HEADER = re.compile(r"-----BEGIN [A-Z0-9 ]{0,24}PRIVATE KEY(?: BLOCK)?-----")

_RULES = (
    # What a secret looks like. A private key cut by a preview's limit has no END.
    _rule(
        "-----begin",
        rf"""(?P<value> (?-x:{_PEM_HEADER.pattern})
            (?: (?: (?!-----) [\s\S] )* -----END[ ][A-Z0-9 ]{{0,40}}-----
              | (?: (?:\s|\\[rn]){{1,4}} [A-Za-z0-9+/=]{{16,}} )+ ) )""",
    ),
    _rule("@", r"""://[^\s/?#@:"'<>]{0,128} : (?P<value>[^\s/?#"'<>]{1,256}) @"""),
    _rule("sk-", rf"(?P<value>{_LEFT} sk- (?: (?=[A-Za-z_-]{{0,64}}[0-9]) [\w-]{{8,}} | [\w-]{{16,}} ) )"),
    _rule("ghp_ gho_ ghu_ ghs_ ghr_", rf"(?P<value>{_LEFT} gh[pousr]_[A-Za-z0-9]{{16,}} )"),
    _rule("github_pat_", rf"(?P<value>{_LEFT} github_pat_\w{{16,}} )"),
    _rule("glpat-", rf"(?P<value>{_LEFT} glpat-[\w-]{{16,}} )"),
    _rule("xox xapp-", rf"(?P<value>{_LEFT} (?: xox[a-z] | xapp )-[A-Za-z0-9-]{{10,}} )"),
    _rule("aiza", rf"(?P<value>{_LEFT} AIza[\w-]{{20,}} )"),
    _rule("akia asia", rf"(?P<value>{_LEFT} (?: AKIA | ASIA )[A-Z0-9]{{16}} (?![A-Za-z0-9]) )"),
    _rule("_live_ _test_", rf"(?P<value>{_LEFT} [sr]k_(?: live | test )_[A-Za-z0-9]{{8,}} )"),
    _rule("npm_", rf"(?P<value>{_LEFT} npm_[A-Za-z0-9]{{16,}} )"),
    _rule("pypi-age", rf"(?P<value>{_LEFT} pypi-AgE[\w-]{{10,}} )"),
    _rule("hf_", rf"(?P<value>{_LEFT} hf_[A-Za-z0-9]{{20,}} )"),
    _rule("gsk_", rf"(?P<value>{_LEFT} gsk_[A-Za-z0-9]{{10,}} )"),
    _rule("pplx-", rf"(?P<value>{_LEFT} pplx-[A-Za-z0-9]{{10,}} )"),
    _rule("sg.", rf"(?P<value>{_LEFT} SG\.[\w-]{{10,}}\.[\w-]{{10,}} )"),
    _rule(":aa", rf"{_LEFT} (?:bot)? (?P<value> [0-9]{{6,16}}:AA[\w-]{{18,}} )"),
    _rule("eyj", r"(?P<value> (?<![\w-]) eyJ[\w-]{8,}\.[\w-]{4,}(?:\.[\w-]*)? )"),
    # What a secret is called.
    _rule(
        "authorization",
        rf"""(?i: {_LEFT} authorization {_SIGN} ["'`\\]{{0,4}}
             (?: bearer | basic | digest | token | apikey ) ) [ \t]{{1,4}} (?P<value>{_UNQUOTED})""",
    ),
    _rule("bearer", rf"(?i: {_LEFT} bearer ) [ \t]{{1,4}} (?P<value>[\w.~+/=-]{{18,}})"),
    _rule(
        _NAME_HINTS,
        rf"""(?i: (?<![\w-]) --(?:[a-z0-9]{{1,20}}[_-]){{0,4}}
                  (?: api[_-]?key | token | secret | passw(?:or)?d | passphrase ) )
             (?: [ \t]{{1,4}} (?!-) | = ) {_VALUE}""",
        gate=lambda lowered: "--" in lowered,
    ),
    _rule(_NAME_HINTS, rf"{_NAME} {_SIGN} {_VALUE}", _has_telling_name),
    # `key` alone, and names that only contain a telling word, are secrets if the value looks like one.
    _rule(
        _NAME_HINTS,
        rf"""(?i: {_LEFT} (?: key
                  | (?:[a-z0-9]{{1,20}}[_-]){{0,4}} (?: key | token | secret )[_-][\w-]{{1,40}} ) )
             {_SIGN} ["'`\\]{{0,4}} {_RANDOM}""",
        _has_telling_name,
    ),
)


def _hints_of(rules: Sequence[_Rule]) -> frozenset[str]:
    return frozenset().union(*(rule.hints for rule in rules))


_HINTS = _hints_of(_RULES)


def _redact_by(rules: Sequence[_Rule], hints: frozenset[str], text: str) -> str:
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


def _concerned(rules: Sequence[_Rule], hints: frozenset[str], text: str) -> Sequence[_Rule]:
    """Return the rules that may find something in the text; nearly always none."""
    lowered = text.lower()
    present = set(filter(lowered.__contains__, hints))
    if not present:
        return ()
    return [rule for rule in rules if not present.isdisjoint(rule.hints) and rule.gate(lowered)]


# --- masking ------------------------------------------------------------------------------------------------

_MASKED = re.compile(r"(?:[*…]+|.{6}….{4})(?:@|\Z)", re.DOTALL)


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
    """Keep the first and the last line, which say what kind of key it is, unless all of it is on one line."""
    header = _PEM_HEADER.match(text)
    if header is None or "\n" not in text:
        return _MASK
    _, end, footer = text.rpartition("\n-----END")
    return f"{header[0]}\n…redacted…{end}{footer if end else ''}"


def _redact_named(name: str, value: JsonValue) -> JsonValue:
    if isinstance(value, str) and value and is_secret_name(name):
        return _mask(value)
    return redact_value(value)
