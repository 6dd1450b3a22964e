"""The pages of the inspector, rendered on each request from the tools, the log and learning."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from composable_memory.inspector.answer import (
    Row,
    answer_view,
    bar,
    facts_of,
    milliseconds,
    moment,
    score,
    table,
)
from composable_memory.inspector.logged_searches import (
    TOGETHER,
    Search,
    TracesRequest,
    in_parts,
    logged_searches,
    percentiles,
)
from composable_memory.inspector.markup import Child, Markup, el, line_chart, page
from composable_memory.inspector.tuning import choice, sliders, weights_history
from composable_memory.interfaces import Capability
from composable_memory.runtime.opening import parse_iso_time
from composable_memory.tools.explain import MemoryExplainRequest, memory_explain
from composable_memory.tools.search import MemorySearchRequest, query_cited, why_unavailable
from composable_memory.tools.status import MemoryStatusRequest, memory_status
from composable_memory_ops_logs.plurals import counted

if TYPE_CHECKING:
    from composable_memory.runtime.memory import Memory


Form = Mapping[str, str]
"""Form fields by name."""

LATELY = 8
CHARTED = 500
"""How many of the latest searches to chart."""
SINCE = (("", "any time"), ("1h", "the last hour"), ("1d", "the last day"), ("7d", "the last week"))
RATINGS = (("1", "Answers", 1.0), ("2", "Helps", 0.5), ("3", "Does not", 0.0))
"""The keyboard key, the label, and the relevance."""
NO_LOG = "There is nothing to show without a log: set memory.ops_log.enabled to true."
TRIED = "The candidates of this search, ranked again. Only another day queries the memories again."
KEYS = "Keys: j and k go through the results, 1 answers, 2 helps, 3 does not, / goes to the first field."

PARTS = 40
"""Into how many periods of equal length to divide the searches."""
INDEX, DEEP = el("code", "cmem index"), el("code", "cmem status --deep")


class Inspector:
    """The pages of one open memory; `base` is the prefix of their URLs."""

    def __init__(self, memory: "Memory", base: str = "") -> None:
        self.memory = memory
        self.base = base

    def framed(self, title: str, here: str | None, *body: Child) -> str:
        """Return a page with the navigation, in which `here` is marked."""
        links = [("", "Search"), ("traces", "Traces"), ("tuning", "Tuning"), ("backends", "Backends")]
        links += [("graph", "Graph")] if self.memory.manager.backends_with(Capability.FACTS) else []
        items = [
            el("li", el("a", name, href=f"{self.base}/{to}", aria_current="page" if to == here else None))
            for to, name in links
        ]
        head = (
            el("link", rel="stylesheet", href=f"{self.base}/assets/inspector.css"),
            el("link", rel="icon", href="data:,"),
            el("script", src=f"{self.base}/assets/inspector.js", type="module"),
        )
        skip = el("a", "To the content", href="#main", class_="unseen skip")
        main = el("main", el("h1", title), body, id="main")
        framed = (skip, el("nav", el("ul", items), aria_label="Pages"), main)
        return page(f"{title} – composable-memory", framed, head=head)

    # --- search and why ---------------------------------------------------------------------------------

    async def search(self, form: Form) -> str:
        """Return the search page, with the answer if there is a question."""
        asked, weak = form.get("q", "").strip(), form.get("weak")
        field = el("input", type="search", name="q", value=asked, required=True, autofocus=not asked)
        ask = el(
            "form",
            el("label", "Question", field, class_="grow"),
            el("label", "As if today were", _input("now", form, type="date")),
            _check("weak", "Also weak matches", form),
            el("button", "Search"),
            action=f"{self.base}/", role="search",
        )  # fmt: skip
        if not asked:
            latest = await logged_searches(self.memory, TracesRequest(limit=LATELY))
            return self.framed("Search", "", ask, el("section", el("h2", "Asked lately"), self._rows(latest)))
        now = parse_iso_time(form["now"], "now") if form.get("now") else None
        request = MemorySearchRequest(query=asked, weak=bool(weak) or None, now=now)
        response = await query_cited(self.memory, request)
        failure = why_unavailable(response)
        problem = el("p", failure, class_="problem") if failure else None
        found = await self._why(response.trace_id, {}) or el("p", NO_LOG, class_="problem")
        return self.framed("Search", "", ask, problem, found)

    async def trace(self, trace_id: str, form: Form) -> str | None:
        """Return the page about one search, or the `last`; None if there is none."""
        if trace_id == "last":
            trace_id = next(
                (one.trace_id for one in await logged_searches(self.memory, TracesRequest(limit=1))), ""
            )
        found = await self._why(trace_id, form) if len(trace_id) >= 4 else None
        return self.framed("Why this answer", None, found) if found else None

    async def _why(self, trace_id: str, form: Form) -> Markup | None:
        reply = await memory_explain(self.memory, MemoryExplainRequest(trace_id=trace_id, whole=True))
        if reply.is_error:
            return None
        told: Row = reply.as_json()
        ranking: Row = told["ranking"]
        weights: Mapping[str, float] = ranking.get("weights") or dict.fromkeys(
            self.memory.learning.backends, 1.0
        )
        here = f"{self.base}/trace/{told['traceId']}"
        panel = el(
            "section",
            el("h2", "What if"),
            el("p", TRIED, class_="soft"),
            sliders(weights, ranking, action=f"{here}/replay", asked_on=str(told["startedAt"])[:10]),
            el("div", class_="outcome", aria_live="polite"),
        )
        why_not = await self._why_not(here, str(told["traceId"]), form.get("note", "").strip())
        asked = (why_not, el("p", KEYS, class_="soft keys"))
        answer = answer_view(told, asked=asked, link=self._link, more=lambda row: _ratings(here, row))
        return el("div", answer, panel)

    async def _why_not(self, here: str, trace_id: str, note: str) -> Markup:
        field = el("input", name="note", value=note, placeholder="memory/plan.md#L3")
        label = el("label", "Why not this note, or these lines?", field, class_="grow")
        form = el("form", label, el("button", "Say why", class_="plain"), action=here)
        if not note:
            return form
        reply = await memory_explain(self.memory, MemoryExplainRequest(trace_id=trace_id, path=note))
        told: Row = reply.as_json()
        places = [
            el("li", f"in {one['backend']} as number {one['rank']}, with {score(one.get('score'))}")
            for one in told.get("found", ())[:5]
        ]
        return el(
            "div",
            form,
            el("div", el("strong", note), f": {told.get('why')}.", el("ul", places), class_="why"),
        )

    def _link(self, path: str, line: int) -> str | None:
        """Return a link that opens a note at a line in an editor, if it has lines."""
        root = self.memory.workspace_dir.absolute().as_posix().lstrip("/")
        return f"vscode://file/{quote(f'{root}/{path}')}:{line}" if line else None

    # --- traces -----------------------------------------------------------------------------------------

    async def traces(self, form: Form) -> str:
        """Return the list of searches that match the filters, newest first."""
        listed = el("div", self._rows(await logged_searches(self.memory, _wanted(form))), id="rows")
        if form.get("part") == "rows":
            return listed
        names = [("", "any"), *((one, one) for one in self.memory.learning.backends)]
        filters = el(
            "form",
            el("label", "Words", _input("query", form), class_="grow"),
            el("label", "Slower than, ms", _input("slowerThanMs", form, inputmode="numeric")),
            choice("Backend", "backend", names, form),
            el("label", "Session", _input("session", form)),
            choice("When", "since", SINCE, form),
            [_check(name, name.capitalize(), form) for name in ("degraded", "empty", "live")],
            el("button", "Filter"),
            action=f"{self.base}/traces", data_live="#rows",
        )  # fmt: skip
        return self.framed("Traces", "traces", filters, listed)

    def _rows(self, rows: Sequence[Search]) -> Markup:
        if not rows:
            return el("p", "There is no such search.", class_="soft")
        slowest = max(one.all_ms for one in rows) or 1.0
        cells = [
            (
                el("time", one.at.astimezone().strftime("%m-%d %H:%M:%S"), datetime=one.at.isoformat()),
                el("a", one.query or "(without words)", href=f"{self.base}/trace/{one.trace_id}"),
                el("span", str(one.results), class_=None if one.results else "warn"),
                bar(0.0, one.all_ms / slowest, tone="bad" if one.failed else "warn" if one.degraded else ""),
                milliseconds(one.all_ms),
                el("span", "; ".join(one.degraded), class_="warn") if one.degraded else one.session,
            )
            for one in rows
        ]
        head = ("when", "question", "results", "", "took", "session, or what was missing")
        return table(head, cells, caption="Searches, newest first")

    # --- tuning and backends ----------------------------------------------------------------------------

    async def tuning(self, said: Child = None) -> str:
        """Return the page to try weights on all judged queries, and adopt them; with their history."""
        learning = self.memory.learning
        report, changes = await learning.weights.report(), await learning.weights.history()
        weights = {one: report.table.of(one) for one in learning.backends}
        least = {"minScore": self.memory.settings.memory.query.min_score}
        active = "of the settings" if report.since is None else report.table.version
        history = weights_history(changes, report.base, learning.backends)
        return self.framed(
            "Tuning",
            "tuning",
            said,
            el("p", f"The active weights are {active}. Try others on judged queries:", class_="soft"),
            sliders(weights, least, action=f"{self.base}/tuning/replay", adopt=f"{self.base}/tuning/adopt"),
            el("div", class_="outcome", aria_live="polite"),
            el("section", el("h2", "History of the weights"), history),
        )

    async def backends(self, form: Form) -> str:
        """Return the status of every backend with fixes for its problems, its speed and its failures."""
        is_deep = bool(form.get("deep"))
        reply = await memory_status(self.memory, MemoryStatusRequest(deep=is_deep))
        told: dict[str, Any] = reply.as_json()
        rows = await logged_searches(self.memory, TracesRequest(limit=CHARTED))
        button = el("form", el("button", "Try everything", name="deep", value="1", class_="plain"))
        probed = probe_view(told["probe"]) if is_deep else button
        return self.framed("Backends", "backends", backend_cards(told), probed, course(rows))


def _ratings(here: str, row: Row) -> Markup:
    """Return the buttons for judging a result."""
    char = f":{row['startChar']}" if row.get("startChar") else ""
    place = f"{row.get('path')}:{row.get('startLine', 0)}:{row.get('endLine', 0)}{char}"
    buttons = [
        el(
            "button",
            el("kbd", key),
            f" {word}",
            name="relevance",
            value=f"{value:g}",
            class_="plain",
            data_key=key,
        )
        for key, word, value in RATINGS
    ]
    named = el("input", type="hidden", name="result", value=place)
    said = el("span", class_="judged", role="status")
    return el("form", named, buttons, said, method="post", action=f"{here}/judge", class_="ratings")


def _wanted(form: Form) -> TracesRequest:
    known = {one.alias for one in TracesRequest.model_fields.values()}
    return TracesRequest.model_validate({name: one for name, one in form.items() if one and name in known})


def _input(name: str, form: Form, **more: str) -> Markup:
    return el("input", name=name, value=form.get(name, ""), **more)


def _check(name: str, words: str, form: Form) -> Markup:
    given = el("input", type="checkbox", name=name, value="1", checked=bool(form.get(name)))
    return el("label", given, words, class_="check")


# --- the backends page --------------------------------------------------------------------------------------


def backend_cards(told: Row) -> Markup:
    """Return a card for each backend in the output of `memory_status`, and for those that are not open."""
    whole: Row = told["status"].get("custom", {})
    cards = [_card(name, one, whole) for name, one in told["backends"].items()]
    lost = [
        el("article", el("h2", one["backendId"]), el("p", one["reason"], class_="problem"), class_="card")
        for one in told.get("unavailable", ())
    ]
    return el("div", cards, lost)


def _card(name: str, one: Row, whole: Row) -> Markup:
    custom: Row = one.get("custom", {})
    about = facts_of(
        [
            ("Holds", " in ".join(f"{one[key]} {key}" for key in ("chunks", "files") if key in one)),
            ("Provider", " ".join(filter(None, (one.get("provider"), one.get("model"))))),
            ("Searches", custom.get("searchMode")),
            ("Weight", f"{whole.get('weights', {}).get(name, 1.0):g}"),
            ("Last sync", custom.get("lastSync")),
        ]
    )
    breaker = whole.get("breakers", {}).get(name, "closed")
    problems = [
        el("p", el("strong", what), " ", fix, class_="problem")
        for what, fix in _problems(one, custom, breaker)
    ]
    fine = el("p", "No known problems.", class_="soft")
    return el("article", el("h2", name), about, problems or fine, class_="card")


def _problems(one: Row, custom: Row, breaker: str) -> Iterator[tuple[str, Child]]:
    """Yield the problems of a backend, with fixes."""
    done: Row = custom.get("embedding", {})
    pending = done.get("total", 0) - done.get("embedded", 0)
    yield from ((str(problem), "Repair the file, or exclude it.") for problem in custom.get("problems", ()))
    if error := custom.get("lastSyncError"):
        yield f"The last sync failed: {error}", ("Fix this, then run ", INDEX)
    elif one.get("dirty"):
        yield "Notes changed since they were indexed.", (INDEX, " brings them in")
    if pending > 0:
        yield f"{counted(pending, 'passage has', 'passages have')} no vector yet.", (INDEX, " waits for them")
    if breaker != "closed":
        yield (
            f"It failed too often and is not queried ({breaker}).",
            ("It will be retried soon; ", DEEP, " says why"),
        )
    if fallback := one.get("fallback"):
        yield (
            f"Its fallback answers instead: {fallback.get('reason') or fallback.get('from')}",
            (DEEP, " says why"),
        )


def probe_view(told: Row) -> Markup:
    """Return the outcome of the deep probe."""
    embedding, search = told["embedding"], told["search"]
    works, fails = f"works, in {milliseconds(search.get('tookMs'))}", str(search.get("error"))
    rows = [
        ("embedding", "works" if embedding.get("ok") else f"does not work: {embedding.get('error')}"),
        ("vector search", "works" if told.get("vector") else "does not work"),
        ("search", works if search.get("ok") else fails),
        *((name, "; ".join(damage)) for name, damage in told.get("damage", {}).items()),
    ]
    return el("section", el("h2", "Tried just now"), table(("what", "how"), rows, caption="What was tried"))


def course(rows: Sequence[Search]) -> Markup:
    """Return charts of speed and failures over time, from searches newest first."""
    if not rows:
        return el("p", "There are no searches yet, so there is nothing to plot.", class_="soft")
    names = [*sorted({name for row in rows for name in row.took_ms} - {TOGETHER}), TOGETHER]
    parts = [((number + 0.5) / PARTS, part) for number, part in enumerate(in_parts(rows, PARTS)) if part]
    medians = {
        name: [(at, found[0]) for at, part in parts if (found := percentiles(part, name))] for name in names
    }
    shares = {
        "degraded": [(at, sum(bool(one.degraded) for one in part) / len(part)) for at, part in parts],
        "empty": [(at, sum(not one.results for one in part) / len(part)) for at, part in parts],
    }
    ends = (moment(rows[-1].at), moment(rows[0].at))
    most = max(value for points in medians.values() for _, value in points) or 1.0
    cells = [
        (
            name,
            str(sum(name in one.took_ms for one in rows)),
            *(milliseconds(one) for one in percentiles(rows, name) or ()),
            f"{sum(_is_less(one, name) for one in rows) / len(rows):.1%}",
        )
        for name in names
    ]
    head = ("backend", "searches", "median", "95 %", "failed or degraded")
    return el(
        "section",
        el("h2", f"The last {counted(len(rows), 'search', 'searches')}"),
        line_chart(f"Latency, median, up to {milliseconds(most)}", medians, ends=ends, most=most),
        line_chart("Share of searches, up to 100 %", shares, ends=ends, most=1.0),
        table(head, cells, caption="Latency by backend"),
    )


def _is_less(one: Search, name: str) -> bool:
    return bool(one.degraded) if name == TOGETHER else name in one.failed
