"""Pictures of the graph: complete, always the same, and harmless whatever the facts say."""

import json
import re
import subprocess
from base64 import b64encode
from datetime import UTC, datetime
from hashlib import sha256
from html.parser import HTMLParser
from itertools import combinations
from math import hypot
from shutil import which
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from composable_memory.cli.options import parse_moment
from composable_memory.facts import Fact, GraphEntity, Neighbourhood
from composable_memory.time.windows import FAR_FUTURE
from composable_memory.types import Origin
from composable_memory_adapters.graphiti.cli.pictures import html_page, mermaid

NOW = datetime(2026, 6, 1, tzinfo=UTC)
MARCH = datetime(2026, 3, 1, tzinfo=UTC)
MAY = datetime(2026, 5, 1, tzinfo=UTC)
NASTY = '</title><script>alert("1")</script>\x1b[2J\u202e'
VOID = {"meta", "br", "input"}


def fact(source: str, relation: str, target: str, **known: object) -> Fact:
    text = f"{source} {relation} {target}"
    return Fact(id=text, group_id="main", text=text, relation=relation, source=source, target=target, **known)  # type: ignore[arg-type]


def around(facts: list[Fact], **kinds: str) -> Neighbourhood:
    names = dict.fromkeys(name for one in facts for name in (one.source, one.target))
    entities = (
        GraphEntity(id=f"id-{name}", group_id="main", name=name, kind=kinds.get(name)) for name in names
    )
    return Neighbourhood(entities=tuple(entities), facts=tuple(facts))


def star(count: int) -> Neighbourhood:
    return around([fact("Alice", "KNOWS", f"Friend {number}") for number in range(count)])


class Page(HTMLParser):
    """Reads a page: its tags with their attributes, its texts, and whether all tags are closed."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.scripts: list[str] = []
        self._open: list[str] = []
        self.feed(page)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._open += [] if tag in VOID else [tag]

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        (self.scripts if self._open[-1:] == ["script"] else self.texts).append(data)

    @property
    def graph(self) -> dict[str, Any]:
        """Return what the script draws."""
        return json.loads(self.scripts[0])  # type: ignore[no-any-return]


# --- Mermaid ----------------------------------------------------------------------------------------------


def test_a_diagram_has_the_relation_and_its_time_on_each_edge() -> None:
    drawn = mermaid(
        around(
            [
                fact("Alice", "WORKS_AT", "Beacon", valid_at=MAY),
                fact("Alice", "WORKS_AT", "Acme", valid_at=MARCH, invalid_at=MAY, expired_at=MAY),
            ]
        ),
        centre="alice",
        now=NOW,
    )

    assert drawn.splitlines() == [
        "graph LR",
        '  n0["Alice"]',
        '  n1["Acme"]',
        '  n2["Beacon"]',
        '  n0 -->|"works at<br/>since 2026-05-01"| n2',
        '  n0 -.->|"works at<br/>2026-03-01 to 2026-05-01#59; no longer holds"| n1',
    ]


@pytest.mark.parametrize(
    ("name", "label"),
    [
        ('say "hi"', "say #34;hi#34;"),
        ("a[b](c){d}", "a#91;b#93;#40;c#41;#123;d#125;"),
        ("a|b;c%%d", "a#124;b#59;c#37;#37;d"),
        ("two\nlines", "two lines"),
        ("`**bold**`", "#96;#42;#42;bold#42;#42;#96;"),
        ("1. first", "1#46; first"),
        ("end", "end"),
        ("<b>&amp;", "#60;b#62;#38;amp#59;"),
        ("日本語 – 2026-03-01", "日本語 – 2026-03-01"),
    ],
)
def test_a_name_cannot_be_taken_for_a_command_of_the_diagram(name: str, label: str) -> None:
    drawn = mermaid(around([fact(name, "IS", "x")]), centre=name, now=NOW)

    assert drawn.splitlines()[1] == f'  n0["{label}"]'


@given(st.text(max_size=40), st.text(max_size=40))
def test_every_line_of_a_diagram_is_an_entity_or_a_fact(source: str, relation: str) -> None:
    lines = mermaid(around([fact(source, relation, "x")]), now=NOW).split("\n")

    shape = re.compile(r'  n\d+(\["[^"\[\]|]*"\]| --?>\|"[^"\[\]|]*"\| n\d+)')
    assert lines[0] == "graph LR"
    assert lines[-1] == ""
    assert all(shape.fullmatch(line) for line in lines[1:-1])


# --- page -------------------------------------------------------------------------------------------------


def test_a_page_shows_every_entity_and_every_fact_with_its_time_and_origin() -> None:
    origin = Origin(path="memory/2026-03-01.md", start_line=3, end_line=7)
    page = Page(
        html_page(
            around([fact("Alice", "LIVES_IN", "Porto", valid_at=MARCH, origins=(origin,))], Alice="person"),
            centre="Alice",
            now=NOW,
        )
    )

    wanted = ("Alice", "since 2026-03-01", "person", "memory/2026-03-01.md#L3-L7")
    assert [text for text in wanted if text not in page.texts] == []
    assert [(one["name"], one["kind"], one["centre"]) for one in page.graph["nodes"]] == [
        ("Alice", 1, True),
        ("Porto", 0, False),
    ]
    (link,) = page.graph["links"]
    assert (link["source"], link["target"], link["holds"], link["words"]) == (0, 1, True, "lives in")


def test_a_fact_that_holds_no_more_is_marked_and_comes_last() -> None:
    past = fact("Alice", "LIVES_IN", "Rome", valid_at=MARCH, invalid_at=MAY)
    page = Page(html_page(around([past, fact("Alice", "LIVES_IN", "Porto")]), now=NOW))

    rows = [attrs["class"] for tag, attrs in page.tags if tag == "tr" and "class" in attrs]
    assert rows == ["now", "once"]
    assert sorted(link["holds"] for link in page.graph["links"]) == [False, True]


def test_entities_come_from_the_centre_outwards_and_those_of_two_groups_are_two() -> None:
    chain = [fact("Bob", "KNOWS", "Cleo"), fact("Alice", "KNOWS", "Bob"), fact("X", "IS", "Y")]
    other = Fact(id="2", group_id="other", text="", relation="IN", source="Alice", target="Rome")

    page = Page(html_page(Neighbourhood(facts=(*chain, other)), centre="alice", now=NOW))

    names = [one["name"] for one in page.graph["nodes"]]
    assert names[:3] == ["Alice", "Bob", "Cleo"]
    assert sorted(names[3:]) == ["Alice", "Rome", "X", "Y"]


def test_the_same_graph_in_another_order_has_the_same_page() -> None:
    facts = [fact("Alice", "KNOWS", f"Friend {number}") for number in range(9)]

    pages = [Page(html_page(around(given), centre="Alice", now=NOW)).graph for given in (facts, facts[::-1])]

    assert pages[0]["nodes"] == pages[1]["nodes"]


def test_whatever_a_fact_says_the_page_runs_none_of_it_and_has_no_address() -> None:
    nasty = fact(NASTY, NASTY, 'x" onload="alert(1)', origins=(Origin(path=NASTY),))
    text = html_page(around([nasty], **{NASTY: NASTY}), centre=NASTY, now=NOW)
    page = Page(text)

    assert [attrs for tag, attrs in page.tags if tag == "script"] == [
        {"type": "application/json", "id": "graph"},
        {},
    ]
    assert "alert" not in page.scripts[1]
    assert not {
        name for _, attrs in page.tags for name in attrs if name.startswith("on") or name in ("src", "href")
    }
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f\u202e]|https?:", text)


def test_a_page_allows_itself_its_style_and_its_own_script_only() -> None:
    text = html_page(star(1), now=NOW)
    (policy,) = re.findall(r'Content-Security-Policy" content="([^"]*)"', text)

    own = b64encode(sha256(Page(text).scripts[1].encode()).digest()).decode()
    assert policy.split("; ")[:3] == [
        "default-src 'none'",
        "style-src 'unsafe-inline'",
        f"script-src 'sha256-{own}'",
    ]


DOM = """
const drawn = [], element = () => ({
  setAttribute() {}, appendChild(child) { return child; }, remove() {}, addEventListener() {},
});
const pane = {...element(), namespaceURI: "svg", appendChild(child) { drawn.push(child); return child; }};
const document = {
  getElementById: () => ({...element(), textContent: TEXT}), querySelector: () => pane,
  querySelectorAll: () => [], createElementNS: () => element(),
};
"""


@pytest.mark.skipif(not which("node"), reason="needs Node.js")
def test_the_script_gives_every_entity_a_place_of_its_own() -> None:
    for count in (0, 1, 2, 60):
        data, script = Page(html_page(star(count), centre="Alice", now=NOW)).scripts
        told = "console.log(JSON.stringify([drawn.length, nodes.map(({x, y}) => [x, y])]))"
        program = f"{DOM.replace('TEXT', json.dumps(data))}{script}{told}"

        done = subprocess.run(["node", "-e", program], capture_output=True, text=True, timeout=60, check=True)

        elements, places = json.loads(done.stdout)
        assert elements == (2 * count + 1 if count else 0)
        assert all(hypot(a[0] - b[0], a[1] - b[1]) > 20 for a, b in combinations(places, 2))


@given(st.text(max_size=60))
def test_a_page_is_well_formed_whatever_it_shows(text: str) -> None:
    Page(html_page(around([fact(text, text, "x")]), centre=text, now=NOW))


def test_an_empty_graph_has_a_page_as_well() -> None:
    page = Page(html_page(Neighbourhood(), now=NOW))

    assert "There are no facts." in page.texts


# --- times ---------------------------------------------------------------------------------------


def test_a_day_is_its_beginning_or_its_end() -> None:
    assert parse_moment("2026-03-01", "--as-of") == MARCH
    assert str(parse_moment("2026-03-01", "--as-of", day_ends=True)) == "2026-03-01 23:59:59.999999+00:00"
    assert parse_moment("2026-03-01T02:00+02:00", "--as-of") == MARCH
    assert parse_moment("9999-12-31", "--as-of", day_ends=True) == FAR_FUTURE
