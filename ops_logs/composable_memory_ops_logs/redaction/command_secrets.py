"""Finds secrets by their context in commands, program settings and program output.

A table row is a literal word and the pattern from there on, whose groups are the secrets. A pattern is
bounded, except for one run at its end.
"""

import re
from collections.abc import Iterator

from composable_memory_ops_logs.lazy import Pattern
from composable_memory_ops_logs.redaction.scanner import Rule, Span, Text, pattern_rule
from composable_memory_ops_logs.redaction.secret_values import is_given, is_masked, is_placeholder

# --- options of commands ------------------------------------------------------------------------------------

_VALUE = r"""(?P<value>"[^"\n]{1,256}"|'[^'\n]{1,256}'|[^\s"'$(<|-][^\s"']*)"""
_USER_PASS = Pattern(
    r"""[ ](?:-[a-z]{0,4}u[ ]?|--(?:proxy-)?user[ =]|-a[ ]|--auth[ =]|--creds[ =])[ ]{0,24}"""
    r"""(?P<quote>["'])?[^\s:"'$]{1,128}[:%](?P<value>(?(quote)[^"'$\n][^"'\n]*|[^\s"'$][^\s"']*))"""
)
_OPTIONS = {
    ("sshpass", "mongo ", "mongosh", "sqlcmd", "isql", "bcp ", "zip ", "unzip "): Pattern(
        rf"[ ]-p[ ]?{_VALUE}"
    ),
    ("mysql", "mariadb", "7z a ", "7z x "): Pattern(rf"[ ]-p{_VALUE}"),
    ("docker", "podman", "helm", "snowsql", "mosquitto", "az login", "rdesktop", "psexec", "cqlsh"): Pattern(
        rf"[ ](?:-p|--pass|--pw)[ =]{_VALUE}"
    ),
    ("ssh-keygen",): Pattern(rf"[ ]-[np][ ]{_VALUE}"),
    ("gh secret set",): Pattern(rf"[ ](?:-b|--body)[ =]{_VALUE}"),
    ("fly secrets set", "flyctl secrets set"): Pattern(rf"[ ][a-z_]\w{{0,60}}={_VALUE}"),
    ("create secret",): Pattern(rf"""[ ]--from-literal[ =]["']?[\w.-]{{1,128}}={_VALUE}"""),
    ("redis-cli",): Pattern(rf"[ ]-a[ ]{_VALUE}"),
    ("ldapsearch", "ldapmodify", "ldapadd", "ldapwhoami", "ldappasswd"): Pattern(rf"[ ]-w[ ]{_VALUE}"),
    ("openssl enc",): Pattern(rf"[ ]-k[ ]{_VALUE}"),
    ("plink", "pscp"): Pattern(rf"[ ]-pw[ ]{_VALUE}"),
    ("xfreerdp", "cmdkey"): Pattern(rf"[ ]/p(?:ass)?:{_VALUE}"),
    ("lftp ",): Pattern(rf"""[ ]-u[ ]["']?[^\s,"']{{1,64}},{_VALUE}"""),
    ("curl", "wget", "http "): _USER_PASS,
    ("smbclient", "rpcclient"): Pattern(r"""[ ]-u[ ]?["']?[^\s%"']{1,128}%(?P<value>[^\s"'$][^\s"']*)"""),
}
_PORTS = Pattern(r"(?:[0-9.]{1,15}:)?[0-9]{1,5}:[0-9]{1,5}(?:/(?:tcp|udp))?|[0-9]{1,5}\Z")


_APART = Pattern("(?<![a-z0-9])")


def _option_rule(command: str, option: Pattern) -> Rule:
    def secrets(text: Text, name: re.Match[str]) -> Iterator[Span]:
        stop = text.low.find("\n", name.start())  # lines joined by a backslash are one in `low`
        stop = stop if stop >= 0 else len(text.low)
        for match in option.finditer(text.low, name.start(), stop):
            start, end = match.span("value")
            value = text.raw[start:end]
            if len(value) > 2 and value[0] == value[-1] and value[0] in "\"'":
                start, end, value = start + 1, end - 1, value[1:-1]
            if value and is_given(value) and not _PORTS.match(value):
                yield Span(start, end)
        yield Span(stop, stop)

    return Rule((command,), _APART, secrets)


# --- known words before it ----------------------------------------------------------------------------------

_QUOTED = r"""(?:"([^"\n]{1,256})"|'([^'\n]{1,256})'|([^\s"'$(<|][^\s"']*))"""
# What a command that sets passwords reads, up to a terminator: `chpasswd <<EOF`.
_LINES_FOR = (
    r"""(?:ch)?passwd(?: [^\n<]{1,60})? ?<<-? ?[\\'"]?(\w{1,20})['"]?\r?\n"""
    r"((?:(?!\1)[^\n]{1,256}(?:\r?\n(?!\1)|(?=\r?\n\1)|\Z)){1,20})"
)
_CALL_OF = r"""{}\( ?["'][^"'\n]{{1,128}}["'], ?["']([^"'\n]{{1,256}})["']"""
_PATTERNS = {
    "machine": r"machine\s{1,8}\S{1,128}\s{1,8}login\s{1,8}\S{1,128}\s{1,8}password\s{1,8}(\S+)",
    "create user": r"create user \S{1,128} identified by ([^\s\"';]+)",
    "alter user": r"alter user \S{1,128} identified by ([^\s\"';]+)",
    "identified": r"""identified (?:with \w{1,40} )?by {1,4}(?:password )?["']([^"'\n]{1,256})""",
    "pass:": r"pass:(?:(?<=-passin pass:)|(?<=passout pass:))(\S+)",
    **{
        word: (
            rf"""{word}(?: -n| ["']%s(?:\\n)?["'])? ["']?(?:[\w.-]{{1,64}}:)?"""
            r"""([^\s"':|$%]{1,256})["']? ?\| ?"""
            r"(?:sudo )?(?:chpasswd|docker login|passwd|cryptsetup|smbpasswd|gpg|kinit|sudo|vncpasswd"
            r"|wrangler secret put|[^\n|]{0,80} --(?:password-stdin|with-token))"
        )
        for word in ("echo", "printf")
    },
    **dict.fromkeys(("passwd", "chpasswd"), _LINES_FOR),
    **{
        word: rf"""{word}[^\n]{{0,80}}<<< ?["']?([^\s"'$(<][^\s"']*)"""
        for word in ("sudo -s", "--password-stdin", "--with-token", "cryptsetup", "kinit")
    },
    "expect": (
        r"""expect [^\n]{0,40}pass(?:word|phrase)[^\n]{0,20}\s{1,8}"""
        r"""send (?:-- )?"([^"\n\\$]{1,200})\\{1,4}[rn]"""
    ),
    "setx ": r"""setx \w{0,60}(?:key|token|secret|pass|pwd|pw|password)\w{0,10} ["']?([^\s"']+)""",
    "rclone obscure ": r"rclone obscure (\S+)",
    "wifi:": r"wifi:(?:[a-oq-z]{1,2}:[^;\n]{0,64};){0,5}p:((?:\\.|[^;\n\\]){1,64});",
    ".dockerconfigjson": r"""\.dockerconfigjson["']?: ?["']?([\w+/=]{16,})""",
    "github-oauth": (
        r"""github-oauth["']?\s{0,4}:\s{0,4}\{\s{0,8}["'][\w.]{1,80}["']\s{0,4}:\s{0,4}["']([^"'\s]+)"""
    ),
    "npmauthident": r"""npmauthident["']?: ?["']?([^\s"']+)""",
    ".login(": _CALL_OF.format(r"\.login"),
    "httpbasicauth(": _CALL_OF.format("httpbasicauth"),
    "new pdo(": r"""new pdo\([^,\n]{1,200}, ?["'][^"'\n]{1,128}["'], ?["']([^"'\n]{1,256})["']""",
    **{
        word: rf"""{word}\(["'$\w][^,\n]{{1,200}}, ?["'][^"'\n]{{1,128}}["'], ?["']([^"'\n]{{1,256}})["']"""
        for word in ("mysqli", "mysqli_connect", "mysql_connect")
    },
    "htpasswd": r"htpasswd (?:-[a-z]{1,8} ){0,3}\S{1,128} \S{1,64} ([^\s-]\S*)",
    "sqlplus": r"""sqlplus (?:-\w{1,8} ){0,3}["']?[\w.$-]{1,64}/([^\s@"']+)""",
    "rabbitmqctl": r"rabbitmqctl (?:add_user|change_password) \S{1,64} (\S+)",
    "net use ": (
        r"net use (?:\S{1,128} ){0,2}?/user:\S{1,64} ([^\s/]\S*)"
        r"|net use (?:\S{1,128} ){1,2}([^\s/]\S{0,128}) /u"
    ),
    "net user ": r"net user \S{1,64} ([^\s/*]\S{0,128}) /",
    "mc alias set ": r"mc alias set \S{1,64} \S{1,256} \S{1,128} (\S+)",
    "convertto-securestring": rf"convertto-securestring (?:-(?:string|asplaintext|force) ){{0,3}}{_QUOTED}",
    "snmp-server community ": r"snmp-server community (\S+)",
    "jdbc:oracle": r"jdbc:oracle:\w{1,8}:[\w.$-]{1,64}/([^\s@\"']+)@",
    "password ": r"password (?:[05789]|encrypted) (?=\S{0,64}[0-9])([\w$./+=]{6,})(?:\Z|\s)",
    "secret ": r"secret [05789] (?=\S{0,64}[0-9])([\w$./+=]{6,})(?:\Z|\s)",
    "$ansible_vault;": (
        r"\$ansible_vault;[^\n]{1,60}\s{1,24}"
        r"([0-9a-f]{8}(?:[0-9a-f]|\r?\n[ \t]{0,24}(?=[0-9a-f])){1,65536})"
    ),
    # what programs print
    "ugfzc3dvcmq6": r"ugfzc3dvcmq6[\"']?\s{1,4}(?:c: )?([\w+/=]{4,})",
}

# --- hashes of passwords ------------------------------------------------------------------------------------

_CRYPTS = (
    *("1", "2", "2a", "2b", "2x", "2y", "5", "6", "7", "8", "9", "y", "gy", "p", "h", "md5", "sha1", "apr1"),
    *("scrypt", "argon2i", "argon2d", "argon2id", "bcrypt-sha256"),
)
_HASHES = {
    **{f"${name}$": rf"\${name}\$([\w./+=,$-]{{16,}})" for name in _CRYPTS},
    "$pbkdf2": r"\$pbkdf2[\w-]{0,10}\$([\w./+=,$-]{16,})",
    "pbkdf2": r"pbkdf2(?:_sha\d{1,3}\$\d{1,8}|:[\w:]{1,30})\$([\w./+=$-]{16,})",
    "scrypt:": r"scrypt:[\w:]{1,30}\$([\w./+=$-]{16,})",
    "{s": r"\{ss?ha(?:256|512)?\}([\w./+=$-]{16,})",
    "scram-": r"scram-sha-(?:1|256|512)\$([\w./+=:$-]{16,})",
}


# --- passwords of Postgres ----------------------------------------------------------------------------------

_PGPASS_WORDS = (":5432:", ":5433:", ":6432:", ":*:")
_PGPASS = Pattern(r":(?:[0-9]{4,5}|\*):[\w.*$-]{1,64}:[\w.*@$-]{1,64}:([^\s:]+)(?=\s|\Z)")
_HOST = Pattern(r"[\w.*-]{1,253}")


def _pgpass(text: Text, line: re.Match[str]) -> Iterator[Span]:
    low, place = text.low, line.start()
    start = max(low.rfind(sign, max(0, place - 260), place) for sign in "\n ")
    if _HOST.fullmatch(low, start + 1, place) and not is_masked(line[1]):
        yield Span(*line.span(1))
    yield Span(line.end(), line.end())


# --- secrets of a cluster -----------------------------------------------------------------------------------

_LINE = Pattern(r"[^\n]*\n|[^\n]+")
_ENTRY = Pattern(r"(?P<indent>[ \t]{1,16})[\w.-]{1,128}:[ ]?(?P<value>[^\n]*)")
_JSON_ENTRY = Pattern(r"""[\s,]{0,32}"[\w.-]{1,128}"\s{0,4}:\s{0,4}(?:null|"((?:[^"\\\n]|\\.){0,65536})")""")
_DATA = Pattern(
    r"""data(?:(?<=[\n"]data)|(?<=[\n"]stringdata)|(?<=\Adata)|(?<=\Astringdata))"?[ ]?:[ \t]{0,4}"""
    r"""(?:\r?\n|(?P<json>\{))"""
)
_KINDS = tuple(f"kind{one}secret" for one in (": ", ': "', '": "', '":"'))
_BLOCKS = frozenset(["|", "|-", "|+", ">", ">-", ">+"])


def _cluster_secrets(text: Text, kind: re.Match[str]) -> Iterator[Span]:
    """Yield all values of a Kubernetes Secret, whatever their names."""
    place = kind.start()
    first = max(0, place - 65_536)
    document = max(first, text.low.rfind("\n---", first, place) + 1)
    stop = text.low.find("\n---", place, place + 65_536)
    stop = stop if stop >= 0 else min(len(text.low), place + 65_536)
    for start in _DATA.finditer(text.low, document, stop):
        place = start.end()
        while start["json"] and (entry := _JSON_ENTRY.match(text.low, place)):
            place = entry.end()
            if entry[1] and is_given(entry[1]):
                yield Span(*entry.span(1))
        yield from () if start["json"] else _entries(text, place, stop)
    yield Span(stop, stop)


def _entries(text: Text, place: int, stop: int) -> Iterator[Span]:
    depth = 0
    for found in _LINE.finditer(text.raw, place, stop):
        line = found[0]
        indent = len(line) - len(line.lstrip(" \t"))
        if not indent:
            return
        depth = depth or indent
        entry = _ENTRY.match(line) if indent == depth else None
        value = (entry["value"] if entry else line).strip(" \t\r\n\"'")
        if value and value not in _BLOCKS and not is_masked(value) and not is_placeholder(value):
            start = place + line.rindex(value)
            yield Span(start, start + len(value))
        place += len(line)


COMMAND_RULES = (
    *(_option_rule(command, option) for commands, option in _OPTIONS.items() for command in commands),
    *(pattern_rule((word,), source, is_given, trailing=";,") for word, source in _PATTERNS.items()),
    *(pattern_rule((word,), source, is_given) for word, source in _HASHES.items()),
    Rule(_PGPASS_WORDS, _PGPASS, _pgpass),
    Rule(_KINDS, Pattern(r"""kind"?: ?"?secret(?!\w)"""), _cluster_secrets),
)
