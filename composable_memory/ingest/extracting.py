"""Finds the text of a content: its own, else what was read, heard or said of its artifacts (pure)."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from composable_memory.content import IngestWarning, MemoryArtifact, MemoryContentObject
from composable_memory.ingest.normalizing import Normalized

__all__ = ["extract_texts", "texts_of"]

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
"""Where the words of an artifact are kept, by its kind; of each group the first key that has some."""


def extract_texts(contents: Sequence[MemoryContentObject]) -> Normalized:
    """Return the contents that have a text; those that have none are left out with a warning."""
    found: list[MemoryContentObject] = []
    warnings: list[IngestWarning] = []
    for content in contents:
        own = _sound(content.text or "")
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
            message = "neither it nor its artifacts have a text"
            warnings.append(
                IngestWarning(code="extract.no_text", message=message, details={"id": content.id})
            )
    return Normalized(contents=tuple(found), warnings=tuple(warnings))


def texts_of(artifact: MemoryArtifact) -> Iterator[str]:
    """Yield what was read in an artifact, heard in it, and said of it."""
    for keys in KEYS[artifact.kind]:
        words = [artifact.metadata.get(key) for key in keys]
        if keys is CAPTION:
            words.append(artifact.description)
        text = next((word for word in words if isinstance(word, str) and word.strip()), None)
        if text:
            yield _sound(text).strip()


def _sound(text: str) -> str:
    """Replace halves of surrogate pairs, which no store takes."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")
