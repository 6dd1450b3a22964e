"""What a workspace's settings file may set without being trusted.

A workspace may come from anywhere, by a clone or an archive, so its file may set only what is harmless, until
the user consents (see `settings_files`).
"""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from composable_memory.config.settings import DEFAULT_BACKEND, is_taken
from composable_memory.config.trees import Leaf, Tree, leaves
from composable_memory.interfaces import TrustRule
from composable_memory.registry import Registry
from composable_memory_ops_logs.quick_dataclass import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A setting of a workspace that needs the user's consent, and why."""

    key: str
    leaf: Leaf
    problem: str


def requests(tree: Tree, workspace: Path, registry: Registry) -> Iterator[Request]:
    """Yield the settings in a workspace's file that need consent, because of the key or its value.

    Reads the disk to see where paths lead. A backend is imported if the file sets one of its own keys.
    """
    for key, leaf in leaves(tree):
        if leaf.value == {} or (leaf.value is None and "." not in key):
            continue  # a section whose keys are all commented out
        if problem := _rule_for(key, registry)(leaf.value, workspace):
            yield Request(key=f"memory.{key}", leaf=leaf, problem=problem)


def _rule_for(key: str, registry: Registry) -> TrustRule:
    if key == "embedding.provider":
        return _trusted_provider(registry)
    if found := next((rule for pattern, rule in _RULES if re.fullmatch(pattern, key)), None):
        return found
    backend_id, _, inner = key.removeprefix("backends.").partition(".")
    if key.startswith("backends.") or not is_taken(backend_id):
        return _rule_of_backend(backend_id, inner, registry)
    return _nothing


def _rule_of_backend(backend_id: str, key: str, registry: Registry) -> TrustRule:
    found = registry.backend(backend_id)
    own = found.spec.trust if found and found.spec else {}
    section = key.partition(".")[0]
    return own.get(key) or own.get(f"{section}.*") or _SHARED_RULES.get(key) or _nothing


def _trusted_provider(registry: Registry) -> TrustRule:
    """Allow automatic choice, none, and providers that can do no harm."""

    def rule(value: object, workspace: Path) -> str | None:
        if value in ("auto", "none"):
            return None
        found = registry.embedder(value) if isinstance(value, str) else None
        if found and found.spec and found.spec.trusted:
            return None
        trusted = [one.id for one in registry.embedders if one.spec and one.spec.trusted]
        return only("auto", "none", *trusted)(value, workspace)

    return rule


def anything(value: object, workspace: Path) -> str | None:  # noqa: ARG001 - signature of a rule
    """Allow every value."""
    return None


def _nothing(value: object, workspace: Path) -> str | None:  # noqa: ARG001 - signature of a rule
    return "a file of the workspace may not set this"


def only(*allowed: object) -> TrustRule:
    """Allow only these values."""
    words = " or ".join(json.dumps(each) for each in allowed)
    return lambda value, _: None if value in allowed else f"a workspace may only say {words} here"


def paths_inside(value: object, workspace: Path) -> str | None:
    """Allow a path, or a list of paths, that stay inside the workspace."""
    for entry in value if isinstance(value, list) else [value]:
        if not isinstance(entry, str):
            return f"{entry!r:.200} is not a path"
        if not _leads_inside(entry, workspace):
            return f"{entry!r:.200} is outside the workspace"
    return None


def folders_inside(value: object, workspace: Path) -> str | None:
    """Allow folders that stay inside the workspace, each a path, or with a `pattern` of Markdown files."""
    for entry in value if isinstance(value, list) else [value]:
        folder = {"path": entry} if isinstance(entry, str) else entry
        if not isinstance(folder, dict):
            return f"{entry!r:.200} is not a folder"
        if problem := paths_inside(folder.get("path"), workspace):
            return problem
        pattern = folder.get("pattern", "*.md")
        if not isinstance(pattern, str) or not _PLAIN_PATTERN.fullmatch(pattern):
            return f"the pattern {pattern!r:.200} may match files other than Markdown there"
    return None


_PLAIN_PATTERN = re.compile(r"(?!.*\.\.)(?:[\w*?.-]+/)*[\w*?.-]*\.md")
"""Markdown files by name with `*` and `?`; no absolute path, no `..`, no list."""


def _leads_inside(entry: str, workspace: Path) -> bool:
    try:
        # Backends may strip whitespace around a path; " /etc" must not pass as a folder of that name.
        target = (workspace / Path(entry.strip()).expanduser()).resolve()
    except (OSError, RuntimeError, ValueError):  # a loop of links, an unknown home, a null byte
        return False
    return target.is_relative_to(workspace.resolve())


_RULES: tuple[tuple[str, TrustRule], ...] = (
    (r"citations|query(?:\..+)?|feedback\.window_days", anything),
    ("backend", only(DEFAULT_BACKEND)),
    ("fallback", only(DEFAULT_BACKEND, "none")),
    (r"feedback\.(?:enabled|auto_apply)", only(False)),
    (r"hooks\.(?:auto_recall|auto_capture|session_memory|flush\.enabled)", only(False)),
)
"""Keys that cannot start programs, reach hosts, read files elsewhere or cost money; and their rules."""

_SHARED_RULES: Mapping[str, TrustRule] = {"enabled": only(False), "weight": anything}
"""The same for the keys common to all backends; a backend may add rules in its `BackendSpec.trust`."""
