"""`cmem backup` and `cmem restore`: copies what cannot be rebuilt, and takes it in again."""

import os
from pathlib import Path
from typing import Annotated

import typer

from composable_memory.cli.command import Target, command
from composable_memory.cli.options import AsJson, NewFolder
from composable_memory.cli.output import print_json, print_line
from composable_memory.json_documents import document
from composable_memory.runtime import backup as runtime
from composable_memory.runtime.backup import BackupReport

app = typer.Typer()


@command(app, "backup", epilog="Example: cmem backup ~/backups/notes-2026-07-02")
async def backup(
    target: Target,
    folder: NewFolder,
    *,
    as_json: AsJson = False,
) -> None:
    """Back up what cannot be rebuilt: judgements, weights, golden answers, facts and settings."""
    found = await runtime.back_up(target.workspace, folder, state_dir=target.state_dir, environ=os.environ)
    _print_report(found, f"Backed up to {found.folder}:", as_json=as_json)


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


def _print_report(found: BackupReport, headline: str, *, as_json: bool) -> None:
    if as_json:
        print_json(document(found))
        return
    print_line(headline, bold=True)
    for part, counts in found.parts.items():
        contents = ", ".join(f"{count} {what}" for what, count in counts.items()) or "nothing"
        print_line(f"  {part}: {contents}")
