"""A page about one answer that needs nothing but itself, to attach to a report of a problem."""

import asyncio
import re
from base64 import b64encode
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from composable_memory.errors import ComposableMemoryError
from composable_memory.inspector.answer import Row, answer_view, waterfall
from composable_memory.inspector.markup import Markup, asset, el, page
from composable_memory.tools.document import ErrorReply
from composable_memory.tools.explain import MemoryExplainRequest, memory_explain
from composable_memory_ops_logs import OpsLogError, redact, redact_value
from composable_memory_ops_logs.private_files import replace_file

if TYPE_CHECKING:
    from composable_memory.runtime.memory import Memory

POLICY = "default-src 'none'; style-src 'sha256-{}'; base-uri 'none'; form-action 'none'"
"""No network and no script: whatever a note says, it cannot run."""
TEXTS = ("title", "headings", "snippet", "snippetPreview", "text", "highlights", "facts", "matched", "words")
LEFT_OUT = "(left out)"
LONGEST = 2000
"""So many characters of a passage are shown that had a secret in it."""


def report_page(told: Row, *, with_texts: bool = True) -> str:
    """Return the page for what `memory_explain` says of a search as a whole, or for a trace that is none.

    Secrets are masked. Without texts neither the question nor what notes say is in it; their paths are.
    """
    masked: dict[str, Any] = dict(redact_value(told))
    if "results" in told:
        masked["results"] = [*map(_masked, told["results"], masked["results"])]
    if not with_texts:
        masked["query"] = LEFT_OUT
        for row in masked.get("results", ()):
            row.update(dict.fromkeys(TEXTS, ""))
    body = answer_view(masked) if "results" in told else waterfall(masked)
    style = Markup(asset("inspector.css"))
    policy = POLICY.format(b64encode(sha256(style.encode()).digest()).decode())
    head = (el("meta", http_equiv="Content-Security-Policy", content=policy), el("style", style))
    named = f"Trace {str(told.get('traceId'))[:8]}"
    return page(f"{named} – composable-memory", el("main", el("h1", named), body), head=head)


async def write_report(
    memory: "Memory", trace_id: str, file: Path, *, with_texts: bool = True, trace: Row | None = None
) -> None:
    """Write the page about a search into a file that only its owner may read.

    What it found is looked up in the notes. `trace` is written where it is no search of this memory.

    Raises:
        ComposableMemoryError: the file cannot be written.
        OpsLogError: the log cannot be read, or does not tell of the search.
    """
    reply = await memory_explain(memory, MemoryExplainRequest(trace_id=trace_id, whole=True))
    told = trace if isinstance(reply, ErrorReply) else reply.as_json()
    if told is None:
        advice = "set memory.ops_log.enabled to true"
        raise OpsLogError("there is no log to report from", subject=trace_id, advice=advice)

    def write() -> None:
        replace_file(file, report_page(told, with_texts=with_texts).encode(), survives="kill")

    try:
        await asyncio.to_thread(write)
    except OSError as error:
        why = f"cannot write {file}: {error.strerror}; name another file, in a folder that is there"
        raise ComposableMemoryError(why) from error


def _masked(was: Row, now: Row) -> Row:
    """Return a result whose passage is masked as a whole: a secret that is cut may not be known for one."""
    passage = str(was.get("text") or was.get("snippet") or "")
    masked = redact(passage)
    if masked == passage and now.get("snippet") == was.get("snippet"):
        return now
    kept = [word for word in now.get("matched", ()) if word in masked.casefold()]
    words = [one for one in now.get("words", ()) if one["word"] in masked.casefold()]
    snippet = now.get("snippet", "") if masked == passage else masked[:LONGEST]
    return {
        **now,
        "snippet": snippet,
        "matched": kept,
        "words": words,
        "highlights": _spans(snippet, kept),
    }


def _spans(text: str, words: Sequence[str]) -> list[list[int]]:
    """Return where any of these words stand."""
    wanted = "|".join(re.escape(word) for word in words if word)
    return [[*found.span()] for found in re.finditer(wanted, text, re.IGNORECASE)] if wanted else []
