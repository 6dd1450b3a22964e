"""Reads what mcporter prints: the hits in it, and why a call failed (pure)."""

import json
import re
import shlex
from collections.abc import Iterator, Mapping
from itertools import islice

from composable_memory.errors import BackendError, BackendGarbled, BackendRejected, BackendUnavailable
from composable_memory.supervision.command import Reply
from composable_memory_adapters.qmd.transport.replies import UNKNOWN_COLLECTION, hits_of, refusal
from composable_memory_adapters.qmd.values import BACKEND_ID, Hit

__all__ = ["OPERATION", "TOOL", "hits_in", "last_line", "unavailable"]

TOOL = "query"
OPERATION = "search"

MOST_VALUES = 1000
"""More lines of noisy output that could begin an answer are not looked at."""

_ANSWER = re.compile(r"^[\[{]", re.MULTILINE)
_NO_TOOL = re.compile(r"tool \S+ not found|unknown tool", re.IGNORECASE)


def hits_in(reply: Reply, server: str) -> list[Hit]:
    """Return the hits in what mcporter printed, whatever stands around them.

    Raises:
        BackendError: the tool failed, or could not be called.
        BackendGarbled: there is no answer in the output, or one that cannot be read.
    """
    answer = next((one for one in _values_in(reply.stdout) if _is_answer(one)), None)
    if reply.code != 0 or _has_failed(answer):
        raise _failure(reply, answer, server)
    if answer is None:
        raise BackendGarbled(
            BACKEND_ID,
            OPERATION,
            excerpt=reply.stdout.strip() or f"nothing on stdout; stderr: {reply.stderr.strip() or 'nothing'}",
            expected=f"the results of the tool `{TOOL}` from mcporter",
        )
    return hits_of(_items(answer), encoded=False)


def last_line(text: str) -> str | None:
    """Return the last line of a text that is not blank, or None."""
    return text.strip().rpartition("\n")[2] or None


def unavailable(what: str, fix: str) -> BackendUnavailable:
    """Return the error of a memory that lacks `what`, and how to mend it."""
    return BackendUnavailable(BACKEND_ID, what, fix=fix, operation=OPERATION)


def _values_in(stdout: str) -> Iterator[object]:
    """Yield the JSON values that begin a line."""
    decoder = json.JSONDecoder()
    for match in islice(_ANSWER.finditer(stdout), MOST_VALUES):
        try:
            yield decoder.raw_decode(stdout, match.start())[0]
        except (ValueError, RecursionError):
            continue


def _is_answer(value: object) -> bool:
    return _items(value) is not None or _has_failed(value)


def _has_failed(value: object) -> bool:
    return isinstance(value, dict) and bool(value.get("isError") or value.get("error"))


def _items(value: object) -> object:
    """Return what stands for the results: a list itself, `results`, or `structuredContent.results`."""
    if isinstance(value, dict):
        inner = value.get("structuredContent")
        return (inner if isinstance(inner, dict) else value).get("results")
    return value if isinstance(value, list) and all(isinstance(item, dict) for item in value) else None


def _failure(reply: Reply, answer: object, server: str) -> BackendError:
    """Return why a call failed: QMD refused it, or cannot be asked in this way."""
    failed = answer if isinstance(answer, dict) else {}
    said = _said(failed) or last_line(reply.stderr) or last_line(reply.stdout) or "it printed nothing"
    if _NO_TOOL.search(said):
        what = f"the server {server!r} has no tool `{TOOL}` ({said})"
        return unavailable(what, "let `memory.qmd.mcporter.serverName` name a QMD of version 2.1 or newer")
    error = refusal(reply.code or 1, "", said)
    is_known = not isinstance(error, BackendRejected) or error.status == UNKNOWN_COLLECTION
    if is_known or failed.get("isError"):
        return error
    what = f"mcporter could not ask the server {server!r} ({said})"
    return unavailable(what, f"try `mcporter list {shlex.quote(server)}` with the same `--config`")


def _said(failed: Mapping[str, object]) -> str:
    """Return what a failed tool says, or what mcporter says of a failed call."""
    content = failed.get("content")
    texts = (
        [str(part.get("text", "")) for part in content if isinstance(part, dict)]
        if isinstance(content, list)
        else []
    )
    return "\n".join(texts).strip() or str(failed.get("error") or "").strip()
