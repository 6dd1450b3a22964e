"""QMD's MCP tool `query`: its arguments, and how its results and errors are read (pure)."""

from collections.abc import Mapping

from composable_memory.types import JsonValue
from composable_memory_adapters.qmd.types import SearchRequest

TOOL = "query"


def arguments_of(request: SearchRequest) -> dict[str, JsonValue]:
    """Return a request as the tool takes it; QMD's REST interface takes the same for given searches."""
    what: dict[str, JsonValue] = {"query": request.text}
    if not request.expand:
        searches: list[JsonValue] = [{"type": one.kind, "query": one.text} for one in request.searches]
        what = {"searches": searches, "rerank": False}
    return {
        **what,
        "collections": list(request.collections),
        "limit": request.limit,
        "candidateLimit": request.candidates,
    }


def has_failed(result: object) -> bool:
    """Return whether the tool, or the call of it, has failed."""
    return isinstance(result, dict) and bool(result.get("isError") or result.get("error"))


def results_in(result: object) -> object:
    """Return the hits in a result: `structuredContent.results`, `results`, or a bare list of objects."""
    if isinstance(result, dict):
        inner = result.get("structuredContent")
        return (inner if isinstance(inner, dict) else result).get("results")
    return result if isinstance(result, list) and all(isinstance(item, dict) for item in result) else None


def error_text(result: Mapping[str, object]) -> str:
    """Return the message of a failed tool, or of a failed call; empty if there is none."""
    content, error = result.get("content"), result.get("error")
    parts = content if isinstance(content, list) else []
    if isinstance(error, dict):
        parts = [*parts, {"text": error.get("message")}]
    texts = [part.get("text") for part in parts if isinstance(part, dict)]
    text = "\n".join(text for text in texts if isinstance(text, str)).strip()
    return text or (error.strip() if isinstance(error, str) else "")
