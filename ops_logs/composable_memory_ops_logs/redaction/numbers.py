"""Finds secrets by their format: card and account numbers, licences, seed phrases of wallets."""

import re
from collections.abc import Iterator

from composable_memory_ops_logs.lazy import Pattern
from composable_memory_ops_logs.redaction.scanner import ANY, TOUCHING, Rule, Span, Text
from composable_memory_ops_logs.redaction.secret_vocabulary import (
    FUNCTION_WORDS,
    HARMLESS_ENDINGS,
    PLACEHOLDERS,
    PREDICATES,
)

# --- numbers of cards and accounts --------------------------------------------------------------------------

_KINDS = bytes(
    ord("9" if sign in "0123456789" else "-" if sign in " -" else "x" if sign.isalpha() else ".")
    if ord(sign) < 128
    else ord(".")
    for sign in map(chr, range(256))
)
_CARD_FORMS = (b"9999-9999-9999", b"9999-999999-9999", b"9" * 13)
_CARD = Pattern(
    r"(?<![\w.-])(?:[3-6][0-9]{3}(?:[ -]?[0-9]{4}){2}[ -]?[0-9]{2,4}(?:[ -]?[0-9]{3})?"
    r"|3[47][0-9]{2}[ -]?[0-9]{6}[ -]?[0-9]{5}|[0-9]{6}(?:-[0-9]{6}){7})(?![\w-]|\.\w)"
)
_CARD_SIZES = {"4": (16,), "5": (16,), "6": (16, 19), "3": (14, 15, 16)}
_CARD_NAMES = "card|karte|tarjeta|carte|卡号|卡號|カード"
_NAMED_CARD = Pattern(
    rf"(?:{_CARD_NAMES})[^\n0-9]{{0,24}}?[ :=#.：是]{{1,4}}(?P<value>[0-9](?:[ -]?[0-9]){{12,18}})(?![0-9])"
)
# Lengths, for each country that commonly uses IBAN.
_IBAN_SIZES = {
    country: size
    for size, countries in (
        (15, "no"), (16, "be"), (18, "nl dk fi"), (19, "mk si"), (20, "at ba ee kz lt lu"),
        (21, "ch hr li lv"),
        (22, "bg de ge gb ie me rs"), (23, "ae gi il tl"), (24, "ad cz es md pk ro sa se sk tn"), (25, "pt"),
        (26, "is tr"), (27, "fr gr it mc sm"), (28, "al az cy do gt hu lb pl"), (29, "br eg ps qa ua"),
    )
    for country in countries.split()
}  # fmt: skip
_ACCOUNTS = {
    size: Pattern(rf"(?:[a-z0-9][ ]*+){{{size - 1}}}[a-z0-9](?![a-z0-9_.-])")
    for size in {*_IBAN_SIZES.values()}
}


def find_numbers(text: Text) -> Iterator[Span]:
    """Yield card numbers, accounts and drive keys whose checksums are right."""
    kinds = text.low.encode("latin-1", "replace").translate(_KINDS)
    if b"9999" not in kinds:
        return
    if any(form in kinds for form in _CARD_FORMS):
        for match in _CARD.finditer(text.low):
            if _is_card(match[0]):
                yield Span(*match.span())
        for match in _NAMED_CARD.finditer(text.low):
            yield Span(*match.span("value"))
    place = kinds.find(b"xx99")
    while place >= 0:
        size = _IBAN_SIZES.get(text.low[place : place + 2])
        if size and (place == 0 or text.low[place - 1] not in TOUCHING):
            yield from _account(text.low, place, size)
        place = kinds.find(b"xx99", place + 4)


_DOUBLED = bytes.maketrans(b"0123456789", b"0246813579")
"""Each digit doubled, or the sum of digits of that if it has two."""


def _is_card(number: str) -> bool:
    digits = number.replace(" ", "").replace("-", "")
    if len(digits) == 48:  # a BitLocker recovery key
        return True
    signs = digits.encode()
    total = sum(signs[-1::-2]) + sum(signs[-2::-2].translate(_DOUBLED)) - len(signs) * ord("0")
    return total % 10 == 0 and len(digits) in _CARD_SIZES[digits[0]] and len(set(digits)) > 1


def _account(low: str, place: int, size: int) -> Iterator[Span]:
    match = _ACCOUNTS[size].match(low, place)
    if match is None:
        return
    end = place + size
    for _ in range(3):  # the spaces between its groups
        end = place + size + low.count(" ", place, end)
    number = low[place:end].replace(" ", "")
    if len(number) != size:
        return
    if int("".join(str(int(sign, 36)) for sign in number[4:] + number[:4])) % 97 == 1:
        yield Span(place, end)


# --- groups of characters near a word -----------------------------------------------------------------------

_NEAR = 120
_GROUPS_OF_FOUR, _MIXED_GROUPS = (
    Pattern(rf"(?<![\w-]){four}(?:[ -]{four}){{3,15}}(?![\w-])") for four in ("[a-z2-7]{4}", "[A-Za-z0-9]{4}")
)
_LICENCE = Pattern(r"(?<![A-Za-z0-9_-])[A-Z0-9]{4,8}(?:-[A-Z0-9]{4,8}){2,7}(?![A-Za-z0-9_-])")


def _near_rule(words: tuple[str, ...], pattern: Pattern) -> Rule:
    """Return the rule for groups of characters shortly before or after one of the words, on the same line.

    In names and years, as in APACHE-2024, each group is of one kind; in keys a quarter of the groups is
    mixed.
    """

    def secrets(text: Text, word: re.Match[str]) -> Iterator[Span]:
        place = word.start()
        start = text.low.rfind("\n", max(0, place - _NEAR), place) + 1 or max(0, place - _NEAR)
        stop = text.low.find("\n", place, place + 2 * _NEAR)
        stop = stop if stop >= 0 else min(len(text.low), place + 2 * _NEAR)
        for match in pattern.finditer(text.raw, start, stop):
            groups = match[0].replace("-", " ").split()
            if 4 * sum(not group.isalpha() and not group.isdigit() for group in groups) >= len(groups):
                yield Span(*match.span())
        yield Span(stop, stop)

    return Rule(words, ANY, secrets)


# --- seed phrases -------------------------------------------------------------------------------------------

_SEED_GAP = (
    r"""(?:[ ](?:phrase|words?|key|is|are|was|my|for|the|of|wallet|ledger|metamask|trezor|12|24)){0,6}"""
    r"""[ "'`:=(*[]{0,6}\s{0,4}["'`([]{0,2}"""
)
_SEED_WORD = Pattern(
    r"""(?:[0-9]{1,2}[.):]?[ ]?|-[ ])?["']?([a-z]{3,8})["']?[ ,]{0,3}(?:\r?\n[ ]{0,8})?"""
    r"(?:(?<=[ ,\n])|(?![a-z0-9]))"
)


def _seed(text: Text, name: re.Match[str]) -> Iterator[Span]:
    start = end = place = name.end()
    words = 0
    while words < 25 and (word := _SEED_WORD.match(text.low, place)) and word[1] not in FUNCTION_WORDS:
        words, end, place = words + 1, word.end(1), word.end()
    if words >= 11:
        yield Span(start, end)
    yield Span(place, place)


_PHRASES = ("passphrase", "phrase de passe", "frase de contraseña")
_WORDS = Pattern(
    rf"""(?:(?P<phrase>{"|".join(_PHRASES).replace(" ", "[ ]")})s?(?:[ ][^\s:=|"`]{{1,30}}){{0,6}}?
    |password(?:[ ]for(?:[ ][^\s:=|"`]{{1,30}}+){{1,3}}?)?)
    (?:(?P<sign>[ ]{{0,2}}[:=→][ ]{{0,2}}|[ ]is:[ ])|[ ](?:is|ist|lautet|est|es)[ ])["'`]?
    (?!(?:ask|call|check|contact|choose|pick|look|try)[ ])
    (?P<value>[^\W_]{{1,16}}(?:[ -][^\W_]{{1,16}}){{2,7}}(?(sign)(?:[ -][^\W_]{{1,16}}){{0,16}}))
    (?=["'`.,;!)]{{0,2}}(?:\s|\Z))(?![ ]{{1,4}}[\w(])""",
    re.VERBOSE,
)
_OF_A_SENTENCE = FUNCTION_WORDS | HARMLESS_ENDINGS | PLACEHOLDERS


def _words(text: Text, match: re.Match[str]) -> Iterator[Span]:
    """Yield a password of words; a sentence that merely mentions a password has other words too."""
    words = match["value"].replace("-", " ").split()
    said = sum(word in PREDICATES for word in words)
    if match["phrase"] and match["sign"]:
        is_secret = 4 * (said + sum(word in FUNCTION_WORDS - PREDICATES for word in words)) <= len(words)
    else:
        is_told = any(
            word in _OF_A_SENTENCE or word.endswith(("ed", "ing", "ly", "ée", "ada")) for word in words
        )
        is_plain = match["phrase"] or text.raw[slice(*match.span("value"))] == match["value"]
        is_secret = 4 <= len(words) <= 8 and is_plain and not is_told and said <= 1
    if is_secret:
        yield Span(*match.span("value"))


_AUTHENTICATORS = ("authenticator", "2fa", "totp ", "totp:", "two-factor", "mfa")
_LICENCES = (
    "licen",
    "lizenz",
    "activation",
    "product key",
    "serial number",
    "serial key",
    "produktschlüssel",
    "cd key",
)
_SEEDS = (
    *("seed", "mnemonic", "recovery phrase", "recovery words", "secret phrase", "backup phrase"),
    *("wallet words", "wallet backup", "助记词", "ニーモニック"),
)
NUMBER_RULES = (
    _near_rule(_AUTHENTICATORS, _GROUPS_OF_FOUR),
    _near_rule(("recovery key", "security key"), _MIXED_GROUPS),
    _near_rule(_LICENCES, _LICENCE),
    *(Rule((word,), Pattern(word + _SEED_GAP), _seed) for word in _SEEDS),
    Rule((*_PHRASES, "password"), _WORDS, _words),
)
