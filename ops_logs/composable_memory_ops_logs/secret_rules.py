"""Finds the places of secrets in a text: each finder reads the text as it was written and yields spans.

Nothing here is tried twice. A finder goes from one literal word to the next (`str.find`) and tries a pattern
of bounded length there, or takes a run of characters and goes on behind it; what a value means is decided by
plain code that looks at its first characters. So the time is linear in the text, whatever the text is.
"""

import base64
import binascii
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from composable_memory_ops_logs.secret_formats import FORMAT_FINDERS
from composable_memory_ops_logs.secret_shapes import PEM_HEADER, SHAPES, Shape
from composable_memory_ops_logs.secret_text import (
    ALNUM,
    ALNUM_KINDS,
    DIGIT_KINDS,
    JUDGED,
    TOKEN_KINDS,
    TOUCHING,
    TRAILING,
    Finder,
    Span,
    Text,
    anchored,
    has_run,
    places,
    run_before,
    runs,
)
from composable_memory_ops_logs.secret_values import (
    Given,
    is_code,
    is_key,
    is_masked,
    is_password,
    is_placeholder,
    is_random,
    is_strong,
    is_word,
)
from composable_memory_ops_logs.secret_words import (
    CODES_AFTER,
    FAR_NAMES,
    FUNCTION_WORDS,
    HARMLESS_ENDINGS,
    HARMLESS_QUALIFIERS,
    KEY_QUALIFIERS,
    KEYS_ABROAD,
    PREDICATES,
    VERBS,
)

__all__ = ["FINDERS", "Finder", "Span", "Text", "is_secret_name"]

_WINDOW = 4096
"""How far the end of a quoted value is looked for."""
_REMEMBERED = 2_000
"""How many names and values that were looked at are remembered within a text."""


# --- private keys -------------------------------------------------------------------------------------------

_KEY_BODY = re.compile(r"(?:(?:\s|\\[rn]){1,4}[A-Za-z0-9+/=]{16,76}){0,400}")
_MASKED_BODY = re.compile(r"\s…redacted…(?:\s-----END [A-Z0-9 ]{0,40}-----)?")
_FOOTER = re.compile(r"-----END [A-Z0-9 ]{0,40}-----")


def _private_keys(text: Text) -> Iterator[Span]:
    raw, end = text.raw, 0
    while (start := raw.find("-----BEGIN", end)) >= 0:
        end = start + 10
        header = PEM_HEADER.match(raw, start)
        if header is None or _MASKED_BODY.match(raw, header.end()):
            continue
        stop = raw.find("-----", header.end())
        footer = _FOOTER.match(raw, stop) if stop >= 0 else None
        if footer is not None:
            end = footer.end()
            yield Span(start, end, is_token=True)
        else:  # cut by the limit of a preview
            body = _KEY_BODY.match(raw, header.end())
            if body is not None and body.end() > header.end():
                end = body.end()
                yield Span(start, end, is_token=True)


_PUTTY = re.compile(r"private-lines: ?[0-9]{1,4}\r?\n((?:[a-z0-9+/=]{1,80}\r?\n?){1,200})")


def _putty_keys(text: Text) -> Iterator[Span]:
    for match in _PUTTY.finditer(text.low):
        yield Span(match.start(1), match.start(1) + len(match[1].rstrip()))


# --- known shapes -------------------------------------------------------------------------------------------


_RUN = re.compile(r"[\w.:-]+", re.ASCII)


def _shape_finder(shape: Shape) -> Finder:
    literal, back = shape.literal, shape.back

    def find(text: Text) -> Iterator[Span]:
        raw, end, pattern = text.raw, 0, shape.pattern
        for place in places(raw, literal):
            start = place - back
            if start < end or (start and raw[start - 1] in ALNUM):
                continue
            match = pattern.match(raw, start)
            if match is not None:
                token = match[0].rstrip(".")
                end = start + len(token)
                if shape.is_plain or _is_no_prose(token[len(literal) :], literal, raw[start - 1 : start]):
                    yield Span(start, end, is_token=True)

    is_run = _RUN.fullmatch(literal) and literal != "sk-"
    if not is_run:
        return Finder((literal.lower(),), find)
    is_start = not back and literal[0] in ALNUM
    return Finder((), find, prefixes=(literal,)) if is_start else Finder((), find, runs=(literal,))


_PARTS = re.compile(r"[A-Za-z]+[0-9][A-Za-z0-9]*|[0-9]+[A-Za-z][A-Za-z0-9]*|[A-Za-z]+|[0-9]+")


def _is_no_prose(body: str, literal: str, before: str) -> bool:
    parts = _PARTS.findall(body[:JUDGED])
    if literal == "sk-":
        return before not in {"-", "_"} and any(
            len(part) >= 16 or (len(part) >= 8 and not part.isalpha() and not part.isdigit())
            for part in parts
        )
    return any(len(part) >= 14 or not part.isalpha() for part in parts)


_JWT = re.compile(r"eyJ[\w.=-]{16,}", re.ASCII)


def _web_tokens(text: Text) -> Iterator[Span]:
    end = 0
    for place in places(text.raw, "eyJ"):
        if place < end or (place and (text.raw[place - 1] in ALNUM or text.raw[place - 1] in "_-.")):
            continue
        match = _JWT.match(text.raw, place)
        if match is not None:
            token = match[0].rstrip(".=")
            end = place + len(match[0])
            if 8 < token.find(".") < len(token) - 4:
                yield Span(place, place + len(token), is_token=True)


_DISCORD = re.compile(r"\.[\w-]{6}\.[\w-]{27,}", re.ASCII)
_TELEGRAM = re.compile(r":AA[\w-]{18,}")


def _bot_tokens(text: Text) -> Iterator[Span]:
    if not has_run(text.raw, TOKEN_KINDS, 27):
        return
    for match in _DISCORD.finditer(text.raw):
        head = run_before(text.raw, match.start(), most=30)
        if 22 < len(head) < 30 and head[0] in "MNO":
            yield Span(match.start() - len(head), match.end(), is_token=True)
    for match in _ASANA.finditer(text.raw):
        yield Span(*match.span())
    for match in _TELEGRAM.finditer(text.raw):
        head = run_before(text.raw, match.start(), "0123456789", most=17)
        if 5 < len(head) < 17:
            yield Span(match.start() - len(head), match.end(), is_token=True)


_ASANA = re.compile(r"[12]/[0-9]{15,17}(?:/[0-9]{15,17})?:[0-9a-f]{32}")
_LONG_RUN = re.compile(r"[A-Za-z0-9]{50,}")
_HEX_CHARS = frozenset("0123456789abcdefABCDEF")
_BASE58 = re.compile(r"[1-9A-HJ-NP-Za-km-z]+")
_BASE32 = re.compile(r"[a-z2-7]+")


def _nameless_tokens(text: Text) -> Iterator[Span]:
    """Tokens known by their length and alphabet: Azure DevOps, private keys of Bitcoin."""
    if not has_run(text.raw, ALNUM_KINDS, 50):
        return
    for match in _LONG_RUN.finditer(text.raw):
        token, start = match[0], match.start()
        size = len(token)
        if (
            size not in (51, 52, 84)
            or text.raw[start - 1 : start] in {"/", "_", "-", ".", "+"}
            or (text.raw[match.end() : match.end() + 1] in {"/", "_", "-", "+", "="})
        ):
            continue
        if size == 84:
            is_secret = is_random(token) and not set(token) <= _HEX_CHARS
        elif size == 52 and _BASE32.fullmatch(token):
            is_secret = is_random(token)
        else:
            is_secret = bool(_BASE58.fullmatch(token)) and token[0] in ("KL" if size == 52 else "5")
            is_secret = is_secret and is_random(token)
        if is_secret:
            yield Span(start, match.end())


# --- beside another -----------------------------------------------------------------------------------------

_NEAR = 400
_FORTY = re.compile(r"[A-Za-z0-9/+]{40,}={0,2}")
_HEX_RUN = re.compile(r"[0-9a-f]{32,}")
_THIRTY = re.compile(r"(?<![A-Za-z0-9])[A-Za-z0-9]{30,32}(?![A-Za-z0-9])")
_UUID = re.compile(r"(?<![0-9a-f-])[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}(?![0-9a-f-])")
_AWS_ID = re.compile(r"(?:AKIA|ASIA)[A-Z0-9]{16}")
_TWILIO_ID = re.compile(r"\bAC[0-9a-f]{32}\b")
# Of these any token nearby that is drawn at random.
_IDS = (
    (re.compile(r"\bSCW[A-Z0-9]{17}\b"), _UUID),
    (re.compile(r"\bLTAI[A-Za-z0-9]{12,24}\b"), _THIRTY),
    (re.compile(r"\bSK[0-9a-f]{32}\b"), _THIRTY),
)


def _near(text: Text, beacon: re.Pattern[str], tokens: re.Pattern[str]) -> Iterator[re.Match[str]]:
    """Yield the tokens that stand near a beacon; each part of the text is looked at once."""
    seen = 0
    for place in beacon.finditer(text.raw):
        start, stop = max(seen, place.start() - _NEAR), place.end() + _NEAR
        if start > place.start():
            start = min(seen, len(text.raw))
        for match in tokens.finditer(text.raw, start, stop):
            if match.end() == stop:
                break
            yield match
        seen = max(seen, stop)


def _beside_cloud_ids(text: Text) -> Iterator[Span]:
    for match in _near(text, _AWS_ID, _FORTY):
        token = match[0].rstrip("=")
        if len(token) == 40 and not set(token) <= _HEX_CHARS and not token.isalpha():
            yield Span(match.start(), match.start() + 40)
    for match in _near(text, _TWILIO_ID, _HEX_RUN):
        if len(match[0]) == 32 and text.raw[match.start() - 1 : match.start()] not in ALNUM:
            yield Span(*match.span())
    for beacon, tokens in _IDS:
        for match in _near(text, beacon, tokens):
            if not beacon.match(match[0]) and (tokens is _UUID or is_random(match[0])):
                yield Span(*match.span())


# --- addresses ----------------------------------------------------------------------------------------------

_ADDRESS = re.compile(r"""://[^\s"'<>`|]*""")
_HOST = re.compile(r"(?:\[[0-9a-f:.]{2,45}\]|[\w.*-]{1,253})(?=[:/?#,;)\]}&\\]|\Z)", re.IGNORECASE)


def _credentials_in_addresses(text: Text) -> Iterator[Span]:
    for run in _ADDRESS.finditer(text.raw):
        if "@" not in run[0]:
            continue
        start = run.start()
        for number, piece in enumerate(run[0].split("://")):
            if number and "@" in piece:
                yield from _credentials(piece, start)
            start += len(piece) + 3


def _credentials(piece: str, start: int) -> Iterator[Span]:
    """Yield the password of `user:password@host`, or the token of `token@host`."""
    at = piece.rfind("@")
    while at > 0 and not _HOST.match(piece, at + 1, at + 300):
        at = piece.rfind("@", 0, max(0, at))
        if piece.count("@", 0, at) > 8:  # no address has so many
            break
    if at <= 0:
        return
    colon = piece.find(":", 0, 129)
    slash = piece.find("/", 0, at)
    if 0 <= colon < at and (slash < 0 or colon < slash):
        password = piece[colon + 1 : at]
        port = password.partition("/")[0]
        is_port = "/" in password and port.isdigit() and len(port) <= 5
        if password and not is_port and not is_masked(password) and not is_placeholder(password):
            yield Span(start + colon + 1, start + at)
    elif slash < 0 and (at >= 20 and is_random(piece[:at])):
        yield Span(start, start + at)


_HOOKS = re.compile(
    r"(?:/webhooks/(?=[0-9]{1,30}/)|hooks\.slack\.com/(?:services|workflows|triggers)/"
    r"|hooks\.zapier\.com/hooks/catch/|/webhookb2/|maker\.ifttt\.com/trigger/\w{1,60}/"
    r"(?:json/)?with/key/"
    r"|/bot/v2/hook/|webhook/send\?key=|webhook\.office\.com/)([\w@/-]{6,})",
    re.ASCII,
)


def _webhooks(text: Text) -> Iterator[Span]:
    for match in _HOOKS.finditer(text.raw):
        yield Span(*match.span(1))


_QUERY = re.compile(
    r"[?&;](?:sig|signature|x-amz-signature|x-goog-signature|code|auth|st|sid|ticket|otp|pass|pin|k"
    r"|secret)=([\w%+/=~.-]{1,})"
)
_OTPAUTH = re.compile(r"otpauth(?:-migration)?://[^\s\"'<>]*")
_OTP_SECRET = re.compile(r"(?:secret|data)=([\w%+/=-]+)")


def _query_secrets(text: Text) -> Iterator[Span]:
    for match in _QUERY.finditer(text.low):
        value = text.raw[match.start(1) : match.end(1)]
        if (
            len(value) >= 16
            and (len(value) >= 40 or "sig" in match[0][:12] or is_random(value))
            and not is_masked(value)
        ):
            yield Span(*match.span(1))
    for run in _OTPAUTH.finditer(text.low):
        for match in _OTP_SECRET.finditer(text.low, *run.span()):
            yield Span(*match.span(1))


# --- headers ------------------------------------------------------------------------------------------------

_AUTH = re.compile(
    r"""authorization["'`\\\]]{0,4}[ \t]{0,4}(?:[:=,]|=>)[ \t]{0,4}["'`\\]{0,4}
    (?P<scheme>(?:bearer|basic|digest|token|apikey|api-key|key|bot|geniekey|splunk|jwt|ntlm|negotiate
    |sso-key|oauth|ssws|snowflake|zoho-oauthtoken|discogs|sharedkey|hmac
    |[a-z][a-z0-9_-]{1,24}(?=[ ][^\s"'`<>,;\\=]{16}))
    (?:[ \t]{1,4}|:[ ]?)(?:token=|api_key=|key=)?)?["']?(?P<value>[^\s"'`<>,;\\]{1,})""",
    re.VERBOSE,
)
_BEARER = re.compile(r"bearer[ \t]{1,4}(?P<value>[\w.~+/=-]{1,})", re.ASCII)


def _headers(text: Text) -> Iterator[Span]:
    for match in _AUTH.finditer(text.low):
        value = text.raw[slice(*match.span("value"))].rstrip(".)")
        if is_masked(value) or is_placeholder(value):
            continue
        if match["scheme"]:
            is_secret = not (is_word(value) and _goes_on(text.low, match.end("value")))
        else:
            is_secret = len(value) >= 12 and (is_random(value) or is_strong(value)) and not is_code(value)
        if is_secret:
            yield Span(match.start("value"), match.start("value") + len(value))


def _bearers(text: Text) -> Iterator[Span]:
    for match in _BEARER.finditer(text.low):
        value = text.raw[slice(*match.span("value"))].rstrip(".")
        has_both = not value.islower() or any(map(str.isdigit, value[:JUDGED])) or len(value) >= 24
        if len(value) >= 16 and has_both and "…" not in text.raw[match.end() : match.end() + 1]:
            yield Span(match.start("value"), match.start("value") + len(value))


def _goes_on(low: str, place: int) -> bool:
    """Tell whether prose goes on here: blanks and a word of small letters."""
    return _NEXT_WORD.match(low, place) is not None


_NEXT_WORD = re.compile(r"[ \t]{1,3}[a-z]{1,20}(?=[\s,.;:!?)]|\Z)")

_COOKIE_START = re.compile(
    r"""(?:[ ]-b|(?:set-)?cookies?["'`]?)[ \t]{0,2}(?::|=|[ \t](?=["']))[ \t]{0,4}["'`]?"""
    r"""(?=[\w.!$%*+^|~-]{1,80}=[^=])""",
    re.ASCII,
)
_COOKIE = re.compile(r"""[ ]{0,2}([\w.!$%*+^|~-]{1,80})=([^\s;,"'<>`]*)""", re.ASCII)
_COOKIE_ATTRIBUTES = frozenset(
    "path domain expires max-age samesite version priority lang locale theme tz".split()
)
_SESSION = re.compile(
    r"""(?:phpsessid|jsessionid|asp\.net_sessionid|connect\.sid|sessionid|laravel_session|_session
    |session_token|session_cookie|sid)
    ["']?[=:][ ]?["']?([\w%+/=.-]{16,})""",
    re.ASCII | re.VERBOSE,
)


_COOKIE_TABLE = re.compile(r"""cookies?["']?[ ]?[:=(][ ]?(?:dict\()?\{""")
_COOKIE_ENTRY = re.compile(r"""[\s,]{0,8}["']([\w.-]{1,80})["'][ ]?:[ ]?["']([^"'\n]{0,4096})["']""")


def _cookies(text: Text) -> Iterator[Span]:
    end = 0
    for start in _COOKIE_TABLE.finditer(text.low):
        place = start.end()
        while place >= end and (entry := _COOKIE_ENTRY.match(text.low, place)):
            place = entry.end()
            if entry[1] not in _COOKIE_ATTRIBUTES and len(entry[2]) >= 6 and not is_masked(entry[2]):
                yield Span(*entry.span(2))
        end = max(end, place)
    end = 0
    for start in _COOKIE_START.finditer(text.low):
        place = start.end()
        if place < end:
            continue
        while match := _COOKIE.match(text.low, place):
            value = match[2]
            is_open = is_masked(value) or is_placeholder(value) or is_code(value)
            if match[1] not in _COOKIE_ATTRIBUTES and len(value) >= 6 and not is_open:
                yield Span(*match.span(2))
            place = match.end() + (text.low[match.end() : match.end() + 1] in {";", ","})
        end = place
    for match in _SESSION.finditer(text.low):
        if is_random(text.raw[slice(*match.span(1))]) and not is_masked(match[1]):
            yield Span(*match.span(1))


# --- commands -----------------------------------------------------------------------------------------------

_QUOTED_OR_RUN = r"""(?:"[^"\n]{1,256}"|'[^'\n]{1,256}'|[^\s"'$(<|-][^\s"']*)"""
_GLUED = re.compile(rf"[ ]-p(?P<value>{_QUOTED_OR_RUN})")
_LOOSE_P = re.compile(rf"[ ]-p[ ]?(?P<value>{_QUOTED_OR_RUN})")
_LOGIN_P = re.compile(rf"[ ](?:-p|--pass|--pw)[ =](?P<value>{_QUOTED_OR_RUN})")
_REDIS_A = re.compile(rf"[ ]-a[ ](?P<value>{_QUOTED_OR_RUN})")
_LDAP_W = re.compile(rf"[ ]-w[ ](?P<value>{_QUOTED_OR_RUN})")
_USER_PASS = re.compile(
    r"""[ ](?:-[a-z]{0,4}u[ ]?|--(?:proxy-)?user[ =]|-a[ ]|--auth[ =]|--creds[ =])"""
    r"""(?P<quote>["'])?[^\s:"'$]{1,128}[:%](?P<value>(?(quote)[^"'$\n][^"'\n]*|[^\s"'$][^\s"']*))"""
)
_SMB = re.compile(r"""[ ]-u[ ]?["']?[^\s%"']{1,128}%(?P<value>[^\s"'$][^\s"']*)""")
_COMMANDS = (
    ("sshpass", (_LOOSE_P,)),
    ("mysql", (_GLUED,)),
    ("mariadb", (_GLUED,)),
    ("docker", (_LOGIN_P,)),
    ("podman", (_LOGIN_P,)),
    ("helm", (_LOGIN_P,)),
    ("snowsql", (_LOGIN_P,)),
    ("sqlcmd", (_LOOSE_P,)),
    ("bcp ", (_LOOSE_P,)),
    ("az login", (_LOGIN_P,)),
    ("mongo", (_LOOSE_P,)),
    ("7z ", (_GLUED,)),
    ("zip ", (_LOOSE_P,)),
    ("unzip ", (_LOOSE_P,)),
    ("redis-cli", (_REDIS_A,)),
    ("ldap", (_LDAP_W,)),
    ("curl", (_USER_PASS,)),
    ("wget", (_USER_PASS,)),
    ("http ", (_USER_PASS,)),
    ("smbclient", (_SMB,)),
    ("rpcclient", (_SMB,)),
    ("mosquitto", (re.compile(rf"[ ]-p[ ](?P<value>{_QUOTED_OR_RUN})"),)),
    ("rsync", (_LOOSE_P,)),
    ("nats ", (_USER_PASS,)),
)


def _command_finder(command: str, patterns: tuple[re.Pattern[str], ...]) -> Finder:
    def find(text: Text) -> Iterator[Span]:
        low, end = text.low, 0
        for place in places(low, command):
            if place < end or (place and low[place - 1] in ALNUM):
                continue
            end = _command_end(low, place)
            for pattern in patterns:
                for match in pattern.finditer(low, place, end):
                    yield from _given(text, match)

    return Finder((f" -&{command}",), find)


def _command_end(low: str, place: int) -> int:
    end = place
    for _ in range(12):
        end = low.find("\n", end)
        if end < 0:
            return len(low)
        if low[end - 1] != "\\":
            return end
        end += 1
    return end


_PORTS = re.compile(r"(?:[0-9.]{1,15}:)?[0-9]{1,5}:[0-9]{1,5}(?:/(?:tcp|udp))?|[0-9]{1,5}\Z")


def _given(text: Text, match: re.Match[str]) -> Iterator[Span]:
    start, end = match.span("value")
    value = text.raw[start:end]
    if len(value) > 2 and value[0] == value[-1] and value[0] in "\"'":
        start, end, value = start + 1, end - 1, value[1:-1]
    if value and not is_masked(value) and not is_placeholder(value) and not _PORTS.match(value):
        yield Span(start, end)


_SAID = (
    ("machine", r"machine\s{1,8}\S{1,128}\s{1,8}login\s{1,8}\S{1,128}\s{1,8}password\s{1,8}(?P<value>\S+)"),
    (
        "identified",
        r"""identified[ ](?:with[ ]\w{1,40}[ ])?by[ ]{1,4}(?:password[ ])?["'](?P<value>[^"'\n]{1,256})""",
    ),
    ("pass:", r"pass:(?P<value>(?<=-passin[ ]pass:|passout[ ]pass:)\S+)"),
    (
        "echo",
        r"""echo[ ]["']?(?:[\w.-]{1,64}:)?(?P<value>[^\s"':|$]{1,256})["']?[ ]?\|[ ]?(?:sudo[ ])?
        (?:chpasswd|docker[ ]login|passwd|cryptsetup|smbpasswd|gpg|kinit|sudo|vncpasswd)""",
    ),
    ("htpasswd", r"htpasswd[ ](?:-[a-z]{1,8}[ ]){0,3}\S{1,128}[ ]\S{1,64}[ ](?P<value>[^\s-]\S*)"),
    ("sqlplus", r"""sqlplus[ ](?:-\w{1,8}[ ]){0,3}["']?[\w.$-]{1,64}/(?P<value>[^\s@"']+)"""),
    ("rabbitmqctl", r"rabbitmqctl[ ](?:add_user|change_password)[ ]\S{1,64}[ ](?P<value>\S+)"),
    ("net use", r"net[ ]user?[ ](?:\S{1,128}[ ]){0,2}?(?:/user:\S{1,64}[ ](?P<value>[^\s/]\S*))"),
)
_SAID_SIGNS = {
    "rabbitmqctl": "_&",
    "machine": "password&",
    "echo": "|&",
    "sqlplus": "/&",
    "net use": "/&",
    "identified": "'&",
}
_SAID_PATTERNS = tuple((word, re.compile(source, re.VERBOSE)) for word, source in _SAID)


def _said_finder(word: str, pattern: re.Pattern[str]) -> Finder:
    def find(text: Text) -> Iterator[Span]:
        for match in anchored(text.low, word, pattern):
            start, end = match.span("value")
            value = text.raw[start:end].rstrip(";")
            if not is_masked(value) and not is_placeholder(value):
                yield Span(start, start + len(value))

    return Finder((f"{_SAID_SIGNS.get(word, '')}{word}",), find, in_prose=True)


# --- hashes of passwords ------------------------------------------------------------------------------------

_CRYPT = re.compile(
    r"""\$(?:1|2[abxy]?|5|6|7|y|gy|apr1|argon2(?:id|i|d)|scrypt|sha1|md5|p|h|pbkdf2[\w-]{0,10}
    |bcrypt-sha256|8|9)\$
    (?P<value>[\w./+=,$-]+)|pbkdf2_sha\d{1,3}\$\d{1,8}\$(?P<django>[\w./+=$-]+)|(?:scrypt
    |pbkdf2):[\w:]{1,30}\$(?P<werkzeug>[\w./+=$-]+)
    |\{s?s?(?:sha|md5|crypt)(?:256|512)?\}(?P<ldap>[\w./+=$-]{16,})|scram-sha-(?:1|256|512)\$
    (?P<scram>[\w./+=:$-]+)""",
    re.VERBOSE | re.ASCII,
)


def _hashes(text: Text) -> Iterator[Span]:
    for match in _CRYPT.finditer(text.low):
        start, end = match.span(match.lastgroup or 0)
        value = text.raw[start:end]
        if len(value) >= 16 and "$" not in value[-1:]:
            yield Span(start, end)


# --- numbers ------------------------------------------------------------------------------------------------

_CARD = re.compile(
    r"[3-6][0-9]{3}(?:[ -]?[0-9]{4}){2}[ -]?[0-9]{2,4}(?:[ -]?[0-9]{3})?"
    r"|3[47][0-9]{2}[ -]?[0-9]{6}[ -]?[0-9]{5}"
)
_GROUPS_OF_SIX = re.compile(r"[0-9]{6}(?:-[0-9]{6}){7}")  # what opens a drive of BitLocker
_CARD_SIZES = {"4": (16,), "5": (16,), "2": (16,), "6": (16, 19), "3": (14, 15, 16)}
_IBAN = re.compile(r"[a-z]{2}[0-9]{2}(?:[ ]?[a-z0-9]{4}){2,7}(?:[ ]?[a-z0-9]{1,3})?")


def _numbers(text: Text) -> Iterator[Span]:
    low, is_long = text.low, False
    for start, end in runs(low, DIGIT_KINDS, 13):
        is_long = is_long or any(digit in low[start:end] for digit in "0123456789")
        for match in _CARD.finditer(low, start, end):
            digits = match[0].replace(" ", "").replace("-", "")
            is_known = len(digits) in _CARD_SIZES[digits[0]] and len(set(digits)) > 1
            if is_known and _is_luhn(digits) and _is_apart(low, match):
                yield Span(*match.span())
        for match in _GROUPS_OF_SIX.finditer(low, start, end):
            if _is_apart(low, match):
                yield Span(*match.span())
    for name in _CARD_NAMES if is_long else ():
        for place in places(low, name):
            number = _LONG_NUMBER.match(low, place + len(name))
            if number is not None:
                yield Span(*number.span("value"))
    done = 0
    for place in _heads_of_ibans(low):
        is_start = place >= done and (place == 0 or low[place - 1] not in TOUCHING)
        head = _IBAN.match(low, place) if is_start else None
        if head is None:
            continue
        done = head.end()
        for stop in range(head.end(), place + 14, -1):
            if low[stop : stop + 1] not in TOUCHING and _is_iban(low[place:stop]):
                yield Span(place, stop)
                break


def _is_apart(low: str, match: re.Match[str]) -> bool:
    before, after = low[match.start() - 1 : match.start()], low[match.end() : match.end() + 2]
    return before not in TOUCHING and (
        after[:1] not in TOUCHING or (after[:1] == "." and not after[1:].isalnum())
    )


_CARD_NAMES = (
    "卡号",
    "card number",
    "card no",
    "kartennummer",
    "credit card",
    "tarjeta",
    "卡號",
    "カード番号",
)
_LONG_NUMBER = re.compile(r"[ :=#.：是]{0,4}(?P<value>[0-9](?:[ -]?[0-9]){12,18})(?![0-9])")


def _is_luhn(digits: str) -> bool:
    total = sum(int(digit) for digit in digits[-1::-2])
    return (total + sum(sum(divmod(2 * int(digit), 10)) for digit in digits[-2::-2])) % 10 == 0


def _heads_of_ibans(low: str) -> Iterator[int]:
    kinds = low.encode("latin-1", "replace").translate(_HEAD_KINDS)
    place = kinds.find(b"xx99")
    while place >= 0:
        yield place
        place = kinds.find(b"xx99", place + 4)


_HEAD_KINDS = bytes(
    ord("9") if chr(code) in "0123456789" else ord("x") if code < 128 and chr(code).isalpha() else ord(" ")
    for code in range(256)
)


def _is_iban(text: str) -> bool:
    number = text.replace(" ", "")
    turned = number[4:] + number[:4]
    return (
        15 <= len(number) <= 33
        and len(number) != 32
        and int("".join(str(int(sign, 36)) for sign in turned)) % 97 == 1
    )


# --- words that restore a wallet ----------------------------------------------------------------------------

_SEEDS = (
    "seed",
    "mnemonic",
    "recovery phrase",
    "recovery words",
    "secret phrase",
    "backup phrase",
    "wallet words",
    "助记词",
    "ニーモニック",
)
_SEEDS_ABROAD = tuple(hint for hint in _SEEDS if not hint.isascii())
_SEED_HINTS = ("seed", "mnemonic", "phrase", " words")
_SEED_GAP = re.compile(
    r"""(?:[ ](?:phrase|words|key|is|are|was|my|for|the|of|wallet|ledger|metamask|trezor|12|24"""
    r"""|word)){0,6}[ "'`:=(*]{0,6}\s{0,4}["'`(]{0,2}"""
)
_SEED_WORD = re.compile(
    r"(?:[0-9]{1,2}[.):]?[ ]?)?([a-z]{3,8})(?:[ ,]{1,3}|\r?\n)?(?:(?<=[ ,\n])|(?![a-z0-9]))"
)


def _seed_phrases(text: Text) -> Iterator[Span]:
    low, done = text.low, 0
    for hint in _SEEDS:
        done = 0
        for place in places(low, hint):
            if place < done:
                continue
            gap = _SEED_GAP.match(low, place + len(hint))
            start = at = gap.end() if gap else place + len(hint)
            words, end = 0, at
            while words < 25 and (match := _SEED_WORD.match(low, at)) and match[1] not in FUNCTION_WORDS:
                words, end, at = words + 1, match.end(1), match.end()
            done = at
            if words >= 11:
                yield Span(start, end)


_ABOUT = r"""(?:[ ](?:\([^()\n]{1,40}\)|(?:at|da|de|del|do|du|for|from|für|in|of|on|para|per|pour|to|vom
|von|der|des|dem|zu|zum|zur|am|beim|login|code|phrase|wifi|di|della)
    (?:[ ][^\s:=|"`]{1,30}){1,5}?))?"""
_PHRASE = re.compile(
    rf"""passphrases?{_ABOUT}(?:[ ]{{0,2}}[:=→][ ]?|[ ]is:?[ ])["'`]?
    (?P<value>[^\W_]{{1,16}}(?:[ -][^\W_]{{1,16}}){{2,23}})(?=["'`.,;)]{{0,2}}[ ]{{0,4}}(?:\r?\n|\Z))""",
    re.VERBOSE,
)


def _passphrases(text: Text) -> Iterator[Span]:
    for match in anchored(text.low, "passphrase", _PHRASE):
        words = match["value"].replace("-", " ").split()
        if 4 * sum(word in FUNCTION_WORDS or word in PREDICATES for word in words) <= len(words):
            yield Span(*match.span("value"))


# --- names --------------------------------------------------------------------------------------------------

_TAIL = r"(?:_base|[_-]?[0-9]{1,2})?(?P<more>[_-][a-z0-9_-]{1,40})?(?![a-z0-9])"
_PASSWORD_NAMES = {
    "pass": r"pass(?:[ -]?w(?:or)?ds?|wrd|worte?|phrases?|codes?|e|es)?",
    "pw": r"pwd?s?",
    "p/w": r"p/w",
    "mima": r"mima",
    "kennwort": r"kennwort",
    "wachtwoord": r"wachtwoord",
    "contrase": r"contrase(?:ñ|n|ny)as?",
    "senha": r"senhas?",
    "mdp": r"mdp",
    "heslo": r"heslo",
    "parola": r"parola(?:[ ]d'ordine)?",
    "requirepass": r"requirepass",
    "masterauth": r"masterauth",
    "psk": r"psk",
    "community": r"community(?:[ _-]?string)?",
    "clave": r"clave",
    "jeton": r"jeton",
    "chiave": r"chiave",
    "chave": r"chave",
}
_PASSWORD_NAMES_ABROAD = {
    "парол": r"парол[ьяи]",
    "hasło": "hasło",
    "lösenord": "lösenord",
    "şifre": "şifre",
    "mật khẩu": "mật khẩu",
    "schlüssel": r"schlüssel",
    "clé": r"clé(?:[ ](?:d'api|api|secrète))?",
    "ключ": "ключ",
    "токен": "токен",
}
_KEY_NAMES = {
    "token": r"tokens?",
    "secret": r"secrets?",
    "key": r"keys?",
    "cred": r"cred(?:ential)?s?",
    "auth": r"auth",
    "dsn": r"dsn",
    "segreto": r"segreto",
    "privkey": r"privkey",
    "hmac": r"hmac",
}
_KEY_NAMES_ABROAD = {"секрет": "секрет"}
_CODE_NAMES = {
    "pin": r"pin(?:[ -]?(?:code|number|nummer|nr))?",
    "cvv": r"cvv2?",
    "cvc": r"cvc2?",
    "otp": r"otp",
    "totp": "totp",
    "ssn": r"ssn",
    "geheimzahl": "geheimzahl",
    "puk": r"puk",
    "code": r"codes?",
    "combin": r"combin(?:ation|azione|aison|ación)",
    "codice": r"codice(?:[ ]pin)?",
    "codigo": r"codigo",
    "2fa": "2fa",
}
_CODE_NAMES_ABROAD = {"código": r"código(?:[ ]pin)?"}

_CLOSE = r"""["'`\\\])*_]{0,6}"""
_OPEN = r"""(?:["'`]|\*{1,2}(?!\*)){0,3}"""
_TYPED = r":[ ]{0,2}(?:str|string|secretstr|final|&str|varchar)(?:[ ]\|[ ]none)?[ ]{0,2}=(?!=)"
_TO = re.compile(r"\b(?:set|chang|reset|updat|rotat|switch)[a-z]{0,3}\b")
_SIGNS = rf"""(?P<sign>{_CLOSE}[ \t]{{0,30}}(?:{_TYPED}|=>|:=|=(?![=~>])|[!=]==?(?=[ ]?["'])
    |:(?!:|//))(?:\*{{1,2}}
(?!\*)|_{{1,2}})?[ \t]{{0,8}}(?:\{{\s{{0,8}}
    ["'](?:current|old|new|previous|next|value|plain|text|raw|primary|secondary)["'][ ]?:[ ]?)?)
    (?P<eol>\r?\n)?
    |(?P<attr>{_CLOSE}(?:[,\s/]{{1,24}}|[ \t]{{0,4}},?[ \t]{{0,4}}\r?\n[ \t]{{1,24}}-?[ ]?)["']?(?:value
    |content|val)["']?[ \t]{{0,4}}[:=][ \t]{{0,4}}
        |["'][ ]?\{{\s{{1,8}}
        (?:[a-z]{{1,12}}[ ]{{0,8}}=[^\n]{{0,60}}\n[ \t]{{1,8}}){{0,3}}default[ ]{{0,8}}=[ ]{{0,8}})
    |(?P<call>["'\]]?[ ]{{0,2}}[(,][ ]{{0,4}}(?=["'])|[ ](?=["']))
    |(?P<cell>[*`]{{0,3}}[ \t]{{0,40}}\|[ \t]{{0,40}}(?:`|\*{{1,2}}(?!\*)){{0,3}})
    |(?P<xml>["']?>)"""
_PROSE = rf"""{_ABOUT}(?:(?P<is>[ ]{{1,2}}(?:{VERBS.replace(" ", "[ ]")})(?:[ ](?:now|still|currently|just
    |also|jetzt|nun|neu|ahora|maintenant|adesso|agora))?[ ]?:?[ ]{{1,2}}{_OPEN})
        |(?P<for>[ ]?[:=](?:[ ]{_OPEN}|(?=\r?\n)))
        |(?P<to>[ ]to[ ](?!(?:your|my|the|our|an?|his|her|their)[ ]){_OPEN})
        |(?P<arrow>[ ]{{1,2}}(?:→|->|—|–|-
        |~)[ ]{{1,2}}{_OPEN}))
    |(?P<far>(?:[ ][^\s:=|"`]{{1,20}}){{1,3}}[ ]?[:=][ ]{_OPEN})
    |(?P<gap>[ \t]{{1,4}}(?=GAP))"""
# What may follow a name and a blank alone.
_GAPS = (
    ("password", r"\S{3}"),
    ("key", r"\S{8}|(?<=_key[ ])|(?<=-token[ ])|(?<=-key[ ])|(?<=-secret[ ])"),
    ("code", "[0-9]{2}"),
)
_CONNECT_WORDS = {sort: re.compile(_PROSE.replace("GAP", after), re.VERBOSE) for sort, after in _GAPS}
_CONNECT = {sort: re.compile(f"{_SIGNS}|{_PROSE.replace('GAP', after)}", re.VERBOSE) for sort, after in _GAPS}
_MAY_JOIN = frozenset("\r\n \t:=\"'`\\])*_|>,(/")
_LEAD = re.compile(r"""["'`«「『]|\\{1,3}["']""")
_CLOSING = {"«": "»", "「": "」", "『": "』"}
_RUN_AFTER = {
    "=": re.compile(r"""[^\s"'`<>&;]*"""),
    ":": re.compile(r"""[^\s"`<>]*"""),
    "<": re.compile(r"[^<\n]*"),
    "|": re.compile(r"[^|\s`*]*"),
}
_BOUND_RUN = {sign: re.compile(run.pattern[:-1] + f"{{0,{JUDGED}}}") for sign, run in _RUN_AFTER.items()}


_BRACED = re.compile(r"""\{[^{}\s"']{4,128}\}(?=;)""")  # a connection of ODBC
_ENTITY = re.compile(r"&(?:amp|lt|gt|quot|apos|#x?[0-9a-f]{1,5});")
# Google shows the passwords of apps so.
_FOUR_FOURS = re.compile(r"[a-z]{4}(?:[ ][a-z]{4}){3}(?=[ \t]{0,4}(?:\r?\n|\Z))")


class _Value(NamedTuple):
    start: int
    text: str
    """Its first characters, as written."""
    end: int
    """Where its first characters end; the rest of its run is `rest`."""
    is_quoted: bool
    rest: str
    """Which run goes on."""


def _value_at(text: Text, place: int, kind: str) -> _Value:
    lead = _LEAD.match(text.low, place)
    if lead is not None and kind not in "<|":
        quote = _CLOSING.get(lead[0], lead[0])
        start = lead.end()
        end = text.low.find(quote, start, start + _WINDOW)
        while len(quote) == 1 and end > start and text.low[end - 1] == "\\":
            end = text.low.find(quote, end + 1, start + _WINDOW)
        line = text.low.find("\n", start, end if end >= 0 else start + _WINDOW)
        if line >= 0 and quote != "`":
            end = line
        if end < 0:
            end = min(len(text.low), start + _WINDOW)
        return _Value(start, text.raw[start:end], end, True, "")
    braced = _BRACED.match(text.low, place) if kind == "=" else None
    if braced is not None:
        return _Value(place, text.raw[place + 1 : braced.end() - 1], braced.end(), True, "")
    match = _FOUR_FOURS.match(text.low, place) or _BOUND_RUN[kind].match(text.low, place)
    end = match.end() if match else place
    rest = kind if end - place == JUDGED else ""
    value = text.raw[place:end]
    if not rest:
        value = value.rstrip(TRAILING)
    return _Value(place, value, place + len(value), False, rest)


def _span(text: Text, value: _Value) -> Span:
    end = value.end
    if value.rest:
        match = _RUN_AFTER[value.rest].match(text.low, value.start)
        end = value.start + len(text.raw[value.start : match.end() if match else end].rstrip(TRAILING))
    while not value.is_quoted and (entity := _ENTITY.match(text.low, end)):
        match = _RUN_AFTER["="].match(text.low, entity.end())
        end = match.end() if match else entity.end()
    return Span(value.start, end)


_IDENT_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")


def _strength_of_key(words: list[str], before: str, name: str) -> int:
    """Tell how surely a `key` or `token` is a secret: 0 never, 1 if its value looks so, 2 likely, 3 yes."""
    stem = name.rstrip("s")
    last = words[-1] if words else name
    glued = last.removesuffix(name).removesuffix(stem)
    qualifier = glued if glued and glued != last else words[-2] if len(words) > 1 else before
    if glued and glued != last and glued not in KEY_QUALIFIERS and glued not in {"o", "id"}:
        return 0  # a word of its own, such as `monkey`
    if qualifier in HARMLESS_QUALIFIERS:
        return 0
    if stem in {"auth", "dsn", "hmac"}:
        return 1
    if stem in {"key", "cred", "credential"}:
        return 3 if qualifier in KEY_QUALIFIERS else 1
    if len(words) > 1 or qualifier in KEY_QUALIFIERS:
        return 3
    return 2


@dataclass(frozen=True, slots=True)
class _Named:
    """What stands before a value: the name and how sure it is, and what joins them."""

    sort: str
    strength: int
    join: str
    sign: str
    in_flag: bool


def _named_finders(sort: str, names: dict[str, str], abroad: dict[str, str]) -> Iterator[Finder]:
    for word, source in (names | abroad).items():
        yield _named_finder(sort, word, re.compile(source + _TAIL))


def _named_finder(sort: str, word: str, pattern: re.Pattern[str]) -> Finder:
    def find(text: Text) -> Iterator[Span]:
        return _after_names(text, sort, word, pattern, {})

    if not word.isascii():
        return Finder((), find, (word,))
    if sort == "code" and word != "otp":  # which may be followed by letters
        return Finder((), find, numeric=(word,))
    is_prose = sort == "password" and word not in KEYS_ABROAD | {"community"}
    return Finder((word,), find, in_prose=is_prose or sort == "code")


def _after_names(
    text: Text, sort: str, word: str, pattern: re.Pattern[str], known: dict[Given, bool]
) -> Iterator[Span]:
    low, end = text.low, 0
    connect, connect_words = _CONNECT[sort], _CONNECT_WORDS[sort]
    refused: set[str] = set()  # a text may say the same again and again
    for place in places(low, word):
        if place < end:
            continue
        name = pattern.match(low, place)
        if name is None or low[name.end() : name.end() + 1] not in _MAY_JOIN:
            continue
        around = text.raw[max(0, place - 80) : place + 400]
        if around in refused:
            continue
        if len(refused) + len(known) > _REMEMBERED:
            refused.clear()
            known.clear()
        # Where a word follows, no sign does.
        is_prose = low[name.end()] == " " and low[name.end() + 1 : name.end() + 2].isalpha()
        join = (connect_words if is_prose else connect).match(low, name.end())
        if join is None:
            refused.add(around)
            continue
        ident = run_before(text.raw, place) + text.raw[place : name.end()]
        more = name["more"] or ""
        if more and not _is_open_ending(more):
            refused.add(around)
            continue
        if join[0].startswith(":") and text.raw[place - 1 : place] == "$":  # the value of a variable
            continue
        if join.lastgroup == "far" and join[0].split()[0].rstrip(":=") in HARMLESS_ENDINGS:
            refused.add(around)
            continue
        strength = _strength(
            sort, text, place, ident[: len(ident) - len(more)], name[0][: len(name[0]) - len(more)]
        )
        if not strength:
            refused.add(around)
            continue
        if more:
            strength = 1
        found = False
        for span in _joined(
            text,
            _Named(sort, strength, join.lastgroup or "", join[0], ident[:1] == "-" or name[0] in _DIRECTIVES),
            join,
            known,
            place,
        ):
            end, found = max(end, span.end), True
            yield span
        if not found:
            refused.add(around)


_DIRECTIVES = ("requirepass", "masterauth", "psk")


def _is_open_ending(more: str) -> bool:
    words = re.split("[_-]", more.strip("_-"))
    return words[-1] not in HARMLESS_ENDINGS and words[0] not in HARMLESS_ENDINGS


def _strength(sort: str, text: Text, place: int, ident: str, name: str) -> int:
    left = ident[: len(ident) - len(name)]
    name = name.lower()
    if sort == "password":
        return _strength_of_password(text, place, left, name)
    words = [word.lower() for word in _IDENT_WORDS.findall(ident.rstrip("0123456789_-"))]
    before = ""
    if not left.strip("_-"):
        part = text.low[max(0, place - len(left) - 30) : place - len(left)].rstrip(" -")
        before = run_before(part, len(part))
    if sort == "code":
        return _strength_of_code(text, name, place, left, before, words)
    if not name.isascii():
        return 1
    return _strength_of_key(words, before, name.rstrip("0123456789_-"))


def _strength_of_password(text: Text, place: int, left: str, name: str) -> int:
    touching = left[-1:]
    is_apart = not touching or touching in "_-"
    is_hump = not is_apart and touching.islower() and text.raw[place].isupper()
    if name.startswith(("password", "pass word", "pass-word", "passwd", "passwort", "kennwort")):
        return 3
    if name == "pass":
        if touching == "_" or left in {"--", "-"} or is_hump:
            return 3 if left.lower().rstrip("_").endswith(_LOGINS) or left == "--" or left.isupper() else 0
        if (
            touching == ""
            and text.raw[place - 1 : place] == "."
            and text.raw[place + 4 : place + 5] in {'"', "'"}
        ):
            return 2  # the name of a setting
        if is_apart and _USER.search(text.low, max(0, place - 80), place):
            return 2
        return (
            1
            if is_apart and touching != "-"
            else 3
            if left.lower().lstrip("-") in {"store", "key", "require", "ssh"}
            else 0
        )
    if name in {"passe", "passes"}:
        return 3 if text.low[max(0, place - 8) : place].endswith(("mot de ", "palavra-")) else 0
    if name == "schlüssel" and left.lower().rstrip("-_").endswith(_NETWORKS):
        return 3
    if name.split()[0] in KEYS_ABROAD or (not name.isascii() and name[0] in "скт"):
        return 1 if is_apart else 0
    if name in {"pw", "pws", "pwds", "p/w"}:
        return 2 if is_apart else 0
    if name.startswith("community"):
        return 1
    if name == "pwd":
        return 3 if is_apart or is_hump else 0
    return 3 if is_apart or is_hump else 0


_NETWORKS = (
    "wlan",
    "wifi",
    "wi-fi",
    "wpa",
    "wpa2",
    "netzwerk",
    "netzwerksicherheits",
    "privat",
    "geheim",
    "api",
)
_USER = re.compile(
    r"(?:user|login|e-?mail|benutzer|usuario|utente|usr|account|账号|帐号|用户名|ユーザー|アカウント|아이디"
    r"|utilisateur)[^\n]{2,70}\Z"
)
_LOGINS = (
    "admin",
    "db",
    "ftp",
    "imap",
    "mail",
    "root",
    "smtp",
    "user",
    "sudo",
    "become",
    "vault",
    "mysql",
    "pg",
    "login",
    "wifi",
    "ssh",
    "redis",
)


_COMPOUNDS = (
    "tür", "tor", "haus", "alarm", "zugangs", "sicherheits", "bestätigungs", "freischalt", "entsperr", "safe",
    "tresor", "garagen", "schließfach", "door", "gate", "sms", "zugriffs", "einmal",
)  # fmt: skip
_OPENS = re.compile(
    r"[ ](?:(?:de|del|della|dell'|du|de la|da|do|di|d')[ ']?)?"
    r"(?:cassaforte|porta|portone|allarme|sblocco|verifica"
    r"|sicurezza|accesso|puerta|alarma|acceso|verificación|seguridad|desbloqueo|segurança|porte|alarme|immeuble|entrée"
    r"|wi-?fi|pin|garage|coffre|caja fuerte|cofre)"
)


def _strength_of_code(text: Text, name: str, place: int, left: str, before: str, words: list[str]) -> int:
    if left.strip("_-") and not left.endswith(("_", "-")):
        return (
            1 if name.startswith("code") and text.low[max(0, place - 14) : place].endswith(_COMPOUNDS) else 0
        )
    opens = _OPENS.match(text.low, place + len(name)) is not None
    if name.startswith(("code", "combin")):
        qualifier = words[-2] if len(words) > 1 else before
        return 1 if opens or qualifier in CODES_AFTER else 0
    if name in {"codice", "codigo", "código"}:
        return 1 if opens or text.low[place + len(name) : place + len(name) + 1] != " " else 0
    return 1


# --- values behind names ------------------------------------------------------------------------------------


def _joined(
    text: Text, named: _Named, join: re.Match[str], known: dict[Given, bool], place: int
) -> Iterator[Span]:
    kind = named.join
    if named.sort == "code":
        yield from _code_values(text, join, text.low[place : place + 3])
        return
    if kind in {"sign", "eol"}:
        block = _BLOCK.match(text.low, join.end())
        if block is not None:
            yield from _on_next_line(text, named, block.end())
            return
        if join["eol"] or not text.low[join.end() : join.end() + 1]:
            yield from _on_next_line(text, named, join.end())
            return
        sign = "=" if "=" in named.sign else ":"
    elif kind == "for" and text.low[join.end() : join.end() + 1] in {"\r", "\n"}:
        yield from _on_next_line(text, named, join.end())
        return
    elif kind == "xml":
        if not _in_tag(text.low, place):
            return
        sign = "<"
    elif kind == "cell":
        sign = "|"
    else:
        sign = ":" if kind != "attr" else "="
    value = _value_at(text, join.end(), sign)
    if kind in {"is", "for", "to"} and value.start and text.low[value.start - 1] in "\"'`":
        quoted = _value_at(text, value.start - 1, ":")
        value = quoted if quoted.is_quoted else value
    if sign == ":" and "@" in value.text and "://" in text.low[max(0, place - 60) : place].rpartition(" ")[2]:
        return  # part of an address
    if not value.text or is_masked(value.text) or _SUM_NAME.match(value.text.lower()):
        return
    must_be_random = named.sort == "key" and named.strength == 1 and not named.in_flag
    if must_be_random and kind not in {"gap", "arrow", "far"} and not is_random(value.text[:JUDGED]):
        return
    if kind == "to" and not _TO.search(text.low, max(0, place - 60), place):
        return
    follows = _goes_on(text.low, value.end)
    given = Given(
        value=value.text[:JUDGED],
        join=kind,
        sign=named.sign,
        strength=named.strength,
        is_quoted=value.is_quoted,
        in_flag=named.in_flag,
        goes_on=follows,
        ends=not follows and text.low[value.end : value.end + 1] in _CLAUSE_ENDS,
    )
    is_secret = known.get(given)
    if is_secret is None:
        is_secret = known[given] = is_password(given) if named.sort == "password" else is_key(given)
    if is_secret and kind == "cell" and _is_head_of_table(text.low, value.end):
        return
    if is_secret:
        yield _span(text, value)


_SUM_NAME = re.compile(r"(?:sha|md)-?[0-9]{1,3}:")
_CLAUSE_ENDS = frozenset(["", "\n", "\r", ".", ",", ";", "!", "?", ")", '"', "'", "`"])


def _in_tag(low: str, place: int) -> bool:
    start = low.rfind("<", max(0, place - 60), place)
    return start >= 0 and ">" not in low[start:place]


_RULE_LINE = re.compile(r"[^\n]{0,400}\n[ \t]{0,8}\|?[ \t]{0,8}:?--")


def _is_head_of_table(low: str, place: int) -> bool:
    return _RULE_LINE.match(low, place) is not None


_NEXT_LINE = re.compile(
    r"""(?:[ \t]{0,8}\r?\n)?(?:```\w{0,12}\r?\n)?[ \t]{0,24}["'`*]{0,3}"""
    r"""(?P<value>[^\s"'`|<>{}*#][^\s"'`|<>{}*]{0,256})["'`*]{0,3}[ \t]{0,12}(?=\r?\n|\Z)"""
)
_BLOCK = re.compile(r"""[|>][+-]?[ \t]{0,4}\r?\n""")


def _on_next_line(text: Text, named: _Named, place: int) -> Iterator[Span]:
    match = _NEXT_LINE.match(text.low, place)
    if (
        match is None
        or match["value"].endswith((":", ",", "(", "["))
        or match["value"].startswith(("-", "$", "[", "]"))
    ):
        return
    start, end = match.span("value")
    value = text.raw[start:end]
    given = Given(value=value, join="line", sign=":\n", strength=named.strength)
    if is_password(given) if named.sort == "password" else is_key(given):
        yield Span(start, end)


_SHARED = re.compile(r"[A-Z2-7]{16,128}(?![A-Za-z0-9])")
_CODES = re.compile(
    r"(?:[0-9]{1,2}-[0-9]{1,2}-[0-9]{1,2}|[0-9]{3}[ -][0-9]{3}|[0-9]{3}-[0-9]{2}-[0-9]{4}|[0-9]{4}[ ][0-9]{4}"
    r"|[0-9]{4,10}[a-z]?|[0-9]{3})(?![\w%:/]|\.\w)"
)
_SHORT_CODES = ("pin", "cvv", "cvc", "ssn", "cod", "com")
_CODE_LIST = re.compile(
    r"(?:[ ,;\r\n|*-]{0,6}(?:[0-9]{1,2}[.)][ ])?(?=[a-z]{0,8}-?[a-z]{0,8}[0-9])[a-z0-9]{4,10}"
    r"(?:-[a-z0-9]{4,10}){0,4}(?![\w]))"
)


def _code_values(text: Text, join: re.Match[str], name: str) -> Iterator[Span]:
    """Yield the number behind `PIN:`, or the codes behind `backup codes:`."""
    kind, low = join.lastgroup, text.low
    shared = _SHARED.match(text.raw, join.end())
    if shared is not None and name in {"otp", "tot", "2fa"}:
        yield Span(*shared.span())
        return
    if kind not in {"sign", "is", "for", "far", "eol", "cell", "arrow"} and not (
        kind == "gap" and name in _SHORT_CODES
    ):
        return
    place = join.end()
    match = _CODES.match(low, place)
    if match is not None and not _is_unit(low, match.end()):
        yield Span(*match.span())
        place = match.end()
    elif kind == "is":
        return
    start, count, end = place, 0, place
    while count < 40 and (entry := _CODE_LIST.match(low, end)):
        count, end = count + 1, entry.end()
    is_list = count >= 3 or (count and "-" in low[start:end])
    if is_list and not is_masked(low[start:end]):
        start += len(low[start:end]) - len(low[start:end].lstrip(" ,;\r\n|*-"))
        yield Span(start, end)


def _is_unit(low: str, place: int) -> bool:
    return (
        re.match(
            r"[ ]?(?:digits?|char|stellen|stellig|times|attempts|minutes?|seconds?|位|桁|or|to|-)",
            low[place : place + 12],
        )
        is not None
    )


# --- names in Chinese, Japanese, Korean, Arabic -------------------------------------------------------------

_FAR_SIGN = re.compile(
    r"""(?:[*`"'」』 ]{0,3}(?:[(（][^()（）\n]{1,20}[)）])?[ ]{0,2}
    (?:[:=]|就是|是
    |(?:设|改|换|更新|设置|設|換|変更)?(?:成|为|為)了?|は|が|는|은|가|이|هي|هو)(?:[ :]|\*{1,2}(?!\*)){0,4}
    |[ ]{0,2}(?=[!-~]{0,12}[0-9])(?=[!-~]{6}))(?:["'`「『（(]|\*{1,2}(?!\*)){0,3}""",
    re.VERBOSE,
)
_FAR_VALUE = re.compile(r"[!#-&(-_a-~]{1,}")


def _far_names(text: Text) -> Iterator[Span]:
    low, end = text.low, 0
    for word in FAR_NAMES:
        name, end = word.replace("\N{NO-BREAK SPACE}", " "), 0
        for place in places(low, name):
            if place < end:
                continue
            sign = _FAR_SIGN.match(low, place + len(name))
            value = _FAR_VALUE.match(low, sign.end()) if sign else None
            if value is None:
                continue
            raw = text.raw[value.start() : value.end()].rstrip('.,:;()}]」』`"*!?')
            if _is_far_secret(raw[:JUDGED], low[value.end() : value.end() + 2]):
                end = value.start() + len(raw)
                yield Span(value.start(), end)


_FAR_UNITS = (
    "位",
    "文字",
    "字",
    "자",
    "桁",
    "个",
    "個",
    "글자",
    "年",
    "天",
    "小时",
    "時間",
    "日",
    "分钟",
    "分",
    "秒",
    "번",
    "회",
    "次",
    "月",
)


def _is_far_secret(value: str, after: str) -> bool:
    if len(value) < 3 or is_masked(value) or is_placeholder(value) or is_code(value):
        return False
    if value.isdigit():
        return len(value) >= 4 and not after.startswith(_FAR_UNITS)
    return not re.match(
        r"(?:[0-9]{1,3}[-~][0-9]{1,3}|(?:aes|sha|md|hs|rs|rsa|base|utf|jwt|oauth|bcrypt"
        r"|argon)[-_]?[0-9a-z]{0,6})\Z",
        value.lower(),
    )


# --- logins -------------------------------------------------------------------------------------------------

_LOGIN = re.compile(
    r"""(?:log-?ins?|creds?|credentials|zugangsdaten|zugang|anmeldung|acceso|credenciales|identifiants
    |credenziali|accesso|accounts?|acc|sign-?in|auth
    |user(?:name)?(?:[ ]?/[ ]?pass(?:word)?)?|usr|benutzer|usuario)
    (?:[ ](?:for|to|für|on|of|at|de|du|da|di|del|para|pour|per)(?:[ ][^\s:=/]{1,30}){1,4}
    |[ ]\([^()\n]{1,40}\)|[ ](?:is|are|sind|son|sont|with|as|using))?
    [ ]{0,2}(?:[:=→]|->)?[*`]{0,3}[ ]{1,4}["'`*]{0,3}
    (?P<user>[^\s/|:,;"'`]{1,64})["'`]{0,2}(?:[ ]{0,3}[/|:,][ ]{0,3}|[ ](?:and|und|y|et|e|with|mit
    |con)[ ])["'`]{0,3}(?P<value>[^\s"'`/|<>]{1,128})""",
    re.VERBOSE,
)
_LOGIN_WORDS = (
    "login",
    "log-in",
    "cred",
    "zugang",
    "anmeldung",
    "identifiants",
    "acc",
    "sign",
    "auth",
    "user",
    "usr",
    "benutzer",
    "usuario",
)
_ADMIN = re.compile(r"""[a-z]{2,13}[0-9]?[ ]?[:/][ ]?(?P<value>[^\s"'`<>|,;/]{5,128})""")
_ADMIN_WORDS = ("admin", "root", "superuser", "sysadmin", "sa:", "sa/", "administrator")


def _login_finder(word: str) -> Finder:
    def find(text: Text) -> Iterator[Span]:
        for match in anchored(text.low, word, _LOGIN):
            if match["user"] not in HARMLESS_ENDINGS:
                yield from _strong_value(text, match)

    return Finder((word,), find)


def _admin_finder(word: str) -> Finder:
    def find(text: Text) -> Iterator[Span]:
        for match in anchored(text.low, word, _ADMIN):
            if text.low[match.start() - 1 : match.start()] not in TOUCHING | {"/", "@"}:
                yield from _strong_value(text, match, least=6, is_alone=True)

    return Finder((word,), find)


def _strong_value(text: Text, match: re.Match[str], least: int = 5, is_alone: bool = False) -> Iterator[Span]:
    start, end = match.span("value")
    value = text.raw[start:end].rstrip(TRAILING)
    if len(value) < least or is_masked(value) or is_placeholder(value) or is_code(value):
        return
    if is_strong(value, is_alone=is_alone):
        yield Span(start, start + len(value))


# --- tables -------------------------------------------------------------------------------------------------

_SEPARATORS = ("|", "\t", ";", ",")


def _tables(text: Text) -> Iterator[Span]:
    """Yield the cells of columns whose heading names a secret, in Markdown and in separated values."""
    low, end = text.low, 0
    if "\n" not in low:
        return
    known: dict[str, dict[int, str]] = {}
    for place in sorted({place for hint in _HEADING_HINTS for place in places(low, hint)}):
        if place < end:
            continue
        start, stop = low.rfind("\n", max(0, place - 1000), place) + 1, low.find("\n", place, place + 1000)
        if stop < 0 or (start == 0 and place > 1000):  # too long for the head of a table
            end = stop if stop >= 0 else place + 1000
            continue
        end = stop
        heading = low[start:stop]
        separator = next(
            (one for one in _SEPARATORS if one in heading), "  " if "  " in heading.strip() else ""
        )
        if heading not in known:
            known[heading] = _secret_columns(heading, separator) if separator else {}
        columns, width = known[heading], _width(heading, separator)
        while (columns and (stop := low.find("\n", end + 1)) > end + 1) or (
            stop < 0 and columns and end + 1 < len(low)
        ):
            line = text.raw[end + 1 : stop if stop >= 0 else len(low)]
            if _width(line, separator) < width:
                break
            yield from _cells(line, end + 1, separator, columns)
            end += 1 + len(line)
            if stop < 0:
                break


_HEADING_HINTS = (
    "pass",
    "pw",
    "token",
    "secret",
    "key",
    "pin",
    "cvv",
    "密码",
    "口令",
    "パスワード",
    "비밀번호",
    "contrase",
    "senha",
    "kennwort",
    "mdp",
    "парол",
    "密钥",
    "令牌",
)


def _width(line: str, separator: str) -> int:
    return len(_ALIGNED.findall(line)) if separator == "  " else line.count(separator or "|")


def _secret_columns(line: str, separator: str) -> dict[int, str]:
    cells = [cell.strip(" \t*`\"'_\r").lower() for _, cell in _split(line, separator)]
    if separator in ",;" and (len(cells) < 2 or any(len(cell) > 30 or cell.count(" ") > 2 for cell in cells)):
        return {}
    return {number: cell for number, cell in enumerate(cells) if _is_heading(cell)}


def _is_heading(cell: str) -> bool:
    if cell in {"pin", "cvv", "cvc", "pass", "pw", "key", "api keys", "secret", "secret key"}:
        return True
    cell = cell.split("(")[0].strip()
    return len(cell) <= 30 and is_secret_name(cell)


def _cells(line: str, place: int, separator: str, columns: dict[int, str]) -> Iterator[Span]:
    for number, (start, cell) in enumerate(_split(line, separator)):
        bare = cell.strip(" \t*`\"'\r")
        if number in columns and bare and not set(bare) <= set("-: "):
            start += cell.index(bare)
            heading = columns[number]
            is_key_column = heading == "key" or heading.endswith(("token", "secret"))
            is_open = is_masked(bare) or is_placeholder(bare) or is_code(bare) or bare.lower() in _NO_CELL
            is_likely = is_random(bare) or (len(bare) > 7 and is_strong(bare))
            if not is_open and (is_likely or (not is_key_column and " " not in bare)):
                yield Span(place + start, place + start + len(bare))


_ALIGNED = re.compile(r"(?:\S|[ ](?=\S))+")


def _split(line: str, separator: str) -> Iterator[tuple[int, str]]:
    """Yield the cells of a line and where they start; a comma in quotes parts none."""
    if separator == "  ":
        yield from ((match.start(), match[0]) for match in _ALIGNED.finditer(line))
        return
    start = 0
    while start <= len(line):
        stop = line.find(separator, line.find('"', start + 1) if line[start : start + 1] == '"' else start)
        stop = stop if stop >= 0 else len(line)
        yield start, line[start:stop]
        start = stop + len(separator)


_NO_CELL = frozenset(
    "string str text varchar char int yes no true false required optional ✓ ✗ x - – — hashed encrypted"
    " plain null none never expired valid weak strong ok set unset missing rotated active vault 1password"
    " bitwarden keepass".split()
)


# --- random strings behind a word ---------------------------------------------------------------------------

_LOOSE_KINDS = bytes(
    ord("x") if code < 128 and (chr(code).isalnum() or chr(code) in "_+/=.~-") else ord(" ")
    for code in range(256)
)


def _loose_tokens(text: Text) -> Iterator[Span]:
    """Yield what looks random soon after the words key, token or secret, on the same line."""
    low = text.low
    for start, end in runs(text.raw, _LOOSE_KINDS, 20):
        line = low[max(low.rfind("\n", max(0, start - 160), start) + 1, start - 160) : start]
        run = text.raw[start:end]
        if run.startswith("AAAA") or _SUM.search(line, max(0, len(line) - 12)):  # a public key of SSH
            continue
        assigned = run.rpartition("=")[0] if "=" in run.rstrip("=") else ""
        place = max((line + assigned.lower()).rfind(word) for word in _LOOSE_WORDS)
        if place < 0 or line[max(0, place - 8) : place].rstrip(" _-").endswith(("public", "pub")):
            continue
        token = run.strip("=.").rpartition("=")[2]
        start += run.rfind(token)
        if (
            len(token) >= 20
            and is_random(token, is_strict=True)
            and not is_masked(text.raw[start : start + len(token) + 2])
        ):
            yield Span(start, start + len(token))


_SUM = re.compile(r"(?:sha|md)-?[0-9]{1,3}[:= -]{1,2}\Z")
_LOOSE_WORDS = ("key", "token", "secret", "apikey", "密钥", "令牌")


def _is_docker_auth(value: str) -> bool:
    try:
        return b":" in base64.b64decode(value + "=" * (-len(value) % 4), validate=True)
    except (binascii.Error, ValueError):
        return False


_BASE64_AUTH = re.compile(r"""\b_?auth["']?[ ]{0,2}[:=][ ]{0,2}["']?([A-Za-z0-9+/]{8,}={0,2})""")


_AUTH_PAIR = re.compile(
    r"""auth[ ]?[=(][ ]?\(?["'][^"'\n]{1,128}["'],[ ]?["'](?P<value>[^"'\n]{1,256})["']\)"""
)


def _encoded_logins(text: Text) -> Iterator[Span]:
    for match in _AUTH_PAIR.finditer(text.low):
        if not is_placeholder(match["value"]) and not is_masked(match["value"]):
            yield Span(*match.span("value"))
    for match in _BASE64_AUTH.finditer(text.raw):
        if _is_docker_auth(match[1]):
            yield Span(*match.span(1))


# --- all of them --------------------------------------------------------------------------------------------

FINDERS = (
    Finder(("-----begin",), _private_keys),
    Finder(("private-lines:",), _putty_keys),
    *(_shape_finder(shape) for shape in SHAPES),
    Finder((), _web_tokens, prefixes=("eyJ",)),
    Finder((), _bot_tokens, runs=(".", ":")),
    Finder((), _nameless_tokens, runs=("",)),
    Finder((), _beside_cloud_ids, prefixes=("AKIA", "ASIA", "AC", "SCW", "LTAI", "SK")),
    Finder(("://",), _credentials_in_addresses),
    Finder(("/webhook", "hooks.", "/bot/v2/hook/", "maker.ifttt.com", "webhook.office"), _webhooks),
    Finder(
        ("sig=", "signature=", "code=", "auth=", "otpauth", "st=", "sid=", "ticket=", "k="), _query_secrets
    ),
    Finder(("authorization",), _headers, in_prose=True),
    Finder(("bearer",), _bearers),
    Finder(("cookie", "sess", "sid", " -b "), _cookies),
    *(_command_finder(command, patterns) for command, patterns in _COMMANDS),
    *(_said_finder(word, pattern) for word, pattern in _SAID_PATTERNS),
    Finder(("$", "{s", "{md5", "scram-", "pbkdf2"), _hashes),
    Finder((), _numbers, numeric=("",)),
    Finder(_SEED_HINTS, _seed_phrases, _SEEDS_ABROAD, in_prose=True),
    Finder(("passphrase",), _passphrases, in_prose=True),
    *_named_finders("password", _PASSWORD_NAMES, _PASSWORD_NAMES_ABROAD),
    *_named_finders("key", _KEY_NAMES, _KEY_NAMES_ABROAD),
    *_named_finders("code", _CODE_NAMES, _CODE_NAMES_ABROAD),
    Finder((), _far_names, tuple(name.replace("\N{NO-BREAK SPACE}", " ") for name in FAR_NAMES)),
    *map(_login_finder, _LOGIN_WORDS),
    *map(_admin_finder, _ADMIN_WORDS),
    Finder(
        tuple(f"\n&{hint}" if hint in {"pin", "cvv"} else hint for hint in _HEADING_HINTS if hint.isascii()),
        _tables,
        tuple(hint for hint in _HEADING_HINTS if not hint.isascii()),
    ),
    Finder(
        tuple(w for w in _LOOSE_WORDS if w.isascii()),
        _loose_tokens,
        tuple(w for w in _LOOSE_WORDS if not w.isascii()),
    ),
    Finder(("auth",), _encoded_logins),
    *FORMAT_FINDERS,
)


def is_secret_name(name: str) -> bool:
    """Tell whether a value of this name is a secret: `apiKey`, `DB_PASSWORD`, `token`; not `monkey`."""
    text = Text.of(name[-200:])
    low = text.low
    if any(low.endswith(far.replace("\N{NO-BREAK SPACE}", " ")) for far in FAR_NAMES):
        return True
    for sort, names in (
        ("password", _PASSWORD_NAMES | _PASSWORD_NAMES_ABROAD),
        ("key", _KEY_NAMES | _KEY_NAMES_ABROAD),
    ):
        for word, source in names.items():
            place = low.rfind(word)
            match = place >= 0 and re.compile(source + _TAIL).fullmatch(low, place)
            if not match or match["more"] or (match[0].endswith("s") and match[0] != "pass"):
                continue
            ident = run_before(text.raw, place) + text.raw[place:]
            if _strength(sort, text, place, ident, match[0]) >= 2:
                return True
    return False
