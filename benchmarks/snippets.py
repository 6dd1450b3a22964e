"""Whether the part of a passage that is shown holds the answer, given the right passage.

Sets are those of `retrieval.py`. Of every question, each passage that holds a line of evidence is shown as
the product would show it. Where the set has answers, the snippet has to hold the answer's text; else it has
to hold the whole line of evidence, or of one that is longer than a snippet as much as fits. Prints a table in
Markdown with 95 % bootstrap intervals, and the CPU time that a snippet takes.
"""

import argparse
import json
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import apsw
import numpy as np
from retrieval import Floats, interval

from composable_memory.types import MAX_SNIPPET_CHARS
from composable_memory_adapters.builtin.search import keyword_leg
from composable_memory_adapters.builtin.store import schema
from composable_memory_adapters.builtin.store.schema import LIVE
from composable_memory_adapters.chunking import Chunk, chunk_markdown
from composable_memory_adapters.text.forms import index_text
from composable_memory_adapters.text.query_terms import analyse
from composable_memory_adapters.text.snippets import SnippetMaker


@dataclass(frozen=True, slots=True, kw_only=True)
class Workspace:
    chunks: dict[str, list[Chunk]]
    lines: dict[str, list[str]]
    connection: apsw.Connection


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A right passage of a question, and what of it has to be shown."""

    text: str
    needed: str


def load(folder: Path) -> Workspace:
    """Cut and index the notes of one workspace as the product does."""
    chunks, lines = {}, {}
    for path in sorted(folder.rglob("*.md")):
        name, text = path.relative_to(folder).as_posix(), path.read_text(encoding="utf-8")
        chunks[name], lines[name] = chunk_markdown(text), text.split("\n")
    connection = apsw.Connection(":memory:")
    keyword_leg.prepare(connection)
    connection.execute(LIVE.sql(schema.KEYWORDS))
    rows = [(index_text(one.text),) for found in chunks.values() for one in found]
    connection.executemany("INSERT INTO chunks_fts (text) VALUES (?)", rows)
    return Workspace(chunks=chunks, lines=lines, connection=connection)


def cases(row: Mapping[str, Any], workspace: Workspace, *, has_answers: bool) -> Iterator[Case]:
    """Yield the right passages of a question; none where the evidence is a whole file, or has no answer."""
    for path, line in row["qrels"]:
        if not line:
            continue
        said = workspace.lines[path][line - 1].strip()
        answer = str(row["answer"])
        needed = answer if has_answers else said
        for chunk in workspace.chunks[path]:
            holds = chunk.start_line <= line <= chunk.end_line and needed.casefold() in chunk.text.casefold()
            if holds and (not has_answers or needed.casefold() in said.casefold()):
                yield Case(text=chunk.text, needed=needed)


def is_shown(shown: str, needed: str) -> bool:
    """Return whether `needed` is in a snippet."""
    if len(needed) > MAX_SNIPPET_CHARS:
        return shown.strip("…").strip() in needed
    return needed.casefold() in shown.casefold()


def measure(folder: Path) -> tuple[Floats, float, float]:
    """Return each question's share of passages whose answer is shown; µs and length of a snippet."""
    rows = [json.loads(line) for line in (folder / "queries.jsonl").read_text(encoding="utf-8").splitlines()]
    workspaces = {name: load(folder / name) for name in sorted({row["conv"] for row in rows})}
    has_answers = folder.name.startswith(("xquad", "jsquad"))
    shares, took, lengths = [], 0.0, []
    for row in rows:
        workspace = workspaces[row["conv"]]
        right = [*cases(row, workspace, has_answers=has_answers)]
        if not right:
            continue
        asked = analyse(row["question"])
        rarities = keyword_leg.search(workspace.connection, asked).rarities
        before = time.process_time()
        snippets = SnippetMaker(asked, rarities)
        shown = [snippets.snippet(one.text).text for one in right]
        took += time.process_time() - before
        shares.append(np.mean([is_shown(text, one.needed) for text, one in zip(shown, right, strict=True)]))
        lengths += map(len, shown)
    return np.array(shares), took / max(1, len(lengths)) * 1e6, float(np.mean(lengths or [0]))


def run(folders: Sequence[Path]) -> Iterator[str]:
    yield "| set | questions | answer shown | 95 % | characters | µs |"
    yield "|---|---|---|---|---|---|"
    for folder in folders:
        shares, took, length = measure(folder)
        if len(shares):
            low, high = interval(shares, resamples=2_000, seed=7)
            figures = f"{shares.mean():.3f} | {low:.3f} to {high:.3f} | {length:.0f} | {took:.0f}"
            yield f"| {folder.name} | {len(shares):,} | {figures} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with one folder for each set")
    parser.add_argument("--sets", nargs="*", default=[], help="names of the sets to use; all if not given")
    arguments = parser.parse_args()
    folders = sorted(path.parent for path in arguments.data.glob("*/queries.jsonl"))
    chosen = [one for one in folders if not arguments.sets or one.name in arguments.sets]
    for line in run(chosen):
        sys.stdout.write(line + "\n")


if __name__ == "__main__":
    main()
