"""Titles, aliases, headings and tags: found, shown, and kept up to date with the notes."""

from pathlib import Path
from typing import Any

import pytest

from composable_memory import open_memory
from composable_memory.runtime.memory import Memory
from composable_memory.tools.search import MemorySearchRequest, memory_search
from composable_memory.types import MemorySearchResult, SearchFilters

FILLER = "\n".join(f"Line {number} says nothing that anybody would look for." for number in range(60))
TRIP = f"""---
title: "Four days: Lisbon"
aliases: [escapade, Städtereise]
tags: [travel/portugal]
type: plan
---
# Another heading

## Places to sleep

{FILLER}

## Where to eat

{FILLER}
The pasteis are best at nine.
"""
OTHER = "# Diary\n\nTalked of Lisbon, of sleep and of where to eat. The pasteis are best at nine.\n"


@pytest.fixture
def vault(tmp_path: Path) -> Path:
    folder = tmp_path / "vault"
    (folder / "memory").mkdir(parents=True)
    write(folder, "ref-17.md", TRIP)
    write(folder, "ref-18.md", OTHER)
    return folder


def write(vault: Path, name: str, text: str) -> None:
    (vault / "memory" / name).write_text(text, encoding="utf-8")


async def best(memory: Memory, query: str, **filters: tuple[str, ...]) -> MemorySearchResult:
    wanted = SearchFilters(**filters) if filters else None  # type: ignore[arg-type]
    return (await memory.query(query, filters=wanted)).results[0]


async def test_a_passage_is_found_by_what_it_stands_under(vault: Path, state_dir: Path) -> None:
    async with open_memory(vault, state_dir, long_lived=False) as memory:
        await memory.sync()
        for query, headings in (
            ("Lisbon places to sleep", ("Places to sleep",)),
            ("where to eat on the escapade", ("Where to eat",)),
            ("Städtereise, where to eat", ("Where to eat",)),
        ):
            found = await best(memory, query)
            assert (found.path, found.title) == ("memory/ref-17.md", "Four days: Lisbon"), query
            assert found.headings == headings, query
        for tag, type_ in (("travel", "plan"), ("travel/portugal", "md")):
            found = await best(memory, "pasteis at nine", tags=(tag,), types=(type_,))
            assert found.path == "memory/ref-17.md"
        assert (await best(memory, "pasteis at nine")).title == "Diary"
        assert (await memory.query("pasteis", filters=SearchFilters(types=("decision",)))).results == ()


async def test_an_agent_is_told_title_and_headings_where_there_are_any(vault: Path, state_dir: Path) -> None:
    write(vault, "bare.md", "A gazebo without a heading.\n")
    async with open_memory(vault, state_dir, long_lived=False) as memory:
        await memory.sync()
        known: Any = await memory_search(memory, MemorySearchRequest(query="escapade places to sleep"))
        bare: Any = await memory_search(memory, MemorySearchRequest(query="gazebo", max_results=1))

    first, only = known.as_json()["results"][0], bare.as_json()["results"][0]
    assert (first["title"], first["headings"]) == ("Four days: Lisbon", ["Places to sleep"])
    assert not {"title", "headings"} & only.keys()


async def test_a_field_that_changes_is_indexed_anew_and_nothing_is_embedded(
    vault: Path, state_dir: Path
) -> None:
    async with open_memory(vault, state_dir, long_lived=False) as memory:
        await memory.sync()
        first_passages = await best(memory, "pasteis are best at nine", tags=("travel",))
        write(vault, "ref-17.md", TRIP.replace("## Where to eat", "## Restaurants"))
        renamed = await memory.sync()
        under = await best(memory, "restaurants of Lisbon")
        write(vault, "ref-17.md", TRIP.replace("Four days: Lisbon", "Weekend in Porto"))
        retitled = await memory.sync()
        titled = await best(memory, "Porto where to eat")
        damage = await memory.check()

    assert first_passages.headings == ("Where to eat",)
    assert (under.path, under.headings) == ("memory/ref-17.md", ("Restaurants",))
    assert (titled.path, titled.title) == ("memory/ref-17.md", "Weekend in Porto")
    assert max(renamed.embedded, retitled.embedded) <= 2  # where the words of the fields are part of the text
    assert not any(damage.values())
