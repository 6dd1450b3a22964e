"""Finds machine-made secrets by their shape: tokens of services, private keys, keys next to their ids.

Services document the prefixes of their tokens so that scanners can find published ones. Tokens are long runs
of characters, so the few long runs of a text decide which shapes to try. A pattern is a prefix, parts of
bounded length and at most one run to the end, so an attempt either stops within a few hundred characters or
consumes what it reads.
"""

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from composable_memory_ops_logs.lazy import Pattern
from composable_memory_ops_logs.redaction.scanner import (
    ALNUM,
    ANY,
    JUDGED,
    Rule,
    Span,
    Text,
    places,
    run_before,
)
from composable_memory_ops_logs.redaction.secret_values import is_random


class Shape(NamedTuple):
    """A literal that the secret contains, how far before it the secret starts, and the pattern from there on.

    Unless `is_plain`, the secret must not look like words joined by hyphens (`sk-learn`).
    """

    literal: str
    pattern: Pattern
    back: int = 0
    is_plain: bool = False


# --- prefixes -----------------------------------------------------------------------------------------------

_ALPHABETS = {
    "alnum": "[A-Za-z0-9]",
    "hex": "[0-9a-f]",
    "word": r"[\w-]",
    "base64": r"[\w+/=-]",
    "dotted": r"[\w.=-]",
    "escaped": r"[\w%+/=-]",
}
# What follows a prefix: its alphabet and minimum length; then the prefixes.
_PREFIXES = """
alnum 16: ghp_ gho_ ghu_ ghs_ ghr_ npm_ gsk_ hf_ pplx- xai- r8_ rnd_ jina_ apify_api_ napi_ api_org_
alnum 20: lin_api_ lin_oauth_ ntn_ tvly- tvly-dev- tvly-prod- NRAK- NRII- NRJS- NRAA- ATBB nfp_ nfc_ ddp_ ddw_
alnum 20: fw_ csk- waka_ pnu_ e2b_ rdme_ vtwn_ rpa_ phx_ pul- LTAI sess- lip_ tfp_ glpat_
alnum 32: secret_ rubygems_ CLOJARS_ EZAK EZTK AKCp AKID oy2 bkua_ squ_ sqp_ sqa_ sgp_ xprv yprv zprv live_
hex 32: dop_v1_ doo_v1_ dor_v1_ dapi dkea shpat_ shpca_ shppa_ shpss_ shptka_ sk_ key- fc- key_
word 16: github_pat_ ya29. GOCSPX- nvapi- figd_ figu_ figr_ figo_ PMAK- vercel_blob_rw_ vcp_ vci_ vca_ vcr_
word 16: vck_ hvs. hvb. hvr. xkeysib- xsmtpsib- pscale_tkn_ pscale_pw_ pscale_oauth_ dckr_pat_ dckr_oat_
word 16: sq0atp- sq0csp- lsv2_pt_ lsv2_sk_ pcsk_ sb_secret_ sbp_ fo1_ HRKU- CFPAT- fio-u- tgp_v1_ wandb_v1_
base64 16: LS0tLS1CRUdJTiBQUklWQVRFIEtF LS0tLS1CRUdJTiBSU0EgUFJJVkFURSBL LS0tLS1CRUdJTiBFQyBQUklWQVRFIEtF
base64 16: LS0tLS1CRUdJTiBPUEVOU1NIIFBSSVZBVEUg LS0tLS1CRUdJTiBFTkNSWVBURUQgUFJJVkFURSBL
word 16: duffel_live_ duffel_test_ shippo_live_ shippo_test_ FLWSECK- FLWSECK_TEST- CCIPAT_ CCIPRJ_ BSA- mfa.
word 16: dnkey- pdl_live_ rzp_live_ mdb_sa_sk_ p8e- pat-na1- pat-na2- pat-eu1- ctx7sk- phs_ cfut_ cfat_ akm_
word 16: access-production- access-sandbox- access-development- ico- GR1348941 AQVN vouch_ lmnr_ sgamp_user_
word 30: AIza pypi- sl. EAA pa- cio_
word 10: tskey- tskey-auth- tskey-api- tskey-client-
word 8: sk_live_ sk_test_ rk_live_ rk_test_ sk_prod_
dotted 16: glpat- gldt- glrt- glrtr- glptt- glcbt- glft- glsoat- glimt- glagent- glffct- gloas- dp.pt. dp.st.
dotted 16: sk.eyJ syt_ dp.ct. dp.sa. dp.scim. dp.audit. dt0c01. dt0s01. sl.u. sl.B. ATATT3 ATCTT3 BBDC-
base64 16: whsec_ sntrys_ sntryu_ glsa_ glc_ fm1r_ fm1a_ fm2_ ops_eyJ ABSK bedrock-api-key- AstraCS:
base64 16: cmVmdGtuOjAx v2.public. v2.local. v4.local.
escaped 10: xoxa- xoxb- xoxc- xoxd- xoxe- xoxo- xoxp- xoxr- xoxs- xapp-
"""


def _prefixed() -> list[Shape]:
    shapes = []
    for line in _PREFIXES.strip().splitlines():
        what, _, prefixes = line.partition(": ")
        alphabet, least = what.split()
        body = f"{_ALPHABETS[alphabet]}{{{least},}}"
        shapes += [
            Shape(prefix, _starting(prefix, body), is_plain=alphabet == "alnum")
            for prefix in prefixes.split()
        ]
    return shapes


def _starting(prefix: str, body: str) -> Pattern:
    """Return the pattern of a prefix that does not follow a letter or digit, with its body."""
    literal = re.escape(prefix)
    return Pattern(f"{literal}(?<![A-Za-z0-9]{literal}){body}", re.ASCII)


# --- other shapes -------------------------------------------------------------------------------------------

_END = r"(?![A-Za-z0-9])"


def _special(literal: str, body: str) -> Shape:
    return Shape(literal, _starting(literal, body), is_plain=True)


def _within(literal: str, source: str, back: int) -> Shape:
    return Shape(literal, Pattern(rf"(?<![A-Za-z0-9]){source}", re.ASCII), back, is_plain=True)


SHAPES = (
    *_prefixed(),
    Shape("sk-", _starting("sk-", r"[\w-]{8,}")),
    _special("AKIA", rf"[A-Z0-9]{{16}}{_END}"),
    _special("ASIA", rf"[A-Z0-9]{{16}}{_END}"),
    # Azure: three characters and a digit before the literal.
    *(_within(f"{digit}Q~", rf"[\w~.-]{{3}}{digit}Q~[\w~.-]{{30,}}", 3) for digit in range(10)),
    _within("JQQJ99", r"[A-Za-z0-9]{52}JQQJ99[A-Za-z0-9]{20,}", 52),
    _within(".atlasv1.", r"[A-Za-z0-9]{14}\.atlasv1\.[\w-]{20,}", 14),
    _special("SG.", r"[\w-]{10,80}\.[\w-]{10,}"),
    _special("AGE-SECRET-KEY-1", r"[A-Z0-9]{20,}"),
    _special("cio", rf"(?=[A-Za-z]{{0,31}}[0-9])[A-Za-z0-9]{{32}}{_END}"),
    _special("pat", r"[A-Za-z0-9]{14}\.[0-9a-f]{32,}"),
    _special("SK", rf"[0-9a-f]{{32}}{_END}"),
    _special("s.", r"(?=[A-Za-z]{0,23}[0-9])[A-Za-z0-9]{24}(?![\w.-])"),
    _special("00D", r"[A-Za-z0-9]{9,15}![\w.]{30,}"),
    _special("v1.0-", r"[0-9a-f]{24}-[0-9a-f]{100,}"),
    _special("re_", r"[A-Za-z0-9]{8}_[A-Za-z0-9]{16,}"),
    _special("1//0", r"[\w-]{20,}"),
    _special("AQ.", r"Ab[\w-]{30,}"),
    _special("BSA", rf"[\w-]{{28}}{_END}"),
    _special("co_", rf"[A-Za-z0-9]{{40}}{_END}"),
    _special("psk_", rf"[A-Za-z0-9]{{32}}{_END}"),
    _special("nsec1", rf"[a-z0-9]{{58}}{_END}"),
    _special("cflt", rf"[A-Za-z0-9+/]{{60}}{_END}"),
    _special("t1.", r"[\w-]{20,200}\.[\w-]{80,}"),
    _within("-us", rf"[0-9a-f]{{32}}-us[0-9]{{1,2}}{_END}", 32),
)


def find_tokens(text: Text) -> Iterator[Span]:
    """Yield the tokens that are recognised by their shape."""
    found = _long_runs(text.raw)
    if not found:
        return
    joined = " ".join(found)
    starts = set(_STARTS.findall(joined))
    for start in _BY_START.keys() & starts:
        for shape in _BY_START[start]:
            if shape.literal in joined:
                yield from shape_spans(text, shape)
    for shape in _ANYWHERE:
        if shape.literal in text.raw:
            yield from shape_spans(text, shape)
    if "ey" in starts:
        yield from _web_tokens(text)
    if not starts.isdisjoint(_ID_STARTS):
        yield from _beside_cloud_ids(text)
    if len(max(found, key=len)) >= _LEAST:
        yield from _bot_tokens(text)
        yield from _nameless_tokens(text)


_STARTS = Pattern(r"(?=(..))[A-Za-z0-9]+")
_LEAST = 32
"""Minimum length of a run in a token without a prefix."""


def _long_runs(text: str) -> list[str]:
    """Return the runs of characters that are long enough for a token."""
    data = text.encode("utf-8", "replace")
    kinds = data.translate(_KINDS) + b" "
    found, end = [], 0
    while (start := kinds.find(_LONG, end)) >= 0:
        end = kinds.index(b" ", start)
        found.append(data[start:end].decode())
    return found


_RUN_CHARS = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.")
_KINDS = bytes(ord("a") if code in _RUN_CHARS else ord(" ") for code in range(256))
_LONG = b"a" * 14


# --- shapes -------------------------------------------------------------------------------------------------


def shape_spans(text: Text, shape: Shape) -> Iterator[Span]:
    """Yield the tokens of one shape; an empty span says how far it has read."""
    if not shape.back:
        for match in shape.pattern.finditer(text.raw):
            yield from _in_match(text.raw, shape, match)
        return
    end = 0
    for place in places(text.raw, shape.literal):
        if place >= end:
            for span in _shape_at(text, shape, place):
                end = span.end
                yield span


def _shape_at(text: Text, shape: Shape, place: int) -> Iterable[Span]:
    start = place - shape.back
    match = shape.pattern.match(text.raw, start) if start >= 0 else None
    return () if match is None else _in_match(text.raw, shape, match)


def _in_match(raw: str, shape: Shape, match: re.Match[str]) -> Iterator[Span]:
    start, token = match.start(), match[0].rstrip(".")
    body = token[len(shape.literal) :]
    if shape.is_plain or _is_no_prose(body, shape.literal, raw[start - 1 : start]):
        yield Span(start, start + len(token), is_token=True)
    yield Span(match.end(), match.end())


_PARTS = Pattern(r"[A-Za-z]+[0-9][A-Za-z0-9]*|[0-9]+[A-Za-z][A-Za-z0-9]*|[A-Za-z]+|[0-9]+")


def _is_no_prose(body: str, literal: str, before: str) -> bool:
    parts = _PARTS.findall(body[:JUDGED])
    if literal == "sk-":
        return before not in {"-", "_"} and any(
            len(part) >= 16 or (len(part) >= 8 and not part.isalpha() and not part.isdigit())
            for part in parts
        )
    return any(len(part) >= 14 or not part.isalpha() for part in parts)


_BY_WORD = [shape for shape in SHAPES if shape.literal == "sk-" or set(shape.literal) & set("~:")]
_ANYWHERE = [shape for shape in SHAPES if shape not in _BY_WORD and (shape.back or "/" in shape.literal)]
_BY_START: dict[str, list[Shape]] = {}
for _shape in SHAPES:
    if _shape not in _BY_WORD and _shape not in _ANYWHERE:
        _BY_START.setdefault(_shape.literal[:2], []).append(_shape)


def _shape_rule(shape: Shape) -> Rule:
    def secrets(text: Text, literal: re.Match[str]) -> Iterable[Span]:
        return _shape_at(text, shape, literal.start())

    return Rule((shape.literal.lower(),), Pattern(re.escape(shape.literal)), secrets, as_written=True)


_JWT = Pattern(r"eyJ[\w.=-]{16,}", re.ASCII)


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


# --- tokens of bots -----------------------------------------------------------------------------------------

_DISCORD = Pattern(r"\.[\w-]{6}\.[\w-]{27,}", re.ASCII)
_TELEGRAM = Pattern(r":AA[\w-]{18,}", re.ASCII)
_NTLM = Pattern(r"(?<![0-9A-Za-z])[0-9a-f]{32}:[0-9a-f]{32}(?=:::)")
_ASANA = Pattern(r"[12]/[0-9]{15,17}(?:/[0-9]{15,17})?:[0-9a-f]{32}")


def _bot_tokens(text: Text) -> Iterator[Span]:
    for match in _DISCORD.finditer(text.raw):
        head = run_before(text.raw, match.start(), most=30)
        if 22 < len(head) < 30 and head[0] in "MNO":
            yield Span(match.start() - len(head), match.end(), is_token=True)
    for pattern in (_ASANA, _NTLM):
        for match in pattern.finditer(text.raw):
            yield Span(*match.span())


def _telegram(text: Text, match: re.Match[str]) -> Iterator[Span]:
    place, end = match.span()
    head = run_before(text.raw, place, "0123456789", most=17)
    if 5 < len(head) < 17:
        yield Span(place - len(head), end, is_token=True)
    yield Span(end, end)


# --- tokens recognised by their length and alphabet ---------------------------------------------------------

_LONG_RUN = Pattern(r"(?<![A-Za-z0-9/_.+-])[A-Za-z0-9]{50,}(?![/_+=-])")
_HEX_CHARS = frozenset("0123456789abcdefABCDEF")
_BASE58 = Pattern(r"[1-9A-HJ-NP-Za-km-z]+")
_BASE32 = Pattern(r"[a-z2-7]+")


def _nameless_tokens(text: Text) -> Iterator[Span]:
    """Yield tokens of Azure DevOps and private keys of Bitcoin."""
    for match in _LONG_RUN.finditer(text.raw):
        token = match[0]
        size = len(token)
        if size == 84:
            is_secret = not set(token) <= _HEX_CHARS
        elif size == 52 and _BASE32.fullmatch(token):
            is_secret = True
        else:
            is_secret = size in (51, 52) and bool(_BASE58.fullmatch(token)) and token[0] in "5KL"
        if is_secret and is_random(token):
            yield Span(*match.span())


# --- next to an id ------------------------------------------------------------------------------------------

_NEAR = 400
_FORTY = Pattern(r"(?<![A-Za-z0-9/+])[A-Za-z0-9/+]{40}(?![A-Za-z0-9/+])")
_HEX_RUN = Pattern(r"(?<![A-Za-z0-9])[0-9a-f]{32}(?![A-Za-z0-9])")
_THIRTY = Pattern(r"(?<![A-Za-z0-9])[A-Za-z0-9]{30,32}(?![A-Za-z0-9])")
_UUID = Pattern(r"(?<![0-9a-f-])[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}(?![0-9a-f-])")
_IDS = (
    (Pattern(r"(?:AKIA|ASIA)[A-Z0-9]{16}"), _FORTY),
    (Pattern(r"\bAC[0-9a-f]{32}\b"), _HEX_RUN),
    (Pattern(r"\bSCW[A-Z0-9]{17}\b"), _UUID),
    (Pattern(r"\bLTAI[A-Za-z0-9]{12,24}\b"), _THIRTY),
    (Pattern(r"\bSK[0-9a-f]{32}\b"), _THIRTY),
)
_ID_STARTS = frozenset(["AK", "AS", "AC", "SC", "LT", "SK"])


def _beside_cloud_ids(text: Text) -> Iterator[Span]:
    """Yield random strings near the public half of a key pair."""
    for beacon, tokens in _IDS:
        seen = 0
        for place in beacon.finditer(text.raw):
            start, stop = max(seen, place.start() - _NEAR), place.end() + _NEAR
            for match in tokens.finditer(text.raw, min(start, stop), stop):
                token = match[0]
                is_id = beacon.match(token) is not None or (tokens is _FORTY and set(token) <= _HEX_CHARS)
                if not is_id and (tokens in (_HEX_RUN, _UUID) or _is_drawn(token)):
                    yield Span(*match.span())
            seen = max(seen, stop)


def _is_drawn(token: str) -> bool:
    return is_random(token) or (len(token) == 40 and not token.isalpha())


# --- private keys -------------------------------------------------------------------------------------------

PEM_HEADER = Pattern(r"-----BEGIN [A-Z0-9 ]{0,24}PRIVATE KEY(?: BLOCK)?-----")
# Between two lines: line breaks, also as JSON within JSON has them, and the marks and numbers of quoted
# lines.
_GAP = r"""(?:\\{1,8}[rn]|[\s"'>+|(),\\]|(?<=\s)[0-9]{1,5}[→|:\t ]){1,40}+"""
_KEY_BODY = Pattern(
    rf"(?:(?:{_GAP})?(?:(?:proc-type|dek-info|version|comment|charset):[^\n\\]{{0,100}}|[a-z0-9+/=]{{16,4096}}))"
    rf"{{0,400}}+(?:{_GAP}[a-z0-9+/=]{{1,15}}\Z)?",
    re.IGNORECASE,
)
_KEY_LINE = Pattern(rf"(?:{_GAP})?[A-Za-z0-9+/=]{{16,76}}(?:{_GAP})?")
_MASKED_BODY = Pattern(r"\s…redacted…(?:\s-----END [A-Z0-9 ]{0,40}-----)?")
_FOOTER = Pattern(r"-----END [A-Z0-9 ]{0,40}-----")


def _private_key(text: Text, header: re.Match[str]) -> Iterator[Span]:
    raw, place = text.raw, header.start()
    if _MASKED_BODY.match(raw, header.end()):
        return
    stop = raw.find("-----", header.end())
    footer = _FOOTER.match(raw, stop) if stop >= 0 else None
    if footer is not None:
        yield Span(place, footer.end(), is_token=True)
        return
    body = _KEY_BODY.match(raw, header.end())  # cut by the limit of a preview
    if body is not None and body.end() > header.end():
        yield Span(place, body.end(), is_token=True)


def _end_of_key(text: Text, footer: re.Match[str]) -> Iterator[Span]:
    """Yield the last lines of a private key whose first lines are missing."""
    raw, place = text.raw, footer.start()
    start = end = raw.rfind("\n", max(0, place - _LINE), place) + 1
    while end - start < _TAIL:
        above = raw.rfind("\n", max(0, start - _LINE), max(0, start - 1)) + 1
        if not _KEY_LINE.fullmatch(raw, above, start):
            break
        start = above
    yield Span(start, max(start, end - 1))


_LINE = 128
_TAIL = 6_000
"""A longer part of a key is masked up to here."""


_PUTTY = Pattern(r"private-lines: ?[0-9]{1,4}\r?\n((?:[a-z0-9+/=]{1,80}\r?\n?){1,200})")


def _putty_key(_text: Text, match: re.Match[str]) -> Iterator[Span]:
    yield Span(match.start(1), match.start(1) + len(match[1].rstrip()))


_WEB_KEY_PART = Pattern(r"""\\*"(?:d|p|q|dp|dq|qi|k)\\*"\s{0,4}:\s{0,4}\\*"([\w-]{16,})""")


def _web_key(text: Text, match: re.Match[str]) -> Iterator[Span]:
    """Yield the private numbers of a key in JSON, next to the kind of key."""
    for part in _WEB_KEY_PART.finditer(text.raw, max(0, match.start() - 2_000), match.end() + 4_000):
        yield Span(*part.span(1))
    yield Span(match.end() + 4_000, match.end() + 4_000)


TOKEN_RULES = (
    *map(_shape_rule, _BY_WORD),
    Rule((":aa",), _TELEGRAM, _telegram, as_written=True),
    Rule(("-----begin",), PEM_HEADER, _private_key, as_written=True),
    Rule(("-----end",), Pattern(r"-----END [A-Z0-9 ]{0,24}PRIVATE KEY"), _end_of_key, as_written=True),
    Rule(("kty",), ANY, _web_key),
    Rule(("private-lines:",), _PUTTY, _putty_key),
)
