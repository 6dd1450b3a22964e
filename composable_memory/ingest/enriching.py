"""What is done to contents before they are stored: other names are resolved, what was said twice goes (pure).

Both are hooks of the pipeline; others may take their place or follow them.
"""

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from composable_memory.content import IngestWarning, MemoryContentObject
from composable_memory.types import JsonValue

__all__ = ["STANDARD_HOOKS", "EnrichHook", "Enriched", "drop_duplicates", "resolve_coreferences"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Enriched:
    """The contents to go on with, and what was done to them."""

    contents: tuple[MemoryContentObject, ...]
    warnings: tuple[IngestWarning, ...] = ()


EnrichHook: TypeAlias = Callable[[Sequence[MemoryContentObject]], Awaitable[Enriched]]
"""Takes all contents of a run and returns those to go on with."""


async def resolve_coreferences(contents: Sequence[MemoryContentObject]) -> Enriched:
    """Put the proper name in the place of the aliases in `metadata.coreferences.aliases`.

    An alias counts as a whole word, in any case; where several fit, the longest. Ids stay as they are.
    """
    resolved = [_resolved(content) for content in contents]
    changed = [new for old, new in zip(contents, resolved, strict=True) if new.text != old.text]
    return Enriched(
        contents=tuple(resolved),
        warnings=tuple(
            IngestWarning(
                code="enrich.coreference",
                message="other names were replaced by the proper ones",
                details={"id": content.id},
            )
            for content in changed
        ),
    )


async def drop_duplicates(contents: Sequence[MemoryContentObject]) -> Enriched:
    """Keep the first of those that say the same, but for cases and white space, and come from one source."""
    kept: dict[tuple[str, ...], MemoryContentObject] = {}
    warnings: list[IngestWarning] = []
    for content in contents:
        first = kept.setdefault(_said(content), content)
        if first is not content:
            warnings.append(
                IngestWarning(
                    code="enrich.dedupe",
                    message="another content of this run says the same",
                    details={"keptId": first.id, "droppedId": content.id},
                )
            )
    return Enriched(contents=tuple(kept.values()), warnings=tuple(warnings))


STANDARD_HOOKS: tuple[EnrichHook, ...] = (resolve_coreferences, drop_duplicates)


def _resolved(content: MemoryContentObject) -> MemoryContentObject:
    names = _aliases(content.metadata)
    if not names or not content.text:
        return content
    longest_first = sorted(names, key=len, reverse=True)
    pattern = re.compile("|".join(_whole_word(alias) for alias in longest_first), re.IGNORECASE)
    return replace(
        content, text=pattern.sub(lambda found: names.get(found[0].lower(), found[0]), content.text)
    )


def _aliases(metadata: Mapping[str, JsonValue]) -> dict[str, str]:
    coreferences = metadata.get("coreferences")
    aliases = coreferences.get("aliases") if isinstance(coreferences, dict) else None
    if not isinstance(aliases, dict):
        return {}
    return {alias.lower(): name for alias, name in aliases.items() if isinstance(name, str) and alias.strip()}


def _whole_word(alias: str) -> str:
    """Return a pattern for an alias; no edge is asked for where a script puts no space between words."""
    before = r"(?<!\w)" if alias[0].isascii() and alias[0].isalnum() else ""
    after = r"(?!\w)" if alias[-1].isascii() and alias[-1].isalnum() else ""
    return f"{before}{re.escape(alias)}{after}"


def _said(content: MemoryContentObject) -> tuple[str, ...]:
    """Return what makes two contents the same: the words, who said them, where, and on which day."""
    provenance = content.provenance
    return (
        " ".join((content.text or "").casefold().split()),
        provenance.source if provenance else "",
        (provenance.source_id if provenance else None) or "",
        str(content.metadata.get("speaker") or (provenance.actor_id if provenance else None) or ""),
        str(content.temporal.observed_at.date()) if content.temporal and content.temporal.observed_at else "",
    )
