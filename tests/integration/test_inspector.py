"""The inspector in a browser: what its pages say and do, by keyboard, at night and on a phone."""

import json
import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from composable_memory.facts import Fact, Neighbourhood
from composable_memory.testing import SEED_NOTES
from composable_memory_adapters.graphiti.cli.pictures import html_page
from tests.chromium import AXE, Page, browser
from tests.integration.mcp_server_process import RESIDENT, Running, running
from tests.integration.test_report import cmem
from tests.notes import write_notes
from tests.variants import variants

PICTURES = os.environ.get("COMPOSABLE_MEMORY_TEST_PICTURES")
"""Where to leave pictures of every view."""
VIOLATIONS = """axe.run().then((found) => JSON.stringify(found.violations
  .filter((one) => ["serious", "critical"].includes(one.impact))
  .map((one) => [one.id, one.nodes.map((node) => node.html)])))"""
QUESTION = "which port does the dock listen on?"

pytestmark = [
    pytest.mark.security,
    pytest.mark.timeout(400),  # the first one starts the server and the browser, and indexes 5 MB
    pytest.mark.skipif(sys.platform == "win32", reason="the pipe to the browser is one of Unix"),
]


class Site:
    """A workspace that is served, and what the command line says of it."""

    def __init__(self, server: Running, workspace: Path, state_dir: Path) -> None:
        self.server, self.workspace, self.state_dir = server, workspace, state_dir
        self.url = server.url.rstrip("/")

    def get(self, path: str) -> httpx.Response:
        return httpx.get(f"{self.url}{path}", headers=self.server.auth, timeout=60)

    def post(self, path: str, **form: str) -> httpx.Response:
        return httpx.post(f"{self.url}{path}", headers=self.server.auth, data=form, timeout=60)

    def cmem(self, *arguments: str) -> str:
        done = cmem(self.workspace, self.state_dir, *arguments)
        assert done.exit_code == 0, done.output
        return done.stdout

    def trace(self, question: str) -> str:
        return str(json.loads(self.cmem("search", question, "--json"))["traceId"])


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("site")
    workspace, state_dir = folder / "workspace", folder / "state"
    hostile = "<script>window.hacked = 1</script><img src=x onerror='window.hacked = 1'>"
    notes = {
        **SEED_NOTES,
        "memory/2026-05-04.md": "# Dock\n\nThe dock listens on port 8443.\n",
        "memory/hostile.md": f"---\ntitle: {hostile}\n---\n\nThe zeppelin {hostile} lands.\n",
        "memory/large.md": f"# Large\n\nThe mammoth is large.\n\n{'wool ' * 1_050_000}\n",
    }
    write_notes(workspace, notes)
    state_dir.mkdir()
    with pytest.MonkeyPatch.context() as patch, ExitStack() as served:
        for name in [name for name in os.environ if name.startswith("COMPOSABLE_MEMORY")]:
            patch.delenv(name)
        patch.setenv("HOME", str(folder))
        for name in ("CONFIG", "DATA", "STATE", "CACHE"):
            patch.setenv(f"XDG_{name}_HOME", str(folder / name.lower()))
        site = Site(
            served.enter_context(running(workspace, state_dir, command=RESIDENT)), workspace, state_dir
        )
        site.cmem("index")
        yield site


@pytest.fixture(scope="module")
def page(site: Site, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    with browser(tmp_path_factory.mktemp("profile")) as found:
        found.open(f"{site.url}/?token={site.server.token.read_text('ascii')}")
        yield found
        assert found.problems == []
        assert found.hosts() == {httpx.URL(site.url).netloc.decode()}


def violations(page: Page) -> object:
    """Return what axe-core finds wrong with a page, as far as it is serious."""
    page.run(AXE.read_text("utf-8"))
    return json.loads(page.run(VIOLATIONS))


BY_DAY, PHONE_BY_NIGHT = (1100, False), (360, True)
"""Width, and whether it is dark."""
VIEWS = {
    "search": "/",
    "answer": f"/?q={QUESTION}",
    "trace": "/trace/last?note=memory/projects/boat.md",
    "traces": "/traces?live=1",
    "tuning": "/tuning",
    "backends": "/backends?deep=1",
    "nothing": "/trace/nothing",
}


@pytest.mark.parametrize(
    ("view", "width", "dark"),
    variants(
        [(view, *look) for view in VIEWS for look in (BY_DAY, PHONE_BY_NIGHT)],
        *((view, *BY_DAY) for view in ("answer", "trace", "tuning", "nothing")),
        ("answer", *PHONE_BY_NIGHT),
    ),
)
def test_every_view_is_readable(
    site: Site, page: Page, view: str, width: int, dark: bool, tmp_path: Path
) -> None:
    if view == "trace":
        site.trace(QUESTION)
    page.look(width=width, dark=dark)
    page.problems.clear()
    page.open(site.url + VIEWS[view])

    assert page.run("document.documentElement.scrollWidth") <= width
    assert page.run("document.querySelectorAll('h1').length") == 1
    ground = page.run("getComputedStyle(document.body).backgroundColor")
    assert ground == ("rgb(19, 21, 25)" if dark else "rgb(247, 246, 243)")
    page.picture(Path(PICTURES or tmp_path, f"inspector-{view}-{width}.png"))
    assert violations(page) == []
    assert len(page.problems) == (1 if view == "nothing" else 0), (
        page.problems
    )  # the browser tells of the 404
    page.problems.clear()
    page.look()


def test_a_report_is_a_page_that_needs_nothing_else(site: Site, page: Page, tmp_path: Path) -> None:
    file = tmp_path / "report.html"
    site.cmem("search", "zeppelin", "--report", str(file))
    page.open(file.as_uri())  # from here on nothing of another page is under way
    asked = len(page.requests)

    for width, dark in ((1100, False), (360, True)):
        page.look(width=width, dark=dark)
        page.open(file.as_uri())
        assert page.run("document.documentElement.scrollWidth") <= width
        assert page.run("getComputedStyle(document.querySelector('.question')).fontWeight") == "600"
        assert "<script>window.hacked" in page.run("document.querySelector('.results').textContent")
        assert violations(page) == []
    page.look()

    assert {urlsplit(one).scheme for one in page.requests[asked:]} == {"file"}


def test_a_search_by_keyboard_says_why_and_why_not(site: Site, page: Page) -> None:
    page.open(f"{site.url}/")
    page.wait(
        "document.activeElement.name === 'q'"
    )  # with the first frame, which may come after all is loaded
    seen = page.loaded
    page.write(QUESTION)
    page.press("Enter")
    page.wait_loaded(seen)

    assert page.run("document.querySelector('.question').textContent") == QUESTION
    marked = page.run("[...document.querySelectorAll('mark')].map((one) => one.textContent.toLowerCase())")
    assert {"dock", "port"} <= set(marked)
    first = "document.querySelector('.results > li')"
    assert "memory/2026-05-04.md" in page.run(f"{first}.textContent")
    assert "by words: dock, listens, port" in page.run(f"{first}.textContent")
    link = page.run(f"{first}.querySelector('a').href")
    assert link.startswith("vscode://file/")
    assert link.endswith("/workspace/memory/2026-05-04.md:1")

    trace = page.run("document.querySelector('dl code').textContent")
    note = "memory/projects/boat.md"
    page.run("document.querySelector('[name=note]').focus()")
    seen = page.loaded
    page.write(note)
    page.press("Enter")
    page.wait_loaded(seen)
    told = json.loads(site.cmem("explain", trace, "--why-not", note, "--json"))
    assert told["why"] in page.run("document.querySelector('.why').textContent")


def test_a_result_is_judged_by_keyboard(site: Site, page: Page) -> None:
    trace = site.trace(QUESTION)
    page.open(f"{site.url}/trace/{trace}")

    page.press("j", "j", "k", "1")
    page.wait("document.querySelector('.chosen .judged')?.textContent === 'Judged: answers'")

    kept = [json.loads(line) for line in site.cmem("feedback", "export").splitlines()]
    judged = [one["detail"] for one in kept if one.get("kind") == "judgements"]
    assert [(one["path"], one["relevance"], one["by"]) for one in judged if one["trace_id"] == trace] == [
        ("memory/2026-05-04.md", 1.0, "inspector")
    ]


def test_sliders_rank_a_search_again_as_they_move(site: Site, page: Page) -> None:
    page.open(f"{site.url}/trace/{site.trace(QUESTION)}")
    page.run("document.querySelector('[name=min_score]').focus()")

    page.press("ArrowRight")
    page.wait("document.querySelector('.outcome').textContent !== ''")
    page.run("document.querySelector('[name=min_score]').value = 0.99")
    page.press("ArrowRight")

    page.wait("document.querySelector('.outcome').textContent.includes('results move')")
    shown = page.run("document.querySelector('[name=min_score]').closest('label').textContent")
    assert shown == "Least score 1"


def test_the_slider_for_the_day_asks_again_as_if_it_were_that_day(site: Site, page: Page) -> None:
    today = datetime.now(UTC).date()
    notes = {ago: f"memory/{today - timedelta(days=ago)}.md" for ago in (10, 40)}
    texts = ("The zebra slept badly, since it rained.", "Anna fed the zebra with hay and old apples.")
    for path, text in zip(notes.values(), texts, strict=True):
        (site.workspace / path).write_text(f"# Diary\n\n{text}\n", "utf-8")
    trace = site.trace("what did the zebra do yesterday?")
    page.open(f"{site.url}/trace/{trace}")
    seen = []
    for ago, path in notes.items():
        page.run(
            f"document.querySelector('.outcome').textContent = ''; "
            f"document.querySelector('[name=days]').value = {-ago}"
        )
        page.run("document.querySelector('[name=days]').focus()")
        page.press("ArrowRight")
        page.wait("document.querySelector('.outcome').textContent !== ''")

        told = page.run("document.querySelector('[name=days]').closest('label').textContent")
        assert told.endswith(str(today - timedelta(days=ago - 1)))
        first = page.run("document.querySelector('.outcome code')?.textContent ?? ''")
        assert not first or first.startswith(path)
        seen.append(first)

    assert any(seen)
    assert json.loads(site.cmem("explain", "last", "--json"))["traceId"] == trace
    assert site.get(f"/trace/{trace}/replay?days=9999").status_code == 400


def test_weights_are_tried_on_judged_queries_and_adopted_through_the_checks(site: Site, page: Page) -> None:
    trace = site.trace(QUESTION)
    site.cmem("feedback", "add", trace, "1", "--relevance", "1")
    page.open(f"{site.url}/tuning")

    page.run("document.querySelector('[name=\"weight.builtin\"]').focus()")
    page.press("ArrowRight")
    page.wait("document.querySelector('.outcome').textContent.includes('judged queries')")
    assert "nDCG@10" in page.run("document.querySelector('.outcome').textContent")
    page.run("document.querySelector('[formaction]').focus()")
    page.press("Enter")
    page.wait("document.querySelector('.outcome').textContent.includes('are active')")

    table = json.loads(site.cmem("weights", "show", "--json"))["table"]
    assert table["weights"]["builtin"] == pytest.approx(1.01)
    page.open(f"{site.url}/tuning")
    assert "tried in the inspector" in page.run("document.querySelector('main').textContent")
    refused = site.post("/tuning/adopt", **{"weight.builtin": "0"})
    assert (refused.status_code, "nothing would be found" in refused.text) == (400, True)
    assert json.loads(site.cmem("weights", "show", "--json"))["table"] == table


def test_the_list_of_traces_goes_on_by_itself(site: Site, page: Page) -> None:
    page.open(f"{site.url}/traces?live=1")

    site.trace("when does the first crossing to Lindholm leave?")

    page.wait("document.querySelector('#rows').textContent.includes('first crossing to Lindholm')")


def test_what_notes_say_cannot_run(site: Site, page: Page) -> None:
    page.open(f"{site.url}/?q=zeppelin")

    assert "<script>window.hacked" in page.run("document.querySelector('.results').textContent")
    assert page.run("typeof window.hacked") == "undefined"
    assert page.run("document.querySelectorAll('.results img, .results script').length") == 0
    policy = site.get("/").headers["content-security-policy"]
    assert "unsafe" not in policy
    assert "default-src 'none'" in policy


def test_a_large_note_is_shown_by_its_passages(site: Site) -> None:
    answer = site.get("/?q=mammoth")
    why_not = site.get("/trace/last?note=memory/large.md%23L5")

    assert (site.workspace / "memory/large.md").stat().st_size > 5_000_000
    assert "memory/large.md:1-" in answer.text
    assert len(answer.content) + len(why_not.content) < 500_000


def test_traces_are_filtered(site: Site) -> None:
    trace = site.trace("a question about quicksilver")
    filters = {
        "": True, "&slowerThanMs=600000": False, "&backend=builtin": True, "&backend=qmd": False,
        "&session=nobody": False, "&since=1h": True, "&degraded=1": False, "&empty=1": True, "&live=1": True,
    }  # fmt: skip
    for query, is_there in filters.items():
        found = site.get(f"/traces?part=rows&query=quicksilver{query}")
        assert (found.status_code, trace in found.text) == (200, is_there), query


def test_the_graph_shows_what_has_these_words_what_held_on_a_day_and_what_is_near(
    page: Page, tmp_path: Path
) -> None:
    march, may = datetime(2026, 3, 1, tzinfo=UTC), datetime(2026, 5, 1, tzinfo=UTC)
    times = {"Rome": (march, may), "Porto": (may, None), "Bob": (None, None)}
    facts = tuple(
        Fact(
            id=place, group_id="g", text=f"Alice and {place}", relation="R", source="Alice", target=place,
            valid_at=begin, invalid_at=end,
        )
        for place, (begin, end) in times.items()
    )  # fmt: skip
    drawn = html_page(Neighbourhood(facts=facts), centre="Alice", now=datetime(2026, 6, 1, tzinfo=UTC))
    file = tmp_path / "graph.html"
    file.write_text(drawn, encoding="utf-8")
    visible = "[...document.querySelectorAll('tbody tr')].filter((row) => !row.hidden)"
    rows = (
        f"JSON.stringify({visible}.map((row) => [row.cells[1].textContent.split(' ').pop(), row.className]))"
    )
    faint = "[...document.querySelectorAll('.entity.faint text')].map((one) => one.textContent).sort().join()"

    page.open(file.as_uri())
    page.run("document.querySelector('#find').focus()")
    page.write("porto")
    page.wait(f'{rows} === \'[["Porto","now"]]\'')
    assert page.run(faint) == "Bob,Rome"
    page.run("document.querySelector('#find').value = ''")
    page.run("document.querySelector('#when').focus()")
    day = (datetime(2026, 3, 15, tzinfo=UTC) - datetime(1970, 1, 1, tzinfo=UTC)).days
    page.run(f"document.querySelector('#when').value = {day - 1}")
    page.press("ArrowRight")
    page.wait("document.querySelector('#day').textContent === '2026-03-15'")
    assert dict(json.loads(page.run(rows))) == {"Rome": "now", "Bob": "now"}
    assert page.run(faint) == "Porto"
    page.run("document.querySelectorAll('.entity')[1].dispatchEvent(new PointerEvent('pointerenter'))")
    assert page.run("document.querySelectorAll('.entity.near').length") == 2
    page.picture(Path(PICTURES or tmp_path, "graph-1100.png"))
    assert violations(page) == []


def test_a_question_is_asked_as_if_it_were_another_day(site: Site) -> None:
    asked = "/?q=what happened yesterday?&weak=1&now="

    first = site.get(f"{asked}2026-05-05").text.partition('class="where"')[2]

    assert "memory/2026-05-04.md" in first.partition("</li>")[0]
    assert 'value="2026-05-05"' in site.get(f"{asked}2026-05-05").text
    assert site.get(f"{asked}someday").status_code == 400


def test_what_is_not_there_or_not_understood_is_said_so(site: Site) -> None:
    trace = site.trace(QUESTION)

    assert site.get("/trace/none-such").status_code == 404
    assert site.get("/assets/markup.py").status_code == 404
    assert site.get(f"/trace/{trace}/replay?fusion=alchemy").status_code == 400
    assert site.get(f"/trace/{trace}/replay?weight.builtin=much").status_code == 400
    assert site.get("/traces?since=sometime").status_code == 400
    assert site.post(f"/trace/{trace}/judge", result="memory/none.md", relevance="1").status_code == 400
    assert site.post(f"/trace/{trace}/judge", result="1", relevance="7").status_code == 400
    assert site.get("/graph").status_code == 400
