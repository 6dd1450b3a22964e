"""Lines that a reflection writes into pages which people edit."""

from hypothesis import given
from hypothesis import strategies as st

from composable_memory.reflect.entity_pages import Entry, is_own_line, own_lines, revise_page

HEAD = "# World\n"
PORTO = Entry(key="a1", section="Ellen", text="Lives in Porto.")
BEES = Entry(key="b-2", section="Ana", text="Keeps bees.")


def page_of(page: str, *entries: Entry, valid: set[str] | None = None) -> str:
    return revise_page(page, entries, {one.key for one in entries} if valid is None else valid, head=HEAD)


def test_a_new_page_has_its_lines_below_their_headings_and_is_stable() -> None:
    page = page_of("", PORTO, BEES)
    assert page.split("\n")[:3] == ["# World", "", "## Ellen"]
    assert own_lines(page) == {"a1": "- Lives in Porto.", "b-2": "- Keeps bees."}
    assert page_of(page, PORTO, BEES) == page
    assert page_of("") == ""


def test_what_people_wrote_stays_wherever_they_moved_our_lines() -> None:
    mine = f"My own words.\n\n{PORTO.line}\n- and mine ^xyz\n\n## Ellen\n\nSome text.\n"
    page = page_of(mine, PORTO, BEES, Entry(key="c", section="Ellen", text="Sails."))
    assert page.startswith(mine.rstrip("\n").replace("Some text.", "Some text.\n- Sails."))
    assert page.count("Porto") == 1
    changed = page_of(page, Entry(key="a1", section="Ellen", text="Lives in Faro."), valid={"a1"})
    assert "Porto" not in changed
    assert changed.split("\n")[2] == Entry(key="a1", section="", text="Lives in Faro.").line
    assert all(text in changed for text in ("My own words.", "- and mine ^xyz", "Some text."))
    assert not own_lines(changed).keys() & {"b-2", "c"}


def test_a_line_that_somebody_changed_is_theirs() -> None:
    page = page_of("", PORTO, BEES).replace("in Porto.", "in Porto, by the river.")
    assert page_of(page, Entry(key="a1", section="Ellen", text="Lives in Faro."), BEES) == page
    assert "by the river" in page_of(page, valid=set())
    assert not any("river" in line for line in page.split("\n") if is_own_line(line))


def test_line_breaks_and_a_line_that_is_there_twice_are_kept_in_order() -> None:
    page = page_of("", PORTO).replace("\n", "\r\n")
    assert page_of(page, PORTO) == page
    more = page_of(page, PORTO, BEES)
    assert more.count("\n") == more.count("\r\n")
    assert own_lines(page_of(f"{PORTO.line}\n{PORTO.line}\n", PORTO)) == {"a1": "- Lives in Porto."}


def test_a_heading_is_found_again_whatever_is_in_its_name() -> None:
    for section in ("C#", "# 1", "Ellen  Smith", "木村"):
        one, other = (Entry(key=key, section=section, text="Says so.") for key in ("one", "two"))
        page = page_of(page_of("", one), one, other)
        assert page.count("## ") == 1, section


@given(st.text(alphabet="ab #-^1\n\r", max_size=60), st.lists(st.sampled_from([PORTO, BEES]), unique=True))
def test_any_page_keeps_its_lines_and_a_second_run_changes_nothing(page: str, entries: list[Entry]) -> None:
    once = page_of(page, *entries)
    assert page_of(once, *entries) == once
    left = iter(once.split("\n"))
    assert all(line in left for line in page.split("\n") if line)
