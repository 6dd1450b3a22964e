"""Makes of texts what goes into jobs: each text once, named by its hash, so many to a file (pure)."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256

from composable_memory.content import EmbedderInput
from composable_memory_adapters.embedders.remote.batching import fitted, grouped
from composable_memory_adapters.embedders.remote.embedder import Kind

__all__ = ["JobOrder", "JobText", "Line", "Parcel", "ordered", "parcelled"]

Line = Callable[[str, str, Kind], Mapping[str, object]]
"""Returns what stands in the file for an id, a text and its kind."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobText:
    """A text as it is sent."""

    text: str
    kind: Kind


@dataclass(frozen=True, slots=True, kw_only=True)
class JobOrder:
    """What is to be embedded: the id of the text at each place (None for a blank one), and each text once."""

    ids: Sequence[str | None]
    texts: Mapping[str, JobText]


@dataclass(frozen=True, slots=True, kw_only=True)
class Parcel:
    """What goes into one job: texts of one kind, by their ids, and the file with them."""

    kind: Kind
    ids: frozenset[str]
    content: bytes


def ordered(inputs: Sequence[EmbedderInput], max_text_bytes: int) -> JobOrder:
    """Return the texts as they are sent. Their names come of what is sent: the same name is the same vector.

    The name of a passage is its SHA-256; a question that reads the same has another name.
    """
    ids: list[str | None] = []
    texts: dict[str, JobText] = {}
    for item in inputs:
        text = fitted(item.text, max_text_bytes)
        ids.append(_id(text, item.kind) if text.strip() else None)
        if ids[-1] is not None:
            texts[ids[-1]] = JobText(text=text, kind=item.kind)
    return JobOrder(ids=ids, texts=texts)


def parcelled(
    texts: Mapping[str, JobText], line: Line, *, max_texts: int, max_bytes: int
) -> Iterator[Parcel]:
    """Yield the files to send; a line that is longer than `max_bytes` goes alone."""
    kinds: tuple[Kind, ...] = ("query", "document")
    for kind in kinds:
        ids = [text_id for text_id, text in texts.items() if text.kind == kind]
        lines = [_dumped(line(text_id, texts[text_id].text, kind)) for text_id in ids]
        for part in grouped(lines, max_texts=max_texts, max_bytes=max_bytes):
            content = "".join(lines[part.start : part.stop]).encode()
            yield Parcel(kind=kind, ids=frozenset(ids[part.start : part.stop]), content=content)


def _id(text: str, kind: Kind) -> str:
    named = text if kind == "document" else f"{kind}: {text}"
    return sha256(named.encode()).hexdigest()


def _dumped(line: Mapping[str, object]) -> str:
    return json.dumps(line, ensure_ascii=False) + "\n"
