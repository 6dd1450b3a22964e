"""Remembers the stems of passages, which questions one after the other need again."""

import sys
from collections.abc import Sequence
from threading import Lock

from composable_memory_adapters.text.stems import Stemmer

__all__ = ["MAX_BYTES", "StemMemory"]

MAX_BYTES = 24 * 1024 * 1024
"""Of texts and stems that are kept at most, which is enough for some 4 MB of notes."""

Stems = tuple[str, ...]
"""Of a text, in their order."""


class StemMemory:
    """Stems texts, and keeps what was asked for last; may be used by several threads at once.

    What is kept belongs to a text, not to the file that it was read from, so it cannot be out of date.
    """

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        self._most = max_bytes // 2  # of each generation
        self._young, self._old = _Generation(), _Generation()
        self._lock = Lock()

    @property
    def size(self) -> int:
        """Return how many bytes are kept."""
        return self._young.size + self._old.size

    def of_texts(self, texts: Sequence[str]) -> list[Stems]:
        """Return the stems of each text."""
        with self._lock:
            found = {text: stems for text in texts if (stems := self._kept(text)) is not None}
        stemmer = Stemmer()
        fresh = {text: tuple(stemmer.of_text(text)) for text in {*texts}.difference(found)}
        with self._lock:
            for text, stems in fresh.items():
                self._keep(text, stems)
        found |= fresh
        return [found[text] for text in texts]

    def _kept(self, text: str) -> Stems | None:
        """Return what is kept for a text; what is needed again moves to the young."""
        stems = self._young.stems.get(text)
        if stems is None and (stems := self._old.stems.get(text)) is not None:
            self._keep(text, stems)
        return stems

    def _keep(self, text: str, stems: Stems) -> None:
        if not self._young.add(text, stems, self._most):
            self._young, self._old = _Generation(), self._young
            self._young.add(text, stems, self._most)


class _Generation:
    """Texts that were needed at about the same time, with their stems; each word is there once."""

    def __init__(self) -> None:
        self.stems: dict[str, Stems] = {}
        self.size = 0
        self._words: dict[str, str] = {}

    def add(self, text: str, stems: Stems, most: int) -> bool:
        """Keep the stems of a text; False if these are then more than `most` bytes."""
        new = {*stems}.difference(self._words)
        size = sum(map(sys.getsizeof, (text, stems, *new)))
        if self.size + size > most:
            return False
        self._words |= zip(new, new, strict=True)
        self.stems[text] = tuple(map(self._words.__getitem__, stems))
        self.size += size
        return True
