"""Counts things in words, for messages."""


def counted(count: int, one: str, many: str | None = None) -> str:
    """Return `1 fact`, `2 facts`; `many` is a plural that is not made with an s."""
    return f"{count} {one if count == 1 else many or f'{one}s'}"
