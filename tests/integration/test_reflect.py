"""The pages of `bank/` from what the notes retain: proposed as a diff, written on request, stable."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from composable_memory import open_memory
from composable_memory.cli import app
from composable_memory.config.settings import SettingsModel
from composable_memory.errors import InvalidArgument, NoteNotWritten
from composable_memory.ingest.note_reader import WrittenSource, contents_of
from composable_memory.interfaces import BackendSpec, Capability
from composable_memory.runtime.memory import Memory
from tests.integration.graphiti.chat_endpoint import Call, ChatEndpoint, Reply
from tests.integration.test_recall import FactsBackend
from tests.notes import write_notes

NOW = datetime(2026, 2, 10, 12, tzinfo=UTC)
NOTES = {
    "memory/2026-01-05.md": (
        "# Monday\n\nProse.\n\n## Retain\n\n"
        "- O(c=0.7) @[[Ellen Smith]] @Peter: Ellen prefers short replies. ^aa\n"
        "- W @[[Ellen Smith]]: Lives in Porto. ^pp\n"
    ),
    "memory/2026-02-01.md": "## Retain\n- S @[[Ellen Smith]]: Ellen prefers short replies. ^bb\n",
    "memory/2026-02-08.md": (
        "## Retain\n- O @[[Ellen Smith]]: Ellen does not prefer short replies. ^dd\n- B: Fixed the pump.\n"
    ),
}
KEYWORDS = {"memory": {"embedding": {"provider": "none"}}}


@pytest.fixture
def vault(tmp_path: Path) -> Path:
    return write_notes(tmp_path / "vault", NOTES)


@pytest.fixture
async def memory(vault: Path, state_dir: Path) -> AsyncIterator[Memory]:
    async with open_memory(vault, state_dir, KEYWORDS, long_lived=False) as opened:
        yield opened


async def applied(memory: Memory, **named: object) -> None:
    await memory.apply_reflection(await memory.reflect(now=NOW, **named))  # type: ignore[arg-type]


def text_of(vault: Path, name: str) -> str:
    return (vault / "bank" / name).read_text(encoding="utf-8")


def all_text(folder: Path) -> str:
    return "".join(path.read_text("utf-8") for path in folder.rglob("*.md"))


async def test_the_pages_are_proposed_then_written_and_then_there_is_nothing_to_change(
    memory: Memory, vault: Path
) -> None:
    proposed = await memory.reflect(now=NOW)
    assert not (vault / "bank").exists()
    assert [page.path for page in proposed.pages] == [
        "bank/entities/Ellen Smith.md",
        "bank/entities/Peter.md",
        "bank/experience.md",
        "bank/opinions.md",
        "bank/world.md",
    ]
    assert "+++ b/bank/world.md" in proposed.diff
    assert (proposed.lines, proposed.recent, proposed.is_applied) == (5, 5, False)
    assert (await memory.apply_reflection(proposed)).is_applied
    assert (await memory.reflect(now=NOW)).pages == ()
    assert "[2026-01-05](../memory/2026-01-05.md#^pp)" in text_of(vault, "world.md")
    assert "Fixed the pump. [2026-02-08](../memory/2026-02-08.md#L3)" in text_of(vault, "experience.md")
    assert "0.70 -> 0.70: 1 for (^bb), 1 against (^dd), updated 2026-02-08." in text_of(vault, "opinions.md")
    page = text_of(vault, "entities/Ellen Smith.md")
    assert (
        "4 retained from 2026-01-05 to 2026-02-08: 1 observation, 2 opinion, 1 world; with Peter (1)" in page
    )
    assert page.index("## World") < page.index("Lives in Porto") < page.index("## Opinions")


async def test_a_page_is_found_by_a_search_and_said_once_in_a_recall(memory: Memory) -> None:
    await applied(memory)
    await memory.sync()
    found = await memory.query("Porto type:world")
    assert {result.path for result in found.results} == {"bank/world.md", "memory/2026-01-05.md"}
    told = [item.source for item in (await memory.recall("Ellen", now=NOW)).items]
    assert told == [
        "memory/2026-02-08.md#L2",
        "memory/2026-02-01.md#L2",
        "memory/2026-01-05.md#L8",
        "memory/2026-01-05.md#L7",
    ]


async def test_what_a_page_repeats_is_no_new_fact_of_its_own(memory: Memory, vault: Path) -> None:
    await applied(memory)
    mine = f"{text_of(vault, 'world.md')}\nEllen sails.\n"
    contents = contents_of(WrittenSource(text=mine, written_at=NOW, path="bank/world.md"))
    assert [content.text for content in contents] == ["Ellen sails."]


@pytest.mark.parametrize("target", ["^pp", "memory/2026-01-05.md#L8"])
async def test_what_is_forgotten_goes_from_the_pages_as_well(
    memory: Memory, vault: Path, target: str
) -> None:
    await applied(memory, core=True)
    page = vault / "bank" / "entities" / "Ellen Smith.md"
    page.write_text(page.read_text("utf-8").replace("in Porto.", "in Porto, by the river."), "utf-8")
    if not target.startswith("^"):
        note = vault / "memory" / "2026-01-05.md"
        note.write_text(note.read_text("utf-8").replace(" ^pp", ""), encoding="utf-8")
        page.unlink()
        await applied(memory)
    report = await memory.forget(await memory.plan_forgetting(target))
    assert report.is_done
    left = all_text(vault)
    assert "Porto" not in left
    assert "Ellen prefers short replies. (0.70)" in left


async def test_a_line_and_what_a_page_repeats_of_it_are_one_thing_to_forget(
    memory: Memory, vault: Path
) -> None:
    await applied(memory, core=True)
    asked = await memory.plan_forgetting("Ellen Smith lives in Porto")
    page = vault / "bank" / "entities" / "Ellen Smith.md"
    rows = page.read_text("utf-8").split("\n")
    row = next(number for number, row in enumerate(rows, 1) if "Porto" in row)
    placed = await memory.plan_forgetting(f"bank/entities/Ellen Smith.md#L{row}")

    assert not asked.candidates
    assert asked.lines[0].citation == "memory/2026-01-05.md#L8"
    assert {one.citation for one in asked.lines} == {one.citation for one in placed.lines}
    assert len(asked.lines) > 1

    assert (await memory.forget(placed)).is_done
    assert "Porto" not in all_text(vault)


async def test_no_page_keeps_the_name_of_whom_all_was_forgotten(tmp_path: Path, state_dir: Path) -> None:
    (note := tmp_path / "vault" / "memory" / "2026-01-05.md").parent.mkdir(parents=True)
    note.write_text("## Retain\n- W @[[Ellen Smith]]: Lives in Porto. ^aa\n", encoding="utf-8")
    async with open_memory(tmp_path / "vault", state_dir, long_lived=False) as memory:
        await memory.sync()
        await applied(memory)
        await memory.forget(await memory.plan_forgetting("^aa"))
        await applied(memory)

    assert "Ellen" not in all_text(tmp_path / "vault")
    assert not [*(tmp_path / "vault" / "bank").rglob("*.md")]


async def test_what_people_write_into_pages_stays(memory: Memory, vault: Path) -> None:
    await applied(memory)
    page = vault / "bank" / "world.md"
    page.write_text(
        page.read_text("utf-8").replace("# World\n", "# World\n\nMine.\n").replace("in Porto.", "in Gaia."),
        encoding="utf-8",
    )
    mine = page.read_text("utf-8")
    assert (await memory.reflect(now=NOW)).pages == ()
    note = vault / "memory" / "2026-02-09.md"
    note.write_text("## Retain\n- W @[[Ellen Smith]]: Has a boat. ^ee\n", encoding="utf-8")
    await applied(memory)
    assert page.read_text("utf-8").startswith(mine.rstrip("\n"))
    assert "Has a boat." in page.read_text("utf-8")


async def test_a_page_that_changed_since_the_diff_is_not_written_and_neither_are_the_others(
    memory: Memory, vault: Path
) -> None:
    proposed = await memory.reflect(now=NOW)
    (vault / "bank").mkdir()
    (vault / "bank" / "world.md").write_text("Meanwhile.\n", encoding="utf-8")
    with pytest.raises(NoteNotWritten, match=r"bank/world\.md"):
        await memory.apply_reflection(proposed)
    assert [path.name for path in (vault / "bank").rglob("*")] == ["world.md"]
    with pytest.raises(InvalidArgument):
        await memory.apply_reflection("all")  # type: ignore[arg-type]


async def test_names_that_could_lead_elsewhere_are_names_of_pages_all_the_same(
    memory: Memory, vault: Path
) -> None:
    names = ["../../etc/passwd", "..", "/tmp/x", ".hidden", "C#", "木" * 100, "a\\b", "con:x?"]
    lines = "".join(f"- W @[[{name}]]: Says nothing. ^n{number}\n" for number, name in enumerate(names))
    (vault / "memory" / "2026-02-09.md").write_text(f"## Retain\n{lines}", encoding="utf-8")
    proposed = await memory.reflect(now=NOW)
    assert proposed.degraded == ()
    await memory.apply_reflection(proposed)
    made = {path.relative_to(vault).as_posix() for path in vault.parent.rglob("*.md")}
    assert {path.rpartition("/")[0] for path in made} == {"memory", "bank", "bank/entities"}
    assert len(made) == 4 + 3 + 2 + len(names)
    assert (await memory.reflect(now=NOW)).pages == ()


async def test_only_what_is_new_is_written_and_what_is_gone_leaves(memory: Memory, vault: Path) -> None:
    await applied(memory, since="2026-02-05")
    assert {path.name for path in (vault / "bank").rglob("*.md")} == {
        "Ellen Smith.md", "Peter.md", "experience.md", "opinions.md",
    }  # fmt: skip
    assert "Porto" not in text_of(vault, "entities/Ellen Smith.md")
    await applied(memory)
    assert "Porto" in text_of(vault, "entities/Ellen Smith.md")
    (vault / "memory" / "2026-01-05.md").unlink()
    (vault / "memory" / "2026-02-01.md").unlink()
    changes = await memory.reflect(since="1d", now=NOW)
    assert "+++ /dev/null" not in changes.diff
    await memory.apply_reflection(changes)
    assert not (vault / "bank" / "world.md").exists()
    assert not (vault / "bank" / "entities" / "Peter.md").exists()
    left = all_text(vault / "bank")
    assert "Porto" not in left
    assert "^aa" not in left


async def test_what_the_graph_says_has_ended_is_left_out(vault: Path, state_dir: Path) -> None:
    @asynccontextmanager
    async def open_facts(settings: SettingsModel, services: object) -> AsyncIterator[FactsBackend]:
        yield FactsBackend(backend_id="facts")

    spec = BackendSpec(
        id="facts", summary="knows two facts", settings=SettingsModel, open=open_facts,
        capabilities=frozenset({Capability.FACTS}),
    )  # fmt: skip
    day = vault / "memory" / "2026-01-05.md"
    day.write_text(day.read_text("utf-8").replace("# Monday\n", "# Monday\n\n\n"), encoding="utf-8")
    config = {"memory": {"backends": {"facts": {"enabled": True}}}}
    async with open_memory(vault, state_dir, config, backends=[spec], long_lived=False) as memory:
        found = await memory.reflect(now=NOW)
    assert found.ended == 1
    assert "Porto" not in found.diff


async def test_a_page_that_cannot_be_read_or_is_a_link_is_left_as_it_is(
    memory: Memory, vault: Path, tmp_path: Path
) -> None:
    (vault / "bank").mkdir()
    (vault / "bank" / "world.md").write_bytes(b"caf\xe9\n")
    (tmp_path / "else.md").write_text("else", encoding="utf-8")
    (vault / "bank" / "opinions.md").symlink_to(tmp_path / "else.md")
    found = await memory.reflect(now=NOW)
    assert {page.path for page in found.pages}.isdisjoint({"bank/world.md", "bank/opinions.md"})
    assert len(found.degraded) == 2
    await memory.apply_reflection(found)
    assert (tmp_path / "else.md").read_text("utf-8") == "else"


async def test_a_section_of_the_core_names_the_surest_opinions_and_the_pages(
    memory: Memory, vault: Path
) -> None:
    (vault / "MEMORY.md").write_text("# Core\n\nMine.\n", encoding="utf-8")
    await applied(memory, core=True)
    core = (vault / "MEMORY.md").read_text("utf-8")
    assert core.startswith("# Core\n\nMine.\n\n## From the bank\n\n- Ellen Smith, Peter: Ellen prefers")
    assert "(bank/entities/Ellen%20Smith.md)" in core
    assert (await memory.reflect(core=True, now=NOW)).pages == ()


async def test_nothing_in_the_pages_counts_a_line_that_was_forgotten(memory: Memory, vault: Path) -> None:
    (vault / "MEMORY.md").write_text("# Core\n\nMine.\n", encoding="utf-8")
    await applied(memory, core=True)
    page = vault / "bank" / "entities" / "Ellen Smith.md"
    page.write_text(f"{page.read_text('utf-8')}\nMy own line.\n", encoding="utf-8")
    assert "with Peter (1)" in page.read_text("utf-8")

    report = await memory.forget(await memory.plan_forgetting("^aa"))

    assert report.is_done
    assert not (vault / "bank" / "entities" / "Peter.md").exists()
    left = page.read_text("utf-8")
    assert "Lives in Porto" in left
    assert "My own line." in left
    assert "Peter" not in left
    assert "retained" not in left + (vault / "MEMORY.md").read_text("utf-8")
    assert "Mine." in (vault / "MEMORY.md").read_text("utf-8")
    await applied(memory, core=True)
    assert "3 retained" in page.read_text("utf-8")
    assert "3 retained" in (vault / "MEMORY.md").read_text("utf-8")


# --- with a language model ----------------------------------------------------------------------------------


def said(*sentences: tuple[str, list[str]]) -> Reply:
    listed = [{"text": text, "cites": cites} for text, cites in sentences]
    return Reply(text=json.dumps({"sentences": listed}))


async def test_a_model_sums_up_and_only_sentences_that_cite_their_lines_stay(
    vault: Path, state_dir: Path
) -> None:
    def script(call: Call) -> Reply:
        if "Peter" in json.dumps(call.body["messages"]).split("<lines")[0]:
            return Reply(text="I would rather not.")
        return said(("Lives in Porto and is brief.", ["pp", "^aa"]), ("Is rich.", ["zz"]), ("Is kind.", []))

    with ChatEndpoint(script) as endpoint:
        llm = {"base_url": endpoint.url, "model": "scripted"}
        config = {"memory": {**KEYWORDS["memory"], "feedback": {"llm": llm}}}
        async with open_memory(vault, state_dir, config, long_lived=False) as memory:
            found = await memory.reflect(llm=True, now=NOW)
            assert len(endpoint.calls) == 2
            assert [one.split(":")[0] for one in found.dropped] == ["Ellen Smith", "Ellen Smith", "Peter"]
            assert "zz" in found.dropped[0]
            assert all(word not in found.diff for word in ("rich", "kind", "rather"))
            await memory.apply_reflection(found)
            assert "Lives in Porto and is brief. (^pp, ^aa)" in text_of(vault, "entities/Ellen Smith.md")
            again = await memory.reflect(llm=True, now=NOW)
            assert again.pages == ()
            assert len(endpoint.calls) == 3  # of Peter there is no summary yet
            assert (await memory.reflect(now=NOW)).pages == ()
            (vault / "memory" / "2026-01-05.md").write_text("Empty.\n", encoding="utf-8")
            assert "-- Lives in Porto and is brief." in (await memory.reflect(now=NOW)).diff


async def test_a_model_that_fails_leaves_the_pages_without_summaries(vault: Path, state_dir: Path) -> None:
    with ChatEndpoint(lambda _: Reply(status=401, text="no")) as endpoint:
        config = {"memory": {**KEYWORDS["memory"], "feedback": {"llm": {"base_url": endpoint.url}}}}
        async with open_memory(vault, state_dir, config, long_lived=False) as memory:
            found = await memory.reflect(llm=True, now=NOW)
    assert len(found.pages) == 5
    assert [one.code for one in found.degraded] == ["stale"]
    async with open_memory(vault, state_dir, KEYWORDS, long_lived=False) as memory:
        assert "base_url" in (await memory.reflect(llm=True, now=NOW)).degraded[0].reason


# --- the command --------------------------------------------------------------------------------------------


def cmem(*args: str) -> Result:
    return CliRunner().invoke(app, [*args])


def test_the_command_shows_the_diff_and_writes_it_on_request(vault: Path, state_dir: Path) -> None:
    where = ("--workspace", str(vault), "--state-dir", str(state_dir), "--now", NOW.isoformat())
    shown = cmem("reflect", *where)
    assert shown.exit_code == 0
    assert "+++ b/bank/opinions.md" in shown.stdout
    assert "--yes" in shown.stderr
    document = json.loads(cmem("reflect", "--since", "7d", "--json", *where).stdout)
    assert [page["path"] for page in document["pages"]][-1] == "bank/opinions.md"
    assert document["opinions"][0]["contradicting"] == ["^dd"]
    assert cmem("reflect", "--yes", *where).exit_code == 0
    assert "bank/world.md" not in cmem("reflect", *where).stdout
    assert cmem("reflect", "--since", "someday", *where).exit_code == 2
