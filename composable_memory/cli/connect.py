"""`cmem connect`: adds the memory to the configuration files of an agent, and removes it again."""

import asyncio
import difflib
import importlib.util
import json
import os
import re
import sys
from collections.abc import Iterator, Sequence
from itertools import takewhile
from pathlib import Path
from typing import Annotated

import typer

from composable_memory.cli.command import Target, command
from composable_memory.cli.options import AsJson
from composable_memory.cli.output import print_json, print_line, warn
from composable_memory.config.layers import default_state_dir
from composable_memory.connect.clients import CLIENTS, GENERIC, SERVER, Client, Places, Scope
from composable_memory.connect.edits import Edit, hook_commands, plan, plan_undo, running_command, write
from composable_memory.connect.file_text import table
from composable_memory.errors import ConfigError
from composable_memory.json_documents import document
from composable_memory.paths import has_memory_files
from composable_memory.state.folders import existing_folder, make_state_folder
from composable_memory.types import JsonValue
from composable_memory_ops_logs import redact

app = typer.Typer()
LONGEST_LINE = 200
MOST_COMPARED_LINES = 4_000
_MEMBER = re.compile(r'(?:"(?:\\.|[^"\\])*"|[^",{\[])+[,{\[]?|[,{\["]')
NAMES = (*CLIENTS, GENERIC)


@command(app, "connect", epilog="Example: cmem connect claude-code --workspace ~/notes")
async def connect(
    target: Target,
    client_name: Annotated[str, typer.Argument(metavar="CLIENT", help=f"One of {', '.join(NAMES)}.")],
    *,
    scope: Annotated[
        Scope,
        typer.Option("--scope", help="For all your projects, or only for the one in the current folder."),
    ] = "user",
    hooks: Annotated[
        bool, typer.Option("--hooks/--no-hooks", help="Also add hooks, where the client has them.")
    ] = True,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would change, without changing it.")
    ] = False,
    undo: Annotated[bool, typer.Option("--undo", help="Remove what was added.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    as_json: AsJson = False,
) -> None:
    """Connect an agent to this memory: add the MCP server and hooks to the agent's configuration.

    Shows each change and asks before writing. Everything else in the files stays as it is.
    """
    if client_name not in NAMES:
        problem = f"unknown client {client_name!r}; known clients: {', '.join(NAMES)}"
        raise typer.BadParameter(problem, param_hint="CLIENT")
    workspace = await asyncio.to_thread(existing_folder, target.workspace)
    options = ["--workspace", str(workspace)]
    if target.state_dir is not None:
        options += ["--state-dir", str(await asyncio.to_thread(make_state_folder, target.state_dir))]
    if not undo and not await asyncio.to_thread(has_memory_files, workspace):
        warn(f"note: {workspace} has neither MEMORY.md nor memory/; is it the folder with your notes?")
    words = running_command(sys.argv[0], Path(sys.prefix), os.environ)
    if importlib.util.find_spec("mcp") is None:
        warn("note: the MCP server needs an extra: pip install 'composable-memory[mcp]'")
    client = CLIENTS.get(client_name)
    if client is None:
        _print_generic(words, options, as_json=as_json)
        return
    if scope not in client.servers:
        raise ConfigError("connect", f"{client.title} has no configuration for a project; use --scope user")
    state = await asyncio.to_thread(make_state_folder, target.state_dir or default_state_dir(os.environ))
    places = Places(home=Path.home(), project=await asyncio.to_thread(Path.cwd), environ=os.environ)
    if undo:
        edits = await asyncio.to_thread(plan_undo, client, places, scope, state)
    else:
        edits = await _plan(client, places, scope, words, options, hooks=hooks)
    if not as_json:
        _print_edits(edits, client, scope, hooks=hooks and not undo)
    changes = [edit for edit in edits if edit.is_change]
    copies: list[Path] = []
    is_done = bool(changes) and not dry_run and (yes or not as_json)
    if is_done:
        if not yes:
            typer.confirm("Write this?", abort=True, err=True)
        for edit in changes:
            copy = await asyncio.to_thread(write, edit, state, is_private=scope == "user")
            copies += [copy] if copy else []
    if as_json:
        print_json(_document(client_name, scope, edits, copies, is_done=is_done))
    elif is_done:
        for copy in copies:
            print_line(f"Backup of the old file: {copy}", dim=True)
        print_line(f"Removed from {client.title}." if undo else f"{client.title} is connected. {client.hint}")


async def _plan(
    client: Client, places: Places, scope: Scope, words: Sequence[str], options: Sequence[str], *, hooks: bool
) -> tuple[Edit, ...]:
    try:
        return await asyncio.to_thread(plan, client, places, scope, words, options, hooks=hooks)
    except ConfigError:
        warn(f"Add this yourself:\n{_server_lines(client, words, options)}")
        raise


def _server_lines(client: Client, words: Sequence[str], options: Sequence[str]) -> str:
    entry = client.server([*words, "mcp", *options])
    if client.key == ("mcp_servers",):
        return table(client, entry)
    value: object = {SERVER: entry}
    for name in reversed(client.key):
        value = {name: value}
    return json.dumps(value, indent=2, ensure_ascii=False)


def _print_edits(edits: Sequence[Edit], client: Client, scope: Scope, *, hooks: bool) -> None:
    for edit in edits:
        if not edit.is_change:
            print_line(f"{edit.path}: nothing to change")
            continue
        print_line(
            f"{edit.path}: {'removed' if edit.after is None else 'changed' if edit.before else 'new'}",
            bold=True,
        )
        for line in _diff(edit):
            print_line(f"  {line}", colour="green" if line.startswith("+") else "red")
    if hooks and client.hooks and scope not in client.hook_files:
        warn(f"note: where {client.title} keeps hooks for a {scope} is unknown; --scope project adds them")


def _diff(edit: Edit) -> Iterator[str]:
    """Yield removed and added lines, but no unchanged ones: they may contain secrets."""
    before, after = (_lines(text or "") for text in (edit.before, edit.after))
    above = _common([line.rstrip(",") for line in before], [line.rstrip(",") for line in after])
    below = _common(before[above:][::-1], after[above:][::-1])
    before, after = before[above : len(before) - below], after[above : len(after) - below]
    if len(before) + len(after) > MOST_COMPARED_LINES:  # a real diff would take minutes
        old_lines, new_lines = set(before), set(after)
        before, after = (
            [line for line in before if line not in new_lines],
            [line for line in after if line not in old_lines],
        )
    for _, i, j, k, m in difflib.SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        old, new = "\n".join(before[i:j]), "\n".join(after[k:m])
        start = _outside_quotes(old, _common(old, new))
        end = _outside_quotes(old[start:][::-1], _common(old[start:][::-1], new[start:][::-1]))
        for sign, text in (("-", old), ("+", new)):
            lines = text[start : len(text) - end].splitlines()
            yield from (redact(f"{sign} {line}") for line in lines if line.strip(" \t,"))


def _lines(text: str) -> list[str]:
    """Return the lines of a text, the members of a long one separately."""
    lines = text.splitlines()
    return [
        part for line in lines for part in (_MEMBER.findall(line) if len(line) > LONGEST_LINE else [line])
    ]


def _common(one: Sequence[str], other: Sequence[str]) -> int:
    """Return the length of the common prefix, in lines or characters."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))


def _outside_quotes(text: str, at: int) -> int:
    """Return the place, or the start of the quoted text that contains it."""
    line = text.rfind("\n", 0, at) + 1
    return text.rfind('"', line, at) if text.count('"', line, at) % 2 else at


def _print_generic(words: Sequence[str], options: Sequence[str], *, as_json: bool) -> None:
    """Print what any MCP client needs, and the commands for one with hooks."""
    names = ("session-start", "prompt", "turn", "compaction", "session-end")
    generic = Client(title=GENERIC, servers={}, hooks={name: (name,) for name in names})
    commands = {name: command for _, name, command in hook_commands(generic, words, options)}
    server = json.loads(_server_lines(generic, words, options))
    if as_json:
        print_json(document(client=GENERIC, server=server, hooks=commands))
        return
    print_line(json.dumps(server, indent=2, ensure_ascii=False))
    for line in commands.values():
        print_line(line)


def _document(
    name: str, scope: Scope, edits: Sequence[Edit], copies: Sequence[Path], *, is_done: bool
) -> dict[str, JsonValue]:
    files = [document(path=edit.path, changed=edit.is_change, diff=[*_diff(edit)]) for edit in edits]
    return document(client=name, scope=scope, files=files, written=is_done, copies=[*copies])
