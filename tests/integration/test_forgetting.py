"""Forgetting lines of notes: exactly what was shown goes, from every file that is ours, and stays away."""

import asyncio
import base64
import gzip
import json
import shutil
import signal
import sys
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast

import apsw
import numpy as np
import pytest
from typer.testing import CliRunner, Result

from composable_memory import open_memory
from composable_memory.cli import app
from composable_memory.config.settings import SettingsModel
from composable_memory.errors import BackendUnavailable, InvalidArgument, MemoryPathError, NoteNotWritten
from composable_memory.forget.report import Forgetting, Holding
from composable_memory.hooks.capture import capture_turn
from composable_memory.interfaces import BackendServices, BackendSpec, Capability
from composable_memory.paths import MAX_FILE_BYTES
from composable_memory.query.replay import is_reproduced
from composable_memory.runtime.backup import back_up, restore
from composable_memory.runtime.memory import Memory
from composable_memory.state.workspaces import adopt
from composable_memory.testing import FakeBackend
from composable_memory.types import MemorySearchResult, QueryResponse, SearchOptions
from composable_memory_adapters.vectors.int8_file import Codes
from composable_memory_feedback.golden import GoldenPlace, GoldenQuestion, GoldenRecord
from composable_memory_feedback.logged.logged_query import LoggedQuery
from composable_memory_feedback.logged.reading import read_queries
from tests.variants import variants

SECRET = "The spare key lies under the turquoise flowerpot, code zebra-99117."
WORDS = ("turquoise", "flowerpot", "zebra", "99117", "esiouqrut", "topwolf")
"""Of the secret, some of them also as the index has them for the ends of words."""
DAY = datetime(2026, 5, 3, 12, tzinfo=UTC)
NOTE = f"""# Day

The ferry leaves at nine.

## Retain
- W @Peter: {SECRET} #home ^k1abc
- O(c=0.9) @Anna: Likes short replies. ^k2abc
"""


class Place:
    """A workspace with its state folder."""

    def __init__(self, folder: Path) -> None:
        self.workspace, self.state = folder / "notes", folder / "state"
        (self.workspace / "memory").mkdir(parents=True)

    @property
    def note(self) -> Path:
        return self.workspace / "memory" / "2026-05-03.md"

    def open(self, **config: object) -> AbstractAsyncContextManager[Memory]:
        return open_memory(self.workspace, self.state, {"memory": config}, long_lived=False, environ={})

    def write(self, name: str, text: str) -> Path:
        path = self.workspace / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    def transcript(self, *said: str) -> Path:
        folder = self.state / "agents" / "main" / "sessions"
        folder.mkdir(exist_ok=True, parents=True)
        lines = [json.dumps({"message": {"role": "user", "content": text}}) for text in said]
        path = folder / "a.jsonl"
        path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        return path


def files_with(words: Iterable[str], *folders: Path, but: Iterable[Path] = ()) -> set[tuple[str, str]]:
    """Return which files below some folders hold which words, compressed ones read."""
    found = set()
    for path in (path for folder in folders for path in folder.rglob("*")):
        if path.is_file() and path not in but:
            data = path.read_bytes()
            data = (gzip.decompress(data) if path.suffix == ".gz" else data).lower()
            found |= {(path.name, word) for word in words if word.encode() in data}
    return found


def files_with_bytes(pieces: Iterable[bytes], folder: Path) -> set[str]:
    """Return the names of the files below a folder that hold one of the pieces."""
    files = (path for path in folder.rglob("*") if path.is_file())
    return {path.name for path in files if any(piece in path.read_bytes() for piece in pieces)}


def vector_in_index(state: Path, text: str) -> bytes:
    """Return the stored vector of the passage whose text is like that."""
    (index,) = (state / "memory").glob("*.sqlite")
    find = """
    SELECT embedding FROM embedding_cache JOIN chunks ON embedding_id = embedding_cache.id WHERE text LIKE ?
    """
    with closing(apsw.Connection(str(index), flags=apsw.SQLITE_OPEN_READONLY)) as connection:
        numbers: bytes = connection.execute(find, (text,)).get
    return numbers


def paths(response: QueryResponse) -> set[str]:
    return {result.path for result in response.results}


@pytest.fixture
def place(tmp_path: Path) -> Place:
    place = Place(tmp_path)
    place.note.write_text(NOTE, encoding="utf-8")
    return place


async def test_the_vectors_of_what_is_forgotten_go_from_every_file(place: Place) -> None:
    said = "the copper lantern of the old harbour master"
    place.write("memory/lantern.md", f"{said}\n")
    by_meaning = {"store": {"vector": {"engine": "mapped"}}}
    async with place.open(embedding={"provider": "wordllama"}, builtin=by_meaning) as memory:
        await memory.sync()
        assert paths(await memory.query("lantern")) >= {"memory/lantern.md"}
        numbers = await asyncio.to_thread(vector_in_index, place.state, "%lantern%")
        codes = Codes.of([0], np.frombuffer(numbers, dtype="<f4").reshape(1, -1))
        pieces = (numbers, codes.matrix.tobytes(), codes.rests.tobytes())
        before = await asyncio.to_thread(files_with_bytes, pieces, place.state)
        plan = await memory.plan_forgetting("copper lantern harbour")
        await memory.forget(plan.token)
        after = await asyncio.to_thread(files_with_bytes, pieces, place.state)
        again = await memory.query("lantern")
        at_last = await asyncio.to_thread(files_with_bytes, pieces, place.state)

    assert any(name.endswith("-vectors") for name in before)
    assert after == at_last == set()
    assert "memory/lantern.md" not in paths(again)
    assert again.answers[0].engines["vector"] == "mapped"


async def test_exactly_the_lines_of_the_plan_go_with_their_copies(place: Place) -> None:
    copy = place.write("memory/b.md", f"Before\r\n  * peter: {SECRET.upper()}\r\nAfter\r\n")
    async with place.open() as memory:
        await memory.sync()

        plan = await memory.plan_forgetting("^k1abc")
        report = await memory.forget(plan.token)

        shown = [(line.citation, line.is_copy) for line in plan.lines]
        assert shown == [("memory/2026-05-03.md#L6", False), ("memory/b.md#L2", True)]
        assert {(one.store, one.what) for one in plan.stores} >= {("builtin", "passages of notes")}
        assert report.is_done
        assert report.plan is None
        await memory.ops_log.flush()
        events = [event for event in await asyncio.to_thread(logged, place) if "forgotten" in event["action"]]
        (event,) = events
        assert (event["action"], event["detail"]["placeCount"]) == ("memory.forgotten", 2)
        assert event["detail"]["ids"] == ["k1abc"]
        assert not event["detail"]["pending"]
        assert place.note.read_text() == "".join(
            line for line in NOTE.splitlines(keepends=True) if "spare" not in line
        )
        assert copy.read_bytes() == b"Before\r\nAfter\r\n"
        assert not [one for one in (await memory.query("spare key")).results if "spare" in one.text]


async def test_no_file_of_ours_holds_the_words_afterwards(place: Place) -> None:
    transcript = place.transcript("hello", f"Please keep in mind: {SECRET} Thanks!", "anything else?")
    async with place.open(builtin={"sources": ["memory", "sessions"]}) as memory:
        await memory.sync()
        place.note.write_text(place.note.read_text() + "- S: It was sunny. ^k3abc\n")
        await memory.sync()  # the former passage is in free pages now, and its vector unused
        assert files_with(WORDS, place.state, but=[transcript])

        plan = await memory.plan_forgetting("memory/2026-05-03.md#L6")
        await memory.forget(plan)

        assert {one.stays is not None for one in plan.stores if one.what == "transcripts"} == {True}
        said = (await memory.query("please keep in mind")).results
        assert said
        assert not [one for one in said if "turquoise" in one.text + one.snippet]
        part = await memory.read_file("sessions/a.jsonl")
        assert "turquoise" not in part.text
        assert "Thanks" in part.text
    assert files_with(WORDS, place.state, place.workspace, but=[transcript]) == set()
    assert SECRET in transcript.read_text()


@pytest.mark.parametrize("said", ["Öztürk heißt der Bäcker Ähre", "ВИНОГРАДНИКАМИ этот дом украшен"])
async def test_quotations_are_found_in_letters_beyond_ascii(place: Place, said: str) -> None:
    place.transcript(f"He noted: {said}. Right?")
    place.note.write_text(f"- {said}\n", encoding="utf-8")
    async with place.open(builtin={"sources": ["memory", "sessions"]}) as memory:
        await memory.sync()
        plan = await memory.plan_forgetting("memory/2026-05-03.md#L1")
        assert "sessions/a.jsonl" in {example for one in plan.stores for example in one.examples}
        await memory.forget(plan)
    assert files_with([said.split()[0][1:]], place.state / "memory") == set()


async def test_a_message_is_forgotten_in_the_transcript_that_its_agent_appends_to(place: Place) -> None:
    transcript = place.transcript(
        "hello", f"{SECRET} Merci, André!", f"Ages ago: {SECRET} Merci, André!", "bye"
    )
    before = [json.loads(line) for line in transcript.read_text().splitlines()]
    place.note.write_text("Nothing of it.\n")
    async with place.open(builtin={"sources": ["memory", "sessions"]}) as memory:
        await memory.sync()
        await memory.query("where under the turquoise flowerpot, code zebra-99117")
        with transcript.open("a") as agent:
            plan = await memory.plan_forgetting("spare key merci")
            report = await memory.forget(plan.candidates[0].token)
            agent.write(json.dumps(before[0]) + "\n")
        assert plan.candidates[0].citation == "sessions/a.jsonl#L2"
        assert report.is_done
        await memory.sync()
        assert "sessions/a.jsonl" in paths(await memory.query("hello"))

    after = [json.loads(line) for line in transcript.read_text().splitlines()]
    assert [after[0], *after[3:]] == [before[0], before[3], before[0]]
    assert after[2]["message"]["content"].startswith("Ages ago: ")
    assert files_with(WORDS, place.state, place.workspace) == set()


def logged(place: Place) -> list[dict[str, Any]]:
    """Return the events of the log."""
    files = (place.state / "ops-logs").glob("*.jsonl")
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]


async def ask_and_judge(memory: Memory) -> str:
    """Ask in the words of the secret, and judge the first result in its words; return the trace."""
    await memory.sync()
    response = await memory.query("is the spare key under the turquoise flowerpot?")
    reason = f"It says: {SECRET}"
    await memory.learning.judging.judge(response.trace_id, "1", relevance=1.0)
    judged = await memory.context.stored(lambda store: store.judgements())
    again = [replace(one, by="somebody", rationale=reason) for one in judged]
    await memory.context.stored(lambda store: store.add(again))
    return response.trace_id


async def test_the_log_and_what_was_judged_keep_all_but_the_words(place: Place) -> None:
    async with place.open() as memory:
        trace = await ask_and_judge(memory)
    log = place.state / "ops-logs"
    (open_file,) = log.glob("*.jsonl")
    open_file.rename(log / "ops-2026-05-01.0001.jsonl")  # of an earlier day: it is closed at once
    async with place.open() as memory:
        await memory.query("where is the spare key?")
        await memory.ops_log.flush()
        before = await asyncio.to_thread(read_queries, log)
        plan = await memory.plan_forgetting("^k1abc")
        report = await memory.forget(plan)
        judged = await memory.context.stored(lambda store: store.judgements())

    for stores in (plan.stores, report.stores):
        assert {"ops log", "feedback"} <= {one.store for one in stores}
    assert files_with(WORDS, place.state, place.workspace) == set()
    after = await asyncio.to_thread(read_queries, log)
    assert len(after.queries) == 2
    assert list(map(scored, after.queries)) == list(map(scored, before.queries))
    assert [is_reproduced(one) for one in after.queries] == [True, True]
    assert {one.trace_id for one in judged} == {trace}


async def test_logged_and_golden_questions_keep_places_with_the_year_of_a_forgotten_line(
    place: Place,
) -> None:
    place.write("memory/2026-05-04.md", "Ana moved to the quay in 2026.\n")
    async with place.open() as memory:
        await memory.sync()
        await memory.query("where did Ana move in 2026?")
        await memory.ops_log.flush()
        (before,) = (await asyncio.to_thread(read_queries, memory.ops_log_dir)).queries
        expected = (GoldenPlace(path="memory/2026-05-04.md", line=1),)
        golden = GoldenRecord(
            question=GoldenQuestion(id="ana", question=before.query, expected=expected), query=before
        )
        await memory.context.stored(lambda store: store.put_golden([golden]))
        await memory.forget(await memory.plan_forgetting("memory/2026-05-04.md:1"))
        (logged,) = (await asyncio.to_thread(read_queries, memory.ops_log_dir)).queries
        (kept,) = await memory.context.stored(lambda store: store.golden())

    assert kept.question.expected == expected
    for after in (logged, kept.query):
        assert "2026" not in after.query
        assert (after.at, scored(after)) == (before.at, scored(before))
        assert [one.path for one in after.shown] == [one.path for one in before.shown]


def scored(query: LoggedQuery) -> object:
    """Return the trace, the places and the scores of a logged query."""
    found = [(one.path, one.start_line, one.score) for each in query.lists for one in each.candidates]
    return query.trace_id, found


async def test_a_copy_that_comes_back_is_neither_indexed_nor_shown_until_it_is_lifted(place: Place) -> None:
    async with place.open() as memory:
        await memory.forget(await memory.plan_forgetting("memory/2026-05-03.md:6"))
    back = place.write("memory/old/2026-05-03.md", NOTE)
    for force in (False, True):
        async with place.open() as memory:
            await memory.sync(force=force)
            assert not [one for one in (await memory.query("spare key")).results if "spare" in one.text]
            part = await memory.read_file("memory/old/2026-05-03.md", from_line=5, lines=3)
            assert part.text.splitlines() == [*NOTE.splitlines()[4:5], "", *NOTE.splitlines()[6:7]]
    assert files_with(WORDS, place.state / "memory") == set()

    async with place.open() as memory:
        assert await asyncio.to_thread(memory.forgotten.lift, f"- W @Peter: {SECRET}")
        back.write_text(NOTE + "\nMore.\n")
        await memory.sync()
        assert [one for one in (await memory.query("spare key")).results if "spare" in one.text]


async def test_only_what_is_written_is_remembered_again(place: Place) -> None:
    async with place.open() as memory:
        await memory.forget(await memory.plan_forgetting("memory/2026-05-03.md:6"))
        before = await asyncio.to_thread(memory.forgotten.now)
        with pytest.raises(InvalidArgument):
            await memory.remember(SECRET, entities=["Peter"], tags=["no tag"])
        place.write("memory/2026-05-04.md", "").chmod(0o400)
        with pytest.raises(NoteNotWritten):
            await memory.remember(SECRET, entities=["Peter"], now=DAY + timedelta(days=1))
        assert (await asyncio.to_thread(memory.forgotten.now)).stones == before.stones
        await memory.remember(f"The moon is full.\n{SECRET}", entities=["Peter"], now=DAY)
        assert (await asyncio.to_thread(memory.forgotten.now)).stones == before.stones


async def test_a_copy_that_came_back_is_remembered_again_once(place: Place) -> None:
    async with place.open() as memory:
        await memory.forget(await memory.plan_forgetting("memory/2026-05-03.md:6"))
        place.note.write_text(NOTE)
        await memory.sync()
        done = [await memory.remember(SECRET, entities=["Peter"], now=DAY) for _ in range(2)]
        found = [one for one in (await memory.query("spare key")).results if "spare" in one.text]

        assert [bool(one.warnings) for one in done] == [True, False]
        assert (done[0].duplicate_of, done[1].duplicate_of) == (None, done[0].citation)
        assert place.note.read_text().count("spare key") == 1
        assert [one.path for one in found] == ["memory/2026-05-03.md"]
        assert not await asyncio.to_thread(memory.forgotten.now)


async def test_what_changed_since_the_plan_is_not_removed(place: Place) -> None:
    async with place.open() as memory:
        plan = await memory.plan_forgetting("^k1abc")
        place.note.write_text("New first line.\n" + NOTE)

        moved = await memory.forget(plan)
        place.note.write_text(NOTE.replace("turquoise", "green"))
        edited = await memory.forget(plan)

        assert not moved.is_done
        assert moved.plan is not None
        assert not moved.stores
        assert [line.citation for line in moved.plan.lines] == ["memory/2026-05-03.md#L7"]
        assert not edited.is_done
        assert edited.plan is not None
        assert not edited.plan.lines
        assert place.note.read_text() == NOTE.replace("turquoise", "green")


async def test_a_query_lists_candidates_and_takes_only_what_is_chosen(place: Place) -> None:
    place.write(
        "memory/keys.md", "- The bicycle key hangs in the hall.\n- The cellar key hangs in the hall.\n"
    )
    async with place.open() as memory:
        several = await memory.plan_forgetting("key hangs hall")
        single = await memory.plan_forgetting("bicycle key hangs")
        every = await memory.plan_forgetting("key hangs hall", everything=True)
        nothing = await memory.plan_forgetting("volcano eruption")

        assert several.token == ""
        assert not several.lines
        assert not several.is_guess
        assert [one.citation for one in several.candidates] == ["memory/keys.md#L1", "memory/keys.md#L2"]
        assert [one.citation for one in single.lines] == ["memory/keys.md#L1"]
        assert len(every.lines) == 2
        assert every.token
        assert not nothing.lines
        assert not nothing.candidates
        with pytest.raises(InvalidArgument):
            await memory.forget(several)

        await memory.forget(several.candidates[1].token)
        assert (place.workspace / "memory/keys.md").read_text() == "- The bicycle key hangs in the hall.\n"


async def test_lines_without_the_words_are_offered_as_a_guess_and_never_all_taken(place: Place) -> None:
    place.write("memory/keys.md", "- The bicycle key hangs in the hall.\n- The lamp is green.\n")
    async with place.open() as memory:
        await memory.sync()
        for everything in (False, True):
            plan = await memory.plan_forgetting("what colour has the lamp?", everything=everything)
            assert (plan.is_guess, plan.token, plan.lines) == (True, "", ())
            assert plan.candidates[0].citation == "memory/keys.md#L2"
    shown = await asyncio.to_thread(cmem, place, "what colour has the lamp?")
    assert "--all" not in shown.output
    assert "memory/keys.md#L2" in shown.output


@pytest.mark.parametrize("target", ["turquoise flowerpot", "a purple elephant"])
async def test_a_note_that_cannot_be_read_is_told_since_it_may_say_so(place: Place, target: str) -> None:
    place.note.write_text(NOTE, encoding="utf-8")
    with (place.workspace / "memory" / "huge.md").open("wb") as huge:
        huge.truncate(MAX_FILE_BYTES + 1)
    async with place.open() as memory:
        plan = await memory.plan_forgetting(target)

    assert bool(plan.lines) is ("turquoise" in target)
    (told,) = (one for one in plan.stores if one.store == "notes")
    assert told.stays
    assert "memory/huge.md" in told.examples[0]
    assert "larger" in told.examples[0]


async def test_places_outside_the_notes_and_empty_ones_are_refused(place: Place) -> None:
    secret = place.write("settings/secret.md", "- Not a note at all.\n")
    (place.workspace / "memory" / "link.md").symlink_to(secret)
    async with place.open() as memory:
        for target in ("memory/2026-05-03.md#L2", "memory/2026-05-03.md:400"):
            with pytest.raises(MemoryPathError):
                await memory.plan_forgetting(target)
        for target in ("settings/secret.md#L1", "../notes/settings/secret.md:1", "memory/link.md:1"):
            with pytest.raises(MemoryPathError):
                await memory.plan_forgetting(target)
        with pytest.raises(InvalidArgument):
            await memory.plan_forgetting("  ")


async def test_lines_that_cannot_be_are_refused_and_never_the_whole_note(place: Place) -> None:
    async with place.open() as memory:
        for lines in ("#L0", "#L9-L3", "#L0-L3", ":0", ":0:0", ":9-3"):
            with pytest.raises(InvalidArgument, match="count from 1"):
                await memory.plan_forgetting(f"memory/2026-05-03.md{lines}")


async def test_any_token_but_a_plans_own_is_one_clear_error(place: Place, tmp_path: Path) -> None:
    other = Place(tmp_path / "beside")
    other.note.write_text(NOTE)
    async with place.open() as memory, other.open() as beside:
        token = (await memory.plan_forgetting("^k1abc")).token
        body, seal = token.removeprefix("forget1.").rsplit(".", 1)
        digest, line = json.loads(base64.urlsafe_b64decode(f"{body}=="))
        forged: list[object] = [5, [], [digest], [digest, 5], [digest, line[:3]], {"a": 1}, None]
        forged += [[digest, ["a\0.md", *line[1:]]], [digest, ["../../etc/passwd", *line[1:]]]]
        forged += [[digest, [line[0], float("inf"), 6, line[3]]], [digest, [line[0], -1, 6, line[3]]]]
        bodies = [base64.urlsafe_b64encode(json.dumps(one).encode()).decode() for one in forged]
        bodies += [base64.urlsafe_b64encode(b"[" * 100_000).decode(), body[:-1], "=", "é\ud800", "", body * 9]
        tokens = [f"forget1.{one}.{seal}" for one in bodies]
        tokens += ["", " ", "nonsense", "forget1.nonsense", "forget1.", "forget1..", token[:-1], token + "0"]
        tokens += [f"forget1.{body}", f"forget1.{body}.é\ud800", token.replace("forget1", "forget2")]
        tokens += [(await beside.plan_forgetting("^k1abc")).token]
        for one in tokens:
            with pytest.raises(InvalidArgument, match="token"):
                await memory.forget(one)
        with pytest.raises(InvalidArgument, match="token"):
            await memory.forget(cast("str", 5))

        assert place.note.read_text() == NOTE
        assert (await memory.forget(f" {token}\n")).is_done
        again = await memory.forget(token)

        assert again.plan is not None
        assert not again.plan.lines


async def test_a_note_that_cannot_be_written_is_told_before_anything_is_done(place: Place) -> None:
    place.write("memory/b.md", f"- Peter: {SECRET}\n").chmod(0o444)
    async with place.open() as memory:
        await memory.sync()
        plan = await memory.plan_forgetting("^k1abc")
        with pytest.raises(NoteNotWritten, match=r"memory/b\.md.*read-only"):
            await memory.forget(plan)

        assert place.note.read_text() == NOTE
        assert [one for one in (await memory.query("spare key")).results if "turquoise" in one.text]
        assert not await asyncio.to_thread(memory.forgotten.now)
        assert not [*place.state.rglob("under-way.json")]

        (place.workspace / "memory/b.md").chmod(0o644)
        assert (await memory.forget(plan)).is_done


async def test_a_document_that_says_the_same_is_told_and_not_indexed_any_more(place: Place) -> None:
    place.write(
        "memory/page.html", f"<p>The ferry leaves.</p>\n<p>Peter: {SECRET}</p>\n<p>So: {SECRET}!</p>\n"
    )
    place.write("memory/other.html", f"<p>Anna said: {SECRET}</p>\n")
    async with place.open(builtin={"documents": ["html"]}) as memory:
        await memory.sync()
        plan = await memory.plan_forgetting("^k1abc")
        report = await memory.forget(plan)

        for stores in (plan.stores, report.stores):
            (left,) = (one for one in stores if one.what == "documents")
            assert left.examples == ("memory/page.html",)
            assert left.stays
        found = (await memory.query("spare key turquoise flowerpot ferry")).results
        assert sorted({one.path for one in found if "turquoise" in one.text}) == [
            "memory/other.html",
            "memory/page.html",
        ]
        assert not [one for one in found if "Peter: " in one.text]


@pytest.mark.thorough
async def test_passages_of_documents_and_transcripts_are_counted_once_and_as_such(place: Place) -> None:
    place.write("memory/page.html", f"<p>The ferry leaves.</p>\n<p>{SECRET}</p>\n")
    said = place.state / "agents/main/sessions/a.jsonl"
    said.parent.mkdir(parents=True)
    message = {"type": "message", "message": {"role": "user", "content": "The lamp of the barn is green."}}
    said.write_text(json.dumps(message) + "\n", "utf-8")
    async with place.open(builtin={"documents": ["html"], "sources": ["memory", "sessions"]}) as memory:
        await memory.sync()
        page = await memory.plan_forgetting("memory/page.html#L2")
        talk = await memory.plan_forgetting("sessions/a.jsonl#L1")

    assert [one.what for one in page.stores if "passages" in one.what] == ["passages of other files"]
    assert [(one.what, one.count) for one in talk.stores if "passages" in one.what] == [
        ("passages of transcripts", 1)
    ]


async def test_a_line_of_a_document_stays_hidden_after_a_kill(place: Place) -> None:
    document = place.write("memory/page.html", f"<p>The ferry leaves.</p>\n<p>{SECRET}</p>\n")
    await killed(place, "_mask_records", "memory/page.html#L2")

    async with place.open(builtin={"documents": ["html"]}) as memory:
        assert "forgetting" not in memory.status().custom
        assert "turquoise" not in (await memory.read_file("memory/page.html")).text
        assert not [
            one
            for one in (await memory.query("spare key")).results
            if "turquoise" in one.text and one.path.endswith("html")
        ]
    assert SECRET in document.read_text()
    assert not [*place.state.rglob("under-way.json")]


@pytest.mark.thorough
async def test_a_note_that_became_read_only_after_a_kill_is_told_in_the_status(place: Place) -> None:
    await killed(place, "_erase")
    journal = next(place.state.rglob("under-way.json"))
    journal.write_text(journal.read_text().replace('"isCut": true', '"isCut": false'))
    place.note.write_text(NOTE)
    place.note.chmod(0o444)
    async with place.open() as memory:
        told = cast("dict[str, str]", memory.status().custom["forgetting"])
        assert list(told) == ["memory/2026-05-03.md"]
        assert "read-only" in told["memory/2026-05-03.md"]
    place.note.chmod(0o644)
    async with place.open() as memory:
        assert "forgetting" not in memory.status().custom
    assert "turquoise" not in place.note.read_text()


async def test_a_note_in_another_encoding_is_cut_or_said_to_stay(place: Place) -> None:
    latin = place.workspace / "memory" / "latin.md"
    latin.write_bytes(f"- Café.\n- Peter: {SECRET}\n- Müller.\n".encode("latin-1"))
    wide = place.workspace / "memory" / "wide.md"
    wide.write_text(f"- Café.\n- Peter: {SECRET}\n", encoding="utf-16")
    place.write("memory/nul.md", f"- A\0B\n- Peter: {SECRET}\n")
    async with place.open() as memory:
        await memory.sync()
        plan = await memory.plan_forgetting("memory/latin.md#L2")
        assert [one.path for one in plan.lines if "NUL" in (one.stays or "")] == ["memory/nul.md"]
        report = await memory.forget(plan.token)

        assert (
            {one.path: one.stays is not None for one in plan.lines}
            == {
                "memory/latin.md": False,
                "memory/2026-05-03.md": False,
                "memory/nul.md": True,
                "memory/wide.md": True,
            }
            == {one.path: one.stays is not None for one in report.lines}
        )
        assert not report.is_done
        assert not report.pending
        assert latin.read_bytes() == "- Café.\n- Müller.\n".encode("latin-1")
        assert SECRET in wide.read_text(encoding="utf-16")
        assert not [one for one in (await memory.query("spare key")).results if "turquoise" in one.text]
        assert "turquoise" not in (await memory.read_file("memory/wide.md")).text
        assert "forgetting" not in memory.status().custom


async def test_a_line_of_a_document_is_hidden_and_said_to_stay(place: Place) -> None:
    page = f"<html><body><p>The ferry leaves at ten.</p>\n<p>{SECRET}</p></body></html>"
    place.note.write_text("# Day\n")
    document = place.write("memory/page.html", page)
    async with place.open(builtin={"documents": ["html"]}) as memory:
        await memory.sync()
        asked = await memory.plan_forgetting("spare key turquoise flowerpot")
        placed = await memory.plan_forgetting("memory/page.html#L2")
        assert asked.candidates[0].citation == "memory/page.html#L1-L2"
        assert [(one.text, one.stays is not None) for one in placed.lines] == [(SECRET, True)]

        report = await memory.forget(asked.candidates[0].token)

        assert not report.is_done
        assert [one.stays is not None for one in report.lines] == [True]
        found = (await memory.query("spare key ferry")).results
        assert [one for one in found if "ferry" in one.text]
        assert not [one for one in found if "turquoise" in one.text]
        part = await memory.read_file("memory/page.html")
        assert "ferry" in part.text
        assert "turquoise" not in part.text
        with pytest.raises(MemoryPathError):
            await memory.plan_forgetting("memory/page.html#L2")
    assert document.read_text() == page


async def test_what_is_not_there_is_an_error_and_never_a_query(place: Place) -> None:
    place.write("memory/a.md", "The dock plan stands in memory/harbour.md, see L3.\n\nabcd1 is the ticket.\n")
    async with place.open() as memory:
        for target in ("memory/harbour.md#L3", "memory/harbour.md:3"):
            with pytest.raises(MemoryPathError, match=r"memory/harbour\.md"):
                await memory.plan_forgetting(target)
        with pytest.raises(InvalidArgument, match=r"\^abcd1"):
            await memory.plan_forgetting("^abcd1")

        partly = await memory.plan_forgetting("dock plan stands tomorrow")
        every = await memory.plan_forgetting("dock plan stands tomorrow", everything=True)

        assert not partly.lines
        assert [one.citation for one in partly.candidates] == ["memory/a.md#L1"]
        assert [one.citation for one in every.lines] == ["memory/a.md#L1"]


async def test_headings_and_single_words_leave_no_tombstone(place: Place) -> None:
    place.write("memory/list.md", "## Retain\n- Milk\n- W: Peter owns a boat.\n")
    place.write("memory/other.md", "## Retain\n- Milk\n- W: Anna owns a boat.\n")
    async with place.open() as memory:
        await memory.forget(await memory.plan_forgetting("memory/list.md:1-3"))

        assert (place.workspace / "memory/list.md").read_text() == ""
        assert len((await asyncio.to_thread(memory.forgotten.now)).stones) == 1
        part = await memory.read_file("memory/other.md")
        assert part.text.splitlines() == ["## Retain", "- Milk", "- W: Anna owns a boat."]


async def test_the_workspace_beside_it_with_the_same_text_is_untouched(tmp_path: Path, place: Place) -> None:
    other = Place(tmp_path / "beside")
    other.state = place.state
    other.note.write_text(NOTE)
    for one in (other, place):
        async with one.open() as memory:
            await memory.sync()
            await memory.query("spare key")
    async with place.open() as memory:
        await memory.forget(await memory.plan_forgetting("^k1abc"))

    assert files_with(WORDS, place.state / "ops-logs")
    async with other.open() as memory:
        await memory.sync()
        assert [one for one in (await memory.query("spare key")).results if "turquoise" in one.text]
    assert other.note.read_text() == NOTE


async def test_a_folder_restored_elsewhere_forgets_again_once_it_is_adopted(
    tmp_path: Path, place: Place
) -> None:
    restored = Place(tmp_path / "restored")
    restored.state = place.state
    restored.note.write_text(NOTE)
    async with place.open() as memory:
        await memory.forget(await memory.plan_forgetting("^k1abc"))
        former = memory.forgotten.folder.name
    await asyncio.to_thread(shutil.rmtree, place.workspace)
    await asyncio.to_thread(adopt, place.state, restored.workspace, former, now=datetime.now(UTC))

    async with restored.open() as memory:
        await memory.sync(force=True)
        found = (await memory.query("spare key ferry")).results
        assert [one for one in found if "ferry" in one.text]
        assert not [one for one in found if "turquoise" in one.text]
        assert "turquoise" not in str(await memory.recall("Peter"))


async def test_tombstones_hold_no_text_and_are_keyed_by_workspace(tmp_path: Path, place: Place) -> None:
    other = Place(tmp_path / "beside")
    other.state = place.state
    other.note.write_text(NOTE)
    stones = []
    for one in (place, other):
        async with one.open() as memory:
            await memory.forget(await memory.plan_forgetting("^k1abc"))
            stones.append({stone.words for stone in (await asyncio.to_thread(memory.forgotten.now)).stones})

    assert len(stones[0]) == len(stones[1]) == 1
    assert not stones[0] & stones[1]
    assert files_with(WORDS, place.state / "forgotten") == set()
    kept = place.state / "forgotten"
    assert all(path.stat().st_mode & 0o077 == 0 for path in (kept, *kept.rglob("key")))


def cmem(place: Place, *args: str) -> Result:
    where = ["--workspace", str(place.workspace), "--state-dir", str(place.state)]
    return CliRunner().invoke(app, ["forget", *args, *where])


async def test_the_command_counts_what_each_store_holds(place: Place) -> None:
    async with place.open() as memory:
        await memory.sync()

    shown = await asyncio.to_thread(cmem, place, "^k1abc")

    assert "\n  builtin, passages of notes: 1\n" in shown.stdout


def test_the_command_shows_first_and_removes_with_yes(place: Place) -> None:
    shown = cmem(place, "^k1abc")
    again = cmem(place, "^k1abc", "--json")
    assert (shown.exit_code, again.exit_code) == (1, 1)
    assert "memory/2026-05-03.md#L6" in shown.stdout
    assert place.note.read_text() == NOTE
    assert json.loads(again.stdout)["plan"]["lines"][0]["startLine"] == 6

    done = cmem(place, "^k1abc", "--yes", "--json")

    assert done.exit_code == 0
    assert json.loads(done.stdout)["report"]["isDone"] is True
    assert "turquoise" not in place.note.read_text()
    assert cmem(place, "^k1abc", "--yes").exit_code == 1

    listed = CliRunner().invoke(app, ["workspace", "list", "--state-dir", str(place.state), "--json"])
    (kept,) = json.loads(listed.stdout)["workspaces"]
    assert "forgotten" in [store["kind"] for store in kept["stores"]]


def test_the_command_asks_to_choose(place: Place) -> None:
    place.write(
        "memory/keys.md", "- The bicycle key hangs in the hall.\n- The cellar key hangs in the hall.\n"
    )

    many = "".join(f"- Key {number} hangs in the shed.\n" for number in range(1, 31))
    place.write("memory/shed.md", many)
    listed = cmem(place, "key hangs shed")
    planned = json.loads(cmem(place, "key hangs shed", "--all", "--json").stdout)["plan"]["lines"]
    assert all(f"memory/shed.md#L{number}:" in listed.stdout for number in range(1, 31))
    assert {one["path"] for one in planned} == {"memory/shed.md"}
    assert len(planned) == 30

    asked = cmem(place, "key hangs hall", "--yes")
    done = cmem(place, "key hangs hall", "--yes", "--all")

    assert (asked.exit_code, done.exit_code) == (1, 0)
    assert "memory/keys.md#L1" in asked.stdout
    assert "memory/keys.md#L2" in asked.stdout
    assert (place.workspace / "memory/keys.md").read_text() == ""


async def test_what_is_remembered_again_is_no_longer_forgotten(place: Place) -> None:
    async with place.open() as memory:
        await memory.forget(await memory.plan_forgetting("^k1abc"))
        done = await memory.remember(SECRET, entities=["Peter"])

        assert done.duplicate_of is None
        assert [one for one in (await memory.query("spare key")).results if "turquoise" in one.text]
        assert not (await asyncio.to_thread(memory.forgotten.now)).stones


async def test_a_note_that_remembering_made_goes_with_its_last_line(place: Place) -> None:
    async with place.open() as memory:
        for text in ("Peter keeps bees.", "Anna sings."):
            told = await memory.remember(text, now=DAY + timedelta(days=1))
        note = place.workspace / told.path
        for text in ("bees", "sings"):
            assert note.exists()
            plan = await memory.plan_forgetting(text, everything=True)
            await memory.forget(plan.token)

        assert not note.exists()
        assert (await memory.remember("Olga paints.", now=DAY + timedelta(days=1))).path == told.path
        assert (await memory.query("Olga")).results[0].path == told.path


async def test_a_sentence_that_was_forgotten_is_not_captured(place: Place) -> None:
    said = "Remember that the spare key lies under the turquoise flowerpot."
    async with place.open() as memory:
        (done,) = await capture_turn(memory, [said])
        await memory.forget(await memory.plan_forgetting(done.citation))

        assert not await capture_turn(memory, [said])
        written = [one for one in place.workspace.rglob("*.md") if one != place.note]
        assert "turquoise" not in "".join(one.read_text() for one in written)


async def test_a_backup_of_before_does_not_bring_it_back(place: Place, tmp_path: Path) -> None:
    async with place.open() as memory:
        await ask_and_judge(memory)
    backup, export = tmp_path / "backup", tmp_path / "export.jsonl"
    await back_up(place.workspace, backup, state_dir=place.state, environ={})
    async with place.open() as memory:
        await memory.learning.export_into(export)
        await memory.forget(await memory.plan_forgetting("^k1abc"))

    await restore(place.workspace, backup, state_dir=place.state, environ={}, replace=True)
    async with place.open() as memory:
        await memory.learning.import_from(export)
        judged = await memory.context.stored(lambda store: store.judgements())

    assert len(judged) == 2
    assert files_with(WORDS, place.state, place.workspace) == set()


KILLED = """
import asyncio, os, signal, sys
from pathlib import Path
from composable_memory import open_memory
from composable_memory.forget import forgetting

workspace, state, step, target = sys.argv[1:]
config = {"memory": {"builtin": {"documents": ["html"]}}}

def die(*given, **named):
    os.kill(os.getpid(), signal.SIGKILL)

async def main():
    if step == "_without_text":
        setattr(forgetting, step, die)
    async with open_memory(workspace, state, config, long_lived=False, environ={}) as memory:
        plan = await memory.plan_forgetting(target)
        setattr(forgetting, step, die)
        await memory.forget(plan)

asyncio.run(main())
"""


@pytest.mark.parametrize("step", variants(["_mask_records", "_cut", "_erase", "_without_text"], "_erase"))
async def test_a_killed_process_is_followed_by_the_next_opening(place: Place, step: str) -> None:
    async with place.open() as memory:
        await memory.sync()
        await memory.query("where is the spare key?")
    if step == "_without_text":  # a step of resuming alone: dies when the next process goes on
        await killed(place, "_erase")
    await killed(place, step)
    assert files_with(WORDS, place.state)
    assert files_with(WORDS, place.state / "forgotten") == set()

    async with place.open() as memory:
        assert not [one for one in (await memory.query("spare key")).results if "turquoise" in one.text]

    assert files_with(WORDS, place.state, place.workspace) == set()
    assert not [*place.state.rglob("under-way.json")]


async def killed(place: Place, step: str, target: str = "^k1abc") -> None:
    """Run a process that is killed at a step of forgetting."""
    words = [sys.executable, "-c", KILLED, str(place.workspace), str(place.state), step, target]
    process = await asyncio.create_subprocess_exec(*words)
    assert await process.wait() == -signal.SIGKILL


class Stubborn(FakeBackend):
    """Cannot forget until it is told that it can."""

    can = False

    async def search(self, query: str, options: SearchOptions | None = None) -> Sequence[MemorySearchResult]:
        return ()

    async def holdings(self, wanted: Forgetting) -> Sequence[Holding]:
        return ()

    async def erase(self, wanted: Forgetting) -> Sequence[Holding]:
        if not self.can:
            raise BackendUnavailable("stubborn", "it is down", fix="start it", operation="forget")
        return (Holding(store="stubborn", what="rows", count=1),)


async def test_a_backend_that_is_down_follows_when_it_is_back(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    @asynccontextmanager
    async def opened(settings: SettingsModel, services: BackendServices) -> AsyncIterator[Stubborn]:
        yield Stubborn("stubborn")

    spec = BackendSpec(
        id="stubborn",
        summary="Is down.",
        settings=SettingsModel,
        open=opened,
        capabilities=frozenset({Capability.FORGET}),
    )
    config = {"memory": {"stubborn": {"enabled": True}}}

    def open_it() -> AbstractAsyncContextManager[Memory]:
        return open_memory(
            place.workspace, place.state, config, backends=[spec], long_lived=False, environ={}
        )

    async with open_it() as memory:
        report = await memory.forget(await memory.plan_forgetting("^k1abc"))
        assert not report.is_done
        assert [one.store for one in report.pending] == ["stubborn"]
        assert "turquoise" not in place.note.read_text()
    async with open_it() as memory:
        assert list(cast("dict[str, str]", memory.status().custom["forgetting"])) == ["stubborn"]
    monkeypatch.setattr(Stubborn, "can", True)
    async with open_it() as memory:
        assert "forgetting" not in memory.status().custom


async def test_an_old_copy_of_a_note_brings_nothing_back_into_recall_or_pages(
    place: Place, tmp_path: Path
) -> None:
    other = Place(tmp_path / "other")
    other.note.write_text(NOTE, encoding="utf-8")
    loose = f"{NOTE}\n## Later\n\nPeter whispered: amber gate 4471.\n\nPeter mows the lawn.\n"
    place.note.write_text(loose, encoding="utf-8")
    async with place.open() as memory:
        await memory.sync()
        assert SECRET in str(await memory.recall("Peter"))  # so that it is kept as it was read
        for what in ("^k1abc", "Peter whispered: amber gate 4471."):
            await memory.forget((await memory.plan_forgetting(what)).token)
        place.note.write_text(loose, encoding="utf-8")
        await memory.sync()

        found = str([await memory.recall("Peter"), await memory.recall(since="2026-05-01")])
        await memory.apply_reflection(await memory.reflect())

        assert "mows the lawn" in found
        assert "Likes short replies" in found
        assert "flowerpot" not in found
        assert "amber" not in found
        assert not files_with((*WORDS, "amber"), place.workspace / "bank")
    async with other.open() as memory:
        await memory.sync()
        assert SECRET in str(await memory.recall("Peter"))


async def test_a_folder_that_is_all_notes_stays_so_when_something_is_remembered(tmp_path: Path) -> None:
    folder = tmp_path / "vault"
    (folder / "Notes").mkdir(parents=True)
    (folder / "Notes" / "home.md").write_text(f"# Home\n\n{SECRET}\n", encoding="utf-8")
    async with open_memory(folder, tmp_path / "state", long_lived=False, environ={}) as memory:
        await memory.sync()
        await memory.remember("The goat is called Berta.")
    async with open_memory(folder, tmp_path / "state", long_lived=False, environ={}) as memory:
        plan = await memory.plan_forgetting("Notes/home.md#L3")
        assert (await memory.forget(plan)).is_done
    assert (folder / "Notes" / "home.md").read_text(encoding="utf-8") == "# Home\n\n"


@pytest.mark.parametrize("damaged", [b"", b'{"calls"', b"[]", b'{"calls": 1, "followed": 3}', b"\xff\x00"])
async def test_a_damaged_note_of_who_followed_and_of_what_is_under_way_is_made_anew(
    place: Place, damaged: bytes
) -> None:
    async with place.open() as memory:
        await memory.sync()
        await memory.forget(await memory.plan_forgetting("^k1abc"))
        folder = memory.forgotten.folder
    for name in ("followers.json", "under-way.json"):
        (folder / name).write_bytes(damaged)
    async with place.open() as memory:
        assert not await asyncio.to_thread(memory.forgotten.is_unfinished, ["builtin"])


@pytest.mark.parametrize("name", variants(["tombstones.jsonl", "key"], "tombstones.jsonl"))
@pytest.mark.parametrize(
    "damaged",
    [
        lambda _: b"{",
        lambda _: b"",
        lambda _: b"\xff" * 1000,
        lambda data: data[:-1] + bytes([data[-1] ^ 1]),
        lambda data: data[:60] + bytes([data[60] ^ 1]) + data[61:] if len(data) > 60 else data[1:],
        lambda data: data[: data.rindex(b"\n", 0, -1) + 1] if b"\n" in data[:-1] else data[:-1],
    ],
    ids=["no JSON", "emptied", "garbage", "last bit", "a bit", "cut"],
)
async def test_damaged_tombstones_are_named_and_nothing_comes_back_without_them(
    place: Place, name: str, damaged: Callable[[bytes], bytes]
) -> None:
    async with place.open() as memory:
        await memory.sync()
        await memory.forget(await memory.plan_forgetting("^k1abc"))
        file = memory.forgotten.folder / name
    file.write_bytes(damaged(file.read_bytes()))
    place.note.write_text(NOTE)
    with pytest.raises(BackendUnavailable, match=r"tombstones\.jsonl.*damaged.*backup"):
        async with place.open() as memory:
            await memory.sync()
