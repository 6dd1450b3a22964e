"""File patterns: the subset of QMD's glob syntax that is unambiguous.

Within a name, `*` is any text, `?` a character, `[a-z]` a character of a set and `[!a-z]` one outside it.
`**` is any number of folders, `{a,b}` either text. Commas separate patterns; a leading `!` excludes files.
Everything else that has a meaning for QMD is rejected, because a misread pattern would expose files by
mistake.
"""

import fnmatch
import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import islice

from composable_memory_ops_logs.quick_dataclass import dataclass

SKIPPED_NAMES = frozenset({".cache", ".git", "build", "dist", "node_modules", "vendor"})
"""Names that QMD skips at any depth, whatever the pattern, in addition to all names that begin with a dot."""

MAX_CHARS = 500
MAX_CHOICES = 200
ANY_FOLDERS = "**"

GROUP = re.compile(r"\{([^{}]*)\}")
SET = re.compile(r"\[!?(?:\w(?:-\w)?)+\]")
MAGIC = re.compile(r"[*?\[]")
DOUBTFUL = re.compile(r"""[\\"'`()|+<>\x00-\x1f\x7f]|\$\{""")

Step = re.Pattern[str] | None
"""What one path component has to match, or None for any number of folders."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rule:
    """One pattern without choices; `ends_plainly` if its last component is literal, or `**`."""

    steps: tuple[Step, ...]
    ends_plainly: bool

    def matches(self, names: Sequence[str]) -> bool:
        """Return whether a path, split into its components, matches."""
        reached = self._past_folders({0})
        for name in names:
            reached = self._past_folders({after for at in reached for after in self._after(at, name)})
        return len(self.steps) in reached

    def excludes(self, names: Sequence[str]) -> bool:
        """Return whether the path or a parent folder matches; QMD does not descend into such a folder."""
        shortest = 1 if self.ends_plainly else len(names)
        return any(self.matches(names[:depth]) for depth in range(shortest, len(names) + 1))

    def _after(self, at: int, name: str) -> Iterator[int]:
        if at < len(self.steps):
            step = self.steps[at]
            if step is None:
                yield at
            elif step.match(name):
                yield at + 1

    def _past_folders(self, reached: set[int]) -> set[int]:
        for at, step in enumerate(self.steps):
            if step is None and at in reached:
                reached.add(at + 1)
        return reached


@dataclass(frozen=True, slots=True, kw_only=True)
class FilePattern:
    """A selection of files in a folder."""

    wanted: tuple[_Rule, ...]
    unwanted: tuple[_Rule, ...]

    def covers(self, path: str) -> bool:
        """Return whether the pattern covers the file at `path`, relative to the folder, with `/`."""
        names = path.split("/")
        if any(not name or name.startswith(".") or name in SKIPPED_NAMES for name in names):
            return False
        return any(rule.matches(names) for rule in self.wanted) and not any(
            rule.excludes(names) for rule in self.unwanted
        )


@lru_cache(maxsize=256)
def parse_pattern(text: str) -> FilePattern:
    """Parse a pattern.

    Raises:
        ValueError: it is too long, only excludes, or contains unsupported syntax.
    """
    if len(text) > MAX_CHARS:
        raise ValueError(f"it is longer than {MAX_CHARS} characters")
    if doubtful := DOUBTFUL.search(text):
        raise ValueError(f"{doubtful[0]!r} is ambiguous; use a folder of that name as the path itself")
    parts = filter(None, (part.strip() for part in _split(text)))
    choices = list(islice((choice for part in parts for choice in _choices(part)), MAX_CHOICES + 1))
    if len(choices) > MAX_CHOICES:
        raise ValueError(f"it expands to more than {MAX_CHOICES} patterns")
    unwanted = [choice for choice in choices if choice.startswith("!")]
    wanted = [choice for choice in choices if not choice.startswith("!")]
    if not wanted:
        raise ValueError("it names no files")
    return FilePattern(
        wanted=tuple(map(_wanted_rule, wanted)),
        unwanted=tuple(_rule(choice[1:], re.IGNORECASE) for choice in unwanted),
    )


def _split(text: str) -> Iterator[str]:
    """Yield the parts between commas that are not inside braces."""
    depth = start = 0
    for at, char in enumerate(text):
        depth += (char == "{") - (char == "}")
        if char == "," and depth == 0:
            yield text[start:at]
            start = at + 1
    yield text[start:]


def _choices(text: str) -> Iterator[str]:
    """Yield the patterns that a pattern with `{a,b}` expands to."""
    group = GROUP.search(text)
    if group is None:
        yield text
        return
    if "," not in group[1] or ".." in group[1] or "!" in group[1]:
        raise ValueError(f"{group[0]} is no choice; write {{one,other}}")
    for choice in group[1].split(","):
        yield from _choices(text[: group.start()] + choice + text[group.end() :])


def _wanted_rule(text: str) -> _Rule:
    # `notes/**` means the files below `notes`, never a file with that name.
    return _rule(f"{text}/*" if text.split("/")[-1] == ANY_FOLDERS else text)


def _rule(text: str, flags: int = 0) -> _Rule:
    """Return the rule for a pattern without choices; `flags` make exclusions ignore case.

    Some disks open a file under a name in another case, which must not bypass an exclusion.
    """
    if re.search("[{}]", text):
        raise ValueError("a brace is not closed or not opened")
    names = re.sub("/+", "/", text).removeprefix("./").split("/")
    return _Rule(
        steps=tuple(_step(name, flags) for name in names),
        ends_plainly=names[-1] == ANY_FOLDERS or not MAGIC.search(names[-1]),
    )


def _step(name: str, flags: int) -> Step:
    if name == ANY_FOLDERS:
        return None
    if not name:
        raise ValueError("it is empty, or begins or ends with `/`; patterns are relative to the folder")
    if name.startswith("."):
        raise ValueError(f"{name!r} begins with a dot; such files are never indexed")
    if name.startswith("!"):
        raise ValueError("`!` is allowed only before a whole pattern")
    if ANY_FOLDERS in name:
        raise ValueError(f"`**` in {name!r} must be alone between `/`")
    if re.search(r"[\[\]]", SET.sub("", name)):
        raise ValueError(f"the set in {name!r} is not understood; write [abc], [a-z] or [!a-z]")
    return re.compile(fnmatch.translate(name), flags)
