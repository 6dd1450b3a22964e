"""The values of forgetting: what would go, what went, and what others still have to do."""

from collections.abc import Sequence

from composable_memory.types import Origin
from composable_memory_ops_logs.quick_dataclass import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ForgetLine:
    """Lines of a note: one statement. `is_copy` says that it is another line that says the same.

    `token` allows forgetting only this one. `stays` says why it is hidden but not cut out of its file, and
    how to fix that.
    """

    path: str
    start_line: int
    end_line: int
    text: str
    is_copy: bool = False
    token: str = ""
    stays: str | None = None

    @property
    def citation(self) -> str:
        """Return `path#L3`."""
        return Origin(path=self.path, start_line=self.start_line, end_line=self.end_line).citation


@dataclass(frozen=True, slots=True, kw_only=True)
class Holding:
    """What a store has of something: a count of a kind, such as 2 passages or 1 fact.

    `examples` are some of them, as short texts or places. `stays` says why it cannot be removed, `pending`
    why it has not been yet.
    """

    store: str
    what: str
    count: int
    examples: tuple[str, ...] = ()
    stays: str | None = None
    pending: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Forgetting:
    """What a backend has to forget: lines that will be removed from notes, or have been.

    After a crash their text may no longer be known. Then they have none, and the sources have to be read
    again: forgotten text is hidden in what is read.
    """

    lines: Sequence[ForgetLine]

    @property
    def paths(self) -> tuple[str, ...]:
        """Return the notes of the lines, as named in results."""
        return tuple(dict.fromkeys(line.path for line in self.lines))

    @property
    def texts(self) -> tuple[str, ...]:
        """Return the distinct texts that are still known."""
        return tuple(dict.fromkeys(line.text for line in self.lines if line.text))

    @property
    def is_known(self) -> bool:
        """Return whether all texts are still known."""
        return all(line.text for line in self.lines)


@dataclass(frozen=True, slots=True, kw_only=True)
class ForgetPlan:
    """What would be forgotten, line by line and store by store; nothing is removed yet.

    `token` confirms exactly this: it is bound to the text of the lines. It is empty if a choice has to be
    made first: `candidates` are then the lines to choose from, the best ones with tokens of their own. If no
    line has the words of the query, they are those of the passages nearest to it, and `is_guess` is true.
    """

    target: str
    token: str = ""
    lines: tuple[ForgetLine, ...] = ()
    candidates: tuple[ForgetLine, ...] = ()
    stores: tuple[Holding, ...] = ()
    is_guess: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ForgetReport:
    """What was forgotten. `is_done` is false if nothing was removed, a line stays, or a store is pending.

    `plan` is set if the notes had changed since the plan was made: nothing was removed, and this is what
    would go now.
    """

    is_done: bool
    lines: tuple[ForgetLine, ...] = ()
    stores: tuple[Holding, ...] = ()
    plan: ForgetPlan | None = None

    @property
    def pending(self) -> tuple[Holding, ...]:
        """Return the stores that will follow as soon as they can."""
        return tuple(one for one in self.stores if one.pending)
