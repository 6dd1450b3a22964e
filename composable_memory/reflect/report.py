"""The values of a reflection."""

from collections.abc import Sequence
from datetime import date, datetime
from difflib import unified_diff

from composable_memory.types import Degradation
from composable_memory_ops_logs.quick_dataclass import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class PageChange:
    """A page before and after the proposed change; `before` is empty for a new one."""

    path: str
    before: str
    after: str

    @property
    def diff(self) -> str:
        """Return the change as a unified diff."""
        old = f"a/{self.path}" if self.before else "/dev/null"
        lines = unified_diff(_lines(self.before), _lines(self.after), old, f"b/{self.path}")
        return "".join(
            line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Opinion:
    """An opinion: its original and present confidence, and the lines that moved it.

    `id` is that of the line that first stated it. `supporting` and `contradicting` are ids of lines, or
    places of lines without id.
    """

    id: str
    statement: str
    entities: tuple[str, ...]
    stated: float
    confidence: float
    updated: date
    supporting: tuple[str, ...] = ()
    contradicting: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Reflection:
    """What is proposed, or was applied.

    `lines` counts the retained lines that were read, `recent` those since `since`. `ended` counts those left
    out because the facts taken from them no longer hold. `dropped` are sentences of the language model that
    did not cite known lines.
    """

    pages: tuple[PageChange, ...]
    opinions: tuple[Opinion, ...] = ()
    since: datetime | None = None
    lines: int = 0
    recent: int = 0
    ended: int = 0
    dropped: tuple[str, ...] = ()
    is_applied: bool = False
    degraded: tuple[Degradation, ...] = ()

    @property
    def diff(self) -> str:
        """Return all changes as one unified diff."""
        return "".join(page.diff for page in self.pages)


def _lines(text: str) -> Sequence[str]:
    """Split only at line feeds, as editors and `patch` do."""
    *whole, rest = text.split("\n")
    return [f"{line}\n" for line in whole] + ([rest] if rest else [])
