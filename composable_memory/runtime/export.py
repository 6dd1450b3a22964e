"""Exports a memory as files that other programs can read: its notes, and everything else as JSON lines."""

import asyncio
import json
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

from pydantic import JsonValue

from composable_memory.errors import ConfigError
from composable_memory.facts import Fact
from composable_memory.json_documents import document
from composable_memory.paths import (
    NO_TEXT,
    NOTE_SUFFIXES,
    Reading,
    decoded,
    is_note,
    opened_file,
    problem_with_file,
)
from composable_memory.recall.retained_notes import note_data, note_files
from composable_memory.runtime.backup import free_folder, scratch_beside
from composable_memory.runtime.memory import Memory
from composable_memory.state.folders import file_name_of
from composable_memory.supervision.tasks import to_the_end
from composable_memory.transcripts import messages_of
from composable_memory_ops_logs import redact

FORMAT, FORMAT_VERSION = "composable-memory-export", 1
MOST_FACTS = 1_000_000


class Exported(NamedTuple):
    """Counts of what was exported, and the notes and folders that could not be, with the reasons."""

    parts: Mapping[str, int]
    left_out: Mapping[str, str]


async def export_memory(memory: Memory, folder: Path) -> Exported:
    """Export a memory into a new or empty folder.

    Raises:
        PathRefused: the folder is not empty, or cannot be created.
        BackendError: the facts cannot be read.
        FeedbackError: judgements and weights cannot be read.
    """
    target = await asyncio.to_thread(free_folder, folder)
    async with scratch_beside(target) as scratch:
        learnt = await to_the_end(memory.learning.export_into(scratch / "learning.jsonl"))
        try:
            facts = await memory.facts_of().facts(limit=MOST_FACTS)
        except ConfigError:  # no backend keeps facts
            facts = ()
        done = await to_the_end(asyncio.to_thread(_write, memory, scratch, facts, learnt))
        await asyncio.to_thread(scratch.replace, target)
    return done


def _write(memory: Memory, folder: Path, facts: Sequence[Fact], learnt: Mapping[str, int]) -> Exported:
    """Copy notes and transcripts without forgotten text, and write their retained lines as JSON lines."""
    paths = memory.status().note_paths
    copied, left_out = _write_notes(memory, paths, folder / "notes")
    notes = memory.notes.read(memory.workspace_dir, paths)
    lines = [document(one.line, path=one.path, day=one.day) for note in notes.values() for one in note.lines]
    said = _write_transcripts(memory, folder / "sessions")
    counts = {"notes": copied, "lines": len(lines), "facts": len(facts), "sessions": said, **learnt}
    at, program = memory.context.clock(), version("composable-memory")
    head = document(format=FORMAT, version=FORMAT_VERSION, program=program, exported_at=at, counts=counts)
    _write_rows(folder / "manifest.json", [head])
    _write_rows(folder / "lines.jsonl", lines)
    _write_rows(folder / "facts.jsonl", [document(one) for one in facts])
    return Exported(counts, left_out)


def _write_notes(memory: Memory, paths: Sequence[str], folder: Path) -> tuple[int, Mapping[str, str]]:
    """Copy notes as UTF-8; return how many, and those that could not be read with the reasons."""
    copied, left_out = 0, dict[str, str]()
    root, suffixes = Path(os.path.realpath(memory.workspace_dir)), memory.status().document_suffixes
    for key, path, _ in note_files(root, paths, left_out, NOTE_SUFFIXES | suffixes):
        if not is_note(path):
            left_out[key] = "only notes are exported, no documents"
            continue
        try:
            text, reading = decoded(note_data(path))
        except OSError as error:
            left_out[key] = error.strerror or str(error)
            continue
        if reading is Reading.NO_TEXT:
            left_out[key] = f"it is {NO_TEXT}"
            continue
        copy = folder / Path(*(part for part in key.split("/") if part not in ("", "..")))
        stem, number = copy.stem, 1
        while copy.exists():  # a note of a folder outside the workspace may have the same name as one inside
            copy = copy.with_stem(f"{stem}-{(number := number + 1)}")
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text(memory.forgotten.hide(text, "memory"), encoding="utf-8")
        copied += 1
    return copied, left_out


def _write_transcripts(memory: Memory, folder: Path) -> int:
    """Write the messages of each indexed transcript, masked; return how many there are.

    As in indexing, links and anything but regular files are skipped.
    """
    status, agent = memory.status(), file_name_of(memory.settings.memory.agent_id)
    if "sessions" not in status.sources:  # they may belong to other workspaces
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
