"""Finds secrets after their names: in assignments, flags, markup and prose, and on the next line.

A name is looked up as a literal word; what joins it to a value is one bounded pattern; plain code that looks
at the first characters of the value decides whether it is a secret.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial

from composable_memory_ops_logs.lazy import Pattern
from composable_memory_ops_logs.redaction.scanner import JUDGED, TRAILING, Rule, Span, Text, run_before
from composable_memory_ops_logs.redaction.secret_names import NAMES, is_open_ending, strength_of
from composable_memory_ops_logs.redaction.secret_values import (
    ALONE,
    Given,
    is_given,
    is_key,
    is_masked,
    is_password,
    is_random,
    is_strong,
)
from composable_memory_ops_logs.redaction.secret_vocabulary import HARMLESS_ENDINGS, VERBS

# --- what joins a name and a value --------------------------------------------------------------------------

_ABOUT = r"""(?:[ ](?:\([^()\n]{1,40}\)|(?:at|da|de|del|do|du|for|from|für|in|of|on|para|per|pour|to|vom
|van|von|voor|от|к|для|на|der|des|dem|(?:mein|dein|sein|ihr|unser)e[rs]|zu|zum|zur|am|beim|login|code
|phrase|wifi|di|della|here|that|we|you|i|que|qui)
    (?:[ ][^\s:=|"`]{1,30}+){0,5}?))?"""

_CLOSE = r"""["'`\\\])*_]{0,6}"""
_OPEN = r"""(?:["'`]|\*{1,2}(?!\*)){0,3}"""
_TYPED = r":[ ]{0,2}(?:str|string|secretstr|final|&str|varchar)(?:[ ]\|[ ]none)?[ ]{0,2}=(?!=)"
_TO = Pattern(r"\b(?:set|chang|reset|updat|rotat|switch)[a-z]{0,3}\b")
_SIGNS = Pattern(
    rf"""(?P<sign>{_CLOSE}[ \t]{{0,30}}(?:{_TYPED}|=>|:=|=(?![=~>])|[!=]==?(?=[ ]?["'])
    |:(?!:|//))(?:[ ]?(?=[a-z0-9])|(?:\*{{1,2}}
(?!\*)|_{{1,2}})?[ \t]{{0,24}}(?:(?:!!|&)[a-z]\w{{0,20}}[ ])?(?:\{{\s{{0,8}}
    ["'](?:current|old|new|previous|next|value|plain|text|raw|primary|secondary)["'][ ]?:[ ]?)?))
    |(?P<attr>{_CLOSE}(?:[,\s/]{{1,24}}|[ \t]{{0,4}},?[ \t]{{0,4}}\r?\n[ \t]{{1,24}}-?[ ]?)["']?(?:value
    |content|val)["']?[ \t]{{0,4}}[:=][ \t]{{0,4}}
        |["'][ ]?\{{\s{{1,8}}
        (?:[a-z]{{1,12}}[ ]{{0,8}}=[^\n]{{0,60}}\n[ \t]{{1,8}}){{0,3}}default[ ]{{0,8}}=[ ]{{0,8}})
    |(?P<call>["'\]]?[ ]{{0,2}}[(,][ ]{{0,4}}(?=["'])|[ ](?=["']))
    |(?P<cell>[*`]{{0,3}}[ \t]{{0,40}}\|[ \t]{{0,40}}(?:`|\*{{1,2}}(?!\*)){{0,3}})
    |(?P<xml>["']?>(?:<!\[cdata\[)?|</(?:key|name)>\s{{1,24}}<(?:string|value)>)""",
    re.VERBOSE,
)
# Most assignments are as plain as this, and need no further check of what is around them.
_PLAIN = Pattern(
    r"""(?P<sign>[:=][ ]?)(?P<plain>[a-z0-9]{5,64}|[a-z0-9]{1,3})(?=[\s"`<>]|\Z)(?![ ]{0,2}[=|])"""
)
_PROSE = Pattern(
    rf"""{_ABOUT}(?:(?P<is>[ ]{{1,2}}(?:{VERBS.replace(" ", "[ ]")})(?:[ ](?:now|still|currently|just
    |also|jetzt|nun|neu|ahora|maintenant|adesso|agora))?[ ]?:?[ ]{{1,2}}{_OPEN})
        |(?P<for>[ ]?[:=](?:[ ]{_OPEN}|(?=\r?\n)))
        |(?P<to>[ ]to[ ](?!(?:your|my|the|our|an?|his|her|their)[ ]){_OPEN})
        |(?P<arrow>[ ]{{1,2}}(?:→|->|—|–|-
        |~)[ ]{{1,2}}{_OPEN}))
    |(?P<far>(?:[ ][^\s:=|"`]{{1,20}}+){{1,3}}[ ]?[:=][ ]{_OPEN})""",
    re.VERBOSE,
)
# What may follow a name and a single space.
_GAPS = {
    "password": Pattern(r"(?P<gap>[ \t]{1,24}(?=\S{3}))"),
    "key": Pattern(r"(?P<gap>[ \t]{1,24}(?=\S{8}|(?<=_key[ ])|(?<=-token[ ])|(?<=-key[ ])|(?<=-secret[ ])))"),
    "code": Pattern(r"(?P<gap>(?:[ ](?:for|from|für|de|pour|para)[ ]\w{1,20})?[ \t]{1,4}(?=[0-9]{2}))"),
}
# "the password's kolibri42" at the end of a clause; not "the password's 12-character limit".
_SHORT_IS = Pattern(r"['’]s(?P<gap>[ ]{1,2}(?=\S{2,64}(?:[,.;!?)]\s|\s{0,3}(?:\n|\Z))))")


def _joined(low: str, end: int, sort: str) -> re.Match[str] | None:
    """Match what joins a name that ends here to a value."""
    first = low[end]
    is_prose = first == " " and low[end + 1 : end + 2].isalpha()  # a word follows, not a sign
    join = None if is_prose else _SIGNS.match(low, end)
    if join is None and first in " \t:=":
        join = _PROSE.match(low, end) or _GAPS[sort].match(low, end)
    elif join is None and first in "'’" and sort == "password":
        join = _SHORT_IS.match(low, end)
    return join


# --- names --------------------------------------------------------------------------------------------------

_CHANGED = Pattern(
    r"(?:[ ](?:was|has|been|changed|reset|updated|rotated|set)){0,3}[ ]from[ ](\S{1,64})[ ]to[ ](\S{4,64})"
)
_CHANGED_CHARS = 40
"""How far after a name its `from` may be."""
_MAY_JOIN = r"""(?=[\r\n \t:="'’`\\\])*_|<>,(/])"""
_DIRECTIVES = ("requirepass", "masterauth", "psk")


def _behind(sort: str, text: Text, match: re.Match[str]) -> Iterable[Span]:
    """Return the secrets after a name."""
    low, name = text.low, match[0]
    place, end = match.span()
    first = low[end]
    if sort == "code" and first in "\r\n" and name.endswith("s"):
        strength = strength_of(sort, text, place, run_before(text.raw, place) + name, name)
        return _code_values(text, "eol", end, name) if strength else ()
    is_changed = sort == "password" and first == " " and " from " in low[end : end + _CHANGED_CHARS]
    changed = _CHANGED.match(low, end) if is_changed else None
    if changed is not None and not name.startswith(("passe", "pass ")):
        return _old_and_new(text, changed)
    may_be_plain = first in ":=" and sort != "code"
    join = (_PLAIN.match(low, end) if may_be_plain else None) or _joined(low, end, sort)
    if join is None or (first == ":" and text.raw[place - 1 : place] == "$"):
        return ()
    more, kind = match["more"], join.lastgroup or ""
    if more and not is_open_ending(more):
        return ()
    if kind == "far" and join[0].split()[0].rstrip(":=") in HARMLESS_ENDINGS:
        return ()
    stem = name.removesuffix(more) if more else name
    ident = run_before(text.raw, place) + text.raw[place : place + len(stem)]
    strength = strength_of(sort, text, place, ident, stem)
    if not strength:
        return ()
    if sort == "code":
        return _code_values(text, kind, join.end(), stem)
    in_flag = ident[0] == "-" or name in _DIRECTIVES
    strength = 1 if more else strength
    if kind != "plain":
        return _values(text, sort, name, place, join, strength, in_flag)
    start, end = join.span(kind)
    given = Given(text.raw[start:end], "sign", join["sign"], strength, False, in_flag, low, end)
    end = _end_of_run(text, start, end, "=") if text.raw[end : end + 1] == "\\" else end
    return (Span(start, end),) if _JUDGES[sort](given) else ()


def _old_and_new(text: Text, changed: re.Match[str]) -> Iterator[Span]:
    for start, stop in map(changed.span, (1, 2)):
        value = text.raw[start:stop].rstrip(TRAILING)
        if is_strong(value) and is_given(value):
            yield Span(start, start + len(value))


_WINDOW = 4096
"""How far to look for the end of a quoted value."""


# --- values -------------------------------------------------------------------------------------------------


def _values(
    text: Text, sort: str, name: str, place: int, join: re.Match[str], strength: int, in_flag: bool
) -> Sequence[Span]:
    low, end, kind, sign = text.low, join.end(), join.lastgroup or "", join[0]
    if kind in _BEFORE_A_LINE:
        opening = _OPENING.match(low, end) if low.startswith(_OPENINGS, end) else None
        listed = _listed(text, sort, opening, strength, name[-1] == "s") if opening else ()
        if listed or (opening and opening.lastgroup != "bracket"):
            return listed
    elif kind == "xml" and sign[0] != "<" and not _in_tag(low, place):
        return ()
    delimiter = "=" if kind == "sign" and "=" in sign else _DELIMITERS.get(kind, ":")
    start, value, end, is_quoted = _value_at(text, end, delimiter)
    if kind in _BEFORE_A_QUOTE and low[start - 1 : start] in {'"', "'", "`"}:
        quoted = _value_at(text, start - 1, ":")
        start, value, end, is_quoted = quoted if quoted[-1] else (start, value, end, False)
    if not value or is_masked(value):
        return ()
    least = _LEAST_OF_LETTERS[sort]
    if kind in ALONE and not is_quoted and not in_flag and len(value) < least and value.isalpha():
        return ()
    before = low[max(0, place - 60) : place].rpartition(" ")[2] if "@" in value else ""
    if "://" in before and before[-1] not in _PARAMETERS:
        return ()  # part of a URL
    if kind == "gap" and _ATTRIBUTE.match(low, start):
        return ()
    if kind == "to" and not _TO.search(low, max(0, place - 60), place):
        return ()
    # Positional, which takes half as long as by keyword.
    given = Given(value[:JUDGED], kind, sign, strength, is_quoted, in_flag, low, end)
    if not _JUDGES[sort](given) or (kind == "cell" and _RULE_LINE.match(low, end)):
        return ()
    return (Span(start, end if is_quoted else _end_of_run(text, start, end, delimiter)),)


_JUDGES = {"password": is_password, "key": is_key}
_LEAST_OF_LETTERS = {"password": _WINDOW, "key": 16}
"""How many letters alone can be one there."""
_BEFORE_A_QUOTE = frozenset(["is", "for", "to"])
_ATTRIBUTE = Pattern(r"""[a-z][a-z:_-]{0,40}=["']""")
_PARAMETERS = frozenset(";?&")
"""What precedes the name of a parameter in a URL."""
_BEFORE_A_LINE = frozenset(["sign", "for"])
_DELIMITERS = {"xml": "<", "cell": "|", "attr": "="}
"""The sign that ends values of a kind; for all others a colon."""

_RULE_LINE = Pattern(r"[^\n]{0,400}+\n[ \t]{0,8}\|?[ \t]{0,8}:?--")  # so this was the head of a table


def _in_tag(low: str, place: int) -> bool:
    start = low.rfind("<", max(0, place - 60), place)
    return start >= 0 and ">" not in low[start:place]


# --- values on lines of their own, in blocks, lists and tables ----------------------------------------------

_OPENINGS = ("\r", "\n", "|", ">", "[", "{", "(", "#", '"""', "'''")
_OPENING = Pattern(
    r"""(?P<block>[|>][+-]?[0-9]?[ \t]{0,4}(?=\r?\n))|(?P<quotes>"{3}|'{3})|(?P<bracket>[\[{]|\((?=\s{1,48}"""
    r"""["']))|(?:\#[ ][^\n]{0,80})?(?=\r?\n|\Z)"""
)
_ENTRY = r"""(?:,?[ \t]{0,8}\r?\n){0,2}(?:```\w{0,12}\r?\n)?(?P<indent>[ \t,]{0,48})(?P<item>-[ ]{1,3})?
    (?P<name>["'][^"'\n]{1,60}["'][ ]?:[ ]?|[a-z][\w.@-]{0,60}:[ ]{1,8})?["'`*]{0,3}
    (?P<value>(?<=["'`])[^"'`\n]{1,256}(?=["'`])|[^\s"'`|<>{}*\#$\[\]-][^\s"'`|<>{}*%s]{0,256})
    ["'`*]{0,3}[ \t]{0,12}(?=\r?\n|\Z|%s)"""
_IN_BRACKETS = Pattern(_ENTRY % (r",()\[\]", r"[,\])}]"), re.VERBOSE)
_ON_LINES = Pattern(_ENTRY % ("", r"""["']{3}|(?<=["'`])[,\])}]"""), re.VERBOSE)
_LOOKS: Mapping[str, Callable[[str], bool]] = {
    "password": is_strong,
    "key": lambda value: len(value) >= 16 and is_random(value),
}


def _listed(text: Text, sort: str, opening: re.Match[str], strength: int, is_plural: bool) -> Sequence[Span]:
    """Return the secret on the next line, or those in the block, list or table that starts after a name.

    In a list or a table, which may contain other things too, a secret must look like one.
    """
    place, kind, depth = opening.end(), opening.lastgroup, 0
    pattern = _IN_BRACKETS if kind == "bracket" else _ON_LINES
    found: list[Span] = []
    while place < opening.end() + _WINDOW and (entry := pattern.match(text.low, place)):
        (start, end), place, name = entry.span("value"), entry.end(), entry["name"] or ""
        value, indent = text.raw[start:end], len(entry["indent"])
        is_listed = kind == "bracket" or entry["item"] or name
        if (
            (name and not is_plural)
            or value.endswith((":", ",", "(", "["))
            or (indent < depth and kind != "bracket")
        ):
            break
        depth = indent
        given = Given(value=value[:JUDGED], join="line", sign=":\n", strength=strength)
        is_likely = not is_listed or (_LOOKS[sort](value) and is_open_ending(name.strip("\"': ")))
        if is_likely and value.count(" ") < 2 and _JUDGES[sort](given):
            found.append(Span(start, end))
        if not (is_listed or kind) or text.low[place : place + 1] in {"]", ")", "}"}:
            break
    return found


# --- where a value ends -------------------------------------------------------------------------------------

_LEAD = Pattern(r"""["'`«「『]|\\{1,3}["']""")
_LEADS = frozenset("\"'`«「『\\")
_CLOSING = {"«": "»", "「": "」", "『": "』"}
_RUN_AFTER = {
    "=": Pattern(r"""[^\s"'`<>&;]*"""),
    ":": Pattern(r"""[^\s"`<>]*"""),
    "<": Pattern(r"[^<\n]*"),
    "|": Pattern(r"[^|\s`*]*"),
}
_BOUND_RUN = {sign: Pattern(run.source[:-1] + f"{{0,{JUDGED}}}") for sign, run in _RUN_AFTER.items()}
_BRACED = Pattern(r"""\{[^{}\s"']{4,128}\}(?=;)""")  # a connection of ODBC
_JOINT = Pattern(r"&(?:amp|lt|gt|quot|apos|#x?[0-9A-Fa-f]{1,5});|\\\r?\n(?=[^\s-])")
# The format in which Google shows app passwords.
_FOUR_FOURS = Pattern(r"[a-z]{4}(?:[ ][a-z]{4}){3}(?=[ \t]{0,4}(?:\r?\n|\Z))")


def _value_at(text: Text, place: int, delimiter: str) -> tuple[int, str, int, bool]:
    """Return where a value starts, its first characters, where they end, and whether they are all of it."""
    low = text.low
    first = low[place : place + 1]
    lead = _LEAD.match(low, place) if first in _LEADS and delimiter not in "<|" else None
    if lead is not None:
        quote = _CLOSING.get(lead[0], lead[0])
        start = lead.end()
        end = low.find(quote, start, start + _WINDOW)
        while len(quote) == 1 and end > start and low[end - 1] == "\\":
            end = low.find(quote, end + 1, start + _WINDOW)
        line = low.find("\n", start, end if end >= 0 else start + _WINDOW)
        if line >= 0 and quote != "`":
            end = line
        if end < 0:
            end = min(len(low), start + _WINDOW)
        return start, text.raw[start:end], end, True
    braced = _BRACED.match(low, place) if first == "{" and delimiter == "=" else None
    if braced is not None:
        return place, text.raw[place + 1 : braced.end() - 1], braced.end(), True
    words = _FOUR_FOURS.match(low, place) if low[place + 4 : place + 5] == " " else None
    match = words or _BOUND_RUN[delimiter].match(low, place)
    end = match.end() if match else place
    value = text.raw[place:end]
    if end - place < JUDGED:
        value = value.rstrip(TRAILING)
        end = place + len(value)
    return place, value, end, False


def _end_of_run(text: Text, start: int, end: int, delimiter: str) -> int:
    """Return where an unquoted value ends, given the end of its first characters."""
    if end - start >= JUDGED:
        match = _RUN_AFTER[delimiter].match(text.low, start)
        end = start + len(text.raw[start : match.end() if match else end].rstrip(TRAILING))
    while text.raw[end : end + 1] in {"&", "\\"} and (joint := _JOINT.match(text.raw, end)):
        match = _RUN_AFTER["="].match(text.low, joint.end())
        end = match.end() if match else joint.end()
    return end


# --- codes --------------------------------------------------------------------------------------------------

_SHARED = Pattern(r"[A-Z2-7]{16,128}(?![A-Za-z0-9])")
_CODES = Pattern(
    r"(?:[0-9]{1,2}-[0-9]{1,2}-[0-9]{1,2}|[0-9]{3}[ -][0-9]{3}|[0-9]{3}-[0-9]{2}-[0-9]{4}|[0-9]{4}[ ][0-9]{4}"
    r"|[0-9]{4,10}[a-z]?|[0-9]{3})(?![\w%:/]|\.\w)"
)
_SHORT_CODES = ("pin", "cvv", "cvc", "ssn", "cod", "com")
_CODE_LIST = Pattern(
    r"(?:[ ,;\r\n|*-]{0,6}(?:[0-9]{1,2}[.)][ ])?(?=[a-z]{0,8}-?[a-z]{0,8}[0-9])[a-z0-9]{4,10}"
    r"(?:-[a-z0-9]{4,10}){0,4}(?![\w]))"
)


def _code_values(text: Text, kind: str, place: int, name: str) -> Iterator[Span]:
    """Yield the number after `PIN:`, or the codes after `backup codes:`."""
    low = text.low
    shared = _SHARED.match(text.raw, place)
    if shared is not None and name in {"otp", "totp", "2fa"}:
        yield Span(*shared.span())
        return
    if kind not in _CODE_JOINS and not (kind == "gap" and name.startswith(_SHORT_CODES)):
        return
    while low[place : place + 1] in _BEFORE_A_CODE:
        place += 1
    first = _CODES.match(low, place)
    if first is not None and _UNIT.match(low, first.end()):
        first = None
    if first is None and kind == "is":
        return
    count, end = (1, first.end()) if first else (0, place)
    while count < 40 and (entry := _CODE_LIST.match(low, end)):
        count, end = count + 1, entry.end()
    if count >= (2 if name.endswith("s") else 4) or (count and "-" in low[place:end]):
        place += len(low[place:end]) - len(low[place:end].lstrip(" ,;\r\n|*-"))
        if not is_masked(low[place:end]):
            yield Span(place, end)
    elif first:
        yield Span(*first.span())


_BEFORE_A_CODE = frozenset("\"'\r\n")
_CODE_JOINS = frozenset(["sign", "is", "for", "far", "eol", "cell", "arrow"])
_UNIT = Pattern(r"[ ]?(?:digits?|char|stellen|stellig|times|attempts|minutes?|seconds?|位|桁|or|to|-)")


ASSIGNMENT_RULES = tuple(
    Rule((word,), Pattern(f"(?>{name.source}){_MAY_JOIN}"), partial(_behind, sort))
    for sort, names in NAMES.items()
    for word, name in names.items()
)
