"""The sets of tables of an index: the live one, which searches read, and the one that a rebuild fills."""

from functools import lru_cache
from pathlib import Path

from composable_memory.errors import IndexProblem
from composable_memory_adapters.builtin.store import index_meta
from composable_memory_adapters.sqlite_file import Connection
from composable_memory_ops_logs.quick_dataclass import dataclass

GENERATION_BITS = 32
"""Each generation of passages has ids of its own: a search that began before a swap finds no wrong ones."""


@dataclass(frozen=True, slots=True)
class Tables:
    """One set of tables that belong together.

    `owner` is the token of the rebuild that may write them; the live ones have none.
    """

    files: str
    chunks: str
    keywords: str
    words: str
    owner: str | None = None

    def sql(self, template: str) -> str:
        """Return an SQL template with `{files}`, `{chunks}`, `{keywords}` and `{words}` filled in."""
        return _filled(self.files, self.chunks, self.keywords, self.words, template)

    def check_owner(self, connection: Connection) -> None:
        """Check, within a transaction that writes, that the tables are still the owner's.

        Raises:
            IndexProblem: another rebuild has begun.
        """
        if self.owner is not None and index_meta.value(connection, index_meta.REBUILD) != self.owner:
            path = Path(connection.filename)
            raise IndexProblem(path, "another process took over its rebuild; the old index answers")


LIVE = Tables("files", "chunks", "chunks_fts", "long_words")
"""What searches read."""

NEXT = Tables("next_files", "next_chunks", "next_chunks_fts", "next_long_words")
"""What a rebuild fills until it is whole and takes the place of the live tables."""


@lru_cache(maxsize=128)
def _filled(files: str, chunks: str, keywords: str, words: str, template: str) -> str:
    return template.format(files=files, chunks=chunks, keywords=keywords, words=words)
