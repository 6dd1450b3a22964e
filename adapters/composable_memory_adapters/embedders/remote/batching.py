"""Prepares texts for sending: truncated to the model's limit, grouped into requests (pure)."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Literal, TypeAlias

from pydantic import FailFast, FiniteFloat

from composable_memory.content import EmbedderInput
from composable_memory_adapters.embedders.remote.settings import RemoteSettings

Kind: TypeAlias = Literal["query", "document"]
"""What a text is: a question, or a passage that may answer one."""
KINDS: tuple[Kind, ...] = ("query", "document")

Vector: TypeAlias = Annotated[list[FiniteFloat], FailFast()]
"""A vector as it comes in: every number is finite, and the first that is not ends the reading."""


def request_batches(
    inputs: Sequence[tuple[int, EmbedderInput]], limits: RemoteSettings
) -> Iterator[tuple[Kind, Mapping[int, str]]]:
    """Yield the texts of each request: of one kind, by the index that each came with; no blank ones."""
    for kind in KINDS:
        of_kind = ((index, item.text) for index, item in inputs if item.kind == kind)
        ready = ((index, truncated(text, limits.max_text_bytes)) for index, text in of_kind)
        texts = [(index, text) for index, text in ready if text.strip()]
        for part in grouped(
            [text for _, text in texts],
            max_texts=limits.max_batch_texts,
            max_bytes=limits.max_batch_bytes,
        ):
            yield kind, dict(texts[part.start : part.stop])


def truncated(text: str, max_bytes: int) -> str:
    """Return the longest beginning of `text` with at most `max_bytes` bytes of UTF-8, whole characters only.

    Half a surrogate pair, which UTF-8 cannot hold, becomes a question mark.
    """
    if len(text) <= max_bytes and text.isascii():
        return text
    encoded = text.encode("utf-8", "replace")
    return encoded[:max_bytes].decode("utf-8", "ignore")


def grouped(texts: Sequence[str], *, max_texts: int, max_bytes: int) -> Iterator[range]:
    """Yield ranges of `texts` that go into one request each, as long as both limits allow.

    A text that is larger than `max_bytes` goes alone.
    """
    start, size = 0, 0
    for index, text in enumerate(texts):
        more = len(text.encode())
        if index > start and (index - start == max_texts or size + more > max_bytes):
            yield range(start, index)
            start, size = index, 0
        size += more
    if start < len(texts):
        yield range(start, len(texts))
