"""Our server and our hooks in the text of a configuration file, JSON or TOML (pure)."""

import json
import re
import shlex
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import pairwise
from pathlib import PurePosixPath

from composable_memory.connect import json_text
from composable_memory.connect.clients import SERVER, Client

_OUR_HOOK = re.compile(
    r"(?:cmem|composable-memory|composable_memory\.cli)(?:\.exe)?[\"']? hook "
    r"(session-start|prompt|turn|compaction|message|summary|session-end)\b"
)
_WRAPPERS = re.compile(
    r"""^\s*(?:env|exec|nohup|command|timeout(?:\s+-\S+)*\s+[\d.]+[smh]?|\w+=(?:"[^"]*"|'[^']*'|[^\s"';&|]*))\s"""
    r"""|\s*(?:(?:\|\||;)\s*(?:true|:|exit\s+0)|[12&]?>>?\s*(?:&[12]|[^\s;&|<>"']+)|<\s*/dev/null|&|;)\s*\Z"""
)
"""What has no effect of its own around a call: variables, a timeout, `2>/dev/null`, `|| true`."""
_SHELLS = frozenset({"sh", "bash", "zsh", "dash"})
_PROGRAMS = frozenset({"cmem", "composable-memory"})
_TABLE = re.compile(r"^[ \t]*\[", re.MULTILINE)
_OUR_TABLE = re.compile(
    rf"""^[ \t]*\[[ \t]*(["']?)mcp_servers\1[ \t]*\.[ \t]*(["']?){SERVER}\2[ \t]*[].]""", re.MULTILINE
)
_OTHER_FORM = f"{SERVER} is already in it, in a form that this command does not change"
_REMARKS = re.compile(r"(?:^[ \t]*(?:#[^\n]*)?(?:\n|\Z))*\Z", re.MULTILINE)
"""Comments and blank lines at the end of a table: they belong to what follows."""


def with_server(text: str, client: Client, entry: Mapping[str, object], *, is_toml: bool) -> str:
    """Return the text with our server; what the user added to its entry stays.

    Raises:
        ValueError: the text cannot be parsed, or not edited safely.
    """
    if is_toml:
        return _with_table(text, client, entry)
    path = (*client.key, SERVER)
    found = json_text.parse(text).find(path)
    there = found.value if found else {}
    wanted = {**there, **entry} if isinstance(there, dict) else entry
    return text if there == wanted else json_text.with_value(text, path, wanted)


def without_us(text: str, client: Client, *, is_toml: bool) -> str:
    """Return the text without our server and our hooks.

    Raises:
        ValueError: the text cannot be parsed, or has our server in a form that is not supported here.
    """
    if is_toml:
        rest = "".join(part for is_ours, part in _tables(text) if not is_ours)
        if _server_in(rest, client) is not None:
            raise ValueError(_OTHER_FORM)
        return rest
    path = (*client.key, SERVER)
    text = text if json_text.parse(text).find(path) is None else json_text.without(text, path)
    return _without_hooks(text)


def with_hooks(text: str, client: Client, commands: Iterable[tuple[str, str, str]]) -> str:
    """Return the text with our hooks, each given as event, name and command.

    Raises:
        ValueError: the text cannot be parsed, or something else is where hooks belong.
    """
    theirs = set(_called_with_others(text))
    wanted = [one for one in commands if one[:2] not in theirs]
    there = Counter((path[1], command) for path, command in _our_hooks(text))
    if there == Counter((event, command) for event, _, command in wanted):
        return text
    text = _without_hooks(text)
    if client.version is not None and json_text.parse(text).find(("version",)) is None:
        text = json_text.with_value(text, ("version",), client.version)
    for event, name, command in wanted:
        text = json_text.with_entry(text, ("hooks", event), client.hook(command, name))
    return text


def _without_hooks(text: str) -> str:
    while found := next(_our_hooks(text), None):
        text = json_text.without(text, found[0])
    return text


def _our_hooks(text: str) -> Iterator[tuple[json_text.Path, str]]:
    yield from ((path, command) for path, command in _commands(text) if _is_our_hook(command))


def _called_with_others(text: str) -> Iterator[tuple[object, str]]:
    """Yield event and name of each of our hooks that one of the user's commands calls along with others."""
    for path, command in _commands(text):
        if not _is_our_hook(command):
            yield from ((path[1], name) for name in _OUR_HOOK.findall(command))


def _commands(text: str) -> Iterator[tuple[json_text.Path, str]]:
    hooks = json_text.parse(text).find(("hooks",))
    for path, node in hooks.walk(("hooks",)) if hooks else ():
        command = node.find(("command",)) if node.kind == "{" else None
        if command is not None and isinstance(command.value, str):
            yield path, command.value


def _is_our_hook(command: object) -> bool:
    return isinstance(command, str) and _OUR_HOOK.search(command) is not None and _starts_only_us(command)


def _starts_only_us(command: str) -> bool:
    """Return whether a command starts only us; whatever else it does belongs to the user."""
    while (bare := _WRAPPERS.sub("", command)) != command:
        command = bare
    lexer = shlex.shlex(command, posix=True, punctuation_chars=True)
    lexer.whitespace_split, lexer.commenters = True, ""
    try:
        words = list(lexer)
    except ValueError:
        return False
    if "\n" in command or any(word and set(word) <= set(lexer.punctuation_chars) for word in words):
        return False
    match words:
        case [shell, "-c", inner] if PurePosixPath(shell).name in _SHELLS:
            return _starts_only_us(inner)
        case [_, "-m", "composable_memory.cli", "hook", *_]:
            return True
        case [program, "hook", *_] | [_, "--from", _, program, "hook", *_]:
            return _is_our_program(program)
        case [_, "run", "--spec", _, program, "hook", *_]:
            return _is_our_program(program)
    return False


def _is_our_program(path: str) -> bool:
    return PurePosixPath(path.replace("\\", "/")).name.removesuffix(".exe") in _PROGRAMS


def others(text: str, *, is_toml: bool) -> object:
    """Return the content of a text without us; None if there is none. Empty sections do not count.

    Raises:
        ValueError: the text cannot be parsed.
    """
    rest = _others(tomllib.loads(text) if is_toml else json_text.parse(text).value)
    if isinstance(rest, dict):
        rest = {name: item for name, item in rest.items() if (name, item) != ("version", 1)}
    return rest or None


def _others(value: object) -> object:
    match value:
        case dict():
            if _is_our_hook(value.get("command")):
                return None
            kept = {name: _others(item) for name, item in value.items() if name != SERVER}
            return {name: item for name, item in kept.items() if item not in (None, {}, [])} or None
        case list():
            return [item for item in map(_others, value) if item not in (None, {}, [])] or None
    return value


# --- TOML ---------------------------------------------------------------------------------------------------


def table(client: Client, entry: Mapping[str, object]) -> str:
    """Return our server as a TOML table; TOML accepts JSON strings."""
    lines = (f"{name} = {json.dumps(value, ensure_ascii=False)}\n" for name, value in entry.items())
    return f"[{'.'.join((*client.key, SERVER))}]\n{''.join(lines)}"


def _with_table(text: str, client: Client, entry: Mapping[str, object]) -> str:
    there = _server_in(text, client)
    if there is not None and {**there, **entry} == there:
        return text
    newline = "\r\n" if "\r\n" in text else "\n"
    if there is None:
        gap = newline if text.strip() else ""
        end = "" if not text or text.endswith("\n") else newline
        return f"{text}{end}{gap}{table(client, entry).replace(chr(10), newline)}"
    changed = "".join(_with_lines(part, entry) if is_ours else part for is_ours, part in _tables(text))
    with suppress(tomllib.TOMLDecodeError):
        if _server_in(changed, client) == {**there, **entry}:
            return changed
    raise ValueError(_OTHER_FORM)


def _server_in(text: str, client: Client) -> dict[str, object] | None:
    value: object = tomllib.loads(text)
    for name in (*client.key, SERVER):
        value = value.get(name) if isinstance(value, dict) else None
    return value if isinstance(value, dict) else None


def _with_lines(part: str, entry: Mapping[str, object]) -> str:
    for name, value in entry.items():
        line = f"{name} = {json.dumps(value, ensure_ascii=False)}".replace("\\", r"\\")
        part = re.sub(rf"(?m)^[ \t]*{name}[ \t]*=[^\r\n]*", line, part, count=1)
    return part


def _tables(text: str) -> list[tuple[bool, str]]:
    """Split the text and mark which parts are our tables; a blank line before a table belongs to it."""
    starts = [0, *(found.start() for found in _TABLE.finditer(text)), len(text)]
    parts: list[tuple[bool, str]] = []
    for begin, end in pairwise(starts):
        part, is_ours = text[begin:end], _OUR_TABLE.match(text, begin) is not None
        if is_ours and parts and (gap := re.search(r"\n(\r?\n)\Z", parts[-1][1])):
            parts[-1] = (False, parts[-1][1][: gap.start(1)])
            part = gap[1] + part
        below = _REMARKS.search(part)
        assert below is not None
        cut = below.start() if is_ours else len(part)
        parts += [one for one in ((is_ours, part[:cut]), (False, part[cut:])) if one[1]]
    return parts
