"""What an index holds of lines that are forgotten, and which of its passages say the same (pure)."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from composable_memory.forget.report import Holding
from composable_memory.forget.statement_matching import Words, contains, statements_of, words_of
from composable_memory_adapters.builtin.notes.documents import reader_of


class Stored(NamedTuple):
    """What the index holds: passages of notes, those of other files by their paths, vectors, which files."""

    passages: int
    said: Sequence[str]
    vectors: int
    transcripts: Sequence[str]
    documents: Sequence[str]

    def holdings(self, store: str) -> tuple[Holding, ...]:
        """Return it as it is told of a store."""
        told = [
            Holding(store=store, what="passages of notes", count=self.passages),
            Holding(
                store=store,
                what=f"passages of {'other files' if any(map(reader_of, self.said)) else 'transcripts'}",
                count=len(self.said),
                examples=(*self.transcripts, *self.documents),
            ),
            Holding(store=store, what="vectors", count=self.vectors),
            Holding(
                store=store,
                what="transcripts",
                count=len(self.transcripts),
                examples=tuple(self.transcripts),
                stays="the agent's program owns them; forgotten lines are hidden and not indexed",
            ),
            Holding(
                store=store,
                what="documents",
                count=len(self.documents),
                examples=tuple(self.documents),
                stays="edit them yourself; forgotten lines are hidden and not indexed",
            ),
        ]
        return tuple(one for one in told if one.count)


class Sought(NamedTuple):
    """What a text says: its sentence, and all its words."""

    said: Words
    words: Words

    @property
    def like(self) -> str:
        """Return a pattern of SQL that every passage fits which says it, with `!` as its escape.

        SQLite knows the cases of ASCII letters alone, and the words are folded: `ss` may be written as `ß`.
        """
        stable = "".join(one if one.isascii() or one.upper() == one else " " for one in " ".join(self.said))
        longest = max(stable.replace("ss", " ").split(), key=len, default="")
        return f"%{longest.replace('!', '!!').replace('%', '!%').replace('_', '!_')}%"

    def is_line_of(self, text: str) -> bool:
        """Return whether it stands in a text as a line of its own."""
        return any(one.words == self.words for one in statements_of(text))

    def is_said_in(self, path: str, source: str, text: str) -> bool:
        """Return whether a passage of a transcript or of a document says it.

        In a document that is a line of its own: words within a line are not hidden there.
        """
        if reader_of(path):
            return self.is_line_of(text)
        return source == "sessions" and contains(words_of(text), self.said)


def sought(texts: Iterable[str]) -> set[Sought]:
    """Return what some texts say that can be known again."""
    telling = (one for text in texts for one in statements_of(text) if one.is_recognisable and one.said)
    return {Sought(one.said, one.words) for one in telling}
