"""`cmem backup`, `restore`, `export` and `import`."""

import asyncio
import os
import sys
from collections.abc import Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Annotated, Literal

import typer

from composable_memory.cli.command import ExitCode, Target, command
from composable_memory.cli.options import AsJson, NewFolder, Strict
from composable_memory.cli.output import environment, one_line, print_json, print_line, warn
from composable_memory.cli.user_settings import enter_section
from composable_memory.config.layers import default_state_dir, user_config_path
from composable_memory.imports.importing import import_export
from composable_memory.json_documents import document
from composable_memory.runtime import backup as runtime
from composable_memory.runtime.backup import BackupReport
from composable_memory.runtime.export import export_memory

app = typer.Typer()

MOST_TOLD = 20
"""How many skipped records to name; `--json` names all."""

Origin = Literal["mem0", "basic-memory", "chatgpt", "claude", "obsidian", "openclaw", "letta"]


@command(app, "backup", epilog="Example: cmem backup ~/backups/notes-2026-07-02")
async def backup(
    target: Target,
    folder: NewFolder,
    *,
    as_json: AsJson = False,
) -> None:
    """Back up what cannot be rebuilt: judgements, weights, golden answers, facts and settings.

    Facts are backed up even if the graph is not enabled now.
    """
    found = await runtime.back_up(target.workspace, folder, state_dir=target.state_dir, environ=os.environ)
    _print_report(found, f"Backed up to {found.folder}:", as_json=as_json)
    _warn_of_left_out(found.left_out)


@command(app, "restore", epilog="Example: cmem restore ~/backups/notes-2026-07-02")
async def restore(
    target: Target,
    folder: Annotated[
        Path,
        typer.Argument(
            metavar="DIR", exists=True, file_okay=False, help="A folder written by `cmem backup`."
        ),
    ],
    *,
    force: Annotated[bool, typer.Option("--force", help="Replace what this memory already has.")] = False,
    as_json: AsJson = False,
) -> None:
    """Restore a backup into this workspace or another. The hash of every file is checked first."""
    found = await runtime.restore(
        target.workspace, folder, state_dir=target.state_dir, environ=os.environ, replace=force
    )
    _print_report(found, f"Restored from {found.folder}:", as_json=as_json)
    for backend_id, key in found.not_enabled.items():
        warn(f"hint: {backend_id}: restored, but not asked until you enable it: set {key} to true")


def _print_report(found: BackupReport, headline: str, *, as_json: bool) -> None:
    if as_json:
        print_json(document(found))
        return
    print_line(headline, bold=True)
    for part, counts in found.parts.items():
        contents = ", ".join(f"{what} {count}" for what, count in counts.items()) or "nothing"
        print_line(f"  {part}: {contents}")


def _warn_of_left_out(left_out: Mapping[str, str]) -> None:
    for backend_id, reason in left_out.items():
        warn(f"left out: what {backend_id} keeps of this workspace: {reason}")


@command(app, "export", epilog="Example: cmem export ~/notes-2026-07-02")
async def export(
    target: Target,
    folder: NewFolder,
    *,
    as_json: AsJson = False,
) -> None:
    """Export notes, facts, judgements and weights for other programs to read."""
    async with AsyncExitStack() as stack:
        opened = await stack.enter_async_context(target.open())
        memory, asleep = await runtime.with_disabled_backends(opened, stack, environment())
        left_out = {backend_id: reason for backend_id, reason in asleep.items() if reason}
        counts, unread = await export_memory(memory, folder)
    if as_json:
        print_json(document(folder=folder, parts=counts, left_out={**left_out, **unread}))
    else:
        print_line(f"Exported to {folder}: {', '.join(f'{one}: {count}' for one, count in counts.items())}.")
    _warn_of_left_out(left_out)
    for path, reason in unread.items():
        warn(f"left out: {path}: {reason}")


@command(app, "import", epilog="Example: cmem import chatgpt ~/Downloads/chatgpt.zip --dry-run")
async def import_(
    target: Target,
    origin: Annotated[Origin, typer.Argument(metavar="ORIGIN", help="The program that wrote the export.")],
    export: Annotated[
        Path,
        typer.Argument(metavar="FILE_OR_DIR", exists=True, help="The export; a ZIP need not be unpacked."),
    ],
    *,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be imported.")] = False,
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Turn on searching conversations, without asking.")
    ] = False,
    strict: Strict = False,
    as_json: AsJson = False,
) -> ExitCode:
    """Import what another memory has exported, as notes and transcripts.

    If conversations are not searched yet, asks whether to search them and saves your answer in your settings.
    """
    async with target.open() as memory:
        done = await import_export(memory, origin, export, dry_run=dry_run)
        is_searched = "sessions" in memory.status().sources or "conversation" not in done.found
    if not is_searched and not dry_run and (yes or (not as_json and sys.stdin.isatty() and _wants_them())):
        is_searched = await _have_them_searched(target)
    if as_json:
        print_json(document(done))
    else:
        counts = ", ".join(f"{one}: {count}" for one, count in (*done.found.items(), *done.outcomes.items()))
        print_line(f"{'Would import' if dry_run else 'Imported'} from {origin}: {counts or 'nothing'}.")
        for example in done.examples:
            print_line(f"  {one_line(example, 110)}", dim=True)
    conflicts = [
        f"conflict: {one}: changed both here and in the export; this copy is kept" for one in done.conflicts
    ]
    problems = [f"left out: {one}" for one in done.problems[:MOST_TOLD]]
    if more := len(done.problems) - len(problems):
        problems.append(f"left out: {more} more; --json names them")
    hint = f"set `memory.builtin.sources: [memory, sessions]` in {user_config_path(os.environ)}"
    hints = [] if is_searched else [f"hint: to have the conversations searched, {hint}"]
    if not (done.found or problems):
        hints.append(
            f"hint: none of its files is named like a file in an export of {origin}; see docs/moving.md"
        )
    for line in (*problems, *conflicts, *hints):
        warn(line)
    if not done.found:
        return ExitCode.FAILED
    return ExitCode.DEGRADED if strict and (problems or conflicts) else ExitCode.FINE


def _wants_them() -> bool:
    question = "Conversations are not searched yet. Search them, in all your workspaces?"
    return typer.confirm(question, default=True, err=True)


async def _have_them_searched(target: Target) -> bool:
    """Add transcripts as a source to the user's settings, and index them; return whether they are one."""
    state = target.state_dir or default_state_dir(os.environ)
    if not await asyncio.to_thread(enter_section, "builtin", {"sources": ["memory", "sessions"]}, state):
        return False
    async with target.open() as memory:
        await memory.sync(reason="import")
        return "sessions" in memory.status().sources
