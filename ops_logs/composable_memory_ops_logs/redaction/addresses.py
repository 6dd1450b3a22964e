"""Finds secrets in URLs and in what browsers send: passwords, signatures, headers, cookies."""

import base64
import binascii
import re
from collections.abc import Iterator

from composable_memory_ops_logs.lazy import Pattern
from composable_memory_ops_logs.redaction.scanner import JUDGED, Rule, Span, Text, pattern_rule
from composable_memory_ops_logs.redaction.secret_names import is_secret_name
from composable_memory_ops_logs.redaction.secret_values import (
    goes_on,
    is_code,
    is_given,
    is_masked,
    is_random,
    is_strong,
    is_word,
)

# --- user:password@host -------------------------------------------------------------------------------------

_ADDRESS = Pattern(r"""://[^\s"'<>`|]*""")
_HOST = Pattern(r"(?:\[[0-9a-f:.]{2,45}\]|[\w.*-]{1,253})(?=[:/?#,;)\]}&\\]|\Z)", re.IGNORECASE)


def _address_secrets(_text: Text, run: re.Match[str]) -> Iterator[Span]:
    place = run.start()
    if "@" in run[0]:
        for number, piece in enumerate(run[0].split("://")):
            if number and "@" in piece:
                yield from _credentials(piece, place)
            place += len(piece) + 3
    yield Span(run.end(), run.end())


def _credentials(piece: str, start: int) -> Iterator[Span]:
    """Yield the password of `user:password@host`, or the token of `token@host`."""
    at = piece.rfind("@")
    while at > 0 and not _HOST.match(piece, at + 1, at + 300):
        at = piece.rfind("@", 0, max(0, at))
        if piece.count("@", 0, at) > 8:  # no URL has so many
            break
    if at <= 0:
        return
    colon = piece.find(":", 0, 129)
    slash = piece.find("/", 0, at)
    if 0 <= colon < at and (slash < 0 or colon < slash):
        password = piece[colon + 1 : at]
        port = password.partition("/")[0]
        is_port = "/" in password and port.isdigit() and len(port) <= 5
        if password and not is_port and is_given(password):
            yield Span(start + colon + 1, start + at)
    elif slash < 0 and (at >= 20 and is_random(piece[:at])):
        yield Span(start, start + at)


# --- secrets within a path or a query -----------------------------------------------------------------------

_HOOKS = {
    "/webhooks/": r"/webhooks/(?=[0-9]{1,30}/)([\w@/-]{6,})",
    "hooks.slack.com/": r"hooks\.slack\.com/(?:services|workflows|triggers)/([\w@/-]{6,})",
    "hooks.zapier.com/": r"hooks\.zapier\.com/hooks/catch/([\w@/-]{6,})",
    "maker.ifttt.com/": r"maker\.ifttt\.com/trigger/\w{1,60}/(?:json/)?with/key/([\w@/-]{6,})",
    "/bot/v2/hook/": r"/bot/v2/hook/([\w@/-]{6,})",
    "make.com/": r"make\.com/(?<=hook\.[a-z]{2}[0-9]\.make\.com/)(\w{16,})",
    "/incomingwebhook/": r"/incomingwebhook/([\w@/-]{6,})",
    "webhook.office.com/": r"webhook\.office\.com/([\w@/-]{6,})",
    "webhook/send?key=": r"webhook/send\?key=([\w@/-]{6,})",
}
_QUERY = Pattern(
    r"(?<=[?&;])(?:sig|signature|x-amz-signature|x-goog-signature|code|auth|st|sid|ticket|otp|pass|pin|k"
    r"|secret)=([\w%+/=~.-]{16,})"
)
_QUERY_WORDS = (
    *("sig=", "signature=", "x-amz-signature=", "x-goog-signature=", "code=", "auth=", "st=", "sid="),
    *("ticket=", "otp=", "pass=", "pin=", "k=", "secret="),
)
_OTPAUTH = Pattern(r"otpauth(?:-migration)?://[^\s\"'<>]*")
_OTP_SECRET = Pattern(r"(?:secret|data)=([\w%+/=-]+)")


def _query_secrets(text: Text, match: re.Match[str]) -> Iterator[Span]:
    value = text.raw[slice(*match.span(1))]
    is_signature = "sig" in match[0].partition("=")[0]
    if (len(value) >= 40 or is_signature or is_random(value)) and not is_masked(value):
        yield Span(*match.span(1))
    yield Span(match.end(), match.end())


def _otp_secrets(text: Text, run: re.Match[str]) -> Iterator[Span]:
    for match in _OTP_SECRET.finditer(text.low, *run.span()):
        yield Span(*match.span(1))
    yield Span(run.end(), run.end())


# --- headers ------------------------------------------------------------------------------------------------

_AUTH = Pattern(
    r"""authorization["'`\\\]]{0,4}[ \t]{0,4}(?:[:=,]|=>)[ \t]{0,4}["'`\\]{0,4}
    (?P<scheme>(?:bearer|basic|digest|token|apikey|api-key|key|bot|geniekey|splunk|jwt|ntlm|negotiate
    |sso-key|oauth|ssws|snowflake|zoho-oauthtoken|discogs|sharedkey|hmac
    |[a-z][a-z0-9_-]{1,24}(?=[ ][^\s"'`<>,;\\=]{16}))
    (?:[ \t]{1,4}|:[ ]?)(?:token=|api_key=|key=)?)?["']?(?P<value>[^\s"'`<>,;\\]{1,})""",
    re.VERBOSE,
)
_BEARER = Pattern(r"bearer[ \t]{1,4}([\w.~+/=-]{16,})", re.ASCII)


def _header_secrets(text: Text, match: re.Match[str]) -> Iterator[Span]:
    start, end = match.span("value")
    value = text.raw[start:end].rstrip(".)")
    if not is_given(value):
        is_secret = False
    elif match["scheme"]:
        is_secret = not (is_word(value) and goes_on(text.low, end))
    else:
        is_secret = len(value) >= 12 and (is_random(value) or is_strong(value)) and not is_code(value)
    if is_secret:
        yield Span(start, start + len(value))
    yield Span(end, end)


def _bearer_secrets(text: Text, match: re.Match[str]) -> Iterator[Span]:
    start, end = match.span(1)
    value = text.raw[start:end].rstrip(".")
    is_mixed = not value.islower() or any(map(str.isdigit, value[:JUDGED])) or len(value) >= 24
    if len(value) >= 16 and is_mixed and text.raw[end : end + 1] != "…":
        yield Span(start, start + len(value))
    yield Span(end, end)


_SENT = {
    "digest ": r"""digest [^\n]{0,400}?response=\\{0,3}"([0-9a-f]{32,64})""",
    "aws4-hmac": r"aws4-hmac-sha256 [^\n]{0,600}?signature=([0-9a-f]{64})",
    "ssws ": r"ssws ([\w-]{20,})",
}


_FORM = Pattern(
    r"""form-data;[ ]name="?(?P<name>[\w.[\]-]{1,64})"?(?:\r?\n[a-z-]{1,40}:[^\n]{0,100}){0,3}\r?\n\r?\n
    (?P<value>[^\r\n]+)""",
    re.VERBOSE,
)


def _form_secrets(_text: Text, part: re.Match[str]) -> Iterator[Span]:
    """Yield the value that a multipart form sends under the name of a secret."""
    if is_secret_name(part["name"].rstrip("]")) and is_given(part["value"]):
        yield Span(*part.span("value"))


# --- cookies ------------------------------------------------------------------------------------------------

_COOKIES = Pattern(
    r"""(?:[ ]-b|cookies?["'`]?)[ \t]{0,2}(?::|=|[ \t](?=["'])|(?<=--cookie)[ \t])[ \t]{0,4}["'`]?"""
    r"""(?=[\w.!$%*+^|~-]{1,80}=[^=])"""
    r"""|(?P<table>cookies?["']?[ ]?[:=(][ ]?(?:dict\()?\{)""",
    re.ASCII,
)
_COOKIE = Pattern(r"""[ ]{0,2}([\w.!$%*+^|~-]{1,80})=([^\s;,"'<>`]*)[;,]?""", re.ASCII)
_COOKIE_ENTRY = Pattern(r"""[\s,]{0,8}["']([\w.-]{1,80})["'][ ]?:[ ]?["']([^"'\n]{0,4096})["']""")
_COOKIE_ATTRIBUTES = frozenset(
    "path domain expires max-age samesite version priority lang locale theme tz".split()
)


def _cookie_secrets(text: Text, start: re.Match[str]) -> Iterator[Span]:
    entry, end = _COOKIE_ENTRY if start["table"] else _COOKIE, start.end()
    while match := entry.match(text.low, end):
        value, end = match[2], match.end()
        if match[1] not in _COOKIE_ATTRIBUTES and len(value) >= 6 and is_given(value) and not is_code(value):
            yield Span(*match.span(2))
    yield Span(end, end)


_COOKIE_FILE = r"\t(?:true|false)\t[0-9]{1,12}\t[^\t\n]{1,80}\t([^\s]{6,})"

_SESSIONS = (
    *(
        "phpsessid",
        "jsessionid",
        "asp.net_sessionid",
        "sessionid=",
        'sessionid":',
        "session_token",
        "session_cookie",
    ),
    "connect.sid",
)
_SESSION = (
    r"""(?:phpsessid|jsessionid|asp\.net_sessionid|sessionid|session_token|session_cookie|connect\.sid)"""
    r"""["']?[=:][ ]?["']?([\w%+/=.-]{16,})"""
)


def _is_session(value: str) -> bool:
    return is_random(value) and not is_masked(value)


# --- logins in Base64 and in calls --------------------------------------------------------------------------

_BASE64_AUTH = Pattern(r"""auth["']?[ ]{0,2}[:=][ ]{0,2}["']?([A-Za-z0-9+/]{8,}={0,2})""")
_BASIC = Pattern(r"[Bb]asic[ \t]{1,4}([A-Za-z0-9+/]{8,}={0,2})")
_AUTH_PAIR = r"""auth[ ]?[=(][ ]?\(?["'][^"'\n]{1,128}["'],[ ]?["']([^"'\n]{1,256})["']\)"""


def _encoded_login(text: Text, match: re.Match[str]) -> Iterator[Span]:
    if text.low[match.start() - 1 : match.start()].isalnum():
        return
    try:
        if b":" in base64.b64decode(match[1] + "=" * (-len(match[1]) % 4), validate=True):
            yield Span(*match.span(1))
    except (binascii.Error, ValueError):
        pass
    yield Span(match.end(), match.end())


ADDRESS_RULES = (
    Rule(("://",), _ADDRESS, _address_secrets, as_written=True),
    *(pattern_rule((word,), source, bool) for word, source in _HOOKS.items()),
    Rule(_QUERY_WORDS, _QUERY, _query_secrets),
    Rule(("otpauth",), _OTPAUTH, _otp_secrets),
    Rule(("authorization",), _AUTH, _header_secrets),
    Rule(("bearer",), _BEARER, _bearer_secrets),
    Rule(("cookie", " -b "), _COOKIES, _cookie_secrets),
    Rule(("form-data; name=",), _FORM, _form_secrets),
    pattern_rule(("\ttrue\t", "\tfalse\t"), _COOKIE_FILE, is_given),
    pattern_rule(_SESSIONS, _SESSION, _is_session),
    Rule(("auth",), _BASE64_AUTH, _encoded_login, as_written=True),
    Rule(("basic ",), _BASIC, _encoded_login, as_written=True),
    *(pattern_rule((word,), source, is_given) for word, source in _SENT.items()),
    pattern_rule(("auth",), _AUTH_PAIR, is_given),
)
