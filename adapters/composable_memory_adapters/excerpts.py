"""Some lines of a text, as `read_file` is asked for them (pure)."""


def excerpt(text: str, from_line: int | None, lines: int | None) -> str:
    """Return `lines` lines of a text from the 1-based `from_line` on; all of it where neither is given.

    Less than 1 counts as 1; without `lines` everything to the end is returned.
    """
    if not from_line and not lines:
        return text
    start = max(1, from_line or 1) - 1
    end = start + max(1, lines) if lines else None
    return "\n".join(text.split("\n")[start:end])
