"""Finds secrets in prose: after names in Chinese, Japanese, Korean, Arabic, next to logins, after a word."""

import re
from collections.abc import Iterator

from composable_memory_ops_logs.lazy import Pattern
from composable_memory_ops_logs.redaction.scanner import JUDGED, TRAILING, Rule, Span, Text, runs
from composable_memory_ops_logs.redaction.secret_values import (
    is_code,
    is_given,
    is_masked,
    is_random,
    is_strong,
)
from composable_memory_ops_logs.redaction.secret_vocabulary import CODES_AFTER, FAR_NAMES, HARMLESS_ENDINGS

# --- names in Chinese, Japanese, Korean, Arabic -------------------------------------------------------------

_FAR_SIGN = r"""(?:[*`"'」』 ]{0,3}(?:[(（][^()（）\n]{1,20}[)）])?[ ]{0,2}
    (?:[:=]|就是|是
    |(?:设|改|换|更新|设置|設|換|変更)?(?:成|为|為)了?|は|が|는|은|가|이|هي|هو)(?:[ :]|\*{1,2}(?!\*)){0,4}
    |[ ]{0,2}(?=[!-~]{0,12}[0-9])(?=[!-~]{6}))(?:["'`「『（(]|\*{1,2}(?!\*)){0,3}"""


def _far_rule(word: str) -> Rule:
    source = rf"{re.escape(word)}(?>{_FAR_SIGN})(?P<value>[!#-&(-_a-~]{{1,}})"
    return Rule((word,), Pattern(source, re.VERBOSE), _far_secrets)


def _far_secrets(text: Text, match: re.Match[str]) -> Iterator[Span]:
    start, end = match.span("value")
    value = text.raw[start:end].rstrip('.,:;()}]」』`"*!?')
    if _is_far_secret(value[:JUDGED], text.low[end : end + 2]):
        yield Span(start, start + len(value))
    yield Span(end, end)


_FAR_UNITS = (
    *(
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
    ),
    *("번", "회", "次", "月"),
)
_NO_FAR_VALUE = Pattern(
    r"(?:[0-9]{1,3}[-~][0-9]{1,3}|(?:aes|sha|md|hs|rs|rsa|base|utf|jwt|oauth|bcrypt|argon)[-_]?[0-9a-z]{0,6})\Z"
)


def _is_far_secret(value: str, after: str) -> bool:
    if len(value) < 3 or not is_given(value) or is_code(value):
        return False
    if value.isdigit():
        return len(value) >= 4 and not after.startswith(_FAR_UNITS)
    return not _NO_FAR_VALUE.match(value.lower())


# --- logins -------------------------------------------------------------------------------------------------

_LOGIN = Pattern(
    r"""(?<![a-z0-9])(?:log-?ins?|creds?|credentials|zugangsdaten|zugang|anmeldung|acceso|credenciales|identifiants
    |credenziali|accesso|accounts?|sign-?in|auth
    |user(?:name)?(?:[ ]?/[ ]?pass(?:word)?)?|usr|benutzer|usuario)
    (?:[ ](?:for|to|für|on|of|at|de|du|da|di|del|para|pour|per)(?:[ ][^\s:=/]{1,30}){1,4}
    |[ ]\([^()\n]{1,40}\)|[ ](?:is|are|sind|son|sont|with|as|using))?
    [ ]{0,2}(?:[:=→]|->)?[*`]{0,3}[ ]{1,4}["'`*]{0,3}
    (?P<user>[^\s/|:,;"'`]{1,64})["'`]{0,2}(?:[ ]{0,3}[/|:,][ ]{0,3}|[ ](?:and|und|y|et|e|with|mit
    |con)[ ])["'`]{0,3}(?P<value>[^\s"'`/|<>]{1,128})""",
    re.VERBOSE,
)
_LOGIN_WORDS = (
    *("login", "log-in", "cred", "zugang", "anmeldung", "acceso", "identifiants", "accesso", "account"),
    *("signin", "sign-in", "auth", "user", "usr", "benutzer", "usuario"),
)
_ADMIN = Pattern(r"""(?<![a-z0-9_.@/-])[a-z]{2,13}[0-9]?[ ]?[:/][ ]?(?P<value>[^\s"'`<>|,;/]{5,128})""")
_ADMIN_WORDS = ("admin", "root", "superuser")


def _login_secrets(text: Text, match: re.Match[str]) -> Iterator[Span]:
    if match["user"] not in HARMLESS_ENDINGS:
        yield from _strong_value(text, match)


def _admin_secrets(text: Text, match: re.Match[str]) -> Iterator[Span]:
    yield from _strong_value(text, match, least=6, is_alone=True)
    yield Span(match.end(), match.end())


def _strong_value(text: Text, match: re.Match[str], least: int = 5, is_alone: bool = False) -> Iterator[Span]:
    start, end = match.span("value")
    value = text.raw[start:end].rstrip(TRAILING)
    is_likely = len(value) >= least and is_strong(value, is_alone=is_alone)
    if is_likely and is_given(value) and not is_code(value):
        yield Span(start, start + len(value))


# --- values before their names ------------------------------------------------------------------------------

_NAME_BEHIND = Pattern(
    r" (?:as|als|comme|como) (?:\w{1,5} )?(?:passwor[dt]|passphrase|kennwort|mot de passe|contraseña|senha)"
    rf"|(?<=[0-9]) (?:is|ist|est|es) \w{{1,5}} (?:[\w-]{{1,20}} ){{0,2}}?(?:(?:{'|'.join(CODES_AFTER)}) code"
    r"|otp|pin|passcode|(?:bestätigungs|sicherheits)code|code de (?:vérification|sécurité)"
    r"|código de (?:verificación|seguridad))(?!\w)"
)
_NAME_BEHIND_WORDS = (
    *(" as the pass", " as my pass", " as your pass", " as a pass", " as pass", " als pass", " als kennwort"),
    *(" comme mot", " como contraseña", " como senha"),
    *(" is your ", " ist ihr ", " est votre ", " es su ", " es tu "),
)


def _value_before_name(text: Text, name: re.Match[str]) -> Iterator[Span]:
    """Yield the value of "take Elm-Tree7 as the password" and of "493021 is your login code"."""
    first = max(0, name.start() - 64)
    run = text.raw[first : name.start()].rstrip("\"'`*")
    start = max(map(run.rfind, " \n\"'`(*")) + 1
    value = run[start:]
    is_number = value.removeprefix("G-").isdigit() and 4 <= len(value) <= 10
    if is_number or (is_strong(value, is_alone=True) and is_given(value)):
        yield Span(first + start, first + len(run))


# --- random strings after a word ----------------------------------------------------------------------------

_LOOSE_KINDS = bytes(
    ord("x") if code < 128 and (chr(code).isalnum() or chr(code) in "_+/=.~-") else ord(" ")
    for code in range(256)
)


def find_loose(text: Text) -> Iterator[Span]:
    """Yield what looks random shortly after the words key, token or secret, on the same line."""
    low = text.low
    words = [place for place in map(low.find, _LOOSE_WORDS) if place >= 0]
    for start, end in runs(text.raw, _LOOSE_KINDS, 20, min(words)) if words else ():
        line = low[max(low.rfind("\n", max(0, start - 160), start) + 1, start - 160) : start]
        run = text.raw[start:end]
        assigned = run.rpartition("=")[0] if "=" in run.rstrip("=") else ""
        place = max(map((line + assigned.lower()).rfind, _LOOSE_WORDS))
        if place < 0 or run.startswith("AAAA"):  # an SSH public key
            continue
        if _SUM.search(line, max(0, len(line) - 12)):
            continue
        if line[max(0, place - 8) : place].rstrip(" _-").endswith(("public", "pub")):
            continue
        token = run.strip("=.").rpartition("=")[2]
        start += run.rfind(token)
        after = text.raw[start : start + len(token) + 2]
        if len(token) >= 20 and is_random(token, is_strict=True) and not is_masked(after):
            yield Span(start, start + len(token))


_SUM = Pattern(r"(?:sha|md)-?[0-9]{1,3}[:= -]{1,2}\Z")
_LOOSE_WORDS = ("key", "token", "secret", "密钥", "令牌")

PROSE_RULES = (
    *map(_far_rule, FAR_NAMES),
    Rule(_LOGIN_WORDS, _LOGIN, _login_secrets),
    Rule(_ADMIN_WORDS, _ADMIN, _admin_secrets),
    Rule(_NAME_BEHIND_WORDS, _NAME_BEHIND, _value_before_name),
)
