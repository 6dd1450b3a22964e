"""Tells when the embedding provider cannot read a language that much of the notes is in."""

from collections.abc import Iterator, Mapping

from composable_memory.interfaces import EmbedderSpec
from composable_memory.registry import Registry
from composable_memory.runtime.embedder_choice import SECTION, EmbedderChoice
from composable_memory.types import MemoryProviderStatus

MUCH = 0.1
"""A language that fills less of the notes is not worth a hint."""

_NAMES = {
    "ar": "Arabic",
    "de": "German",
    "el": "Greek",
    "en": "English",
    "es": "Spanish",
    "fr": "French",
    "he": "Hebrew",
    "hi": "Hindi",
    "ja": "Japanese",
    "ko": "Korean",
    "nl": "Dutch",
    "pt": "Portuguese",
    "ru": "Russian",
    "th": "Thai",
    "zh": "Chinese",
}


def language_hint(status: MemoryProviderStatus, choice: EmbedderChoice, registry: Registry) -> str | None:
    """Return which languages of the notes the chosen provider cannot read, and which one can. Blocks.

    None is returned where it reads every language that more than a tenth of the notes is in, and where nobody
    who works without a network reads them.
    """
    match status.custom:
        case {"languages": dict(shares)} if choice.embedder is not None and choice.languages is not None:
            unread = dict(_unread(shares, choice.languages))
        case _:
            return None
    if not unread or (better := _reader_of(unread, registry)) is None:
        return None
    what = ", ".join(f"{_NAMES.get(code, code)} ({share:.0%} of the notes)" for code, share in unread.items())
    missing = better.missing()
    return (
        f"{choice.embedder.id} does not read {what}, so passages in it are found by their words alone;"
        f" {better.id} does: {f'{missing}, then ' if missing else ''}set {SECTION}.provider to {better.id}"
    )


def _unread(shares: Mapping[str, object], known: frozenset[str]) -> Iterator[tuple[str, float]]:
    for code, share in shares.items():
        if code not in known and isinstance(share, float | int) and share > MUCH:
            yield code, float(share)


def _reader_of(languages: Mapping[str, float], registry: Registry) -> EmbedderSpec | None:
    """Return a provider that reads all of `languages` and needs no network; imports all providers."""
    specs = (found.spec for found in registry.embedders if found.spec)
    return next(
        (spec for spec in specs if spec.local and languages.keys() <= (spec.languages or set())), None
    )
