"""What the docs say of each command: its section, its options, and the keys of its JSON examples."""

import json
import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path

__all__ = ["assert_documented", "examples", "keys_in", "sections"]

DOCS = Path(__file__).parents[1] / "docs"
PAGES = (DOCS / "cli.md", *sorted((DOCS / "cli").glob("*.md")))
SHOWN_ELSEWHERE = {
    "backends list": ("status",),
    "demo": ("search", "index", "logs show"),
    "experiment start": ("experiment stop",),
    "experiment status": ("experiment stop",),
    "feedback stats": ("advise", "weights show"),
    "graph export": ("graph entities", "graph facts"),
    "graph timeline": ("graph facts",),
    "logs query": ("logs tail", "logs show"),
    "logs tail": ("logs query", "logs show"),
    "restore": ("backup",),
    "weights rollback": ("weights show",),
    "weights set": ("weights show",),
}
"""Commands whose documents hold what those of others show in full."""
FOREIGN_MAPPINGS = {
    "custom",
    "metadata",
    "rows",
    "added",
    "known",
    "parts",
    "weights",
    "byIntent",
    "incomplete",
    "passedOver",
    "legs",
    "server",
    "hooks",
}
"""Keys of mappings whose own keys are no names of ours: of a backend, a weight table, an agent."""
FOREIGN = {"events", "value"}
"""Keys of values that are written as they stand elsewhere: in the log, in the settings."""


@cache
def sections() -> dict[str, str]:
    """Return the text under each heading; under the name of the command where it is about one."""
    found: dict[str, str] = {}
    for page in PAGES:
        parts = re.split(r"^## (.+)$", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
        for title, text in zip(parts[1::2], parts[2::2], strict=True):
            name = title.removeprefix("cmem ")
            assert name not in found, f"{name} stands twice"
            found[name] = text
    return found


def examples(command: str) -> list[dict[str, object]]:
    """Return the JSON examples of a command."""
    return [json.loads(block) for block in re.findall(r"```json\n(.*?)```", sections()[command], re.DOTALL)]


def keys_in(value: object) -> set[str]:
    """Return the keys of a document and of all in it that are names of ours."""
    match value:
        case dict():
            inner = (part for key, part in value.items() if not _is_foreign(key, part))
            return set(value).union(*map(keys_in, inner))
        case list():
            return set().union(*map(keys_in, value))
    return set()


def _is_foreign(key: str, value: object) -> bool:
    return key in FOREIGN or (key in FOREIGN_MAPPINGS and isinstance(value, dict))


def assert_documented(arguments: Sequence[str], document: dict[str, object]) -> None:
    """Assert that every key of a document that a command printed is in an example of the page."""
    if "error" in document:
        return
    words = " ".join(arguments[:2])
    command = words if words in sections() else arguments[0]
    pages = (command, *SHOWN_ELSEWHERE.get(command, ()))
    shown = set().union(*(keys_in(example) for page in pages for example in examples(page)))
    unknown = keys_in(document) - shown - _named_by_users(document)
    assert not unknown, f"{command}: {sorted(unknown)}"


def _named_by_users(document: dict[str, object]) -> set[str]:
    """Return keys that are the ids of backends, engines, kinds of questions and the like."""
    names: set[str] = set()
    for key in ("backends", "engines", "judgements", "gainByIntent", "damage"):
        for value in _values_of(document, key):
            names |= set(value) if isinstance(value, dict) else set()
    return names


def _values_of(value: object, key: str) -> list[object]:
    match value:
        case dict():
            own = [value[key]] if key in value else []
            return own + [one for part in value.values() for one in _values_of(part, key)]
        case list():
            return [one for part in value for one in _values_of(part, key)]
    return []
