"""Judges values: does this look like a password or token, or like a word, code or a placeholder?"""

import re
from typing import NamedTuple

from composable_memory_ops_logs.lazy import Pattern
from composable_memory_ops_logs.redaction.secret_vocabulary import CIPHERS, PLACEHOLDERS, PREDICATES

_MASKED = Pattern(r"\*{3}|[*…]+\Z|.{1,12}….{0,8}", re.DOTALL)
_PLACEHOLDER = Pattern(
    r"""\$(?:[{(]|[a-z_]\w*(?:[,;)\]}"']{0,2}\Z|\[|->|::))|\{\{|\{[a-z_.]{0,40}\}|<[^>]{0,60}>?\Z|<your
    |%[({]|%[sd](?!\w)|%[a-z_]{1,40}%(?!\w)|-----begin|[a-z]{2,4}-(?:\.{3})?\Z
    |x{3,}\W{0,2}\Z|\.{3}|\[?\(?(?:redacted|hidden|masked|filtered)|your[-_ ]|\#\{|!env
    |!secret|!vault|vault:|op://|arn:|(?:sha|md)-?[0-9]{1,3}:
    |(?:/run|/etc|/var|/home|/opt|/usr|/tmp|~|\.|\.\.)/|@[a-z_]{1,40}@|secrets\.|env\.|var\.|local\.
    |data\.|module\.""",
    re.VERBOSE,
)
_PLACEHOLDER_INITIALS = "hfmrx"
"""First letters of placeholders of letters and digits that are not in the list."""
_CALL = Pattern(
    r"!?(?:await\s|new\s)?&?[a-z_][\w.]{0,80}(?:::\w{1,40}){0,4}(?:\(|\[|\{)|\(|\[|\{\w*\Z|->|=>|=="
)
_DOTTED = Pattern(r"[a-z_]\w{0,40}(?:\??\.[a-z_]\w{0,40}){1,8}[,;)]{0,2}\Z")
# In a password of words joined by dots: digits within or at the end of a word, unlike `cfg.key1`,
# `x509.cert`.
_LEET = Pattern(
    r"(?:[^\W\d_]{2,}[0-9]{1,2}[^\W\d_]{3}|[^\W\d_]0[^\W\d_]{2}|[\w.]*\.(?!v[0-9]|(?:arg|group|key|match|param|pass|password|pw|secret"
    r"|token|user|value)[0-9])[^\W\d_]{2,}[0-9]{1,4}[!?]?\Z)"
)
_SNAKE = Pattern(r"_?[a-z]{1,30}(?:_[a-z]{1,30}){1,6}[,;)]{0,2}\Z")
_CIPHER = Pattern(rf"(?:{'|'.join(CIPHERS)})-?[0-9]{{1,5}}[a-z]{{0,8}}(?![0-9a-z])")
"""An algorithm such as ed25519 or aes-256-gcm; a longer run is a value that happens to begin like one."""
_QUALITY = Pattern(r"[a-z-]{0,30}(?:ed|ing|able|ible|less|ive|ous)\Z")
_OTHER_NAME = Pattern(
    r"(?:my|user|new|old|db|the|raw|plain|input|hashed|confirm|current|admin|root)?_?(?:pass|pwd|pw"
    r"|passwd|password|passphrase)[,;)]{0,2}\Z"
)
_NUMBER = Pattern(r"[0-9]{1,3}(?:[.,][0-9]{1,2})?(?:[-–+~][0-9]{0,3})?\+?\Z")
_UNIT = Pattern(
    r"[0-9]{1,5}(?:\.[0-9]{1,3})?[-_]?(?:kwh?|hp|ps|bits?|bytes?|chars?|h|m|s|ms|d|days?|hours?|min|kb|mb|x|k|th|st|nd|rd|years?)"
    r"(?:[-_][a-z]{1,20})?\Z"
)
_SEGMENTS = Pattern(r"[a-z]+|[A-Z]+|[0-9]+|[^A-Za-z0-9]+")
_UUID = Pattern(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\Z", re.IGNORECASE)
_BASE32 = Pattern(r"[A-Z2-7]{16,128}\Z")
_HEX = Pattern(r"(?:0x)?[0-9a-fA-F]+\Z")
_ALNUM_PARTS = Pattern(r"[A-Za-z0-9+/]{8,}")
_PATH = Pattern(
    r"(?:[a-z]+://|[~.]{0,2}/|[A-Za-z]:\\)|[\w.-]{1,64}(?:/(?=[\w.-]{0,64}[a-z]{3})[\w.-]{1,64}){1,16}\Z|[\w-]+\.(?:md|py|js|ts"
    r"|json|ya?ml|txt|log|toml|pem|html?|csv|sh|go|rs|com|org|net|io|dev|ai)\b"
)


class Given(NamedTuple):
    """A value as it follows a name."""

    value: str
    join: str
    """How the two are joined: `sign`, `is`, `cell` …"""
    sign: str
    """The text between them."""
    strength: int
    """How certainly the name is that of a secret, from 1 to 3."""
    is_quoted: bool = False
    in_flag: bool = False
    low: str = ""
    end: int = 0
    """Where the value ends in the simplified text."""

    @property
    def goes_on(self) -> bool:
        """Return whether a word of prose follows."""
        return goes_on(self.low, self.end)

    @property
    def ends(self) -> bool:
        """Return whether the clause ends with the value."""
        return not self.goes_on and self.low[self.end : self.end + 1] in _CLAUSE_ENDS


ALONE = frozenset(["gap", "arrow", "far"])
"""How a name and a value are joined without a sign, so that the value must look like a secret."""
_CLAUSE_ENDS = frozenset(["", "\n", "\r", ".", ",", ";", "!", "?", ")", '"', "'", "`"])


def is_masked(value: str) -> bool:
    """Return whether a value is the result of masking."""
    return ("*" in value or "…" in value) and ("***" in value or _MASKED.match(value) is not None)


def is_placeholder(value: str) -> bool:
    """Return whether a value is a placeholder: a variable, a template, a type, `<your-token>`."""
    low = value.lower()
    if low.isalnum() and low[0] not in _PLACEHOLDER_INITIALS:
        return low in PLACEHOLDERS
    return low.rstrip(".,;:)]}|\"'") in PLACEHOLDERS or _PLACEHOLDER.match(low) is not None


def is_given(value: str) -> bool:
    """Return whether a value is neither masked nor a placeholder."""
    return not is_masked(value) and not is_placeholder(value)


def goes_on(low: str, place: int) -> bool:
    """Return whether prose continues here: spaces and a lower-case word."""
    return _NEXT_WORD.match(low, place) is not None


_NEXT_WORD = Pattern(r"[ \t]{1,3}[a-z]{1,20}(?=[\s,.;:!?)]|\Z)")


def is_code(value: str) -> bool:
    """Return whether an unquoted value is an expression: a call, an attribute, an index."""
    return _is_expression(value.lower())


def _is_expression(low: str) -> bool:
    if low.isalnum():
        return False
    is_attribute = _DOTTED.match(low) is not None and low.isascii() and not _LEET.match(low)
    return is_attribute or _CALL.match(low) is not None


def is_word(value: str) -> bool:
    """Return whether a value is a lower-case or capitalised word."""
    return value.isalpha() and (value.islower() or value[1:].islower() or not value[1:])


def _has_digit(value: str) -> bool:
    return _DIGIT.search(value) is not None if value.isascii() else any(map(str.isdigit, value))


_DIGIT = Pattern("[0-9]")


def is_strong(value: str, *, is_alone: bool = False) -> bool:
    """Return whether a value mixes kinds of characters as passwords do; with `is_alone` more strictly."""
    value = value[:128]
    has_digit, has_sign = _has_digit(value), not _SIGNS.isdisjoint(value)
    if not (has_digit or has_sign or is_alone):
        return False
    if value.isascii():  # most are, and this check takes a tenth of the time
        has_lower, has_upper = value != value.upper(), value != value.lower()
    else:
        has_lower, has_upper = any(map(str.islower, value)), any(map(str.isupper, value))
    if not (has_lower or has_upper) or not (has_digit or has_sign or has_upper):
        return False
    if _UNIT.match(value.lower()):
        return False
    if not value.isalnum() and (_PATH.match(value) or _SNAKE.match(value.lower())):
        return False
    if is_alone:
        return ((has_digit and has_upper and has_lower) or has_sign) and (has_digit or has_upper)
    return True


_SIGNS = frozenset("!@#$%^&*?+=~")


def is_random(value: str, *, is_strict: bool = False) -> bool:
    """Return whether a value looks random: its kinds of characters alternate more often than in names.

    With `is_strict`, identifiers and hexadecimal hashes do not count either.
    """
    if len(value) < 8:
        return False
    value = value[:128]
    is_whole = value.isascii() and value.isalnum()  # most tokens are, and this check is quick
    if not is_whole and (_UUID.match(value) or "…" in value):
        return False
    if not is_whole and _PATH.match(value) and len(_SEGMENTS.findall(value)) < 0.45 * len(value):
        return False
    if _HEX.match(value):
        return not is_strict and len(value) >= 32
    part = value if is_whole else max(_ALNUM_PARTS.findall(value) or [""], key=len)
    if len(part) < (16 if is_strict else 8) or part.isdigit():
        return False
    has_digit = _has_digit(part)
    has_case = not (part.islower() or part.isupper() or part.lower() == part)
    if not has_digit and (not has_case or len(part) < 20):
        return False
    if part.isalpha() or not has_digit:
        return len(_SEGMENTS.findall(part)) >= 0.4 * len(part) and not is_strict
    least = 0.3 if not is_strict else 0.33
    if is_strict and (not has_case and len(part) < 24):
        return False
    return len(_SEGMENTS.findall(part)) >= least * len(part)


def is_password(given: Given) -> bool:
    """Return whether the value after a password's name is one; a word counts if no prose follows."""
    value, low = given.value, given.value.lower()
    if is_placeholder(value):
        return False
    if given.is_quoted and given.join != "cell":
        words = low.split()
        is_prose = (len(words) >= 4 and sum(word.strip(".,!?") in PREDICATES for word in words) > 1) or (
            len(words) == 3 and words[0] in PREDICATES and not is_strong(value)
        )
        if is_prose or low in _NO_VALUES or not any(map(str.isalnum, value)):
            return False
        return (
            given.join != "call"
            or is_strong(value)
            or ("(" in given.sign and len(words) == 1 and len(value) >= 4)
        )
    if len(value) < 4 and not any(map(str.isalnum, value)):
        return False
    if not value.isalnum() and (_is_expression(low) or low.startswith(("//", "/*", "# "))):
        return False
    bare = low.rstrip("!?.,;:")
    if not low.isascii() and not re.search("[0-9]", low) and not any("a" <= one <= "z" for one in low):
        return False
    if low[0].isdigit() and _NUMBER.match(low):
        return not given.goes_on and len(low) > 3
    if given.strength <= 1:
        return (
            is_strong(value)
            and not _UNIT.match(low)
            and given.join in {"sign", "is", "for", "gap", "cell", "line", "arrow", "far"}
        )
    if "=" in given.sign and (_SNAKE.match(low) or _OTHER_NAME.match(low)):
        return _OTHER_NAME.match(low) is not None and given.sign.endswith("=") and low not in PLACEHOLDERS
    if not value.isalpha() and (_CIPHER.match(low) or _UNIT.match(low)):
        return False
    if bare in PREDICATES or (
        (value.isalpha() or "-" in value)
        and _QUALITY.match(bare)
        and len(bare) > 5
        and not (given.join == "sign" and "=" in given.sign)
    ):
        return False
    is_plain = value.rstrip("!?.,").isalpha() and (
        value.islower() or (given.join in {"sign", "for"} and value[1:].islower())
    )
    if given.join in {"is", "to", "call"}:
        if value.isalpha() and not value.isascii():
            return False
        if is_plain and low.isalpha():
            return given.ends and given.join == "is" and 3 <= len(value) <= 40 and _is_english(given.sign)
        return True
    if given.join == "cell":
        return bare not in _HEADINGS
    if given.join == "gap" and given.in_flag:
        return value[0] != "-"
    if given.join in ALONE:
        return is_strong(value.rstrip("!?.")) and len(value) >= 6
    return not (is_plain and given.goes_on and "=" not in given.sign)


_NO_VALUES = frozenset(
    ("password", "confirm", "email", "username", "user", "login", "submit", "label", "title", "name")
)
_HEADINGS = frozenset(
    "char description e-mail email host int key login name note notes number role secret string token type"
    " url"
    " user username value varchar"
    " default meaning comment required the a any".split()
)


def _is_english(sign: str) -> bool:
    return bool(re.search(r"\b(?:is|was|are)\b", sign))


def is_key(given: Given) -> bool:
    """Return whether the value after `key`, `token`, `secret` is one; strength 3 is the most certain."""
    if given.strength == 1 and not given.in_flag and given.join not in ALONE and not is_random(given.value):
        return False
    value, low = given.value, given.value.lower()
    has_digit, has_letter = _has_digit(value), any(map(str.isalpha, value))
    if is_placeholder(value) or low.rstrip("!?.,;:") in PREDICATES:
        return False
    if given.in_flag:
        return len(value) >= 2 and value[0] != "-"
    if " " in value.strip():
        return given.strength == 3 and given.is_quoted and len(value.split()) == 2
    if given.join in ALONE:
        return _is_key_alone(given, has_digit)
    if not given.is_quoted and (is_code(value) or "(" in value[:40]):
        return False
    if not low.isascii() or _CIPHER.match(low) or _UNIT.match(low):
        return False
    if not value.isalnum() and _PATH.match(value) and not is_random(value.replace("/", "")):
        return False
    if value.isdigit():
        return given.strength == 3 and len(value) >= 6 and given.join == "sign"
    if given.strength == 1:
        return is_random(value)
    is_mixed = has_digit and has_letter and len(value) >= 6
    if given.join in {"is", "for", "to", "cell", "call", "line"}:
        return is_mixed or (given.strength == 3 and len(value) >= 16 and not given.goes_on)
    if _SNAKE.match(low) and len(value) < 32 and not given.is_quoted:
        return False
    if value.isalpha() and len(value) < 16:
        return _is_word_of_key(given)
    is_assigned = "=" in given.sign and not given.sign.startswith(" ")
    return given.strength == 3 or len(value) >= 16 or (is_mixed and (is_assigned or len(value) >= 8))


def _is_key_alone(given: Given, has_digit: bool) -> bool:
    """Return whether a value without a sign before it is a key: it must look like one by itself."""
    value = given.value
    if _UUID.match(value):
        return given.strength == 3
    if len(value) >= 20 and is_random(value):
        return True
    if not has_digit or len(value) < 8 or _CIPHER.match(value.lower()):
        return has_digit and _BASE32.match(value) is not None
    has_sign = any(one in "!@#$%^&*?" for one in value.rstrip("!?"))
    return _BASE32.match(value) is not None or (
        is_strong(value, is_alone=True) and (has_sign or is_random(value))
    )


def _is_word_of_key(given: Given) -> bool:
    """Return whether a word is a key: assigned without spaces, or alone after a certain name."""
    value, sign = given.value, given.sign
    if len(value) < 3:
        return False
    is_glued = "=" in sign and not sign.startswith(" =")
    if given.strength < 3:
        return is_glued and " " not in sign and not given.is_quoted and value.islower()
    is_alone = "=" not in sign and not given.goes_on and value.islower() and not _QUALITY.match(value)
    return given.is_quoted or is_glued or "=>" in sign or is_alone
