"""Tells which memory an export comes from, by what only that one writes."""

import json
import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from composable_memory.front_matter import front_matter
from composable_memory.imports.export_files import ExportedFile, files_of
from composable_memory.imports.readers import BROKEN, READERS, json_of, text_of
from composable_memory.paths import is_note

MOST_LOOKED_AT = 20
"""Files that are opened; of each the first element is read."""
OF_NOTES = ("basic-memory", "obsidian")
"""What comes as a folder of notes, in which JSON says nothing."""

_OPENCLAW = re.compile(r"^([^/]+/)?(MEMORY\.md|openclaw\.json)$|(^|/)sessions/[^/]+\.jsonl$")
_BASIC_MEMORY = ("title:", "type:", "permalink:")
_OWNERS = ("user_id", "agent_id", "run_id", "app_id", "hash")


def origins_of(export: Path, wanted: str) -> frozenset[str]:
    """Return the origins that an export looks like one of; none where nothing says so.

    Where there are files that would be read of an export of `wanted`, only these are opened.

    Raises:
        OSError: it cannot be read.
    """
    root = export.expanduser()
    known = {"obsidian"} if (root / ".obsidian").is_dir() else set[str]()
    names = [one.name for one in files_of(root)]
    known |= {"openclaw" for one in names if _OPENCLAW.search(one)}
    read = {name for name in names if _is_read(name, wanted)}
    files = (one for one in files_of(root) if one.name in read or not read)
    for file in islice(files, MOST_LOOKED_AT):
        known |= set(_signs(file))
    return frozenset(known)


def _is_read(name: str, origin: str) -> bool:
    if origin in OF_NOTES:
        return is_note(name)
    return any(re.search(pattern, name, re.IGNORECASE) for pattern in READERS[origin])


def _signs(file: ExportedFile) -> Iterator[str]:
    name = file.name.lower()
    try:
        if name.endswith(".af"):
            yield "letta"
        elif is_note(name):
            head = text_of(file)
            head = head[: front_matter(head).length]
            if all(f"\n{key}" in head for key in _BASIC_MEMORY):
                yield "basic-memory"
        elif name.endswith((".json", ".jsonl")):
            first = next(json_of(file), None)
            yield from filter(None, [_origin_of(json.loads(first) if isinstance(first, str) else first)])
    except (*BROKEN, OSError, RecursionError):
        return


def _origin_of(item: object) -> str:
    """Return the origin of an element of a document of JSON; empty where it may be anybody's."""
    match item:
        case {"mapping": dict()}:
            return "chatgpt"
        case {"chat_messages": list()} | {"conversations_memory": _} | {"prompt_template": _, "docs": list()}:
            return "claude"
        case {"agents": list()} | {"core_memory": list()} | {"embedding_config": _}:
            return "letta"
        case {"id": str(own)} if own.startswith("passage-"):
            return "letta"
        case {"memory": str(), **rest} if any(one in rest for one in _OWNERS):
            return "mem0"
        case {"results": [first, *_]} | {"memories": [first, *_]} | {"passages": [first, *_]}:
            return _origin_of(first)
    return ""
