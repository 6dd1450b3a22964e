"""Front matter: what a note says of itself, in the forms that people and programs write it."""

from datetime import UTC, datetime

from composable_memory.front_matter import FrontMatter, front_matter, has_tag, tags_in


def read(*lines: str) -> FrontMatter:
    return front_matter("\n".join(["---", *lines, "---", "Text.", ""]))


def test_title_aliases_tags_date_and_type_are_read() -> None:
    found = read(
        "title: 'Plan: part two'",
        'aliases: ["Big, bold", plan b]',
        "Tags:",
        "  - Work/Alpha",
        '- "#home"',
        "created: 2026-05-03 10:15",
        "type: decision # not final",
    )

    assert found == FrontMatter(
        title="Plan: part two",
        aliases=("Big, bold", "plan b"),
        tags=("work/alpha", "home"),
        date=datetime(2026, 5, 3, 10, 15, tzinfo=UTC),
        type="decision",
        length=found.length,
        lines=9,
    )


def test_values_are_read_in_every_form_that_they_are_written_in() -> None:
    assert read("title: Plan: part two").title == "Plan: part two"
    assert read("title: C#").title == "C#"
    assert read('title: ""').title is None
    assert read("title: >-", "  further down").title is None
    assert read("alias: one", "aliases: [two, one]").aliases == ("two", "one")
    assert read("tags: work, home #plan").tags == ("work", "home", "plan")
    assert read("tag: [ ]").tags == ()
    assert read("date: 2026-02-31", "day: [[2026-03-01]]").date == datetime(2026, 3, 1, tzinfo=UTC)
    assert read("author:", "  title: nested").title is None


def test_what_front_matter_takes_is_known_to_the_character() -> None:
    for text, lines in (
        ("---\ntitle: a\n---\nbelow\n", 3),
        ("\ufeff---\r\ntitle: a\r\n...\r\nbelow", 3),
        ("---\ntitle: a\n---", 3),
    ):
        found = front_matter(text)
        assert (found.title, found.lines) == ("a", lines)
        assert text[found.length :].strip() in ("below", "")
        assert text.split("\n")[lines:] == text[found.length :].split("\n") or text.endswith("---")


def test_what_only_begins_like_front_matter_is_text() -> None:
    for text in (
        "---\ntitle: never closed\n",
        "---\nOnly a text between rules\n---\n",
        "----\ntitle: a\n---\n",
        " ---\ntitle: a\n---\n",
        "---\n" + "title: a\n" * 9_000 + "---\n",
        "",
    ):
        assert front_matter(text) == FrontMatter()


def test_tags_are_those_at_the_head_and_those_in_the_text() -> None:
    text = "---\ntags: [work/alpha]\n---\n# Title\nSee #Plan-b, issue #12, a.md#part, a/#b and ##c.\n"

    tags = tags_in(text)

    assert tags == {"work/alpha", "plan-b"}
    assert has_tag(tags, "#Work")
    assert has_tag(tags, "work/alpha")
    assert not has_tag(tags, "alpha")
