"""Questions that ask for a time find the notes of that time."""

import json
import os
import time
from datetime import UTC, date, datetime
from pathlib import Path

import pytest

from composable_memory import open_memory
from composable_memory.paths import NOTE_SUFFIXES
from composable_memory.runtime.memory import Memory
from composable_memory.types import SearchFilters, SearchOptions
from composable_memory_adapters.builtin.search.time_matching import asked_time
from tests.notes import write_notes

NOW = datetime(2026, 5, 20, 9, tzinfo=UTC)
"""A Wednesday."""
ROUTINE = "Repaired the bicycle with Oliver. Soup in the evening.\n"
OTHER = "A long walk by the river, and a call from the landlord.\n"
NOTES = {
    **{f"memory/2026-05-{day:02}.md": ROUTINE for day in (2, 5, 11, 13, 17, 18, 19)},
    "memory/2026-04-14.md": OTHER,
    "memory/2026-04-14-call.md": OTHER + ROUTINE,
    "memory/2025-04-20.md": ROUTINE,
    "memory/trips/2026-03-03/plan.md": OTHER,
    "memory/clip.md": f"---\ntitle: Clip\ndate: 2026-01-29\n---\n{OTHER}",
    "memory/ledger.md": "Paid the plumber on 7 February 2026, in cash.\n",
    "memory/log.md": "2026-02-09: the boiler was inspected.\n",
    "MEMORY.md": "Oliver repairs bicycles. It rained in 2019.\n",
}


@pytest.fixture
def vault(tmp_path: Path) -> Path:
    return write_notes(tmp_path / "vault", NOTES)


async def first(memory: Memory, query: str) -> str:
    response = await memory.query(query, now=NOW)
    return response.results[0].path.removeprefix("memory/")


async def test_the_note_of_a_day_comes_first_however_the_day_is_written(vault: Path, state_dir: Path) -> None:
    asked = {
        "2026-03-03": "trips/2026-03-03/plan.md",
        "what did I do on 3 March 2026?": "trips/2026-03-03/plan.md",
        "March 3rd": "trips/2026-03-03/plan.md",
        "Was habe ich am 3. März gemacht?": "trips/2026-03-03/plan.md",
        "am 03.03.2026": "trips/2026-03-03/plan.md",
        "¿Qué hice el 3 de marzo de 2026?": "trips/2026-03-03/plan.md",
        "2026年3月3日我做了什么？": "trips/2026-03-03/plan.md",
        "三月三日": "trips/2026-03-03/plan.md",
        "notes of 29 January": "clip.md",
        "2026-01-29": "clip.md",
        "yesterday": "2026-05-19.md",
        "gestern": "2026-05-19.md",
        "ayer": "2026-05-19.md",
        "昨天": "2026-05-19.md",
        "what happened three days ago?": "2026-05-17.md",
        "hace tres días": "2026-05-17.md",
        "last Monday": "2026-05-18.md",
        "上周三": "2026-05-13.md",
        "vor zwei Wochen": "2026-05-05.md",
        "zwischen März und April": "trips/2026-03-03/plan.md",
        "where is memory/2026-05-11.md?": "2026-05-11.md",
        "2026-04-14-call.md": "2026-04-14-call.md",
        "le 3 mars 2026": "trips/2026-03-03/plan.md",
        "13/05/2026": "2026-05-13.md",
        "el 3 de marzo": "trips/2026-03-03/plan.md",
        "what happened on 7 February 2026?": "ledger.md",
        "9 February 2026": "log.md",
        "what happened in Q1 2026?": "clip.md",
        "what happened in spring?": "trips/2026-03-03/plan.md",
    }
    async with open_memory(vault, state_dir, long_lived=False) as memory:
        await memory.sync()
        found = {query: await first(memory, query) for query in asked}

    assert found == asked


@pytest.mark.parametrize("query", ["what was going on in May?", "anything notable last week?"])
def test_what_was_going_on_asks_for_nothing_but_its_time(query: str) -> None:
    asked = asked_time(query, None, NOW)

    assert asked is not None
    assert asked.is_all


def test_the_name_of_a_note_of_any_kind_asks_for_nothing_but_its_day() -> None:
    for suffix in NOTE_SUFFIXES:
        asked = asked_time(f"memory/2026-04-14{suffix}", None, NOW)

        assert asked is not None
        assert asked.is_all
        assert asked.level(date(2026, 4, 14)) == 2.0


async def test_of_like_notes_that_of_the_time_comes_first(vault: Path, state_dir: Path) -> None:
    asked = {
        "who repaired the bicycle in April 2026?": {"2026-04-14-call.md"},
        "who repaired the bicycle in April 2025?": {"2025-04-20.md"},
        "soup with Oliver last week": {"2026-05-11.md", "2026-05-13.md", "2026-05-17.md"},
        "Fahrrad mit Oliver am 5. Mai": {"2026-05-05.md"},
        "call from the landlord on 14 April": {"2026-04-14.md", "2026-04-14-call.md"},
    }
    async with open_memory(vault, state_dir, long_lived=False) as memory:
        await memory.sync()
        for query, notes in asked.items():
            assert await first(memory, query) in notes, query


async def test_where_no_time_is_asked_for_the_asker_s_clock_changes_nothing(
    vault: Path, state_dir: Path
) -> None:
    async with open_memory(vault, state_dir, long_lived=False) as memory:
        await memory.sync()
        for query in ("repaired the bicycle", "may I have soup", "the march to the river"):
            here = await memory.query(query, now=NOW)
            long_ago = await memory.query(query, now=datetime(2001, 1, 1, tzinfo=UTC))
            assert here.results == long_ago.results, query


async def test_a_time_goes_with_filters_and_with_longer_answers(vault: Path, state_dir: Path) -> None:
    async with open_memory(vault, state_dir, long_lived=False) as memory:
        await memory.sync()
        filtered = await memory.query("last month", now=NOW, filters=SearchFilters(paths=("*-call.md",)))
        longest = await memory.query("soup in May 2026", now=NOW, max_results=20)
        shorter = await memory.query("soup in May 2026", now=NOW, max_results=3)

    assert [one.path for one in filtered.results] == ["memory/2026-04-14-call.md"]
    assert longest.results[:3] == shorter.results
    assert all(0.0 <= one.score <= 1.0 for one in longest.results)


async def test_without_an_intent_and_without_keywords_times_are_found(vault: Path, state_dir: Path) -> None:
    off = {"memory": {"builtin": {"store": {"fts": {"enabled": False}}}}}
    async with open_memory(vault, state_dir, off, long_lived=False) as memory:
        await memory.sync()
        (builtin,) = (one for one in memory.manager.backends_with("sync").values())  # type: ignore[arg-type]
        found = await builtin.search("bicycle repairs on 13 May", SearchOptions(now=NOW))

    assert found[0].path == "memory/2026-05-13.md"


async def test_a_transcript_is_of_its_last_change(tmp_path: Path, state_dir: Path) -> None:
    vault, talks = tmp_path / "vault", tmp_path / "talks"
    (vault / "memory").mkdir(parents=True)
    (vault / "memory" / "2026-05-02.md").write_text("We talked about the canoe.\n", encoding="utf-8")
    talks.mkdir()
    for name, day in (("a", 11), ("b", 18)):
        line = {"type": "message", "message": {"role": "user", "content": "We talked about the canoe."}}
        (talks / f"{name}.jsonl").write_text(json.dumps(line) + "\n", encoding="utf-8")
        changed = datetime(2026, 5, day, 12, tzinfo=UTC).timestamp()
        os.utime(talks / f"{name}.jsonl", (changed, changed))
    builtin = {"sources": ["memory", "sessions"], "sessions": {"folder": str(talks)}}
    async with open_memory(vault, state_dir, {"memory": {"builtin": builtin}}, long_lived=False) as memory:
        await memory.sync()
        found = {query: await first(memory, query) for query in ("last Monday", "the canoe on 11 May")}

    assert found == {"last Monday": "sessions/b.jsonl", "the canoe on 11 May": "sessions/a.jsonl"}


def _messages(days: dict[str, str]) -> str:
    """Return a transcript as an agent writes it: each message is so long that it is a passage of its own."""
    records: list[dict[str, object]] = [{"type": "summary", "summary": "Harbour"}]
    for number, (moment, text) in enumerate(days.items()):
        filler = " ".join(f"plank{number}x{count}" for count in range(110))
        content = [{"type": "text", "text": f"{text} {filler}"}]
        message = {"role": "assistant" if number % 2 else "user", "content": content}
        records.append({"type": message["role"], "timestamp": moment, "message": message})
        records.append({"type": "user", "message": {"role": "user", "content": "Go on."}})
    return "".join(f"{json.dumps(record)}\n" for record in records)


async def test_a_passage_of_a_transcript_is_of_the_time_of_its_messages(
    vault: Path, state_dir: Path, tmp_path: Path
) -> None:
    talks = tmp_path / "talks"
    talks.mkdir()
    talk = talks / "2026-05-19-harbour.jsonl"
    days = {
        "2026-04-07T09:00:00Z": "The roof of the shed leaks.",
        "2026-05-11T22:10:00.250Z": "The roof gets slates.",
        "2026-05-13T08:00:00+02:00": "The gate gets a lock.",
        "2026-05-19T10:00:00Z": "The roof is done, and the gate is green.",
    }
    talk.write_text(_messages(days), encoding="utf-8")
    os.utime(talk, (NOW.timestamp(), NOW.timestamp()))
    builtin = {"sources": ["memory", "sessions"], "sessions": {"folder": str(talks)}}
    async with open_memory(vault, state_dir, {"memory": {"builtin": builtin}}, long_lived=False) as memory:
        await memory.sync()
        (manager,) = (one for one in memory.manager.backends_with("sync").values())  # type: ignore[arg-type]

        async def lines(query: str, **times: datetime) -> list[int]:
            filters = SearchFilters(sources=("sessions",), **times)  # type: ignore[arg-type]
            return [
                one.start_line for one in await manager.search(query, SearchOptions(now=NOW, filters=filters))
            ]

        asked = {
            "the roof last week": 3,
            "the roof on 19 May": 7,
            "the roof in April": 2,
            "the gate last week": 5,
            "what happened on 7 April?": 2,
        }
        assert {query: (await lines(query))[0] for query in asked} == asked
        since, until = datetime(2026, 5, 11, tzinfo=UTC), datetime(2026, 5, 12, tzinfo=UTC)
        assert set(await lines("roof", since=since, until=until)) == {3}
        assert set(await lines("roof gate", since=until)) == {5, 7}
        assert set(await lines("roof gate", until=datetime(2026, 4, 30, tzinfo=UTC))) == {2}

        talk.write_text(_messages({"2026-05-18T09:00:00Z": "The roof is thatched."}), encoding="utf-8")
        await memory.sync()
        assert set(await lines("roof", since=datetime(2026, 5, 19, tzinfo=UTC))) == set()
        talk.unlink()
        await memory.sync()
        assert await lines("roof") == []


async def test_a_question_as_of_a_day_is_about_what_was_written_before(vault: Path, state_dir: Path) -> None:
    (vault / "memory" / "2026-04-02.md").write_text("Oliver lives in Porto.\n", encoding="utf-8")
    async with open_memory(vault, state_dir, long_lived=False) as memory:
        await memory.sync()
        for query in ("Where does Oliver live as of 2026-05-11?", "截至2026年5月11日，Oliver lives where?"):
            assert await first(memory, query) == "2026-04-02.md"
        # What happened at an end is in the notes of that time.
        assert await first(memory, "Oliver at the end of April 2025") == "2025-04-20.md"


def test_a_query_of_any_length_is_looked_through_for_a_day_in_the_time_of_its_length() -> None:
    """The second power of it would be minutes."""
    assert asked_time("a/" * 100_000, None, NOW) is None


@pytest.mark.parametrize("day", ["0001-01-01", "9999-12-31"])
async def test_a_day_at_an_edge_of_the_calendar_is_looked_for_by_its_words(
    vault: Path, state_dir: Path, day: str
) -> None:
    (vault / "memory" / f"{day}.md").write_text("Oliver lives in Porto.\n", encoding="utf-8")
    async with open_memory(vault, state_dir, long_lived=False) as memory:
        await memory.sync()
        response = await memory.query(f"Oliver on {day}")

    assert response.degraded == ()
    assert response.results[0].path == f"memory/{day}.md"


def test_since_a_month_is_that_of_the_last_year_until_now_and_of_no_other_year() -> None:
    for question in ("Was war seit April?", "What happened since April?", "¿Qué pasó desde abril?"):
        asked = asked_time(question, None, NOW)
        assert asked is not None
        assert (asked.level(date(2025, 4, 20)), asked.level(date(2026, 5, 13)) > 0) == (0.0, True), question
    within = asked_time("What happened in April?", None, NOW)
    assert within is not None
    assert within.level(date(2025, 4, 20)) == 0.5


async def test_a_winter_day_has_its_own_hours_though_it_is_asked_for_in_summer(
    vault: Path, state_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (talks := tmp_path / "talks").mkdir()
    said = {
        "2026-01-14T22:30:00Z": "The roof leaks, half an hour before midnight.",
        "2026-01-15T22:30:00Z": "The roof is tight, an hour and a half later than the day before.",
    }
    for number, (at, text) in enumerate(said.items()):
        (talks / f"{number}.jsonl").write_text(_messages({at: text}), encoding="utf-8")
    config = {
        "memory": {
            "embedding": {"provider": "none"},
            "builtin": {"sources": ["sessions"], "sessions": {"folder": str(talks)}},
        }
    }
    with monkeypatch.context() as berlin:
        berlin.setenv("TZ", "Europe/Berlin")
        time.tzset()
        summer = datetime(2026, 7, 1, 9, tzinfo=UTC)
        async with open_memory(vault, state_dir, config, clock=lambda: summer, long_lived=False) as memory:
            await memory.sync()
            found = await memory.search("roof after:2026-01-15 before:2026-01-16")
            (asked, *_) = await memory.search("What was said on 2026-01-15?")
    time.tzset()

    assert ["tight" in one.text for one in found] == [True]
    assert "tight" in asked.text
