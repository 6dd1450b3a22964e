"""Finds secrets by what stands around them in files, commands and what programs print.

Each row of the table is a literal word and the pattern from there on, whose groups are the secrets. A pattern
is bounded, but for one run at its end.
"""

import re
from collections.abc import Iterator

from composable_memory_ops_logs.secret_text import TRAILING, Finder, Span, Text, anchored, places
from composable_memory_ops_logs.secret_values import is_masked, is_placeholder, is_random, is_strong

__all__ = ["FORMATS", "FORMAT_FINDERS"]

_VALUE = r"""(?:"([^"\n]{1,256})"|'([^'\n]{1,256})'|([^\s"'$(<|][^\s"']*))"""
_SOURCES = (
    # commands
    ("alias set ", r"alias set \S{1,64} \S{1,256} \S{1,128} (\S+)"),
    ("config host add ", r"config host add \S{1,64} \S{1,256} \S{1,128} (\S+)"),
    ("openssl enc", rf"openssl enc[^\n]{{0,300}}? -[kK] {_VALUE}"),
    ("net use ", r"net use (?:\S{1,128} ){1,2}([^\s/]\S{0,128}) /u"),
    ("convertto-securestring", rf"convertto-securestring (?:-(?:string|asplaintext|force) ){{0,3}}{_VALUE}"),
    ("lftp", rf"lftp[^\n]{{0,200}}? -u [\"']?[^\s,\"']{{1,64}},{_VALUE}"),
    ("xfreerdp", rf"xfreerdp[^\n]{{0,200}}? /p:{_VALUE}"),
    ("freerdp", rf"freerdp[^\n]{{0,200}}? /p:{_VALUE}"),
    ("cmdkey", rf"cmdkey[^\n]{{0,200}}? /pass:{_VALUE}"),
    ("schtasks", rf"schtasks[^\n]{{0,200}}? /rp {_VALUE}"),
    ("rdesktop", rf"rdesktop[^\n]{{0,200}}? -p {_VALUE}"),
    ("psexec", rf"psexec[^\n]{{0,200}}? -p {_VALUE}"),
    ("plink", rf"plink[^\n]{{0,200}}? -pw {_VALUE}"),
    ("pscp", rf"pscp[^\n]{{0,200}}? -pw {_VALUE}"),
    ("connect ", r"connect \w{1,64}/([^\s@\"'/]{4,128})@"),
    # settings of programs
    ("jdbc:oracle", r"jdbc:oracle:\w{1,8}:[\w.$-]{1,64}/([^\s@\"']+)@"),
    ("password ", r"password (?:[05789]|encrypted) (?=\S{0,64}[0-9])([\w$./+=]{6,})(?:\Z|\s)"),
    ("secret ", r"secret [05789] (?=\S{0,64}[0-9])([\w$./+=]{6,})(?:\Z|\s)"),
    *(
        (word, rf"{word}[\w.-]{{0,20}}[\"']?[ ]?[:=][ ]?[\"']?([a-z0-9+/=]{{40,}})")
        for word in ("p12", "pfx", "pkcs", "keystore", "jks")
    ),
    (
        "$ansible_vault;",
        r"\$ansible_vault;[^\n]{1,60}\s{1,24}([0-9a-f]{8}(?:[0-9a-f]|\r?\n[ \t]{0,24}(?=[0-9a-f])){1,65536})",
    ),
    # what programs print
    ("ugfzc3dvcmq6", r"ugfzc3dvcmq6[\"']?\s{1,4}(?:c: )?([\w+/=]{4,})"),
    ("500:", r"500:([0-9a-f]{32}:[0-9a-f]{32}):"),
    *((word, rf"{word}:([0-9a-f]{{32}}:[0-9a-f]{{32}}):::") for word in ("501", "502", "503")),
    # addresses
    ("calendar/ical/", r"calendar/ical/[^\s/]{1,200}/private-([0-9a-f]{16,})"),
)  # fmt: skip
FORMATS = tuple((word, re.compile(source.replace("[kK]", "k"))) for word, source in _SOURCES)


def _format_finder(word: str, pattern: re.Pattern[str]) -> Finder:
    def find(text: Text) -> Iterator[Span]:
        for match in anchored(text.low, word, pattern):
            start, end = match.span(match.lastindex or 0)
            value = text.raw[start:end].rstrip(";,")
            if not is_masked(value) and not is_placeholder(value):
                yield Span(start, start + len(value))

    sign = next(
        (f"{sign}&" for sign in (" -", " /") if sign in pattern.pattern), ""
    )  # without it none matches
    return Finder((f"{sign}{word}",), find)


# --- lines of a known form ----------------------------------------------------------------------------------

_PGPASS_WORDS = (":5432:", ":5433:", ":6432:", ":*:")
_PGPASS = re.compile(r":(?:[0-9]{4,5}|\*):[\w.*$-]{1,64}:[\w.*@$-]{1,64}:([^\s:]+)(?=\s|\Z)")
_HOST = re.compile(r"[\w.*-]{1,253}")


def _pgpass_lines(text: Text) -> Iterator[Span]:
    low = text.low
    for word in _PGPASS_WORDS:
        for place in places(low, word):
            start = max(
                low.rfind("\n", max(0, place - 260), place), low.rfind(" ", max(0, place - 260), place)
            )
            line = _PGPASS.match(low, place)
            if line is not None and _HOST.fullmatch(low, start + 1, place) and not is_masked(line[1]):
                yield Span(*line.span(1))


_AUTHENTICATORS = ("authenticator", "2fa", "totp", "two-factor", "mfa")
_GROUPS_OF_FOUR = re.compile(r"(?<![\w-])[a-z2-7]{4}(?:[ -][a-z2-7]{4}){3,15}(?![\w-])")
_LICENCES = ("licen", "lizenz", "activation", "product key", "serial", "produktschlüssel", "cd key")
_LICENCE = re.compile(r"(?<![A-Za-z0-9_-])[A-Z0-9]{4,8}(?:-[A-Z0-9]{4,8}){2,7}(?![A-Za-z0-9_-])")
_PRIVATE = ("privat", "privée", "privée", "privad", "приватн", "закрыт", "geheimer schl")
_HEX_KEY = re.compile(r"(?<![0-9A-Za-z])(?:0x)?[0-9a-f]{64}(?![0-9A-Za-z])")
_NEAR = 120


def _near_words(text: Text, words: tuple[str, ...], pattern: re.Pattern[str]) -> Iterator[re.Match[str]]:
    """Yield the matches soon before or after one of the words, on the same line."""
    seen = 0
    for place in sorted(place for word in words for place in places(text.low, word)):
        start = max(seen, text.low.rfind("\n", max(0, place - _NEAR), place) + 1, place - _NEAR)
        stop = text.low.find("\n", place, place + 2 * _NEAR)
        stop = stop if stop >= 0 else min(len(text.low), place + 2 * _NEAR)
        if start < stop:
            yield from pattern.finditer(text.raw, start, stop)
            seen = stop


def _authenticator_keys(text: Text) -> Iterator[Span]:
    for match in _near_words(text, _AUTHENTICATORS, _GROUPS_OF_FOUR):
        groups = match[0].replace("-", " ").split()
        mixed = [group for group in groups if not group.isalpha() and not group.isdigit()]
        if len(mixed) * 4 >= len(groups):
            yield Span(*match.span())


def _licence_keys(text: Text) -> Iterator[Span]:
    for match in _near_words(text, _LICENCES, _LICENCE):
        # Names and years, as in APACHE-2024, are groups of one kind each.
        if any(not group.isdigit() and not group.isalpha() for group in match[0].split("-")):
            yield Span(*match.span())


def _private_numbers(text: Text) -> Iterator[Span]:
    for match in _near_words(text, _PRIVATE, _HEX_KEY):
        yield Span(*match.span())


# --- secrets of a cluster -----------------------------------------------------------------------------------

_ENTRY = re.compile(r"(?P<indent>[ \t]{1,16})[\w.-]{1,128}:[ ]?(?P<value>[^\n]*)")
_DATA = re.compile(r"^(?:stringdata|data):[ \t]{0,4}\r?\n", re.MULTILINE)


def _cluster_secrets(text: Text) -> Iterator[Span]:
    """All values of a Secret of Kubernetes, whatever their names are."""
    low, done = text.low, 0
    for place in places(low, "kind: secret\n"):
        if place < done:
            continue
        document = low.rfind("\n---", max(0, place - 4096), place) + 1
        stop = low.find("\n---", place, place + 65_536)
        done = stop if stop >= 0 else min(len(low), place + 65_536)
        for start in _DATA.finditer(low, max(document, 0), done):
            yield from _entries(text, start.end(), done)


def _entries(text: Text, place: int, stop: int) -> Iterator[Span]:
    depth = 0
    while place < stop and (end := text.low.find("\n", place, stop) if place < stop else -1) != place:
        end = end if end >= 0 else stop
        line = text.raw[place:end]
        indent = len(line) - len(line.lstrip(" \t"))
        if not indent:
            return
        depth = depth or indent
        entry = _ENTRY.match(line) if indent == depth else None
        value = (entry["value"] if entry else line).strip(" \t\r\"'")
        if value and value not in {"|", "|-", "|+", ">", ">-", ">+"} and not is_masked(value):
            start = place + line.rindex(value)
            if not is_placeholder(value):
                yield Span(start, start + len(value))
        place = end + 1


# --- what opens a network -----------------------------------------------------------------------------------

_WIFI = re.compile(
    r"(?:wi-?fi|wlan|guest ?net)[^\n]{0,60}?\b(?:code|key|pass|pw|schlüssel|clave|clé|senha|chiave|codice)"
    r"(?: ?[:=→] ?| (?:is|ist|es|est|è|é) | )[\"'`]?(?P<value>[^\s\"'`]{6,64})"
)


def _networks(text: Text) -> Iterator[Span]:
    for word in ("wifi", "wi-fi", "wlan", "guest net", "guestnet"):
        for match in anchored(text.low, word, _WIFI):
            start, end = match.span("value")
            value = text.raw[start:end].rstrip(TRAILING)
            stop = start + len(value)
            is_pair = "-" in value and ":" in match[0] and text.low[stop : stop + 1] in {"", "\n", ".", ","}
            is_number = value.isdigit() and len(value) >= 8
            if (is_strong(value) or is_pair or is_number) and not is_masked(value):
                yield Span(start, stop)


# --- random strings that a password was changed to ----------------------------------------------------------

_CHANGED = re.compile(
    r"(?:rotat|chang|reset|switch|updat)[a-z]{0,3}\b[^\n]{0,60}? to [\"'`]?(?P<value>[^\s\"'`]{12,})"
)


def _change_finder(word: str) -> Finder:
    def find(text: Text) -> Iterator[Span]:
        if not any(
            name in text.low for name in ("passw", "passphrase", "token", "secret", "credential", " key")
        ):
            return
        for match in anchored(text.low, word, _CHANGED):
            start, end = match.span("value")
            value = text.raw[start:end].rstrip(TRAILING)
            if is_random(value, is_strict=True) and not is_masked(value):
                yield Span(start, start + len(value))

    return Finder((word,), find)


def _in_ascii(words: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(filter(str.isascii, words))


def _abroad(words: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(word for word in words if not word.isascii())


FORMAT_FINDERS = (
    *(_format_finder(word, pattern) for word, pattern in FORMATS),
    Finder(_PGPASS_WORDS, _pgpass_lines),
    Finder(_AUTHENTICATORS, _authenticator_keys),
    Finder(_in_ascii(_LICENCES), _licence_keys, _abroad(_LICENCES)),
    Finder(_in_ascii(_PRIVATE), _private_numbers, _abroad(_PRIVATE)),
    Finder(("kind: secret\n",), _cluster_secrets),
    Finder(("wifi", "wi-fi", "wlan", "guest net", "guestnet"), _networks),
    *map(_change_finder, ("rotat", "chang", "reset", "switch", "updat")),
)
