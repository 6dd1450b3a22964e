"""What an index holds of forgotten lines, and which passages say the same thing (pure)."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from composable_memory.forget.report import Holding
from composable_memory.forget.statement_matching import Words, contains, statements_of, words_of
from composable_memory_adapters.builtin.notes.documents import reader_of


class Stored(NamedTuple):
    """What the index holds: note passages, the paths of matching passages in other files, vectors, files."""

    passages: int
    said: Sequence[str]
    vectors: int
    transcripts: Sequence[str]
    documents: Sequence[str]

    def holdings(self, store: str) -> tuple[Holding, ...]:
        """Return this as holdings of `store`, without those that are zero."""
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
    """What to look for: the words of a statement, and all words of its line."""

    said: Words
    words: Words

    @property
    def like(self) -> str:
        """Return a SQL LIKE pattern, with `!` as its escape, that matches every passage saying this.

        SQLite folds the case of ASCII letters only, while the words are casefolded: `ss` may stand for `ß`.
        So the pattern is the longest run of characters that neither can affect.
        """
        stable = "".join(one if one.isascii() or one.upper() == one else " " for one in " ".join(self.said))
        longest = max(stable.replace("ss", " ").split(), key=len, default="")
        return f"%{longest.replace('!', '!!').replace('%', '!%').replace('_', '!_')}%"

    def is_line_of(self, text: str) -> bool:
        """Return whether it appears in a text as a line of its own."""
        return any(one.words == self.words for one in statements_of(text))

    def is_said_in(self, path: str, source: str, text: str) -> bool:
        """Return whether a passage of a transcript or document says it.

        In a document only a whole line counts: words within a line are not hidden there.
        """
        if reader_of(path):
            return self.is_line_of(text)
        return source == "sessions" and contains(words_of(text), self.said)


def sought(texts: Iterable[str]) -> set[Sought]:
    """Return the statements in some texts that are distinctive enough to recognise elsewhere."""
    telling = (one for text in texts for one in statements_of(text) if one.is_recognisable and one.said)
    return {Sought(one.said, one.words) for one in telling}
