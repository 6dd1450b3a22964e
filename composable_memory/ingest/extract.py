"""Extracts text, entities and relations from contents; before that, hooks may rewrite them (pure)."""

import re
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Protocol, TypeAlias, runtime_checkable

from composable_memory.content import (
    ExtractedEntity,
    ExtractedRelation,
    IngestWarning,
    MemoryArtifact,
    MemoryContentObject,
)
from composable_memory.interfaces import EntityExtractor, SupportsRelations
from composable_memory.types import JsonValue
from composable_memory_ops_logs.quick_dataclass import dataclass

RETAINED = "retained"
"""Metadata of a content that is a retained line: its `type`, `entities`, `tags` and `id`."""

READ = ("ocrText", "ocr_text", "text", "extractedText")
HEARD = ("transcript", "asrText", "asr_text", "subtitle")
CAPTION = ("caption", "alt", "altText", "summary", "description")

KEYS: Mapping[str, Sequence[Sequence[str]]] = {
    "file": (READ, HEARD, CAPTION),
    "image": (READ, CAPTION),
    "audio": (HEARD,),
    "video": (HEARD, CAPTION),
    "link": (CAPTION,),
    "other": (CAPTION,),
}
"""The keys with the words of an artifact, by its kind; the first key of each group that has any is used."""


def extract_texts(contents: Sequence[MemoryContentObject]) -> "Enriched":
    """Return the contents with text; those without are dropped with a warning."""
    found: list[MemoryContentObject] = []
    warnings: list[IngestWarning] = []
    for content in contents:
        own = _replace_surrogates(content.text or "")
        text = (
            own
            if own.strip()
            else "\n\n".join(
                dict.fromkeys(text for artifact in content.artifacts for text in texts_of(artifact))
            )
        )
        if text:
            found.append(replace(content, text=text))
        else:
            message = "neither it nor its artifacts have any text"
            warnings.append(
                IngestWarning(code="extract.no_text", message=message, details={"id": content.id})
            )
    return Enriched(contents=tuple(found), warnings=tuple(warnings))


def texts_of(artifact: MemoryArtifact) -> Iterator[str]:
    """Yield the text read in an artifact, heard in it, and written about it."""
    for keys in KEYS[artifact.kind]:
        words = [artifact.metadata.get(key) for key in keys]
        if keys is CAPTION:
            words.append(artifact.description)
        text = next((word for word in words if isinstance(word, str) and word.strip()), None)
        if text:
            yield _replace_surrogates(text).strip()


def _replace_surrogates(text: str) -> str:
    """Replace lone surrogates, which no store accepts."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")


@dataclass(frozen=True, slots=True, kw_only=True)
class Extraction:
    """The entities and relations of one content."""

    entities: tuple[ExtractedEntity, ...] = ()
    relations: tuple[ExtractedRelation, ...] = ()
    warnings: tuple[IngestWarning, ...] = ()


@runtime_checkable
class SupportsExtraction(Protocol):
    """An extractor that finds entities and relations in one pass, and says if its result is degraded."""

    async def read(self, content: MemoryContentObject) -> Extraction:
        """Return the entities and relations in `content`."""
        ...


async def extract_from(extractor: EntityExtractor, content: MemoryContentObject) -> Extraction:
    """Extract everything from `content`, in one pass if the extractor supports that."""
    if isinstance(extractor, SupportsExtraction):
        found = await extractor.read(content)
    else:
        entities = tuple(await extractor.extract(content))
        found = Extraction(entities=entities)
        if isinstance(extractor, SupportsRelations):
            found = replace(found, relations=tuple(await extractor.relate(content, entities)))
    retained = content.metadata.get(RETAINED)
    return _of_retained_line(content.text or "", retained, found) if isinstance(retained, dict) else found


def _of_retained_line(text: str, line: Mapping[str, JsonValue], found: Extraction) -> Extraction:
    """Return the extraction of a retained line: its own entities, and a fact of its type about them.

    An opinion only says that somebody thinks so: it is never a fact about the world, and never ends one.
    """
    given = line.get("entities")
    named = [one for one in given if isinstance(one, str)] if isinstance(given, list) else []
    labels = {name.casefold() for name in named}
    others = [one for one in found.entities if one.label.casefold() not in labels]
    entities = (*(ExtractedEntity(label=name) for name in named), *others)
    is_opinion = line.get("type") == "opinion"
    if found.relations and not is_opinion:
        return replace(found, entities=entities)
    about = named or [one.label for one in others[:2]]
    is_named = bool(about) and about[0].casefold() in text.casefold()
    fact = text if is_named or not about else f"{about[0]}: {text}"
    if is_opinion:
        fact = f"Opinion: {text}" if is_named or not about else f"Opinion about {about[0]}: {text}"
    kind = str(line.get("type") or "world").upper()
    relations = [
        ExtractedRelation(source=about[0], target=target, type=kind, fact=fact)
        for target in about[1:] or about[:1]
    ]
    return replace(found, entities=entities, relations=tuple(relations))


@dataclass(frozen=True, slots=True, kw_only=True)
class Enriched:
    """The contents to continue with, and warnings about them and what was done to them."""

    contents: tuple[MemoryContentObject, ...]
    warnings: tuple[IngestWarning, ...] = ()


EnrichHook: TypeAlias = Callable[[Sequence[MemoryContentObject]], Awaitable[Enriched]]
"""Takes all contents of a run and returns those to continue with."""


async def resolve_coreferences(contents: Sequence[MemoryContentObject]) -> Enriched:
    """Replace the aliases in `metadata.coreferences.aliases` by the proper names.

    An alias must match a whole word, in any case; if several match, the longest wins. Ids are unchanged.
    """
    resolved = [_resolve(content) for content in contents]
    changed = [new for old, new in zip(contents, resolved, strict=True) if new.text != old.text]
    return Enriched(
        contents=tuple(resolved),
        warnings=tuple(
            IngestWarning(
                code="enrich.coreference",
                message="other names were replaced by the canonical ones",
                details={"id": content.id},
            )
            for content in changed
        ),
    )


async def drop_duplicates(contents: Sequence[MemoryContentObject]) -> Enriched:
    """Keep the first of several contents from one source that differ only in case and white space."""
    kept: dict[tuple[str, ...], MemoryContentObject] = {}
    warnings: list[IngestWarning] = []
    for content in contents:
        first = kept.setdefault(_identity(content), content)
        if first is not content:
            warnings.append(
                IngestWarning(
                    code="enrich.dedupe",
                    message="another content in this run says the same",
                    details={"keptId": first.id, "droppedId": content.id},
                )
            )
    return Enriched(contents=tuple(kept.values()), warnings=tuple(warnings))


STANDARD_HOOKS: tuple[EnrichHook, ...] = (resolve_coreferences, drop_duplicates)


def _resolve(content: MemoryContentObject) -> MemoryContentObject:
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
    """Return a pattern for an alias, without word boundaries if its script has no spaces between words."""
    before = r"(?<!\w)" if alias[0].isascii() and alias[0].isalnum() else ""
    after = r"(?!\w)" if alias[-1].isascii() and alias[-1].isalnum() else ""
    return f"{before}{re.escape(alias)}{after}"


def _identity(content: MemoryContentObject) -> tuple[str, ...]:
    """Return what makes two contents the same: the words, who said them, where, and on which day."""
    provenance = content.provenance
    return (
        " ".join((content.text or "").casefold().split()),
        provenance.source if provenance else "",
        (provenance.source_id if provenance else None) or "",
        str(content.metadata.get("speaker") or (provenance.actor_id if provenance else None) or ""),
        str(content.temporal.observed_at.date()) if content.temporal and content.temporal.observed_at else "",
    )
