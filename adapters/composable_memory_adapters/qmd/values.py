"""What the parts of the QMD memory hand to each other."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol

from composable_memory.types import MemorySource

__all__ = [
    "BACKEND_ID",
    "CANDIDATES",
    "Collection",
    "Hit",
    "Home",
    "Installation",
    "SearchRequest",
    "Searcher",
    "SubSearch",
]

BACKEND_ID = "qmd"

CANDIDATES = 40
"""So many documents QMD looks into at least before it says which are the best."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Collection:
    """A folder that QMD indexes under a name; `path` is absolute and real, `pattern` a glob or several."""

    name: str
    path: Path
    pattern: str
    source: MemorySource = "memory"


@dataclass(frozen=True, slots=True, kw_only=True)
class Home:
    """Where one agent's QMD keeps its files: nothing of it is shared but the models.

    `root` is the folder of this memory, in which QMD is also started. `config_file` lists the collections;
    `index_file` is QMD's own database. `models_dir` is where QMD looks for models.
    """

    root: Path
    config_file: Path
    index_file: Path
    models_dir: Path
    environ: Mapping[str, str] = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Installation:
    """A QMD that can be started: the words of its command, and its version as it tells it."""

    command: tuple[str, ...]
    version: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SubSearch:
    """One of the searches that make up a request; `text` is one line."""

    kind: Literal["lex", "vec", "hyde"]
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchRequest:
    """What QMD is asked: in which collections, and for how many documents at most.

    `searches` are run as they are and their lists fused by rank, the first counting twice. With `expand`,
    QMD's language models widen `text` themselves and rank what is found; `searches` is empty then.
    """

    text: str
    collections: tuple[str, ...]
    limit: int
    searches: tuple[SubSearch, ...] = ()
    expand: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Hit:
    """One document that QMD found, best first in a list of them.

    `collection` and `path` name the document, with `/`, decoded. `line` is the 1-based line that matches
    best, `start_line` and `line_count` are those of the snippet; each is 0 where QMD did not tell. `snippet`
    is its text without header and line numbers, perhaps cut. `score` is QMD's own.
    """

    collection: str
    path: str
    line: int
    start_line: int
    line_count: int
    snippet: str
    score: float
    title: str = ""
    docid: str = ""


class Searcher(Protocol):
    """A way to ask QMD: its server on this machine, a process for each question, or mcporter."""

    async def ask(self, request: SearchRequest, *, timeout_s: float) -> Sequence[Hit]:
        """Return the documents that answer, best first.

        Raises:
            BackendTimeout: no answer within `timeout_s`.
            BackendUnavailable: there is nobody to ask; another way may do.
            BackendRejected: QMD understood and refused.
            BackendGarbled: what came back cannot be read.
        """
        ...
