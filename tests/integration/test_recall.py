"""What is known of somebody, or of a time, from the notes, the graph and the search."""

import asyncio
import json
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from composable_memory import open_memory
from composable_memory.cli import app
from composable_memory.config.settings import SettingsModel
from composable_memory.errors import InvalidArgument
from composable_memory.facts import Fact, GraphEntity
from composable_memory.interfaces import BackendSpec, Capability
from composable_memory.recall.items import Recall
from composable_memory.recall.name_matching import KnownNames
from composable_memory.recall.recalling import ends_of_lines
from composable_memory.recall.retained_notes import RetainedNotes
from composable_memory.testing import InMemoryBackend
from composable_memory.types import Origin
from tests.documents import pdf
from tests.notes import write_notes

NOW = datetime(2026, 2, 10, 12, tzinfo=UTC)
NOTES = {
    "memory/2026-01-05.md": (
        "# Monday\n\nEllen Smith brought the plans of the roof.\n\nIt rained.\n\n## Retain\n\n"
        "- O(c=0.9) @Peter @[[Ellen Smith]]: Prefers short replies. #style ^m4k29x\n"
        "- W @[[Ellen Smith]]: Lives in Porto. ^aaaa11\n"
    ),
    "memory/2026-02-09.md": "## Retain\n- B: Fixed the pump with Ellen.\n- W @Ana: Keeps bees. ^bbbb22\n",
    "memory/2026-01-20.md": "Nothing of it, though the retainer was paid.\n\nA quiet day.\n",
    "bank/entities/Ellen Smith.md": "---\naliases: [Ellie]\n---\n\n- S @[[Ellen Smith]]: Builds roofs.\n",
}


@pytest.fixture
def vault(tmp_path: Path) -> Path:
    return write_notes(tmp_path / "vault", NOTES)


def told(found: Recall) -> list[str]:
    return [item.content for item in found.items]


async def test_of_an_entity_the_lines_come_newest_first_and_then_what_else_names_it(
    vault: Path, state_dir: Path
) -> None:
    async with open_memory(vault, state_dir, long_lived=False) as memory:
        await memory.sync()
        found = await memory.recall("ellen smith", now=NOW, until="2026-02")
        opinion = next(item for item in found.items if item.kind == "opinion")
        assert told(found) == [
            "Lives in Porto.",
            "Prefers short replies.",
            "Ellen Smith brought the plans of the roof.",
        ]
        assert (opinion.confidence, opinion.id, opinion.tags) == (0.9, "m4k29x", ("style",))
        assert opinion.entities == ("Peter", "Ellen Smith")
        assert opinion.timestamp == datetime(2026, 1, 5, tzinfo=UTC)
        assert [item.source for item in found.items] == [
            "memory/2026-01-05.md#L10",
            "memory/2026-01-05.md#L9",
            "memory/2026-01-05.md#L3",
        ]
        assert found.degraded == ()


async def test_a_name_is_known_by_its_part_its_alias_and_its_link(vault: Path, state_dir: Path) -> None:
    async with open_memory(vault, state_dir, long_lived=False) as memory:
        await memory.sync()
        of_ellen = await memory.recall("Ellen", types=("world", "experience", "opinion"), now=NOW)
        assert of_ellen.names == ("Ellen Smith", "Ellie")
        assert of_ellen.is_renamed
        assert told(of_ellen) == [
            "Fixed the pump with Ellen.",
            "Lives in Porto.",
            "Prefers short replies.",
        ]
        assert not (await memory.recall("ana", now=NOW)).is_renamed
        for name in ("ELLIE", "@[[Ellen Smith|her]]", "ellen  smith"):
            by_name = await memory.recall(name, types=("world", "observation"), now=NOW)
            assert set(told(by_name)) == {"Lives in Porto.", "Builds roofs."}, name
        nobody = await memory.recall("Elen Smith", now=NOW)
        assert (nobody.items, nobody.nearest) == ((), ("Ellen Smith",))
        assert (nobody.notes, nobody.lines) == (4, 5)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("people/Greta Holm.md", "A teacher.\n\n## Work\n\nPlays the cello."),
        ("people/holm.md", "# Greta Holm\n\nA teacher.\n\n## Work\n\nPlays the cello."),
        ("people/holm.md", "---\ntitle: Greta Holm\n---\nA teacher.\n\n## Work\n\nPlays the cello."),
        ("people/staff.md", "# Staff\n\n## Greta Holm\n\nA teacher.\n\nPlays the cello.\n\n## Jo\n\nA cook."),
    ],
    ids=["its file", "its heading", "its title", "a heading in it"],
)
@pytest.mark.parametrize("asked", ["Greta Holm", "greta"])
async def test_what_a_note_says_of_whom_it_is_named_after_is_known(
    tmp_path: Path, state_dir: Path, name: str, text: str, asked: str
) -> None:
    note = tmp_path / "vault" / name
    note.parent.mkdir(parents=True)
    note.write_text(text, encoding="utf-8")
    (tmp_path / "vault" / "2026-01-07.md").write_text(
        "Lunch with Greta Holm.\n\nIt rained.", encoding="utf-8"
    )
    async with open_memory(tmp_path / "vault", state_dir, long_lived=False) as memory:
        await memory.sync()
        found = await memory.recall(asked)

    said = ["A teacher.", "Plays the cello.", "Lunch with Greta Holm."]
    assert told(found) == said if name != "people/staff.md" else sorted(told(found)) == sorted(said)


@pytest.mark.parametrize(
    ("entity", "query"), [("Ellen Smith", None), ("Ellen Smith", "entry"), (None, "Smith")]
)
async def test_of_whom_many_notes_speak_the_newest_come_first(
    vault: Path, state_dir: Path, entity: str | None, query: str | None
) -> None:
    days = [date(2025, 1, 1) + timedelta(days=number) for number in range(120)]
    for number, day in enumerate(days):
        said = ("Ellen Smith.", "Rain. " * 9 + "We saw Ellen Smith at the harbour.")[number % 40 == 39]
        (vault / f"memory/{day}.md").write_text(f"{said} Entry {number}.\n", encoding="utf-8")
    async with open_memory(vault, state_dir, long_lived=False) as memory:
        await memory.sync()
        found = await memory.recall(
            entity,
            types=("passage",),
            since="2025-01",
            until="2025-12",
            query=query,
            max_results=12,
            now=NOW,
        )

    assert [item.timestamp.date() for item in found.items if item.timestamp] == days[:-13:-1]


async def test_of_nobody_known_the_notes_with_names_most_like_it_are_told(
    tmp_path: Path, state_dir: Path
) -> None:
    (tmp_path / "vault").mkdir()
    (tmp_path / "vault" / "Mina Sørensen.md").write_text("Based in Aarhus.", encoding="utf-8")
    async with open_memory(tmp_path / "vault", state_dir, long_lived=False) as memory:
        await memory.sync()
        found = await memory.recall("Mina Sorensen")

    assert (found.items, found.nearest) == ((), ("Mina Sørensen",))


async def test_of_a_time_everything_comes_newest_first(vault: Path, state_dir: Path) -> None:
    async with open_memory(vault, state_dir, long_lived=False) as memory:
        await memory.sync()
        recent = await memory.recall(since="7d", until="2026-02", now=NOW)
        assert told(recent) == ["Keeps bees.", "Fixed the pump with Ellen."]
        assert told(await memory.recall(since="last week", until="last week", now=NOW)) == []
        january = await memory.recall(since="2026-01", until="2026-01", now=NOW)
        assert [item.kind for item in january.items] == ["passage", "world", "opinion", "passage"]
        assert january.items[0].content == "Nothing of it, though the retainer was paid.\nA quiet day."
        replies = await memory.recall(query="are replies short?", types=("opinion",), now=NOW)
        assert told(replies) == ["Prefers short replies."]
        rain = await memory.recall("ellen smith", query="did it rain?", now=NOW)
        plans = await memory.recall("ellen smith", query="plans of the roof", types=("passage",), now=NOW)
        quiet = await memory.recall(since="2026-01", query="a quiet day", types=("passage",), now=NOW)
        assert "Ellen Smith brought the plans of the roof." not in told(rain)
        assert told(plans) == ["Ellen Smith brought the plans of the roof."]
        assert [one.source for one in quiet.items] == ["memory/2026-01-20.md#L1-L3"]
        cut = await memory.recall(max_results=1, now=NOW, types=("world",))
        assert (told(cut), cut.total) == (["Keeps bees."], 2)


async def test_what_a_copy_has_made_new_comes_after_what_is_dated(vault: Path, state_dir: Path) -> None:
    texts = {"memory/boats.md": "Boats float.\n", "bank/world.md": "- W @Zoe: Sails.\n"}
    for path, text in texts.items():
        (vault / path).write_text(text, encoding="utf-8")
        os.utime(vault / path, (NOW.timestamp(), NOW.timestamp()))
    async with open_memory(vault, state_dir, long_lived=False) as memory:
        await memory.sync()
        recent = await memory.recall(since="7d", until="2026-02", now=NOW)

    dated, others = told(recent)[:2], {*told(recent)[2:]}
    assert dated == ["Keeps bees.", "Fixed the pump with Ellen."]
    assert others == {"Boats float.", "Sails."}
    assert [one.by_file_time for one in recent.items] == [None, None, True, True]


async def test_what_cannot_be_asked_for_is_refused(vault: Path, state_dir: Path) -> None:
    async with open_memory(vault, state_dir, long_lived=False) as memory:
        for named in ({"types": ("oppinion",)}, {"since": "someday"}, {"entity": " @ "}, {"max_results": 0}):
            with pytest.raises(InvalidArgument, match=next(iter(named)).removesuffix("s")):
                await memory.recall(**named)


# --- from documents and transcripts -------------------------------------------------------------------------


async def test_a_document_is_of_the_day_on_which_its_file_was_changed(vault: Path, state_dir: Path) -> None:
    (vault / "lease.pdf").write_bytes(pdf("The tenant is Nora Quist."))
    changed = datetime(2026, 2, 4, 9, tzinfo=UTC)
    os.utime(vault / "lease.pdf", (changed.timestamp(), changed.timestamp()))
    config = {"memory": {"builtin": {"scope": "folder", "documents": ["pdf"]}}}
    async with open_memory(vault, state_dir, config, long_lived=False) as memory:
        await memory.sync()
        found = await memory.recall(since="2026-02-03", until="2026-02-05", now=NOW)
    (item,) = found.items
    assert (item.source, item.by_file_time) == ("lease.pdf#p1", True)
    assert item.timestamp == datetime(2026, 2, 4, tzinfo=UTC)


async def test_documents_and_transcripts_are_recalled_in_full_and_by_page_or_message(
    vault: Path, state_dir: Path
) -> None:
    (vault / "lease.pdf").write_bytes(pdf("Lease\nThe tenant is Nora Quist.", "Two\nOf Nora Quist: one dog."))
    (vault / "roof.html").write_text("<h1>Roof</h1><p>Tiles.</p><p>Nora Quist sells them.</p>", "utf-8")
    folder = state_dir / "agents/main/sessions"
    folder.mkdir(parents=True)
    said = [("user", "Which one?"), ("assistant", "A blue one."), ("user", "Nora Quist asked for paint.")]
    rows = [json.dumps({"type": "system", "n": number}) for number in range(9)]
    rows += [json.dumps({"type": "message", "message": {"role": who, "content": what}}) for who, what in said]
    (folder / "a.jsonl").write_text("\n".join(rows) + "\n", encoding="utf-8")
    builtin = {"scope": "folder", "documents": ["pdf", "html"], "sources": ["memory", "sessions"]}
    config = {"memory": {"builtin": builtin}}
    async with open_memory(vault, state_dir, config, long_lived=False) as memory:
        await memory.sync()
        found = await memory.recall("Nora Quist", now=NOW)
    assert {(item.source, item.content) for item in found.items} == {
        ("lease.pdf#p1-p2", "Lease\nThe tenant is Nora Quist."),
        ("lease.pdf#p1-p2", "Two\nOf Nora Quist: one dog."),
        ("roof.html#L1", "Nora Quist sells them."),
        (
            "sessions/a.jsonl#L10-L12",
            "User: Which one?\nAssistant: A blue one.\nUser: Nora Quist asked for paint.",
        ),
    }


# --- with a graph -------------------------------------------------------------------------------------------

FACTS = (
    Fact(
        id="f1", group_id="g", text="Ellen Smith lives in Porto", relation="lives_in",
        source="Ellen Smith", target="Porto",
        valid_at=datetime(2026, 1, 5, tzinfo=UTC), invalid_at=datetime(2026, 2, 1, tzinfo=UTC),
        origins=(Origin(path="memory/2026-01-05.md", start_line=10, end_line=10),),
    ),
    Fact(
        id="f2", group_id="g", text="Ellen Smith lives in Faro", relation="lives_in", source="Ellen Smith",
        target="Faro", valid_at=datetime(2026, 2, 1, tzinfo=UTC), confidence=0.8,
        origins=(Origin(path="memory/roof.md", start_line=1, end_line=2),),
    ),
)  # fmt: skip


class FactsBackend(InMemoryBackend):
    """A memory that finds nothing and knows two facts."""

    async def facts(self, *, limit: int = 20, **_: object) -> Sequence[Fact]:
        return FACTS[:limit]

    async def entities(self, *, named: str | None = None, limit: int = 50) -> Sequence[GraphEntity]:
        return [GraphEntity(id="e", group_id="g", name="Ellen Smith")][:limit]

    async def timeline(self, entity: str, *, limit: int = 100) -> Sequence[Fact]:
        return FACTS[:limit] if entity == "Ellen Smith" else ()

    async def episodes(self, **_: object) -> Sequence[object]:
        raise NotImplementedError

    neighbourhood = forget = episodes


async def test_current_facts_come_first_and_a_line_that_has_ended_says_so(
    vault: Path, state_dir: Path
) -> None:
    @asynccontextmanager
    async def open_facts(settings: SettingsModel, services: object) -> AsyncIterator[FactsBackend]:
        yield FactsBackend(backend_id="facts")

    spec = BackendSpec(
        id="facts", summary="knows two facts", settings=SettingsModel, open=open_facts,
        capabilities=frozenset({Capability.FACTS}),
    )  # fmt: skip
    config = {"memory": {"backends": {"facts": {"enabled": True}}}}
    async with open_memory(vault, state_dir, config, backends=[spec], long_lived=False) as memory:
        found = await memory.recall("Ellen", types=("fact", "opinion", "world"), now=NOW)
        await memory.sync()
        lately = await memory.recall(since="2026-02", now=NOW)
    assert "Ellen Smith lives in Faro" in told(lately)
    assert lately.degraded == ()
    assert told(found) == ["Ellen Smith lives in Faro", "Prefers short replies.", "Lives in Porto."]
    assert [item.ended_at for item in found.items] == [None, None, datetime(2026, 2, 1, tzinfo=UTC)]
    assert (found.items[0].source, found.items[0].confidence) == ("memory/roof.md#L1-L2", 0.8)


def test_a_fact_is_known_by_its_words_where_the_line_has_moved(tmp_path: Path) -> None:
    (tmp_path / "memory").mkdir()
    note = tmp_path / "memory" / "2026-01-05.md"
    note.write_text("## Retain\n- W: Ellen Smith lives in Porto.\n- W: Ellen Smith likes tea.\n", "utf-8")
    lines = [line for one in RetainedNotes().read(tmp_path).values() for line in one.lines]
    moved = Origin(path="memory/2026-01-05.md", start_line=40, end_line=40)
    of_other = replace(FACTS[1], id="f3", text="Ellen Smith plays chess", target="chess", origins=(moved,))

    ends, told_of = ends_of_lines(lines, [replace(FACTS[0], origins=(moved,)), of_other], NOW)

    assert told_of == {"f1"}
    assert [*ends] == [lines[0].source]


# --- notes --------------------------------------------------------------------------------------------------


def test_a_note_is_read_again_only_when_it_has_changed(vault: Path) -> None:
    notes = RetainedNotes()
    before = notes.read(vault)
    assert {note.path for note in before.values()} == {*NOTES}
    day = vault / "memory" / "2026-02-09.md"
    day.write_text(day.read_text("utf-8") + "- W: The pump is green.\n", encoding="utf-8")
    (vault / "memory" / "2026-01-20.md").unlink()
    after = notes.read(vault)
    assert {*before} - {*after} == {"memory/2026-01-20.md"}
    assert [len(notes["memory/2026-02-09.md"].lines) for notes in (before, after)] == [2, 3]
    assert all(after[path] is before[path] for path in {*after} - {"memory/2026-02-09.md"})


def test_notes_are_those_of_the_memory_and_what_extra_paths_name(vault: Path, tmp_path: Path) -> None:
    for path in ("plan.md", "drafts/a.md", ".hidden/b.md", "docs/c.md"):
        (vault / path).parent.mkdir(exist_ok=True)
        (vault / path).write_text("## Retain\n- W: x\n", encoding="utf-8")
    (vault / ".gitignore").write_text("drafts/\nmemory/\n", encoding="utf-8")
    (vault / "memory" / "link.md").symlink_to(vault / "plan.md")
    notes = RetainedNotes()
    assert {*notes.read(vault)} == {*NOTES}
    assert {*notes.read(vault, ("docs",))} == {*NOTES, "docs/c.md"}
    assert {*notes.read(vault, (".",))} == {*NOTES, "plan.md", "docs/c.md"}


def test_names_of_every_script_are_found_in_longer_ones() -> None:
    names = KnownNames(["山田太郎", "Ana", "Banana", "O'Neil"], [("Zoë Ash", "Zed")])
    assert names.match("山田").names == ("山田太郎",)
    assert names.match("ana").names == ("Ana",)
    assert names.match("zed").names == ("Zed", "Zoë Ash")
    assert names.match("Ana Lopes").nearest == ("Ana",)
    assert names.match("Zoé").nearest == ("Zoë Ash",)


async def test_two_recalls_at_once_and_one_given_up_leave_the_memory_usable(
    vault: Path, state_dir: Path
) -> None:
    async with open_memory(vault, state_dir, long_lived=False) as memory:
        await memory.sync()
        given_up = asyncio.create_task(memory.recall("Ellen", now=NOW))
        one, other = await asyncio.gather(*(memory.recall("Ellen", now=NOW) for _ in range(2)))
        given_up.cancel()
        await asyncio.gather(given_up, return_exceptions=True)
        assert one.items == other.items == (await memory.recall("Ellen", now=NOW)).items


# --- the command --------------------------------------------------------------------------------------------


def cmem(*args: str) -> Result:
    return CliRunner().invoke(app, [*args])


def test_the_command_shows_what_is_known_and_where(vault: Path, state_dir: Path) -> None:
    where = ("--workspace", str(vault), "--state-dir", str(state_dir), "--now", NOW.isoformat())
    shown = cmem("recall", "Ellen", "--type", "opinion", *where)
    assert shown.exit_code == 0
    assert "'Ellen' was taken to mean Ellen Smith and Ellie\n" in shown.stderr
    assert all(one in shown.stdout for one in ("2026-01-05", "memory/2026-01-05.md#L9", "^m4k29x"))
    as_json = json.loads(cmem("recall", "--since", "7d", "--until", "2026-02", *where, "--json").stdout)
    assert [item["kind"] for item in as_json["items"]] == ["world", "experience"]
    assert as_json["items"][0]["timestamp"].startswith("2026-02-09")
    nobody = cmem("recall", "Elen Smith", *where)
    assert nobody.exit_code == 0
    assert all(one in nobody.stdout for one in ("Elen Smith", "Ellen Smith"))
    assert cmem("recall", "--since", "someday", *where).exit_code == 2
