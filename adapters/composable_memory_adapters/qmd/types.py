"""The value types shared by the modules of the QMD memory, and the protocol of a transport to QMD."""

from collections.abc import Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Literal, Protocol

from composable_memory.types import MemorySource
from composable_memory_ops_logs.quick_dataclass import dataclass

BACKEND_ID = "qmd"

CANDIDATES = 40
"""The minimum number of documents that QMD compares before it picks the best."""

TransportName = Literal["daemon", "mcporter", "process"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Collection:
    """A folder that QMD indexes under a name; `path` is absolute and real, `pattern` a glob or several."""

    name: str
    path: Path
    pattern: str
    source: MemorySource = "memory"


@dataclass(frozen=True, slots=True, kw_only=True)
class Home:
    """Where the QMD of one workspace keeps its files; only the models are shared with other homes.

    `root` is the folder of this memory and the working directory of QMD. `config_file` lists the collections;
    `index_file` is QMD's own database. `models_dir` is where QMD looks for models.
    """

    root: Path
    config_file: Path
    index_file: Path
    models_dir: Path
    environ: Mapping[str, str] = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Installation:
    """A QMD that can be started: the words of its command, and its version."""

    command: tuple[str, ...]
    version: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SubSearch:
    """One search of a request; `text` is one line."""

    kind: Literal["lex", "vec", "hyde"]
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchRequest:
    """A request to QMD: the collections to search, and the maximum number of documents.

    `searches` run as they are and their lists are fused by rank, the first counting twice. With `expand`,
    QMD's language models expand `text` themselves and rerank the results; `searches` is empty then.
    """

    text: str
    collections: tuple[str, ...]
    limit: int
    searches: tuple[SubSearch, ...] = ()
    expand: bool = False

    @property
    def candidates(self) -> int:
        """Return how many documents QMD should compare."""
        return max(CANDIDATES, self.limit)


@dataclass(frozen=True, slots=True, kw_only=True)
class Hit:
    """One document that QMD found; lists of hits are sorted best first.

    `collection` and `path` name the document, with `/`, decoded. `line` is the 1-based line that matches
    best, `start_line` and `line_count` are those of the snippet; each is 0 if QMD does not report it.
    `snippet` is its text without header and line numbers, perhaps truncated. `score` is QMD's own.
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


class Transport(Protocol):
    """A way to reach QMD: its server on this machine, mcporter, or one process per request."""

    name: TransportName

    @property
    def is_up(self) -> bool:
        """Return whether a request would be answered quickly, without making one."""
        ...

    async def ask(self, request: SearchRequest, *, timeout_s: float) -> Sequence[Hit]:
        """Return the documents that match, best first.

        Raises:
            BackendTimeout: no answer within `timeout_s`.
            BackendUnavailable: there is no answer here; another transport may have one.
            BackendRejected: QMD understood the request and rejected it.
            BackendGarbled: the answer cannot be parsed.
        """
        ...
