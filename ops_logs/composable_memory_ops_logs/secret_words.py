"""What secrets are called and how their values are written: parts of patterns, for `re.VERBOSE | re.ASCII`.

`PW_…` is about passwords, whose value may be any word. `KEY_…` is about tokens and keys; these names also
occur in ordinary prose, so there the value has to look like a secret unless it follows a sign. Look-around is
bounded and no repetition is nested, so that time is linear in the text.
"""

__all__ = [
    "ABOUT",
    "CIPHER",
    "FAR_HINTS",
    "FAR_NAME",
    "FAR_SIGN",
    "FAR_VALUE",
    "IS",
    "IS_ABROAD",
    "KEY_ABROAD",
    "KEY_ABROAD_HINTS",
    "KEY_HINTS",
    "KEY_NAME",
    "LEFT",
    "LOOSE_NAME",
    "MIXED",
    "NO_PLACEHOLDER",
    "NO_PROSE",
    "PW_ABROAD",
    "PW_ABROAD_HINTS",
    "PW_CELL",
    "PW_HINTS",
    "PW_LINE",
    "PW_NAME",
    "QUOTE",
    "QUOTED",
    "RANDOM",
    "SECRET_NAME",
    "SIGN",
    "SIGN_ABROAD",
    "UNQUOTED",
    "VALUE",
    "VERBS_ABROAD",
    "WORD",
]

# --- names --------------------------------------------------------------------------------------------------

LEFT = r"(?<![A-Za-z0-9])"
_END = r"(?: (?i:_base) | [_-]?[0-9]{1,2} )? (?![A-Za-z0-9])"


def _alone(word: str) -> str:
    """Return a look back at `word` where no other word runs into it: `api_token`, `Token`."""
    return rf"(?i: (?<![A-Za-z0-9]{word}) )"


def _in_camel_case(word: str) -> str:
    return rf"(?<=[a-z0-9]{word.capitalize()})"


def _qualified(word: str) -> str:
    """Return a look back at `word` behind what makes a secret of it: `api key`, `clientsecret`."""
    qualifiers = ("api", "access", "auth", "bearer", "client", "private", "refresh", "secret")
    looks = (rf"(?<={LEFT}{qualifier}{gap}{word})" for qualifier in qualifiers for gap in ("", "[ ]"))
    return f"(?i: {' | '.join(looks)} )"


_NOT_NEUTRAL = "".join(
    f"(?i: (?<!{word}key) (?<!{word}[_-]key) )" for word in ("public", "primary", "foreign", "session")
)
# `PWD=/home/mia` is where a shell is.
_NO_FOLDER = r"""(?! \s{0,2} [:=] \s{0,2} ["']? [/~.$] )"""
_LOGINS = " | ".join(
    rf"(?<={kind}_pass)" for kind in ("admin", "db", "ftp", "imap", "mail", "root", "smtp", "user")
)
# A name starts with a set of letters, and looks back for the rest: from that, `re` knows where to try.
PW_NAME = rf"""[pP] (?:
      (?i:assw(?:or)?d)
    | (?i:assphrase) (?: {_alone("passphrase")} | {_in_camel_case("passphrase")} )
    | (?i:asscode) {_alone("passcode")}
    | (?-i: ASS (?<=[A-Z0-9]_PASS) ) | (?i: ass (?<=_pass) (?: {_LOGINS} ) )
    | (?i:wd) (?: {_alone("pwd")} | {_in_camel_case("pwd")} ) {_NO_FOLDER}
    ) {_END}"""
KEY_NAME = rf"""[kKsStT] (?:
      (?i: (?<=t)oken ) (?: {_alone("token")} | {_in_camel_case("token")} | {_qualified("token")} )
    | (?i: (?<=s)ecret ) (?: {_alone("secret")} | {_in_camel_case("secret")} | {_qualified("secret")} )
    | (?i: (?<=k)ey )
      (?: (?: (?i: (?<=[a-z0-9][_-]key) ) | {_in_camel_case("key")} ) {_NOT_NEUTRAL} | {_qualified("key")} )
    ) {_END}"""
# `key` alone, and a name that goes on after the telling word: `TOKEN_GITHUB`.
LOOSE_NAME = rf"""[kKsStT] (?: (?i: (?<=k)ey ) {_alone("key")}
    | (?i: (?:
        (?<=k)ey {_alone("key")} | (?<=t)oken {_alone("token")} | (?<=s)ecret {_alone("secret")} )
      [_-][\w-]{{1,40}} ) )"""
PW_ABROAD = r"""(?<!\w) (?i: contrase(?:ñ|Ñ|n)a | senha | palavra[ -]passe | passwort | kennwort
    | mot[ ]de[ ]passe | mdp | [пП]арол[ья] ) (?!\w)"""
KEY_ABROAD = r"""(?<!\w) (?i: clave | jeton | api-schlüssel
    | cl(?:é|É) [ ] (?: d'api | api | secrète ) ) (?!\w)"""
# Where words are not set apart by blanks, or are written in letters that have no capitals.
FAR_NAME = r"""(?: 密码 | 密碼 | 口令 | 密钥 | 密鑰 | 令牌
    | パスワード | パスフレーズ | トークン | 秘密鍵 | シークレット | APIキー
    | 비밀번호 | 패스워드 | 암호 | 토큰 | 비밀키 | 시크릿
    | كلمة[ ](?:ال)?(?:مرور|سر) | الرمز(?:[ ]السري)? | رمز[ ](?:الدخول|المرور|التحقق)
    | المفتاح(?:[ ]السري)? | التوكن )"""
SECRET_NAME = rf"(?: {PW_NAME} | {KEY_NAME} | {PW_ABROAD} | {FAR_NAME} ) \Z"
"""A name that ends so is the name of a secret."""

PW_HINTS = "pass pwd"
KEY_HINTS = "key token secret"
PW_ABROAD_HINTS = "pass contrase senha kennwort mdp парол"
KEY_ABROAD_HINTS = "clave jeton schlüssel clé"
FAR_HINTS = (
    "密码 密碼 口令 密钥 密鑰 令牌 パス トークン 秘密鍵 シークレット apiキー 비밀 패스워드 암호 토큰 시크릿"
    " كلمة رمز المفتاح التوكن"
)

# --- what stands between a name and its value ---------------------------------------------------------------

# "name": …, env['name'] = …, **name:** …
SIGN = r"""["'`\\\]*]{0,4} \s{0,2} (?: => | := | =(?!=) | :(?!:|//) | ： | ＝ ) \*{0,2} [ \t]{0,8}"""
SIGN_ABROAD = r"(?: [ *`]{0,3} (?: : | = | ： | — ) [ *]{0,4} )"
FAR_SIGN = r"(?: [ *`]{0,3} (?: [:=：＝] | 是 | 为 | 為 | は | 는 | 은 | 가 | 이 | هي | هو ) [ 　*]{0,4} )"
IS = r"(?i: [ ]{1,2} (?: is | was | are ) (?: [ ] (?: now | still | currently | just ) )? :? [ ]{1,2} )"
VERBS_ABROAD = ("es", "é", "era", "ist", "lautet", "war", "est", "será")
IS_ABROAD = (
    rf"(?: [ ]{{1,2}} (?: {' | '.join(VERBS_ABROAD)} ) (?: [ ] (?:ahora|agora|jetzt) )? :? [ ]{{1,2}} )"
)
# … for the wifi …
ABOUT = r"""(?: [ ] (?: \( [^()\n]{1,40} \)
    | (?i: at | da | de | del | do | du | for | from | für | in | of | on | para | pour | to | vom | zu | zum)
      (?: [ ] [^\s:=|"`]{1,30} ){1,5}? ) )?"""
QUOTE = r"""["'`“「*]{0,3}"""

# --- values -------------------------------------------------------------------------------------------------

_STOP = r"""(?: [\s"'`&;<>,.:)}\]|\\] | \Z )"""
NO_PLACEHOLDER = rf"""(?! (?i: none | null | nil | true | false | undefined | str | string | bytes | bool
        | boolean | int | integer | secretstr | required | optional ) {_STOP}
    | \$[{{(] | \$[A-Z_][A-Z0-9_]*{_STOP} | \{{\{{ | os\.(?:environ|getenv)\b
    | process\.env\b | -----BEGIN )"""
# "token: about four characters" is prose, "token: abc" is not.
NO_PROSE = r"(?! (?<=[:：][ ]) [A-Za-z][a-z]{0,20} [ ] [a-z]{1,20} (?: [\s,.;:!?)] | \Z ) )"
UNQUOTED = r"""[^\s"'`&;<>]* [^\s"'`&;<>,.:)}\]\\]"""
VALUE = rf"""
    (?P<quote>\\{{0,3}}["'`])? {NO_PLACEHOLDER}
    (?P<value> (?(quote) (?: (?!(?P=quote)) (?:\\.|[^\n]) )+ | {UNQUOTED} ) )
"""
RANDOM = r"""(?P<value> (?=[\w+/.~-]{0,256}[A-Z]) (?=[\w+/.~-]{0,256}[a-z]) (?=[\w+/.~-]{0,256}[0-9])
    [\w+/.~-]{16,}={0,2} | [0-9a-fA-F]{32,} )"""
QUOTED = r"""(?: (?<=["'`“「]) [^"'`”」\n]{1,256} (?=["'`”」]) )"""

CIPHER = r"""(?i: (?: aes | argon | base | bcrypt | ecdsa | ed | hmac | hs | md | oauth | rs | rsa | sha
    | utf ) -? [0-9] )"""
# Of letters and digits, as in a sentence only tokens and names of ciphers are.
MIXED = rf"""(?! {CIPHER} ) (?= [\w+/.~-]{{0,256}}[0-9] ) (?= [\w+/.~-]{{0,256}}[A-Za-z] )
    [\w+/.~-]{{5,}}[\w+/~-] (?![\w+/~…-]) ={{0,2}}"""

# What is said of a password more often than that it is this word.
_ATTRIBUTES = " | ".join(
    """
    a again all also always an as at back bad blank broken case clear cleartext complex confidential
    correct default different easy empty fine for gone good hard her here hidden his important in
    incorrect invalid it kept known long lost mandatory mine missing my necessary never new no none not
    now null obvious off ok okay old on one only optional our out permanent plain plaintext private
    public random read required reset right safe same secret secure sensitive sent set shared short
    shown simple so strong such temporary text that the there this to too unique unknown unsafe unset up
    valid weak what where written wrong yes your yours
    """.split()
)
_PREDICATE = rf"""(?: (?: {CIPHER} | (?i: {_ATTRIBUTES} | [a-z]{{1,20}} (?: ed | ing | able | ible ) ) )
    (?![A-Za-z0-9]) )"""
# A plain word only counts where the clause ends with it.
WORD = rf"""(?! {_PREDICATE} | [0-9]{{1,3}} [ ]+ [a-z] ) {NO_PLACEHOLDER}
    (?: (?= [^\s"'`&;<>]{{0,256}} [^a-z\s"'`&;<>,.:!?)…*] ) {UNQUOTED}
      | [a-z]{{3,40}} (?= [.,;:!?)]{{0,3}} (?: \s*\Z | [ ]*\n ) | [.,;!?)] ) )"""
_HEADING = r"""(?i: char | description | e?-?mail | host | int | key | login | name | notes? | number | role
    | secret | string | token | type | url | user | username | value | varchar ) (?![A-Za-z0-9])"""
PW_CELL = rf"(?! {_PREDICATE} | {_HEADING} | :?-- ) {NO_PLACEHOLDER} [^\s|`*]{{1,256}}"
PW_LINE = rf"""(?! {_PREDICATE} ) {NO_PLACEHOLDER}
    [^\s"'`|<>{{}}\[\]\#$:*-] [^\s"'`|<>{{}}*]{{0,256}} (?<![:,(\[])"""
# Long enough that "8位" and "8文字" are none.
FAR_VALUE = r"(?P<value> (?! [!-~]{1,12}… ) [!#-&(-_a-~]{3,256} [!#-&*+/-9<-Z^_a-z|~=] )"
