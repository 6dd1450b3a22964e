"""How the backends are, what mends their problems, and how fast and sound the searches were (pure)."""

from collections.abc import Iterator, Sequence

from composable_memory.inspector.answer import Row, facts_of, milliseconds, moment, table
from composable_memory.inspector.charts import line_chart
from composable_memory.inspector.logged_searches import TOGETHER, Search, in_parts, percentiles
from composable_memory.inspector.markup import Child, Markup, el

PARTS = 40
"""Into so many parts of equal time the searches are divided."""
INDEX, DEEP = el("code", "cmem index"), el("code", "cmem status --deep")


def backend_cards(told: Row) -> Markup:
    """Return a card for each backend of what `memory_status` says, and for those that are not open."""
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
    fine = el("p", "No problem is known.", class_="soft")
    return el("article", el("h2", name), about, problems or fine, class_="card")


def _problems(one: Row, custom: Row, breaker: str) -> Iterator[tuple[str, Child]]:
    """Yield what is wrong with a backend, and what mends it."""
    done: Row = custom.get("embedding", {})
    pending = done.get("total", 0) - done.get("embedded", 0)
    yield from ((str(problem), "Mend the file, or leave it out.") for problem in custom.get("problems", ()))
    if error := custom.get("lastSyncError"):
        yield f"The last sync failed: {error}", ("Mend it, then run ", INDEX)
    elif one.get("dirty"):
        yield "Notes changed since they were indexed.", (INDEX, " brings them in")
    if pending > 0:
        yield f"{pending} passages have no vector yet.", (INDEX, " waits for them")
    if breaker != "closed":
        yield f"It failed too often to be asked ({breaker}).", ("It is tried again soon; ", DEEP, " says why")
    if fallback := one.get("fallback"):
        yield f"Another one stands in: {fallback.get('reason') or fallback.get('from')}", (DEEP, " says why")


def probe_view(told: Row) -> Markup:
    """Return what came of trying everything."""
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
    """Return how fast and how sound searches were over time; they come newest first."""
    if not rows:
        return el("p", "Nothing was asked yet, so there is nothing to draw.", class_="soft")
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
        el("h2", f"The last {len(rows)} searches"),
        line_chart(f"Latency, median, up to {milliseconds(most)}", medians, ends=ends, most=most),
        line_chart("Share of searches, up to 100 %", shares, ends=ends, most=1.0),
        table(head, cells, caption="Latency by backend"),
    )


def _is_less(one: Search, name: str) -> bool:
    return bool(one.degraded) if name == TOGETHER else name in one.failed
