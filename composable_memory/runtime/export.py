"""Writes a memory as files that other programs can read: its notes, and JSON lines of all else."""

import asyncio
import json
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path

from pydantic import JsonValue

from composable_memory.errors import ConfigError
from composable_memory.facts import Fact
from composable_memory.forget.workspace_notes import Notes
from composable_memory.json_documents import document
from composable_memory.paths import opened_file, problem_with_file
from composable_memory.runtime.backup import free_folder, scratch_beside
from composable_memory.runtime.memory import Memory
from composable_memory.state.folders import file_name_of
from composable_memory.supervision.tasks import to_the_end
from composable_memory.transcripts import messages_of
from composable_memory_ops_logs import redact

FORMAT, FORMAT_VERSION = "composable-memory-export", 1
MOST_FACTS = 1_000_000


async def export_memory(memory: Memory, folder: Path) -> Mapping[str, int]:
    """Write a memory into a folder that is not there yet, or is empty; return how much of what there is.

    Raises:
        PathRefused: the folder holds something, or cannot be made.
        BackendError: the facts cannot be read.
        FeedbackError: what was learnt cannot be read.
    """
    target = await asyncio.to_thread(free_folder, folder)
    async with scratch_beside(target) as scratch:
        learnt = await to_the_end(memory.learning.export_into(scratch / "learning.jsonl"))
        try:
            facts = await memory.facts_of().facts(limit=MOST_FACTS)
        except ConfigError:  # no backend keeps any
            facts = ()
        counts = await to_the_end(asyncio.to_thread(_write, memory, scratch, facts, learnt))
        await asyncio.to_thread(scratch.replace, target)
    return counts


def _write(memory: Memory, folder: Path, facts: Sequence[Fact], learnt: Mapping[str, int]) -> dict[str, int]:
    """Copy notes and transcripts without what was forgotten, and write JSON lines of what they retain."""
    paths = memory.status().note_paths
    files, notes = Notes(memory.workspace_dir, paths), memory.notes.read(memory.workspace_dir, paths)
    for path in notes:
        copy = folder / "notes" / Path(*(part for part in path.split("/") if part not in ("", "..")))
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text(memory.forgotten.hide(files.text(path), "memory"), encoding="utf-8")
    lines = [document(one.line, path=one.path, day=one.day) for note in notes.values() for one in note.lines]
    said = _write_transcripts(memory, folder / "sessions")
    counts = {"notes": len(notes), "lines": len(lines), "facts": len(facts), "sessions": said, **learnt}
    at, program = memory.context.clock(), version("composable-memory")
    head = document(format=FORMAT, version=FORMAT_VERSION, program=program, exported_at=at, counts=counts)
    _write_rows(folder / "manifest.json", [head])
    _write_rows(folder / "lines.jsonl", lines)
    _write_rows(folder / "facts.jsonl", [document(one) for one in facts])
    return counts


def _write_transcripts(memory: Memory, folder: Path) -> int:
    """Write what was said in each transcript that is searched, masked; return how many there are.

    Links, and what is no regular file, are passed over, as in indexing.
    """
    status, agent = memory.status(), file_name_of(memory.settings.memory.agent_id)
    if "sessions" not in status.sources:  # they may be of other workspaces
        return 0
    of_agent = memory.state_dir / "agents" / agent / "sessions"
    source = Path(os.path.realpath(status.transcripts_folder or of_agent))
    files = [one for one in sorted(source.glob("*.jsonl")) if problem_with_file(one) is None]
    for file in files:
        folder.mkdir(exist_ok=True)
        with (
            opened_file(file, max_bytes=sys.maxsize) as (descriptor, _),
            open(descriptor, encoding="utf-8", errors="replace", closefd=False) as lines,
        ):
            said = messages_of(lines.read())
        rows = (
            document(
                type="message",
                timestamp=one.at,
                message={
                    "role": one.speaker.lower(),
                    "content": memory.forgotten.hide(redact(one.text), "sessions"),
                },
            )
            for one in said
            if not one.is_inserted
        )
        _write_rows(folder / file.name, rows)
    return len(files)


def _write_rows(file: Path, rows: Iterable[Mapping[str, JsonValue]]) -> None:
    file.write_text("".join(f"{json.dumps(row, ensure_ascii=False)}\n" for row in rows), encoding="utf-8")
