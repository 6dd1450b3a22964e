"""The names of the tables of an index: those that are searched, and those that a rebuild fills beside."""

from dataclasses import dataclass
from functools import lru_cache

__all__ = ["BESIDE", "GENERATION_BITS", "LIVE", "Tables"]

GENERATION_BITS = 32
"""Each generation of passages has ids of its own: a search that began before a swap finds no wrong ones."""


@dataclass(frozen=True, slots=True)
class Tables:
    """One set of tables that belong together."""

    files: str
    chunks: str
    keywords: str

    def sql(self, template: str) -> str:
        """Return an SQL template with `{files}`, `{chunks}` and `{keywords}` filled in."""
        return _filled(self, template)


LIVE = Tables("files", "chunks", "chunks_fts")
"""What searches read."""

BESIDE = Tables("next_files", "next_chunks", "next_chunks_fts")
"""What a rebuild writes until it is whole and takes the place of the others."""


@lru_cache(maxsize=128)
def _filled(tables: Tables, template: str) -> str:
    return template.format(files=tables.files, chunks=tables.chunks, keywords=tables.keywords)
