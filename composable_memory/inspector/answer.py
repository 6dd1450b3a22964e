"""How an answer came about, as HTML: its results, what made each score, the steps, what was left out.

Everything is made from the output of `memory_explain` with `whole`; it can be written as a standalone page.
"""

import asyncio
import re
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from composable_memory.errors import ComposableMemoryError
from composable_memory.highlights import Line, best_lines, lines_of, readable, within
from composable_memory.inspector.markup import Child, Markup, asset, el, page
from composable_memory.query.filters import day_in_path
from composable_memory.query.waterfall import place_of
from composable_memory.tools.document import ErrorReply
from composable_memory.tools.explain import MemoryExplainRequest, memory_explain
from composable_memory.types import MemorySearchResult
from composable_memory_ops_logs import OpsLogError, redact, redact_value
from composable_memory_ops_logs.private_files import replace_file

if TYPE_CHECKING:
    from composable_memory.runtime.memory import Memory


Row = Mapping[str, Any]
"""A JSON object in the output."""

More = Callable[[Row], Child]
Place = Callable[[str, int], str | None]
"""Returns a link that opens a file at a line, or None."""

THIN = "\N{NARROW NO-BREAK SPACE}"
"""Keeps a number and its unit on the same line."""
NAMES = {"start": "asked", "merged": "the whole search", "delivered": "shown"}
"""Display names of the steps of a search."""
SLIMMEST = 0.004
"""Minimum width of a bar, as a share of its line."""
BEST = 4
"""How many lines of a result to show at first."""
FEW = 5
"""How many of the results left out to show at first."""

POLICY = "default-src 'none'; style-src 'sha256-{}'; base-uri 'none'; form-action 'none'"
"""No network and no script: whatever a note contains, it cannot run."""
TEXTS = ("title", "headings", "snippet", "snippetPreview", "text", "highlights", "facts", "matched", "words")
LEFT_OUT = "(left out)"
LONGEST = 2000
"""How many characters of a passage to show if it contained a secret."""


def answer_view(
    told: Row,
    *,
    asked: Child = None,
    link: Place = lambda _path, _line: None,
    more: More = lambda _row: None,
) -> Markup:
    """Return all sections about a search, what is `asked` about it, and `more` below each result."""
    return el(
        "div",
        _head(told),
        asked,
        _results(told, link, more),
        el("section", el("h2", "Time line"), waterfall(told), class_="steps"),
        _left_out(told),
        class_="answer",
    )


def score(value: object) -> str:
    """Format a score with three digits; a dash if there is none."""
    return f"{value:.3f}" if isinstance(value, int | float) else "–"


def milliseconds(value: object) -> str:
    """Format a time in milliseconds, or in seconds from 10 s on."""
    if not isinstance(value, int | float) or not value:
        return ""
    if value >= 10_000:
        return f"{value / 1000:.1f}{THIN}s"
    return f"{value:.1f}{THIN}ms" if value < 100 else f"{value:.0f}{THIN}ms"


def moment(at: datetime) -> str:
    """Format a time to the minute, in local time."""
    return at.astimezone().strftime("%Y-%m-%d %H:%M")


def facts_of(pairs: Sequence[tuple[str, Child]]) -> Markup:
    """Return a list of names and values, without empty values."""
    return el("dl", [el("div", el("dt", name), el("dd", value)) for name, value in pairs if value])


def table(head: Sequence[str], rows: Sequence[Sequence[Child]], *, caption: str) -> Markup:
    """Return a table that scrolls sideways on narrow screens; `caption` is for screen readers."""
    cells = [el("tr", [el("td", cell) for cell in row]) for row in rows]
    named = el("thead", el("tr", [el("th", one, scope="col") if one else el("td") for one in head]))
    whole = el("table", el("caption", caption, class_="unseen"), named, el("tbody", cells))
    return el("div", whole, class_="wide", tabindex="0", role="group", aria_label=caption)


def bar(begin: float, length: float, *, tone: str = "") -> Markup:
    """Return a bar on a line from 0 to 1."""
    first = min(max(begin, 0.0), 1.0 - SLIMMEST)
    width = min(max(length, SLIMMEST), 1.0 - first)
    shape = el("rect", x=f"{first:.2%}", width=f"{width:.2%}", height="1", class_=tone or None)
    return el("svg", shape, class_="bar", viewBox="0 0 100 1", preserveAspectRatio="none", aria_hidden="true")


# --- the question -------------------------------------------------------------------------------------------


def _head(told: Row) -> Markup:
    ranking: Row = told.get("ranking", {})
    weights = ", ".join(f"{name} {weight:g}" for name, weight in ranking.get("weights", {}).items())
    calibration = ", ".join(f"{name} {how}" for name, how in ranking.get("calibration", {}).items())
    return el(
        "header",
        el("p", told.get("query") or "(without its words)", class_="question"),
        facts_of(
            [
                ("Asked", f"{str(told.get('startedAt', ''))[:19].replace('T', ' ')} UTC"),
                ("Took", milliseconds(told.get("totalMs"))),
                ("Fusion", ranking.get("fusion")),
                ("Kind", ranking.get("intentKind")),
                ("Weights", weights),
                ("Calibration", calibration),
                ("Least score", ranking.get("minScore") and score(ranking["minScore"])),
                ("Session", told.get("session")),
                ("Trace", el("code", told.get("traceId", ""))),
            ]
        ),
        [
            el("p", el("strong", f"{one.get('backend')}: "), one.get("reason"), class_="problem")
            for one in told.get("degraded", ())
        ],
    )


# --- results ------------------------------------------------------------------------------------------------


def _results(told: Row, link: Place, more: More) -> Markup:
    rows, hidden = told.get("results", []), frozenset(told.get("hidden", ()))
    items = [el("li", _result(rank, row, link, more), tabindex="-1") for rank, row in enumerate(rows, 1)]
    shown = [item for rank, item in enumerate(items, 1) if rank not in hidden]
    weak = [item for rank, item in enumerate(items, 1) if rank in hidden]
    few = el("summary", f"{len(weak)} more hardly match and are not shown")
    return el(
        "section",
        el("h2", f"Results ({len(shown)})"),
        el("ol", shown, class_="results") if shown else el("p", "Nothing matched well.", class_="soft"),
        el("details", few, el("ol", weak, class_="results")) if weak else None,
    )


def _result(rank: int, row: Row, link: Place, more: More) -> Markup:
    path = str(row.get("path", ""))
    above = [one for one in row.get("headings", ()) if one != row.get("title")]
    title = el("h3", f"{rank}. ", row.get("title") or path.rpartition("/")[2])
    where = (_day(path), _linked(row, path, link), el("span", row.get("backend"), class_="tag"))
    return el(
        "article",
        el("div", title, el("span", score(row.get("score")), class_="score"), class_="title"),
        el("p", where, class_="where"),
        el("p", " › ".join(above), class_="soft") if above else None,
        text_of(row),
        [_fact(one) for one in row.get("facts", ())],
        el("details", el("summary", "Why this score"), _score_of(row)),
        more(row),
    )


def _day(path: str) -> Markup | None:
    day = day_in_path(path)
    return el("time", day.isoformat(), datetime=day.isoformat()) if day else None


def _linked(row: Row, path: str, link: Place) -> Markup:
    place, line = el("code", place_of(row)), int(row.get("startLine", 0))
    href = link(path, line)
    return el("a", place, href=href, title="Open in the editor", class_="open") if href else place


def _fact(one: Row) -> Markup:
    said = el("small", one.get("time", ""))
    return el("p", one["text"], " ", said, class_="fact" if one.get("holds") else "fact once")


def text_of(row: Row) -> Markup:
    """Return the best lines of a result with the matches marked, followed by the whole snippet."""
    text = str(row.get("snippet") or row.get("snippetPreview") or "")
    spans = within(row.get("highlights"), len(text)) if row.get("snippet") else ()
    first, last = int(row.get("startLine", 0)), int(row.get("endLine", 0))
    one = MemorySearchResult(
        path="", start_line=first, end_line=last, score=0.0, snippet=text, highlights=spans,
        text=str(row.get("text", "")),
    )  # fmt: skip
    best, every = best_lines(one, BEST), lines_of(Line(text, spans))
    if not every:
        return Markup()
    whole = el("details", el("summary", "More of it"), _quote(every)) if len(every) > len(best) else None
    return Markup(_quote(best) + (whole or ""))


def _quote(lines: Sequence[Line]) -> Markup:
    return el("blockquote", [el("div", _marked(readable(one))) for one in lines])


def _marked(line: Line) -> Iterator[Child]:
    reached = 0
    for begin, end in line.highlights:
        yield line.text[reached:begin]
        yield el("mark", line.text[begin:end])
        reached = end
    yield line.text[reached:]


def _score_of(row: Row) -> Markup:
    """Return what made a score, from the matching words to the weight of the backend."""
    words, backend = row.get("matched", ()), row.get("backend")
    given = row.get("words") or ()
    steps: list[tuple[Child, object, str]] = [
        ("by words" + (f": {', '.join(words)}" if words else ""), row.get("byWords"), "words"),
        *((el("span", one["word"], class_="leg"), one["score"], "words") for one in given),
        ("by meaning", row.get("byMeaning"), "meaning"),
        (f"in {backend}, as number {row.get('backendRank')}", row.get("rawScore"), ""),
        ("on the common scale", row.get("calibratedScore"), ""),
    ]
    bars = [
        (label, bar(0.0, float(value), tone=tone), score(value))
        for label, value, tone in steps
        if isinstance(value, int | float)
    ]
    weight, support = row.get("weight", 1.0), row.get("support")
    rest: list[tuple[Child, Child, Child]] = [(f"times the weight of {backend}", None, f"× {weight:g}")]
    if isinstance(support, float):
        how = "by facts from its lines" if support > 0 else "its passage did not come up"
        rest.append((how, None, f"{support:+.3f}"))
    total = row.get("score", 0.0)
    final = (el("strong", "score"), bar(0.0, total), el("strong", score(total)))
    merged = row.get("mergedWith")
    return el(
        "div",
        table(("part", "", "score"), [*bars, *rest, final], caption="How this score was made"),
        el("p", "The same was found as ", el("code", ", ".join(merged)), class_="soft") if merged else None,
    )


# --- the steps ----------------------------------------------------------------------------------------------


def waterfall(told: Row) -> Markup:
    """Return the steps of a trace, with those of a backend below it, each with a bar for when it ran."""
    steps: list[Row] = sorted(told.get("steps", ()), key=lambda one: (one["startMs"], -one["durationMs"]))
    total = float(told.get("totalMs") or 1.0)
    answers = {one["backend"]: one for one in steps if one["action"] == "query.backend_result"}
    rows = []
    for one in steps:
        answer = answers.get(one.get("backend"))
        if answer is None or one is answer:
            rows.append(_step(one, total))
        if answer is not None and one is answer:
            inside = (leg for leg in steps if leg.get("backend") == answer["backend"] and leg is not one)
            rows += [_step(leg, total, is_leg=True) for leg in inside]
    return table(("step", "when", "took", "what came of it"), rows, caption="The steps of this trace")


def _step(one: Row, total: float, *, is_leg: bool = False) -> list[Child]:
    tone = {"failure": "bad", "partial": "warn"}.get(one.get("status", ""), "")
    action = one["action"].removeprefix("query.").replace("_", " ")
    name = NAMES.get(action, action)
    is_answer = name == "backend result"
    label = (
        f"{one['backend']}{'' if is_answer else f': {name}'}" if one.get("backend") and not is_leg else name
    )
    note = "; ".join(filter(None, (one.get("note"), one.get("error"))))
    return [
        el("span", label, class_="leg" if is_leg else None),
        bar(one["startMs"] / total, one["durationMs"] / total, tone=tone),
        milliseconds(one["durationMs"]),
        el("span", note, class_=tone or "soft"),
    ]


def _left_out(told: Row) -> Markup:
    dropped = told.get("dropped", [])
    if not dropped:
        return Markup()
    rows = [
        (el("code", place_of(one)), *(one.get(name) for name in ("backend", "reason", "detail")))
        for one in dropped
    ]
    more = told.get("moreDropped")
    left = table(("place", "backend", "left out as", ""), rows, caption="What was left out, and why")
    said = el("p", f"{more} more were left out.", class_="soft") if more else None
    title = el("h2", f"Left out or merged ({len(dropped) + (more or 0)})")
    return el("section", el("details", el("summary", title), left, said, open=len(dropped) <= FEW))


# --- the standalone page ------------------------------------------------------------------------------------


def report_page(told: Row, *, with_texts: bool = True) -> str:
    """Return the page for the output of `memory_explain` with `whole`, or for a trace that is not a search.

    Secrets are masked. Without texts, it contains neither the question nor text from notes, but their paths.
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
    """Write the page about a search to a file that only its owner may read.

    Its results are looked up in the notes. `trace` is written if it is not a search of this memory.

    Raises:
        ComposableMemoryError: the file cannot be written.
        OpsLogError: the log cannot be read, or does not have the search.
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
        why = f"cannot write {file}: {error.strerror}; choose another file, in an existing folder"
        raise ComposableMemoryError(why) from error


def _masked(was: Row, now: Row) -> Row:
    """Return a result with its passage masked as a whole: a secret that was cut may not be recognised."""
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
    """Return where any of these words are."""
    wanted = "|".join(re.escape(word) for word in words if word)
    return [[*found.span()] for found in re.finditer(wanted, text, re.IGNORECASE)] if wanted else []
