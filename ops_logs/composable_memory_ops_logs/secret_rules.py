"""The table of what counts as a secret, and what says cheaply that a text holds none."""

import re
from collections.abc import Callable
from dataclasses import dataclass

from composable_memory_ops_logs import secret_words as w

__all__ = ["FLAGS", "PEM_HEADER", "RULES", "Rule", "long_runs"]

FLAGS = re.VERBOSE | re.ASCII
PEM_HEADER = re.compile(r"-----BEGIN [A-Z0-9 ]{0,24}PRIVATE KEY(?: BLOCK)?-----")


@dataclass(frozen=True, slots=True)
class Rule:
    """A pattern whose group `value` is masked.

    Every text it matches holds one of the hints and passes the gate, both in lower case. The hint of a rule
    for a shape stands within a long run.
    """

    hints: frozenset[str]
    source: str
    gate: Callable[[str], object] = bool
    is_shape: bool = False

    @property
    def pattern(self) -> re.Pattern[str]:
        """The pattern, compiled when first needed and kept by `re`; most runs need none of them."""
        return re.compile(self.source, FLAGS)


def long_runs(text: str) -> str:
    """Return, in lower case, the runs of characters in `text` that are as long as a token is at least."""
    data = text.encode("utf-8", "replace")
    kinds, lowered = data.translate(_KINDS) + b" ", data.lower()
    runs, end = [], 0
    while (start := kinds.find(_LONG, end)) >= 0:
        end = kinds.index(b" ", start)
        runs.append(lowered[start:end])
    return b" ".join(runs).decode()


_RUN_CHARS = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.:")
_KINDS = bytes(ord("a") if code in _RUN_CHARS else ord(" ") for code in range(256))
_LONG = b"a" * 14


# --- gates --------------------------------------------------------------------------------------------------

_PW_WORDS = ("passw", "passphrase", "passcode", "_pass", "pwd")
_TELLING = ("key", "token", "secret", *_PW_WORDS)
_NAME_CHARS = 160
"""At least the longest name and what may stand between it and its sign."""
_CLOSING = " \t\n\r\v\f\"'`\\]*"


def _has_telling_name(lowered: str) -> bool:
    """Tell whether the word before any sign holds the name of a secret."""
    signs = lowered.replace("=", ":").replace("：", ":").replace("＝", ":")
    *before, _ = signs.split(":")
    words = (part[-_NAME_CHARS:].rstrip(_CLOSING).rpartition(" ")[2] for part in before)
    return any(hint in word for word in words for hint in _TELLING)


def _holds(*signs: str, names: tuple[str, ...] = ("",)) -> Callable[[str], bool]:
    """Return a gate for texts that hold one of the signs and one of the names."""

    def gate(lowered: str) -> bool:
        return any(sign in lowered for sign in signs) and any(name in lowered for name in names)

    return gate


_BREAK = re.compile(r":[*_`]{0,3}[ \t]{0,4}\r?\n").search
_SAYS = _holds(" is", " was", " are")
_PW_WORDS_ABROAD = ("passwort", "passe", "contrase", "senha", "kennwort", "mdp", "парол")
_SIGNS_ABROAD = _holds(":", "=", "：", "—", names=_PW_WORDS_ABROAD)
_SAYS_ABROAD = _holds(*(f" {verb}" for verb in w.VERBS_ABROAD), names=_PW_WORDS_ABROAD)
_KEY_FOR = _holds(*(f"{name} for " for name in w.KEY_HINTS.split()))
_TWILIO = re.compile(r"sk[0-9a-f]{32}").search
_DISCORD = re.compile(r"\.[\w-]{6}\.[\w-]{27}", re.ASCII).search


# --- the rules ----------------------------------------------------------------------------------------------


def _rule(hints: str, pattern: str, gate: Callable[[str], object] = bool) -> Rule:
    return Rule(frozenset(hints.split()), pattern, gate)


def _shape(hints: str, pattern: str, gate: Callable[[str], object] = bool) -> Rule:
    return Rule(frozenset(hints.split()), f"(?P<value> {pattern} )", gate, is_shape=True)


_LOOKS = (
    # A private key cut by a preview's limit has no END.
    _rule(
        "-----begin",
        rf"""(?P<value> (?-x:{PEM_HEADER.pattern})
            (?: (?: (?!-----) [\s\S] )* -----END[ ][A-Z0-9 ]{{0,40}}-----
              | (?: (?:\s|\\[rn]){{1,4}} [A-Za-z0-9+/=]{{16,}} )+ ) )""",
    ),
    _rule("sk-", rf"(?P<value>{w.LEFT} sk- (?: (?=[A-Za-z_-]{{0,64}}[0-9]) [\w-]{{8,}} | [\w-]{{16,}} ) )"),
    _shape(
        "ghp_ gho_ ghu_ ghs_ ghr_ npm_ gsk_ hf_ pplx- xai- lin_api_ lin_oauth_ ntn_ r8_ tvly- secret_",
        rf"""{w.LEFT} (?: gh[pousr]_ [A-Za-z0-9]{{16,}} | npm_ [A-Za-z0-9]{{16,}} | gsk_ [A-Za-z0-9]{{10,}}
            | pplx- [A-Za-z0-9]{{10,}} | secret_ [A-Za-z0-9]{{32,}} (?!\w)
            | (?: hf_ | xai- | lin_(?:api|oauth)_ | ntn_ | r8_ | tvly-(?:dev-|prod-)? )
              [A-Za-z0-9]{{20,}} )""",
    ),
    _shape(
        "github_pat_ glpat- gldt- glrt- glptt- ya29. gocspx- aiza nvapi- figd_ pmak- whsec_ vercel_blob_rw_"
        " vcp_ vci_ vca_ vcr_ vck_ atatt3 hvs. dp.pt. dp.st. xkeysib- glsa_ sntrys_ sntryu_ pscale_",
        rf"""{w.LEFT} (?: github_pat_ | gl(?:pat|dt|rt|ptt)- | ya29\. | GOCSPX- | AIza | nvapi- | figd_
            | PMAK- | whsec_ | vercel_blob_rw_ | vc[pciark]_ | ATATT3 | hvs\. | dp\.[ps]t\. | xkeysib- | glsa_
            | sntry[su]_ | pscale_(?:tkn|pw)_ ) [\w-]{{16,}} ={{0,2}}""",
    ),
    _shape(
        "dop_v1_ doo_v1_ dor_v1_ dapi sbp_ shpat_ shpca_ shppa_ shpss_ sk_ key-",
        rf"""{w.LEFT} (?: do[opr]_v1_ | dapi | sbp_ | shp(?:at|ca|pa|ss)_ | sk_ | key- )
             [0-9a-f]{{32,}} (?!\w)""",
    ),
    _shape("xox xapp-", rf"{w.LEFT} (?: xox[a-z] | xapp )-[A-Za-z0-9-]{{10,}}"),
    _shape("akia asia", rf"{w.LEFT} (?: AKIA | ASIA )[A-Z0-9]{{16}} (?![A-Za-z0-9])"),
    _shape("_live_ _test_", rf"{w.LEFT} [sr]k_(?: live | test )_[A-Za-z0-9]{{8,}}"),
    _shape("pypi-age", rf"{w.LEFT} pypi-AgE[\w-]{{10,}}"),
    _shape("sg.", rf"{w.LEFT} SG\.[\w-]{{10,}}\.[\w-]{{10,}}"),
    _shape("age-secret-key-", rf"{w.LEFT} AGE-SECRET-KEY-1[A-Z0-9]{{20,}}"),
    _shape("eyj", r"(?<![\w-]) eyJ[\w-]{8,}\.[\w-]{4,}(?:\.[\w-]*)?"),
    _shape(":aa", rf"(?: {w.LEFT} | (?<=\bbot) ) [0-9]{{6,16}}:AA[\w-]{{18,}}"),
    _shape("sk", rf"{w.LEFT} SK[0-9a-f]{{32}} (?!\w)", _TWILIO),
    _shape(".", r"(?<![\w.-]) [MNO][\w-]{22,27}\.[\w-]{6}\.[\w-]{27,40} (?![\w-])", _DISCORD),
)

_STANDS = (
    _rule("@", r"""://[^\s/?#@:"'<>]{0,128} : (?P<value>[^\s/?#"'<>]{1,256}) @"""),
    _rule("/webhooks/", r"/webhooks/[0-9]{1,30}/ (?P<value> [\w-]{32,} )"),
    _rule("hooks.slack.com", r"hooks\.slack\.com/services/\w{1,20}/\w{1,20}/ (?P<value> \w{16,} )"),
    _rule("sig=", r"(?<= [?&]sig= ) (?P<value> [\w%+/=-]{20,} )"),
    _rule(
        "authorization",
        rf"""(?i: {w.LEFT} authorization {w.SIGN} ["'`\\]{{0,4}}
             (?: bearer | basic | digest | token | apikey ) ) [ \t]{{1,4}} (?P<value>{w.UNQUOTED})""",
    ),
    _rule("bearer", rf"(?i: {w.LEFT} bearer ) [ \t]{{1,4}} (?P<value>[\w.~+/=-]{{18,}})"),
    _rule(
        f"{w.PW_HINTS} {w.KEY_HINTS}",
        rf"""(?i: (?<![\w-]) --(?:[a-z0-9]{{1,20}}[_-]){{0,4}}
                  (?: api[_-]?key | token | secret | pass | passw(?:or)?d | passphrase | pwd ) )
             (?: [ \t]{{1,4}} (?!-) | = ) {w.VALUE}""",
        _holds("--"),
    ),
    _rule(
        "curl",
        r"""\b (?i: curl ) \b (?: [^\n\\] | \\[\s\S] ){0,300}?
            [ ] (?: -[a-zA-Z]{0,4}u[ ]? | --(?:proxy-)?user[ =] )
            ["']? [^\s:"'$]{1,128} : (?P<value> [^\s"'$][^\s"']{0,255} )""",
        _holds("-"),
    ),
    _rule(
        "pass",
        r"""\b sshpass [ ]{1,4} -p [ ]? ["']? (?P<value> [^\s"'$][^\s"']{0,255} )""",
        _holds("sshpass"),
    ),
    _rule(
        "mysql",
        r"""\b mysql(?:dump|admin)? \b [^\n]{0,200}? [ ] -p ["']? (?P<value> [^\s"'$-][^\s"']{0,255} )""",
    ),
    _rule(
        "pass",
        r"""\b machine \s{1,8} \S{1,128} \s{1,8} login \s{1,8} \S{1,128} \s{1,8} password \s{1,8}
            (?P<value> \S{1,256} )""",
        _holds("machine"),
    ),
    _rule(
        "secret",
        r"""(?i: secret [_ ]? access [_ ]? key ) [^A-Za-z0-9\n]{0,8} (?: is[ ] )? ["'`]?
            (?P<value> [A-Za-z0-9/+]{40} ) (?![A-Za-z0-9/+])""",
        _holds("access"),
    ),
)

_NEXT_LINE = r"""%s ["'`\]]{0,2} \*{0,2} [ ]? :[*_`]{0,3} [ \t]{0,4} \r?\n (?: [ \t]{0,8} \r?\n )?
    (?: ```\w{0,12} \r?\n )? [ \t]{0,12} ["'*`]{0,3} (?P<value> %s ) ["'*`]{0,3} [ \t]{0,12}
    (?= \r?\n | \Z )"""
# The first row of a table names its columns.
_CELL = r"""\| [ \t]{0,20} [*`]{0,3} [\w .-]{0,60}? %s [*`]{0,3} [ \t]{0,40} \| [ \t]{0,40} [*`]{0,3}
    (?! [^\n]{0,400} \n [ \t]{0,8} \|? [ \t]{0,8} :?-- )
    (?P<value> %s ) [*`]{0,3} [ \t]{0,400} (?: \| | \r?\n | \Z )"""

_CALLED = (
    _rule(
        "phrase",
        rf"""(?i: passphrase | (?: seed | recovery | mnemonic )[ ]phrase ) (?: {w.SIGN} | {w.IS} ) ["'`]?
             (?P<value> [a-z]{{2,12}} (?: [ ][a-z]{{2,12}} ){{3,23}} )
             (?= ["'`.]{{0,2}} (?: \s*\Z | [ ]*\r?\n ) )""",
    ),
    _rule(w.PW_HINTS, rf"{w.PW_NAME} {w.SIGN} {w.VALUE}", _has_telling_name),
    _rule(w.KEY_HINTS, rf"{w.KEY_NAME} {w.SIGN} {w.NO_PROSE} {w.VALUE}", _has_telling_name),
    # These names mean a secret only where the value looks like one.
    _rule(w.KEY_HINTS, rf"""{w.LOOSE_NAME} {w.SIGN} ["'`\\]{{0,4}} {w.RANDOM}""", _has_telling_name),
    _rule(w.PW_HINTS, _NEXT_LINE % (w.PW_NAME, w.PW_LINE), _BREAK),
    _rule(w.KEY_HINTS, _NEXT_LINE % (w.KEY_NAME, w.MIXED), _BREAK),
    _rule(w.PW_HINTS, _CELL % (w.PW_NAME, w.PW_CELL), _holds("|", names=_PW_WORDS)),
    _rule(w.KEY_HINTS, _CELL % (w.KEY_NAME, w.MIXED), _holds("|")),
    _rule(
        w.PW_HINTS,
        rf"{w.PW_NAME} {w.ABOUT} (?: {w.IS} | [ ]?[:=][ ] ) {w.QUOTE} (?P<value> {w.QUOTED} | {w.WORD} )",
        _holds(" is", " was", " are", ": ", "= ", names=_PW_WORDS),
    ),
    _rule(w.KEY_HINTS, rf"{w.KEY_NAME} {w.ABOUT} {w.IS} {w.QUOTE} (?P<value> {w.MIXED} )", _SAYS),
    _rule(
        w.KEY_HINTS,
        rf"""{w.KEY_NAME} (?= [ ](?i:for)[ ] ) {w.ABOUT} [ ]?[:=][ ] {w.QUOTE}
             (?P<value> {w.MIXED} )""",
        _KEY_FOR,
    ),
    _rule(
        w.PW_HINTS,
        rf"""(?i: \b (?: set | chang | reset | updat )[a-z]{{0,3}} \b [^\n]{{0,40}}? ) {w.PW_NAME} {w.ABOUT}
             [ ]to[ ] {w.QUOTE} (?P<value> {w.QUOTED} | (?= [^\s]{{0,256}}[^a-z\s.,…*] ) {w.WORD} )""",
        _holds(" to ", names=_PW_WORDS),
    ),
)

_CALLED_ABROAD = (
    _rule(w.PW_ABROAD_HINTS, rf"{w.PW_ABROAD} {w.ABOUT} {w.SIGN_ABROAD} {w.VALUE}", _SIGNS_ABROAD),
    _rule(
        w.PW_ABROAD_HINTS,
        rf"""{w.PW_ABROAD} {w.ABOUT} {w.IS_ABROAD} {w.QUOTE}
             (?P<value> {w.QUOTED} | (?= [^\s]{{0,256}}[^a-z\s.,;:!?…*\u0080-\u024f] ) {w.WORD} )""",
        _SAYS_ABROAD,
    ),
    _rule(
        w.KEY_ABROAD_HINTS,
        rf"{w.KEY_ABROAD} {w.ABOUT} (?: {w.SIGN_ABROAD} | {w.IS_ABROAD} ) {w.QUOTE} (?P<value> {w.MIXED} )",
    ),
    _rule(
        w.FAR_HINTS,
        rf"{w.FAR_NAME} {w.FAR_SIGN} {w.QUOTE} (?! {w.CIPHER} ) {w.NO_PLACEHOLDER} {w.FAR_VALUE}",
    ),
)

RULES = (*_LOOKS, *_STANDS, *_CALLED, *_CALLED_ABROAD)
"""What a secret looks like, where it stands, what it is called, and what it is called elsewhere."""
