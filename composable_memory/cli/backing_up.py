"""`cmem backup` and `restore`, `cmem feedback export` and `import`: what cannot be rebuilt, out and in."""

import os
import sys
from pathlib import Path

from composable_memory.cli.feedback_documents import BackupDocument, ExportDocument, ImportDocument
from composable_memory.cli.learning_place import learning_of
from composable_memory.cli.runner import ExitCode, Place
from composable_memory.cli.screen import counted, say, warn, write_json
from composable_memory.runtime.backup import BackupReport, back_up, restore

__all__ = ["backup", "export", "import_", "take_in"]


async def backup(place: Place, folder: Path, *, as_json: bool) -> ExitCode:
    """Copy what cannot be rebuilt into a new folder."""
    found = await back_up(place.workspace, folder, state_dir=place.state_dir, environ=os.environ)
    return _tell(found, f"Backed up to {found.folder}:", as_json=as_json)


async def take_in(place: Place, folder: Path, *, force: bool, as_json: bool) -> ExitCode:
    """Make what a backup holds the memory of this workspace."""
    found = await restore(
        place.workspace, folder, state_dir=place.state_dir, environ=os.environ, replace=force
    )
    return _tell(found, f"Restored from {found.folder}:", as_json=as_json)


async def export(place: Place, output: Path | None, *, as_json: bool) -> ExitCode:
    """Write the feedback store as JSON lines."""
    async with learning_of(place) as learning:
        if output is None:
            sys.stdout.flush()
            await learning.export(sys.stdout.buffer.write)
            sys.stdout.buffer.flush()
            return ExitCode.FINE
        counts = await learning.export_into(output)
    if as_json:
        write_json(ExportDocument(output=str(output), rows=counts).as_json())
    else:
        say(f"Wrote {counted(sum(counts.values()), 'row')} to {output}.")
    return ExitCode.FINE


async def import_(place: Place, file: Path, *, as_json: bool) -> ExitCode:
    """Add what an export holds to the feedback store; what that has stays."""
    async with learning_of(place) as learning:
        found = await learning.import_from(file)
    if as_json:
        document = ImportDocument(added=found.added, known=found.known, left_out=found.left_out)
        write_json(document.as_json())
    else:
        told = "; ".join(
            f"{count} {table.replace('_', ' ')}" for table, count in found.added.items() if count
        )
        say(f"Added {told or 'nothing'}; {counted(sum(found.known.values()), 'row')} were there already.")
    for one in found.left_out:
        warn(f"left out: {one}")
    return ExitCode.FINE


def _tell(found: BackupReport, headline: str, *, as_json: bool) -> ExitCode:
    if as_json:
        document = BackupDocument(folder=str(found.folder), created_at=found.created_at, parts=found.parts)
        write_json(document.as_json())
        return ExitCode.FINE
    say(headline, bold=True)
    for part, counts in found.parts.items():
        say(f"  {part}: {', '.join(f'{count} {what}' for what, count in counts.items()) or 'nothing'}")
    return ExitCode.FINE
