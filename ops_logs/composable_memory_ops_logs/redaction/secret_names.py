"""Names of secrets, and how certainly a value with such a name is one: `DB_PASSWORD`, not `cache_key`."""

import re

from composable_memory_ops_logs.lazy import Pattern
from composable_memory_ops_logs.redaction.scanner import WORD_CHARS, Text, run_before
from composable_memory_ops_logs.redaction.secret_vocabulary import (
    CODES_AFTER,
    FAR_NAMES,
    HARMLESS_ENDINGS,
    HARMLESS_QUALIFIERS,
    KEY_QUALIFIERS,
    KEYS_ABROAD,
)

SORTS = {
    "password": {
        "pass": r"pass(?:[ -]?w(?:or)?ds?|wrd|worte?|phrases?|codes?|e|es)?",
        "pw": r"pwd?s?",
        "contrase": r"contrase(?:ñ|n|ny)as?",
        "senha": r"senhas?",
        "parola": r"parola(?:[ ]d'ordine)?",
        "community": r"community(?:[ _-]?string)?(?= ?[:=])",
        "парол": r"парол[ьяи]",
        "hasło": r"hasło(?:(?:[ ]do(?:[ ][^\s:=|]{1,30}){1,3}?)?[ ]to(?=[ ]))?",
        "adgangskode": r"adgangskoden?",
        "lösenord": r"lösenord(?:et)?",
        "passord": r"passord(?:et)?",
        "clé": r"clé(?:[ ](?:d'api|api|secrète))?",
        **{
            word.replace("_", " "): word.replace("_", " ")
            for word in (
                "p/w mima kennwort wachtwoord mdp heslo requirepass masterauth psk clave jeton chiave chave"
                " salasana jelszó lozinka şifre mật_khẩu schlüssel ключ токен"
            ).split()
        },
    },
    "key": {
        "token": r"tokens?",
        "secret": r"secrets?",
        "key": r"keys?",
        "cred": r"cred(?:ential)?s?",
        "auth": r"auth",
        "секрет": "секрет",
        **{f"pat{sign}": "pat" for sign in ":= "},  # a personal access token
    },
    "code": {
        "pin": r"pin(?:[ -]?(?:code|number|nummer|nr))?",
        "cvv": r"cvv2?",
        "cvc": r"cvc2?",
        "code": r"codes?",
        "combin": r"combin(?:ation|azione|aison|ación)",
        "codice": r"codice(?:[ ]pin)?",
        "codigo": r"codigos?",
        "código": r"códigos?(?:[ ]pin)?",
        **{word: word for word in ("geheimzahl", "puk", "2fa")},
        **{f"{word}{sign}": word for word in ("otp", "totp", "ssn") for sign in ":= "},
    },
}
"""For each kind of name a literal word, and how the names that start with it continue."""

# Most names have no tail, which one character shows.
_TAIL = r"(?:(?![a-z0-9_-])|(?:_base|[_-]?[0-9]{1,2})?(?P<more>[_-][a-z0-9_-]{1,40}+)?(?![a-z0-9]))"
NAMES = {
    sort: {word: Pattern(source + _TAIL) for word, source in words.items()} for sort, words in SORTS.items()
}


def is_secret_name(name: str) -> bool:
    """Return whether a value with this name is a secret: `apiKey`, `DB_PASSWORD`, `token`; not `monkey`."""
    text = Text.of(name[-200:])
    if text.low.endswith(FAR_NAMES):
        return True
    for sort in ("password", "key"):
        for word, pattern in NAMES[sort].items():
            place = text.low.rfind(word)
            match = pattern.fullmatch(text.low, place) if place >= 0 else None
            if not match or match["more"] or (match[0].endswith("s") and match[0] != "pass"):
                continue
            ident = run_before(text.raw, place) + text.raw[place:]
            if strength_of(sort, text, place, ident, match[0]) >= 2:
                return True
    return False


def is_open_ending(more: str) -> bool:
    """Return whether a name with this continuation may still be that of a secret, unlike `token_type`."""
    words = re.split("[_-]", more.strip("_-"))
    return words[-1] not in HARMLESS_ENDINGS and words[0] not in HARMLESS_ENDINGS


def strength_of(sort: str, text: Text, place: int, ident: str, name: str) -> int:
    """Return how certainly the value of a name is a secret: 0 never, 1 if it looks so, 2 probably, 3 yes.

    `ident` is the whole identifier, which ends with the name at `place`.
    """
    left = ident[: -len(name)]
    if sort == "password":
        return _strength_of_password(text, place, left, name)
    is_word = ident.isalpha() and ident.islower() and ident.isascii()
    words = [ident] if is_word else [*map(str.lower, _IDENT_WORDS.findall(ident.rstrip(_ENDING)))]
    before = ""
    if not left.strip("_-"):
        part = text.low[max(0, place - len(left) - 30) : place - len(left)].rstrip(" -")
        before = part[len(part.rstrip(WORD_CHARS)) :]
    if sort == "code":
        return _strength_of_code(text, name, place, left, words[-2] if len(words) > 1 else before)
    return _strength_of_key(words, before, name.rstrip(_ENDING)) if name.isascii() else 1


_ENDING = "0123456789_-"
_IDENT_WORDS = Pattern(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")


# --- passwords ----------------------------------------------------------------------------------------------


def _strength_of_password(text: Text, place: int, left: str, name: str) -> int:
    touching = left[-1:]
    is_apart = not touching or touching in "_-"
    is_hump = not is_apart and touching.islower() and text.raw[place].isupper()
    if name.startswith(_SURE):
        return 3
    if name == "pass":
        return _strength_of_pass(text, place, left, is_apart, is_hump)
    if name in {"passe", "passes"}:
        return 3 if text.low[max(0, place - 8) : place].endswith(("mot de ", "palavra-")) else 0
    if name == "schlüssel" and left.lower().rstrip("-_").endswith(_NETWORKS):
        return 3
    if name.split()[0] in _OTHER_MEANINGS:
        return 1 if is_apart else 0
    if name in {"pw", "pws", "pwds", "p/w"}:
        return 2 if is_apart else 0
    return 3 if is_apart or is_hump else 0


def _strength_of_pass(text: Text, place: int, left: str, is_apart: bool, is_hump: bool) -> int:
    low = left.lower()
    if left.endswith("_") or left in {"--", "-"} or is_hump:
        return 3 if low.rstrip("_").endswith(_LOGINS) or left == "--" or left.isupper() else 0
    if not left and text.raw[place - 1 : place] == "." and text.raw[place + 4 : place + 5] in {'"', "'"}:
        return 2  # the name of a setting
    if is_apart and _USER.search(text.low, max(0, place - 80), place):
        return 2
    if is_apart and not left.endswith("-"):
        return 1
    return 3 if low.lstrip("-") in {"store", "key", "require", "ssh"} else 0


_SURE = ("password", "pass word", "pass-word", "passwd", "passwort", "kennwort")
_OTHER_MEANINGS = KEYS_ABROAD | {"ключ", "секрет", "токен", "community"}
_NETWORKS = (
    *("wlan", "wifi", "wi-fi", "wpa", "wpa2", "netzwerk", "netzwerksicherheits", "privat", "geheim", "api"),
)
_LOGINS = (
    *("admin", "db", "ftp", "imap", "mail", "root", "smtp", "user", "sudo", "become", "vault", "mysql", "pg"),
    *("login", "wifi", "ssh", "redis"),
)
_USER = Pattern(
    r"(?:user|login|e-?mail|benutzer|usuario|utente|usr|account|账号|帐号|用户名|ユーザー|アカウント|아이디"
    r"|utilisateur)[^\n]{2,70}\Z"
)


# --- keys, tokens -------------------------------------------------------------------------------------------


def _strength_of_key(words: list[str], before: str, name: str) -> int:
    stem = name.rstrip("s")
    last = words[-1] if words else name
    glued = last.removesuffix(name).removesuffix(stem)
    is_glued = bool(glued) and glued != last
    qualifier = glued if is_glued else words[-2] if len(words) > 1 else before
    if is_glued and glued not in KEY_QUALIFIERS and glued not in {"o", "id"}:
        return 0  # a word of its own, such as `monkey`
    if qualifier in HARMLESS_QUALIFIERS:
        return 0
    if stem == "auth" or words == ["pat"]:
        return 1
    if stem in {"key", "cred", "credential"}:
        return 3 if qualifier in KEY_QUALIFIERS else 1
    return 3 if len(words) > 1 or qualifier in KEY_QUALIFIERS else 2


# --- codes --------------------------------------------------------------------------------------------------


def _strength_of_code(text: Text, name: str, place: int, left: str, qualifier: str) -> int:
    if left.strip("_-") and not left.endswith(("_", "-")):
        before = text.low[max(0, place - 20) : place]
        return 1 if name.startswith("code") and before.endswith(_COMPOUNDS) else 0
    after = text.low[place + len(name) : place + len(name) + 40]
    if name.startswith(("code", "combin")):
        return 1 if qualifier in CODES_AFTER or _OPENS.match(after) else 0
    if name.startswith(("codice", "codigo", "código")):
        return 1 if not after.startswith(" ") or _OPENS.match(after) else 0
    return 1


_COMPOUNDS = (
    *("tür", "tor", "haus", "alarm", "zugangs", "sicherheits", "bestätigungs", "freischalt", "entsperr"),
    *("tresor", "garagen", "schließfach", "door", "gate", "sms", "zugriffs", "einmal", "safe", "backup"),
    *("wiederherstellungs", "ersatz", "notfall"),
)
_OPENS = Pattern(
    r"[ ](?:(?:de|del|della|dell'|du|de la|da|do|di|d'|(?:of|for) (?:the|my|our))[ ']?)?"
    r"(?:cassaforte|porta|portone|allarme|sblocco|verifica|sicurezza|accesso|puerta|alarma|acceso"
    r"|verificación|seguridad|desbloqueo|segurança|porte|alarme|immeuble|entrée|wi-?fi|pin|garage|coffre"
    r"|safe|vault|lock|gate|door"
    r"|caja fuerte|cofre|secours|récupération|respaldo|recuperación|recuperação|backup|recupero)"
)
