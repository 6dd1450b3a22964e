"""What machine-made secrets look like: the published prefixes of services, and a few other shapes.

The prefixes are facts that the services document, so that scanners can find what was published by mistake.
A pattern is a prefix, parts of bounded length and at most one run to its end, so an attempt either stops
within a few hundred characters or takes all that it has read.
"""

import re
from typing import NamedTuple

from composable_memory_ops_logs.redaction.patterns import Pattern


class Shape(NamedTuple):
    """A literal that the secret holds, how far before it the secret starts, and the pattern from there on.

    Without `is_plain` the secret must not look like words joined by hyphens (`sk-learn`).
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
# What follows a prefix: its alphabet and the least number of its characters; then the prefixes.
_PREFIXES = """
alnum 16: ghp_ gho_ ghu_ ghs_ ghr_ npm_ gsk_ hf_ pplx- xai- r8_ rnd_ jina_ apify_api_ napi_ api_org_
alnum 20: lin_api_ lin_oauth_ ntn_ tvly- tvly-dev- tvly-prod- NRAK- NRII- NRJS- NRAA- ATBB nfp_ nfc_ ddp_ ddw_
alnum 20: fw_ csk- waka_ pnu_ e2b_ rdme_ vtwn_ rpa_ phx_ pul- LTAI sess- lip_ tfp_ glpat_
alnum 32: secret_ rubygems_ CLOJARS_ EZAK EZTK AKCp AKID oy2 bkua_ squ_ sqp_ sqa_ sgp_ xprv yprv zprv live_
hex 32: dop_v1_ doo_v1_ dor_v1_ dapi dkea shpat_ shpca_ shppa_ shpss_ shptka_ sk_ key- fc- key_
word 16: github_pat_ ya29. GOCSPX- nvapi- figd_ figu_ figr_ figo_ PMAK- vercel_blob_rw_ vcp_ vci_ vca_ vcr_
word 16: vck_ hvs. hvb. hvr. xkeysib- xsmtpsib- pscale_tkn_ pscale_pw_ pscale_oauth_ dckr_pat_ dckr_oat_
word 16: sq0atp- sq0csp- lsv2_pt_ lsv2_sk_ pcsk_ sb_secret_ sbp_ fo1_ HRKU- CFPAT- fio-u- tgp_v1_ wandb_v1_
word 16: duffel_live_ duffel_test_ shippo_live_ shippo_test_ FLWSECK- FLWSECK_TEST- CCIPAT_ CCIPRJ_ BSA- mfa.
word 16: dnkey- pdl_live_ rzp_live_ mdb_sa_sk_ p8e- pat-na1- pat-na2- pat-eu1- ctx7sk- phs_ cfut_ cfat_ akm_
word 16: access-production- access-sandbox- access-development- ico- GR1348941 AQVN vouch_ lmnr_ sgamp_user_
word 30: AIza pypi- sl. EAA pa- cio_
word 10: tskey- tskey-auth- tskey-api- tskey-client-
word 8: sk_live_ sk_test_ rk_live_ rk_test_ sk_prod_
dotted 16: glpat- gldt- glrt- glrtr- glptt- glcbt- glft- glsoat- glimt- glagent- glffct- gloas- dp.pt. dp.st.
dotted 16: dp.ct. dp.sa. dp.scim. dp.audit. dt0c01. dt0s01. sl.u. sl.B. ATATT3 ATCTT3 BBDC-
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
    """Return the pattern of a prefix that no letter or digit stands before, with the body behind it."""
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
    _special("t1.", r"[\w-]{20,200}\.[\w-]{80,}"),
    _within("-us", rf"[0-9a-f]{{32}}-us[0-9]{{1,2}}{_END}", 32),
)
