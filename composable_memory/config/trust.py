"""What the settings file of a workspace may say.

A workspace may come from anywhere, with a clone or an archive, so its file may set only what cannot do harm.
"""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

from composable_memory.config.trees import Tree, leaves
from composable_memory.errors import ConfigError

__all__ = ["refuse_harmful"]

_Objection: TypeAlias = Callable[[object, Path], str | None]


def refuse_harmful(tree: Tree, workspace: Path, *, advice: str) -> None:
    """Check everything that a workspace's file says; `advice` tells where else it could be said.

    Looks at the disk, to see where paths lead.

    Raises:
        ConfigError: a key is not for a workspace to set, or not to this value.
    """
    for key, leaf in leaves(tree):
        if problem := _objection(key, leaf.value, workspace):
            raise ConfigError(f"memory.{key}", f"{problem}; {advice}", origin=str(leaf.origin))


def _objection(key: str, value: object, workspace: Path) -> str | None:
    if value == {} or (value is None and "." not in key):
        return None  # a section whose keys are all commented out
    for pattern, rule in _RULES:
        if re.fullmatch(pattern, key):
            return rule(value, workspace)
    return "a file of the workspace may not set this"


def _anything(value: object, workspace: Path) -> str | None:  # noqa: ARG001 - the shape of a rule
    return None


def _only(*allowed: object) -> _Objection:
    words = " or ".join(json.dumps(each) for each in allowed)
    return lambda value, _: None if value in allowed else f"a workspace may only say {words} here"


def _inside(value: object, workspace: Path) -> str | None:
    for entry in value if isinstance(value, list) else [value]:
        if not isinstance(entry, str):
            return f"{entry!r:.200} is not a path"
        if not _leads_inside(entry, workspace):
            return f"{entry!r:.200} leads out of the workspace"
    return None


def _folders_inside(value: object, workspace: Path) -> str | None:
    """Object to collections that are not inside, or whose pattern could lead out again."""
    for entry in value if isinstance(value, list) else [value]:
        folder = {"path": entry} if isinstance(entry, str) else entry
        if not isinstance(folder, dict):
            return f"{entry!r:.200} is not a folder"
        if problem := _inside(folder.get("path"), workspace):
            return problem
        pattern = folder.get("pattern", "*.md")
        if not isinstance(pattern, str) or not _PLAIN_PATTERN.fullmatch(pattern):
            return f"the pattern {pattern!r:.200} may name other files than Markdown files in there"
    return None


_PLAIN_PATTERN = re.compile(r"(?!.*\.\.)(?:[\w*?.-]+/)*[\w*?.-]*\.md")
"""Markdown files by names with `*` and `?`; nothing that begins elsewhere, goes up, or lists several."""


def _leads_inside(entry: str, workspace: Path) -> bool:
    try:
        # Backends may strip what surrounds a path; " /etc" must not pass as a folder of that name.
        target = (workspace / Path(entry.strip()).expanduser()).resolve()
    except (OSError, RuntimeError, ValueError):  # a loop of links, no such home, a zero byte
        return False
    return target.is_relative_to(workspace.resolve())


_OTHER_BACKEND = r"(?:graphiti|qmd|backends\.[a-z0-9_-]+)"

_RULES: tuple[tuple[str, _Objection], ...] = (
    (r"citations|fallback|query(?:\..+)?", _anything),
    ("backend", _only("builtin")),
    (r"feedback\.(?:enabled|auto_apply)", _only(False)),
    (r"feedback\.window_days", _anything),
    (r"embedding\.provider", _only("auto", "none", "wordllama")),
    (r"builtin\.(?:enabled|weight|timeout_ms|calibration|condition)", _anything),
    (r"builtin\.sources", _only(["memory"], [])),
    (r"builtin\.(?:chunking|query|sync|cache)(?:\..+)?", _anything),
    (r"builtin\.extra_paths", _inside),
    (rf"{_OTHER_BACKEND}\.enabled", _only(False)),
    (rf"{_OTHER_BACKEND}\.weight", _anything),
    (r"qmd\.(?:include_default_memory|limits(?:\..+)?)", _anything),
    (r"qmd\.search_mode", _only("search")),
    (r"qmd\.(?:rerank|sessions\.enabled)", _only(False)),
    (r"qmd\.paths", _folders_inside),
)
"""Keys that cannot start programs, reach hosts, read files elsewhere or cost money, and what they may say."""
