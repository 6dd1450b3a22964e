"""Compounds through an open memory: in the index by their ends, in questions by their parts."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest

from composable_memory import Memory, open_memory

NOTES = {
    "adler": "Auf der Speisekarte vom Adler stehen jetzt auch vegane Maultaschen.",
    "bus": "Die Karte für den Bus ist im Juni teurer geworden.",
    "keller": "Den Schlüssel zum Keller hat noch Familie Arslan.",
    "pumpe": "Der Monteur hat die Wasserpumpe im Hof getauscht.",
    "koker": "De waterkoker in de keuken lekt sinds maandag.",
    "english": "The carpenter replaced the staircase, and the windows are painted.",
}

KEYWORDS = {"embedding": {"provider": "none"}, "builtin": {"sync": {"onSearch": False}}}

Open = Callable[[], AbstractAsyncContextManager[Memory]]


@pytest.fixture
def open_notes(tmp_path: Path) -> Open:
    """Return a function that opens the memory of the notes."""
    folder = tmp_path / "notes/memory"
    folder.mkdir(parents=True)
    for name, text in NOTES.items():
        (folder / f"{name}.md").write_text(text, encoding="utf-8")
    return lambda: open_memory(tmp_path / "notes", tmp_path / "state", config=KEYWORDS, long_lived=False)


@pytest.fixture
async def memory(open_notes: Open) -> AsyncIterator[Memory]:
    async with open_notes() as opened:
        await opened.sync()
        yield opened


async def found(memory: Memory, question: str) -> list[str]:
    response = await memory.query(question, min_score=0.0)
    return [Path(result.path).stem for result in response.results]


async def test_a_word_finds_the_compounds_that_end_in_it_below_itself(memory: Memory) -> None:
    assert await found(memory, "Wo ist die Karte?") == ["bus", "adler"]
    assert await found(memory, "Wer hat die Pumpen getauscht?") == ["pumpe"]
    assert await found(memory, "Wat is er met de koker?") == ["koker"]


async def test_a_compound_that_no_note_has_finds_its_parts(memory: Memory) -> None:
    assert await found(memory, "Wer hat den Kellerschlüssel?") == ["keller"]
    assert await found(memory, "Was ist mit der Schrankwand?") == []


async def test_the_compound_is_marked_in_the_snippet(memory: Memory) -> None:
    response = await memory.query("Wer hat die Pumpe getauscht?")
    first = response.results[0]

    assert "Wasserpumpe" in [first.snippet[begin:end] for begin, end in first.highlights]


async def test_compounds_are_found_after_a_rebuild_too(open_notes: Open) -> None:
    async with open_notes() as memory:
        await memory.sync()
        await memory.sync(force=True)

        assert await found(memory, "Was ist mit der Pumpe?") == ["pumpe"]
