"""Finds the known names that a given name refers to (pure)."""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from functools import lru_cache

from composable_memory_ops_logs.lazy import Pattern
from composable_memory_ops_logs.quick_dataclass import dataclass

MOST_NEAREST = 5

_WIKI_LINK = re.compile(r"\[\[([^\[\]|#]+)(?:[|#][^\[\]]*)?\]\]")
_UNSPACED = Pattern("[\u0e00-\u0eff\u1000-\u109f\u2e80-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]")
"""Scripts without spaces between words."""


@dataclass(frozen=True, slots=True)
class NameMatch:
    """The known names that match, as written; similar ones if none does."""

    names: tuple[str, ...] = ()
    nearest: tuple[str, ...] = ()


def folded(name: str) -> str:
    """Normalise a name for comparison: `@[[Ellen  Smith|Ellen]]` becomes `ellen smith`."""
    bare = _WIKI_LINK.sub(r"\1", unicodedata.normalize("NFKC", name).strip().removeprefix("@"))
    return " ".join(bare.split()).casefold()


class KnownNames:
    """Names in use, and groups of names for the same thing, such as the aliases of a note."""

    def __init__(self, names: Iterable[str], groups: Iterable[Sequence[str]] = ()) -> None:
        spellings: dict[str, Counter[str]] = {}
        self._same: dict[str, set[str]] = {}
        for name in names:
            spellings.setdefault(folded(name), Counter())[name] += 1
        for group in groups:
            keys = {folded(name) for name in group}
            for name in group:
                spellings.setdefault(folded(name), Counter())[name] += 1
                self._same.setdefault(folded(name), set()).update(keys)
        self._written = {key: count.most_common(1)[0][0] for key, count in spellings.items() if key}

    def match(self, asked: str) -> NameMatch:
        """Return what a name matches: itself in any case, longer names with it, and all their aliases."""
        key = folded(asked)
        meant = {one for one in self._written if is_named(one, key)}
        meant = meant.union(*(self._same.get(one, ()) for one in meant))
        if meant:
            return NameMatch(names=self._as_written(sorted(meant, key=lambda one: (one != key, one))))
        near = {one for one in self._written if is_named(key, one)}
        parts = {part: one for one in sorted(self._written) for part in (*one.split(), one)}
        near.update(parts[part] for part in get_close_matches(key, parts, n=MOST_NEAREST))
        return NameMatch(nearest=self._as_written(sorted(near))[:MOST_NEAREST])

    def _as_written(self, keys: Iterable[str]) -> tuple[str, ...]:
        return tuple(self._written[one] for one in keys)


@lru_cache(maxsize=256)
def _pattern(name: str) -> re.Pattern[str]:
    body = re.escape(name)
    return re.compile(body if _UNSPACED.search(name) else rf"(?<!\w){body}(?!\w)")


def is_named(text: str, name: str) -> bool:
    """Return whether a text contains a name as whole words; both must be folded."""
    return bool(name) and name in text and _pattern(name).search(text) is not None
