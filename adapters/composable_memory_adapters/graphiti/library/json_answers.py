"""The JSON in what a language model said: within fences, between introduction and afterword (pure)."""

import json
import re

__all__ = ["object_in"]

FENCE = re.compile(r"```[\w-]*[ \t]*\n(.*?)```", re.DOTALL)

_decoder = json.JSONDecoder(strict=False)


def object_in(text: str) -> dict[str, object] | None:
    """Return the first JSON object in a text that is not part of another one, or None.

    Thoughts before the answer may hold braces of their own, so what a fence encloses is looked at first.
    """
    for part in (*FENCE.findall(text), text):
        found = _first_object(part)
        if found is not None:
            return found
    return None


def _first_object(text: str) -> dict[str, object] | None:
    start = text.find("{")
    while start >= 0:
        try:
            found, _ = _decoder.raw_decode(text, start)
        except (ValueError, RecursionError):
            start = text.find("{", start + 1)
            continue
        return found if isinstance(found, dict) else None
    return None
