"""Decides how a question is put just now: as the settings want it, or as the models that are there allow."""

from dataclasses import dataclass

from composable_memory.types import Degradation, DegradationCode
from composable_memory_adapters.qmd.runtime.models import missing_models
from composable_memory_adapters.qmd.settings import QmdSettings, SearchMode
from composable_memory_adapters.qmd.values import BACKEND_ID, Home

__all__ = ["PresentMode", "present_mode"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PresentMode:
    """How questions are put just now, and in what that falls short of the settings.

    With `rerank`, QMD's language models widen the question and rank what is found.
    """

    mode: SearchMode
    rerank: bool = False
    shortcoming: Degradation | None = None


def present_mode(settings: QmdSettings, home: Home, *, has_embedded: bool) -> PresentMode:
    """Return how a question can be put; without what likeness needs, words are searched. Looks at the disk.

    Raises:
        BackendUnavailable: QMD's configuration cannot be read.
    """
    mode = settings.search_mode
    if mode == "search":
        return PresentMode(mode=mode)
    if home.environ.get("CI"):
        return _words_only("keyword-only", "CI is set, and QMD refuses its models then; unset it")
    roles = ("embed",) if mode == "vsearch" else ("embed", "generate", "rerank")
    lacking = missing_models(home, settings, needed=roles)
    if "embed" in lacking:
        reason = "QMD's embedding model is not on this machine; `qmd pull` fetches it"
        return _words_only("keyword-only", reason)
    if not has_embedded:
        reason = "QMD has embedded nothing yet; `cmem index` does it, which may take long without a GPU"
        return _words_only("vectors-pending", reason)
    if mode == "vsearch" or not settings.rerank:
        return PresentMode(mode=mode)
    if lacking:
        reason = (
            f"QMD's models to {' and '.join(lacking)} are not on this machine, so it searched by words "
            "and likeness alone; `qmd pull` fetches them, `memory.qmd.rerank: false` does without"
        )
        return PresentMode(mode=mode, shortcoming=_shortcoming("engine-fallback", reason))
    return PresentMode(mode=mode, rerank=True)


def _words_only(code: DegradationCode, reason: str) -> PresentMode:
    return PresentMode(mode="search", shortcoming=_shortcoming(code, reason))


def _shortcoming(code: DegradationCode, reason: str) -> Degradation:
    return Degradation(backend_id=BACKEND_ID, code=code, reason=reason)
