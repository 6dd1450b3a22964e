"""What is said later ends what was said before, as the README and the page of the graph promise."""

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import pytest

from composable_memory.facts import Fact
from composable_memory.ingest.note_reader import WrittenSource, contents_of
from composable_memory.runtime.memory import Memory
from composable_memory.runtime.opening import open_memory

pytest.importorskip("falkordb")
pytest.importorskip("graphiti_core")

README = Path(__file__).parents[2] / "README.md"
NOW = datetime(2026, 6, 1, tzinfo=UTC)
FIRST, THEN = "memory/2026-01-05.md", "memory/2026-03-01.md"

ENDED = (
    ("Sofia lives in Porto.", "Sofia moved to Bergen."),
    ("Erik works at Equinor.", "Erik joined Statkraft."),
    ("Marta works at Siemens.", "Marta does not work at Siemens anymore."),
    ("Jonas works at Acme.", "Jonas left Acme in February 2026."),
    ("Hannah is married to Lukas.", "Hannah and Lukas divorced."),
    ("Kevin reports to Susan.", "Kevin now reports to Omar."),
    ("Ana Lima is the CEO of Tidegate.", "The new CEO of Tidegate is Dana Whitfield."),
    ("Ivo is the tech lead.", "Lena is now the tech lead."),
    ("My manager is Priya Raman.", "Marcus is my manager now."),
    ("We use Jenkins.", "We switched from Jenkins to Woodpecker."),
    ("The staging database listens on port 5433.", "The staging database now listens on port 6000."),
    ("Project Heron is on hold.", "Project Heron is finished."),
    ("Falcon is led by Tessa.", "Falcon is now led by Bruno."),
    ("Bram owns a motorcycle.", "Bram sold his motorcycle."),
    ("Wir nutzen Trello.", "Wir nutzen Trello nicht mehr."),
    ("Jürgen arbeitet bei Bosch.", "Jürgen arbeitet jetzt bei Zeiss."),
    ("Petra wohnt in Bonn.", "Petra ist nach Hamburg gezogen."),
    ("Lucía trabaja en Telefónica.", "Lucía ahora trabaja en Iberia."),
    ("Mateo vive en Sevilla.", "Mateo ya no vive en Sevilla."),
    ("Elena está casada con Pablo.", "Elena y Pablo se divorciaron."),
    ("Tom works at Halden.", "Tom quit his job."),
    ("Berta is married to Otto.", "Berta got divorced."),
    ("Ulrike arbeitet bei Miele.", "Ulrike hat ihren Job gekündigt."),
    ("王小明在腾讯工作。", "王小明现在在华为工作。"),
    ("刘洋住在上海。", "刘洋搬到了深圳。"),
    ("孙丽在百度工作。", "孙丽不再在百度工作了。"),
)
KEPT = (
    ("Nora lives in Oslo.", "Nora visited Rome."),
    ("Tim works at Globex.", "Does Tim still work at Globex?"),
    ("Ines works at Lanternwheel.", "Ines also works at the Tide Library."),
    ("Nadia speaks Arabic.", "Nadia speaks French."),
    ("Karl wohnt in Gent.", "Vielleicht zieht Karl nach Antwerpen."),
    ("林涛住在南京。", "林涛可能搬到苏州。"),
)
THEIRS = (("Sofia lives in Lagos.", "Sofia likes jazz."), ("Erik works at Shell.", "The lamp is violet."))
"""What another workspace says of the same names in files of the same names."""


async def take_in(memory: Memory, pairs: Sequence[tuple[str, str]]) -> None:
    for path, number in ((FIRST, 0), (THEN, 1)):
        text = "# Monday\n\n" + "\n\n".join(pair[number] for pair in pairs)
        report = await memory.ingest_source(
            path, contents_of(WrittenSource(text=text, path=path, written_at=NOW))
        )
        assert not report["graphiti"].problems


async def facts_in(memory: Memory) -> dict[str, Fact]:
    """Return what the first notes said, by their sentences."""
    facts = await memory.facts_of().facts(limit=500)
    return {fact.text: fact for fact in facts if fact.origins and fact.origins[0].path == FIRST}


@pytest.mark.thorough
async def test_what_is_said_later_ends_what_was_said_before_and_nothing_else(tmp_path: Path) -> None:
    config = {"graphiti": {"enabled": True}, "embedding": {"provider": "none"}}
    mine, theirs, state = tmp_path / "mine", tmp_path / "theirs", tmp_path / "state"
    mine.mkdir()
    theirs.mkdir()
    said = re.findall(r'cmem ingest --text "([^"]+)"', README.read_text(encoding="utf-8"))
    assert len(said) == 2
    async with (
        open_memory(mine, state, config, clock=lambda: NOW) as memory,
        open_memory(theirs, state, config, clock=lambda: NOW) as neighbour,
    ):
        await take_in(memory, [*ENDED, *KEPT, (said[0], said[1])])
        await take_in(neighbour, THEIRS)
        known, beside = await facts_in(memory), await facts_in(neighbour)

    for sentence, after in (*ENDED, (said[0], said[1])):
        assert known[sentence].invalid_at is not None, (sentence, after)
        assert not known[sentence].is_current(NOW), (sentence, after)
    for sentence, after in KEPT:
        assert known[sentence].is_current(NOW), (sentence, after)
    for sentence, _ in THEIRS:
        assert beside[sentence].is_current(NOW), sentence
