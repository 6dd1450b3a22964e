"""Makes texts ready to be sent: cut to the model's limit, grouped into requests (pure)."""

from collections.abc import Iterator, Sequence

__all__ = ["fitted", "grouped"]


def fitted(text: str, max_bytes: int) -> str:
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
    for place, text in enumerate(texts):
        more = len(text.encode())
        if place > start and (place - start == max_texts or size + more > max_bytes):
            yield range(start, place)
            start, size = place, 0
        size += more
    if start < len(texts):
        yield range(start, len(texts))
