"""Finds secrets in tables: the cells of columns whose heading names a secret."""

import re
from collections.abc import Generator, Iterator

from composable_memory_ops_logs.lazy import Pattern
from composable_memory_ops_logs.redaction.scanner import ANY, Rule, Span, Text
from composable_memory_ops_logs.redaction.secret_names import is_secret_name
from composable_memory_ops_logs.redaction.secret_values import is_code, is_given, is_random, is_strong

_WORDS = (
    *("pass", "pw", "token", "secret", "key", "pin", "cvv", "contrase", "senha", "kennwort", "mdp"),
    *("密码", "口令", "パスワード", "비밀번호", "парол", "密钥", "令牌"),
)
_SEPARATORS = ("|", "\t", ";", ",")
_REMEMBERED = 2_000
"""How many lines to remember."""
_LONGEST = 1000
"""A longer line is not the head of a table."""


def _cells_below(text: Text, word: re.Match[str]) -> Iterator[Span]:
    """Yield the cells below a heading, in Markdown, in delimited and in aligned values."""
    low, place = text.low, word.start()
    start, end = low.rfind("\n", max(0, place - _LONGEST), place) + 1, low.find("\n", place, place + _LONGEST)
    if end < 0 or (start == 0 and place > _LONGEST):
        end = end if end >= 0 else min(len(low), place + _LONGEST)
        yield Span(end, end)
        return
    heading, row_end = low[start:end], low.find("\n", end + 1)
    separator = next((one for one in _SEPARATORS if one in heading), "  ")
    row = low[end + 1 : row_end if row_end >= 0 else len(low)]
    if separator in row.strip() and separator in heading.strip():
        end = yield from _below(text, heading, separator, end)
    yield Span(end, end)


def _below(text: Text, heading: str, separator: str, end: int) -> Generator[Span, None, int]:
    """Yield the secrets in the lines below a heading, and return where the last of them ends."""
    width = _width(heading, separator)
    columns = text.memo.get(heading)
    if columns is None:
        columns = text.memo[heading] = tuple(_secret_columns(heading, separator))
    while columns and end + 1 < len(text.low):
        stop = text.low.find("\n", end + 1)
        line = text.raw[end + 1 : stop if stop >= 0 else len(text.raw)]
        if not line or _width(line, separator) < width:
            break
        cells = text.memo.get((heading, line))
        if cells is None:
            cells = tuple(_cells(line, separator, columns))
            if len(text.memo) < _REMEMBERED:
                text.memo[heading, line] = cells
        yield from (Span(end + 1 + start, end + 1 + stop) for start, stop in cells)
        end += 1 + len(line)
    return end


def _width(line: str, separator: str) -> int:
    return len(_ALIGNED.findall(line)) if separator == "  " else line.count(separator)


def _secret_columns(line: str, separator: str) -> Iterator[tuple[int, bool]]:
    """Yield the number of each column with secrets, and whether it may contain words too."""
    cells = []
    for _, written in _split(line, separator):
        cell = written.strip(" \t*`\"'_\r").lower()
        if separator in ",;" and (len(cell) > 30 or cell.count(" ") > 2):
            return
        cells.append(cell)
    if separator in ",;" and len(cells) < 2:
        return
    for number, cell in enumerate(cells):
        if _is_heading(cell):
            yield number, cell == "key" or cell.endswith(("token", "secret"))


def _is_heading(cell: str) -> bool:
    if cell in {"pin", "cvv", "cvc", "pass", "pw", "key", "api keys", "secret", "secret key"}:
        return True
    cell = cell.split("(")[0].strip()
    return len(cell) <= 30 and is_secret_name(cell)


def _cells(line: str, separator: str, columns: tuple[tuple[int, ...], ...]) -> Iterator[tuple[int, int]]:
    """Yield start and end of each secret in a line."""
    cells = list(_split(line, separator))
    for number, has_words in columns:
        start, cell = cells[number] if number < len(cells) else (0, "")
        bare = cell.strip(" \t*`\"'\r")
        if not bare or bare.lower() in _NO_CELL or set(bare) <= set("-: "):
            continue
        is_likely = is_random(bare) or (len(bare) > 7 and is_strong(bare))
        if (is_likely or (not has_words and " " not in bare)) and is_given(bare) and not is_code(bare):
            start += cell.index(bare)
            yield start, start + len(bare)


_ALIGNED = Pattern(r"(?:\S|[ ](?=\S))+")


def _split(line: str, separator: str) -> Iterator[tuple[int, str]]:
    """Yield the cells of a line with their offsets; quoted commas do not separate."""
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

# --- rows of SQL --------------------------------------------------------------------------------------------

_INSERT = Pattern(r"insert into [^\s(]{1,128} ?\(([^()\n]{1,400})\)\s{1,8}values(?=\s{0,8}\()")
_SQL_CELL = Pattern(
    r"""[\s,]{0,8}(?P<row>\()?[ \t]{0,8}(?:'(?P<value>(?:[^'\n]|''){0,1000})'|[^,()'\n]{1,1000})\)?"""
)


def _inserted(text: Text, match: re.Match[str]) -> Iterator[Span]:
    """Yield the values, in each row, of columns named like secrets."""
    names = [name.strip(" \t\"'`[]") for name in match[1].split(",")]
    columns = {number for number, name in enumerate(names) if is_secret_name(name)}
    number, end = 0, match.end()
    while columns and (cell := _SQL_CELL.match(text.raw, end)):
        number, end = 0 if cell["row"] else number + 1, cell.end()
        if number in columns and cell["value"] and is_given(cell["value"]):
            yield Span(*cell.span("value"))
    yield Span(end, end)


TABLE_RULES = (Rule(_WORDS, ANY, _cells_below), Rule(("insert into ",), _INSERT, _inserted))
