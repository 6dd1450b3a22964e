"""What the inspector shows is escaped, and says what the log says."""

from composable_memory.inspector.answer import report_page
from composable_memory.inspector.markup import Markup, el
from composable_memory.inspector.pages import backend_cards

FACT = {"text": "Ada runs billing", "time": "since 2026-03-01", "holds": True}


def told(**row: object) -> dict[str, object]:
    result = {"path": "memory/a.md", "startLine": 1, "endLine": 2, "score": 0.5, "backend": "notes", **row}
    return {"traceId": "abcd1234", "query": "who?", "totalMs": 2.0, "results": [result], "steps": []}


def test_texts_and_attributes_are_escaped_and_markup_is_not() -> None:
    made = el("a", '<b>"', Markup("<i>&amp;</i>"), None, 3, href='"><script>', hidden=True, class_=None)

    assert made == '<a href="&quot;&gt;&lt;script&gt;" hidden>&lt;b&gt;&quot;<i>&amp;</i>3</a>'
    assert el("p", "a\x00b\u202ec\ud800") == "<p>a\ufffdb\ufffdc\ufffd</p>"


def test_a_result_is_shown_with_its_facts_and_what_it_was_merged_with() -> None:
    page = report_page(told(facts=[FACT], support=0.05, mergedWith=["graph memory/a.md:1:2"], weight=0.5))

    for part in ("Ada runs billing", "since 2026-03-01", "+0.050", "graph memory/a.md:1:2", "× 0.5"):
        assert part in page


def test_legs_stand_below_their_backend() -> None:
    step = {"status": "success", "durationMs": 1.0, "note": ""}
    steps = [
        {**step, "action": "query.start", "startMs": 0.0},
        {**step, "action": "embed", "startMs": 0.5, "backend": "notes"},
        {**step, "action": "query.backend_result", "startMs": 0.2, "backend": "notes"},
    ]

    _, _, trace = report_page({**told(), "steps": steps}).partition("The steps of this trace")

    asked, backend, leg = (
        trace.index(f"{part}</span>") for part in (">asked", ">notes", 'class="leg">embed')
    )
    assert asked < backend < leg


def test_what_is_wrong_with_a_backend_stands_beside_what_mends_it() -> None:
    custom = {"embedding": {"embedded": 2, "total": 5}, "lastSyncError": "the disk is full"}
    whole = {"breakers": {"notes": "open"}}

    cards = backend_cards(
        {
            "status": {"custom": whole},
            "backends": {"notes": {"custom": custom}},
            "unavailable": [{"backendId": "graph", "reason": "no server; start one"}],
        }
    )

    assert cards.index("the disk is full") < cards.index("cmem index")
    assert "3 passages have no vector yet" in cards
    assert "cmem status --deep" in cards
    assert "no server; start one" in cards


def test_marks_are_found_anew_where_a_secret_was_masked() -> None:
    key = "sk-proj-Zq8vN3rT7wLx2JbC5mKd9PfH4sYg6RuA"
    text = f"the api_key = {key}, and the Dock"
    at = text.index("Dock")

    page = report_page(told(snippet=text, text=text, highlights=[[at, at + 4]], matched=["dock"]))

    assert key not in page
    assert "<mark>Dock</mark>" in page
