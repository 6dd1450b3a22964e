"""Which files and folders of a tree are ignored by its `.gitignore` files, by git's rules.

In a repository, `.git/info/exclude` and the `.gitignore` files in the folders above the tree count too. Git
itself is not called: it may not be installed, a process per scan takes longer than scanning a thousand notes,
and it runs commands from a repository's configuration. Files that are tracked although ignored count as
ignored. Everything reads the disk.
"""

import os
import re
from collections.abc import Set
from functools import lru_cache
from itertools import groupby
from typing import NamedTuple

from composable_memory.paths import opened_file
from composable_memory_ops_logs.lazy import Pattern

GITIGNORE = ".gitignore"
MAX_BYTES = 2**20
FOLDER = "\0"
"""Suffix for the path of a folder; no name contains it."""

_WILD = re.compile(r"[*?\]\\]")
_SPECIAL = re.compile(r"[/*?\[\\]")
_TOKEN = Pattern(r"\[(?P<not>[!^]?)(?P<set>\]?(?:\\.|\[:[a-z]+:\]|[^\]\\])*)\]|\\.|[^\[]", re.DOTALL)
_CHARACTER = re.compile(r"\\?.", re.DOTALL)
_NAMED = re.compile(r"\[:([a-z]+):\]")
_SETS = {
    "alnum": "0-9A-Za-z", "alpha": "A-Za-z", "blank": r" \t", "digit": "0-9", "lower": "a-z",
    "punct": r"!-/:-@\[-`{-~", "space": r"\s", "upper": "A-Z", "xdigit": "0-9A-Fa-f",
}  # fmt: skip


class _Run(NamedTuple):
    """Consecutive patterns that all ignore, or all re-include.

    Most are names (`build`) or suffixes (`*.log`), which are checked faster without a regex.
    """

    ignores: bool
    names: frozenset[str]
    ends: tuple[str, ...]
    expression: re.Pattern[str] | None


Runs = tuple[tuple[int, _Run], ...]
"""Runs of patterns, the first match decides, each with the offset in a path at which they apply."""


class Rules(NamedTuple):
    """The rules for the entries of a folder; files that no pattern could match are skipped."""

    files: Runs = ()
    folders: Runs = ()


def is_ignored(runs: Runs, path: str, name: str) -> bool:
    """Apply the rules of a folder to `path` below it, whose last component is `name`.

    For a folder, both end with `FOLDER`.
    """
    if os.sep != "/":
        path = path.replace(os.sep, "/")
    for start, (ignores, names, ends, expression) in runs:
        if name in names or name.endswith(ends) or (expression and expression.fullmatch(path, start)):
            return ignores
    return False


class GitIgnore:
    """The rules of a tree, for folders and for files whose names end in `suffixes`, or all files.

    Each rule file is read once; `unreadable` maps paths that could not be read to the reason.
    """

    def __init__(self, root: str, suffixes: Set[str] = frozenset()) -> None:
        self.unreadable: dict[str, str] = {}
        self._root = root
        self._suffixes = frozenset(suffixes)
        self._rules: dict[str, Rules] = {}

    def rules_of(self, folder: str) -> Rules:
        """Return the rules for the entries of a folder, the root or one below it."""
        if (known := self._rules.get(folder)) is not None:
            return known
        above = self._above_root() if folder == self._root else self.rules_of(os.path.dirname(folder))  # noqa: PTH120
        rules = self._with_file(folder, GITIGNORE, above)
        self._rules[folder] = rules
        return rules

    def leaves_out(self, path: str, *, is_folder: bool = False) -> bool:
        """Return whether a path below the root, or a folder on the way to it, is ignored."""
        if len(path) <= len(self._root):
            return False
        folder, name = os.path.split(path)
        if self.leaves_out(folder, is_folder=True):
            return True
        rules = self.rules_of(folder)
        if is_folder:
            return is_ignored(rules.folders, path + FOLDER, name + FOLDER)
        return is_ignored(rules.files, path, name)

    def _above_root(self) -> Rules:
        """Return the rules of the repository that contains the root, if any."""
        folders = [self._root]
        while not os.path.lexists(f"{folders[-1]}/.git"):
            folders.append(os.path.dirname(folders[-1]))  # noqa: PTH120 - see above
            if folders[-1] == folders[-2]:
                return Rules()
        rules = self._with_file(folders[-1], ".git/info/exclude", Rules())
        for folder in reversed(folders[1:]):
            rules = self._with_file(folder, GITIGNORE, rules)
        return rules

    def _with_file(self, folder: str, name: str, above: Rules) -> Rules:
        path = f"{folder}/{name}"
        if not os.path.lexists(path):
            return above
        try:
            with opened_file(path, max_bytes=MAX_BYTES) as (descriptor, found):
                text = os.read(descriptor, found.st_size).decode("utf-8-sig", "surrogateescape")
        except OSError as error:
            self.unreadable[path] = error.strerror or str(error)
            return above
        start = len(folder.rstrip(os.sep)) + 1
        files, folders = (
            (*((start, run) for run in _runs(text, self._suffixes, is_folder=of_folders)), *further)
            for of_folders, further in ((False, above.files), (True, above.folders))
        )
        return Rules(files, folders)


@lru_cache(maxsize=512)
def _runs(text: str, suffixes: frozenset[str], *, is_folder: bool) -> tuple[_Run, ...]:
    """Return the relevant patterns of a file in reverse order: in git, the last match decides."""
    lines = [line for line in map(_without_blanks, text.split("\n")) if line and line[0] != "#"]
    wanted = [line for line in reversed(lines) if is_folder or _may_end(line, suffixes)]
    runs = groupby(wanted, key=lambda line: line[0] != "!")
    return tuple(_run(ignores, [line.removeprefix("!") for line in run], is_folder) for ignores, run in runs)


def _may_end(pattern: str, suffixes: frozenset[str]) -> bool:
    """Return whether a name that ends in one of `suffixes` can match a pattern."""
    if pattern.endswith("/"):
        return False
    end = _WILD.split(pattern)[-1].lower()
    return not suffixes or any(end.endswith(one) or one.endswith(end) for one in suffixes)


def _run(ignores: bool, patterns: list[str], is_folder: bool) -> _Run:
    names: set[str] = set()
    ends: set[str] = set()
    expressions = []
    ending = FOLDER if is_folder else ""
    for pattern in (one.removesuffix("/") for one in patterns):
        if pattern and not _SPECIAL.search(pattern):
            names.add(pattern + ending)
        elif pattern[:1] == "*" and not _SPECIAL.search(pattern[1:]):
            ends.add(pattern[1:] + ending)
        elif expression := _expression(pattern):
            expressions.append(expression + ending)
    others = re.compile("|".join(expressions), re.DOTALL) if expressions else None
    return _Run(ignores, frozenset(names), tuple(ends), others)


def _without_blanks(line: str) -> str:
    """Return a line without trailing spaces, except for one after a backslash."""
    line = line.removesuffix("\r")
    kept = line.rstrip(" ")
    backslashes = len(kept) - len(kept.rstrip("\\"))
    return f"{kept} " if backslashes % 2 and kept != line else kept


def _expression(pattern: str) -> str | None:
    """Return the regex of a pattern: for a path's last component, or if it has a slash, for all of it."""
    try:
        found = _path(pattern.removeprefix("/")) if "/" in pattern else f"(?:.*/)?+{_segment(pattern)}"
        if "[" in pattern:
            re.compile(found)
    except re.error:  # git treats such a pattern as matching nothing
        return None
    return found


def _path(pattern: str) -> str:
    """Return the regex of a pattern with slashes, in which `**` is any number of components."""
    first, *others = re.split(r"(?:^|/)\*\*+(?=/|$)", pattern)
    if not others:
        return _names(first)
    *between, last = others
    # Each part matches at its first possible place, without backtracking, so no pattern takes long.
    expression = f"{_names(first)}/" if first else ""
    expression += "".join(f"(?>(?:[^/]+/)*?{_names(part[1:])}/)" for part in between if part)
    return expression + (f"(?:[^/]+/)*{_names(last[1:])}" if last else f"[^{FOLDER}]+")


def _names(pattern: str) -> str:
    return "/".join(map(_segment, pattern.split("/")))


def _segment(glob: str) -> str:
    """Return the regex of what is between two slashes."""
    fixed = [""]
    at = 0
    while at < len(glob):
        token = _TOKEN.match(glob, at)
        if token is None:
            raise re.error("a set of characters has no end")
        at = token.end()
        if token[0] == "*":
            fixed.append("")
        elif token[0] == "?":
            fixed[-1] += f"[^/{FOLDER}]"
        elif token["set"]:
            fixed[-1] += f"(?![/{FOLDER}])[{'^' if token['not'] else ''}{_set(token['set'])}]"
        else:
            fixed[-1] += re.escape(token[0][-1])
    first, *others = fixed
    if not others:
        return first
    anything = f"[^/{FOLDER}]*"
    return first + "".join(f"(?>{anything}?{one})" for one in others[:-1]) + anything + others[-1]


def _set(members: str) -> str:
    """Return the content of a character class."""
    characters = _CHARACTER.findall(_NAMED.sub("", members))
    plain = "".join(one if one == "-" else re.escape(one[-1]) for one in characters)
    return plain + "".join(_SETS.get(name, "") for name in _NAMED.findall(members))
