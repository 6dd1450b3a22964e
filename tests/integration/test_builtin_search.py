"""The builtin memory's search, on an index file whose rows the tests write themselves."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

import pytest

from composable_memory import open_memory
from composable_memory.config.settings import QuerySettings
from composable_memory.content import EmbedderInput
from composable_memory.errors import EmbeddingError, IndexProblem
from composable_memory.interfaces import EmbedderAdapter
from composable_memory.paths import Reading
from composable_memory.testing import FailingEmbedder, HashEmbedder
from composable_memory.types import (
    MAX_SNIPPET_CHARS,
    MemorySource,
    SearchAnswer,
    SearchFilters,
    SearchOptions,
)
from composable_memory.vector_values import MAX_QUESTION_CHARS
from composable_memory_adapters.builtin.index_file import ensure_tables
from composable_memory_adapters.builtin.notes.changed_notes import FileDraft
from composable_memory_adapters.builtin.notes.note_files import Note
from composable_memory_adapters.builtin.search import index_vectors
from composable_memory_adapters.builtin.search.hybrid import KeywordHit
from composable_memory_adapters.builtin.search.keyword_leg import KeywordAnswer
from composable_memory_adapters.builtin.search.ranking import Candidates, Page, RankingPolicy, make_page
from composable_memory_adapters.builtin.search.searcher import EMBED_TIMEOUT_S, Searcher
from composable_memory_adapters.builtin.search.vector_search import VectorSearch
from composable_memory_adapters.builtin.settings import BuiltinSettings, VectorSettings
from composable_memory_adapters.builtin.store import embedding_cache, index_writes, read_queries
from composable_memory_adapters.builtin.store.embedding_cache import EmbeddingSpace
from composable_memory_adapters.builtin.store.read_queries import IndexPassages
from composable_memory_adapters.builtin.store.schema import LIVE, checksum_of
from composable_memory_adapters.chunking import chunk_markdown
from composable_memory_adapters.sqlite_file import Connection, SqliteFile
from composable_memory_adapters.text.forms import index_text
from composable_memory_adapters.text.query_terms import analyse
from tests.notes import write_notes

Found = TypeVar("Found")
P = ParamSpec("P")

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
NOW_NS = int(NOW.timestamp()) * 10**9
DAY_NS = 86_400 * 10**9

NEXT_REVISION = """
INSERT INTO meta (key, value) VALUES ('revision', '1')
ON CONFLICT (key) DO UPDATE SET value = CAST(value AS INTEGER) + 1
"""


class MeetingEmbedder(HashEmbedder):
    """Embeds only when something is read from the index at the same time."""

    def __init__(self) -> None:
        super().__init__()
        self.asked, self.read_began = asyncio.Event(), asyncio.Event()

    async def embed(self, input: EmbedderInput) -> Sequence[float]:  # noqa: A002 - the interface's name
        self.asked.set()
        await self.read_began.wait()
        return await super().embed(input)


class WatchedFile(SqliteFile):
    """Notes which vectors are loaded, can refuse to load some, and can wait until an embedder is asked."""

    waits_for: MeetingEmbedder | None = None
    interruptions: Sequence[Callable[[], Awaitable[None]] | None] = ()
    """What others do after each of the next readings."""
    refuse_fetch: int | None = None

    def __init__(self, *args: Any, **options: Any) -> None:  # Any: what the file takes is not looked at
        super().__init__(*args, **options)
        self.fetched: list[list[int]] = []

    async def read(
        self, work: Callable[Concatenate[Connection, P], Found], *args: P.args, **options: P.kwargs
    ) -> Found:
        if self.waits_for is not None:
            self.waits_for.read_began.set()
            await self.waits_for.asked.wait()

        def watched(connection: Connection) -> Found:
            connection.exec_trace = self._may_run
            return work(connection, *args, **options)

        found = await super().read(watched)
        if self.interruptions:
            interruption, *self.interruptions = self.interruptions
            if interruption:
                await interruption()
        return found

    def _may_run(self, _cursor: object, sql: str, bindings: Any) -> bool:
        if sql != read_queries.VECTORS_IN_SPACE:
            return True
        self.fetched.append(json.loads(bindings[0]))
        return len(self.fetched) - 1 != self.refuse_fetch


class Notes:
    """An index file, and the rows a sync would have put in it."""

    def __init__(self, file: SqliteFile) -> None:
        self.file = file
        self.embedder = HashEmbedder()
        self.space = EmbeddingSpace.of(self.embedder)

    async def write(
        self, files: Mapping[str, str], *, source: MemorySource = "memory", mtime_ns: int = NOW_NS
    ) -> None:
        """Put whole files in the index, as a sync does."""
        drafts = [
            FileDraft(
                key=key, source=source, recipe="test", chunks=chunk_markdown(text), seen=None,
                note=Note(
                    text=text, hash=key, mtime_ns=mtime_ns, size=len(text), ctime_ns=0,
                    reading=Reading.WHOLE, settled=True,
                ),
            )
            for key, text in files.items()
        ]  # fmt: skip

        def write(connection: Connection) -> None:
            index_writes.write_drafts(connection, LIVE, drafts, space=None, has_keywords=True, now_ms=0)

        await self.file.write(write)

    async def add(self, *texts: str, embedded: bool = True) -> None:
        vectors = await self.embedder.embed_batch([EmbedderInput(text=text) for text in texts])
        self.embedder.texts.clear()

        def write(connection: Connection) -> None:
            for text, vector in zip(texts, vectors, strict=True):
                digest = sha256(text.encode()).hexdigest()
                stored = embedding_cache.store(connection, self.space, {digest: vector}, now_ms=0)
                path = f"{text.split()[0]}.md"
                checksum = checksum_of(path, "memory", 1, 3, 0, digest, title="", headings="")
                row = connection.execute(
                    "INSERT INTO chunks"
                    " (path, start_line, end_line, hash, text, embedding_id, checksum, updated_at)"
                    " VALUES (?, 1, 3, ?, ?, ?, ?, 0) RETURNING id",
                    (path, digest, text, stored[digest] if embedded else None, checksum),
                ).get
                connection.execute(
                    "INSERT INTO chunks_fts (rowid, text) VALUES (?, ?)", (row, index_text(text))
                )
            connection.execute(NEXT_REVISION)

        await self.file.write(write)

    async def remove(self, path: str) -> None:
        def write(connection: Connection) -> None:
            for (row,) in connection.execute("DELETE FROM chunks WHERE path = ? RETURNING id", (path,)):
                connection.execute("DELETE FROM chunks_fts WHERE rowid = ?", (row,))
            connection.execute(NEXT_REVISION)

        await self.file.write(write)

    def searcher(
        self,
        settings: dict[str, object] | None = None,
        *,
        embedder: EmbedderAdapter | None = None,
        without_embedder: bool = False,
        embed_timeout_s: float = 10.0,
        load_timeout_s: float = 0.0,
    ) -> Searcher:
        embedder = None if without_embedder else embedder or self.embedder
        return Searcher(
            self.file,
            settings=BuiltinSettings.model_validate(settings or {}),
            clock=lambda: NOW,
            embedder=embedder,
            space=EmbeddingSpace.of(embedder) if embedder else None,
            embed_timeout_s=embed_timeout_s,
            load_timeout_s=load_timeout_s,
        )


@pytest.fixture
async def file(tmp_path: Path) -> AsyncIterator[SqliteFile]:
    async with WatchedFile.open(tmp_path / "index.sqlite") as file:
        await ensure_tables(file)
        yield file


@pytest.fixture
def notes(file: WatchedFile) -> Notes:
    return Notes(file)


def engine(name: str, **more: object) -> dict[str, object]:
    return {"store": {"vector": {"engine": name, **more}}}


def paths(answer: SearchAnswer) -> list[str]:
    return [result.path for result in answer.results]


def codes(answer: SearchAnswer) -> list[str]:
    return [one.code for one in answer.degraded]


# --- what is found ---


async def test_words_and_meaning_answer_together(notes: Notes) -> None:
    await notes.add("deploy the staging server", "garden tomatoes need water", "lunch with the team")

    answer = await notes.searcher().answer("staging server")

    assert paths(answer)[0] == "deploy.md"
    assert answer.results[0].exact
    assert dict(answer.engines) == {"keyword": "fts5", "vector": "exact"}
    assert answer.degraded == ()


async def test_results_carry_place_text_and_a_score_in_range(notes: Notes) -> None:
    await notes.add("deploy the staging server", "garden tomatoes")

    answer = await notes.searcher().answer("staging")

    best = answer.results[0]
    assert (best.path, best.start_line, best.end_line, best.source) == ("deploy.md", 1, 3, "memory")
    assert best.snippet == "deploy the staging server"
    assert all(0.0 <= result.score <= 1.0 for result in answer.results)
    assert [r.score for r in answer.results] == sorted((r.score for r in answer.results), reverse=True)


async def test_a_blank_query_finds_nothing_and_asks_nobody(notes: Notes) -> None:
    await notes.add("deploy the staging server")

    assert await notes.searcher().answer(" \n") == SearchAnswer(results=())
    assert notes.embedder.texts == []


async def test_an_empty_index_answers_with_nothing(notes: Notes) -> None:
    answer = await notes.searcher().answer("anything")

    assert answer.results == ()
    assert answer.degraded == ()


async def test_passages_with_the_same_text_are_all_found(notes: Notes) -> None:
    await notes.write({"a.md": "deploy the staging server", "b.md": "deploy the staging server"})

    answer = await notes.searcher().answer("staging server")

    assert paths(answer) == ["a.md", "b.md"]


async def test_pieces_of_one_line_do_not_crowd_out_other_notes(notes: Notes) -> None:
    """They say the same: the best of them is the result, and the others take nobody's place."""
    await notes.write({"long.md": "lamp " * 320 * 100})
    await notes.write({f"{number}.md": f"the lamp, among {number} other things" for number in range(5)})

    answer = await notes.searcher(without_embedder=True).answer("lamp", SearchOptions(max_results=7))

    assert {*paths(answer)} == {"0.md", "1.md", "2.md", "3.md", "4.md", "long.md"}


@pytest.mark.parametrize("query", ['"', "AND OR NOT", "a:b*", "(", "NEAR(x y)", "\x00", "\ud800", "🤷"])
async def test_no_query_is_read_as_syntax(notes: Notes, query: str) -> None:
    await notes.add("deploy the staging server")

    assert codes(await notes.searcher(without_embedder=True).answer(query)) == ["keyword-only"]


@pytest.mark.parametrize("name", ["exact", "mapped", "sqlite-vec"])
async def test_the_first_results_of_a_long_answer_are_the_short_answer(notes: Notes, name: str) -> None:
    await notes.add(*(f"note{number} speaks of topic{number % 7} and water" for number in range(150)))
    searcher = notes.searcher(engine(name))

    long = await searcher.answer("topic3 water", SearchOptions(max_results=140))

    assert len(long.results) == 140
    assert len({result.path for result in long.results}) == 140
    for wanted in (1, 5, 48, 49, 100, 139):
        short = await searcher.answer("topic3 water", SearchOptions(max_results=wanted))
        assert short.results == long.results[:wanted]


async def test_a_least_score_cuts_but_never_an_exact_hit(notes: Notes) -> None:
    await notes.add("garden tomatoes need water", "deploy the staging server", "water")
    searcher = notes.searcher()

    answer = await searcher.answer("garden water", SearchOptions(min_score=1.0))

    assert paths(answer) == ["garden.md"]


async def test_the_snippet_shows_the_match_however_far_down(notes: Notes) -> None:
    filler = "\n".join(f"line {number} about nothing in particular" for number in range(60))
    await notes.add(f"long {filler}\nthe zanzibar meeting is on friday\n{filler}")

    answer = await notes.searcher().answer("zanzibar meeting")

    assert "the zanzibar meeting is on friday" in answer.results[0].snippet
    assert len(answer.results[0].snippet) <= MAX_SNIPPET_CHARS


# --- engines ---


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (engine("auto"), "exact"),
        (engine("auto", exactLimit=2), "mapped"),
        (engine("exact", exactLimit=0), "exact"),
        (engine("mapped"), "mapped"),
        (engine("sqlite-vec"), "sqlite-vec"),
    ],
)
async def test_the_engine_that_answers_is_named(
    notes: Notes, settings: dict[str, object], expected: str
) -> None:
    await notes.add("deploy the staging server", "garden tomatoes", "lunch with the team")
    searcher = notes.searcher(settings)

    answer = await searcher.answer("staging server")

    assert answer.engines["vector"] == expected == searcher.vector_status().engine
    assert paths(answer)[0] == "deploy.md"


async def test_all_engines_give_the_same_answer(notes: Notes) -> None:
    await notes.add(*(f"note{number} water{number % 5} garden{number % 3}" for number in range(60)))

    answers = [
        await notes.searcher(engine(name)).answer("garden2 water1", SearchOptions(max_results=30))
        for name in ("exact", "mapped", "sqlite-vec")
    ]

    exact, *others = [[(result.path, result.score) for result in answer.results] for answer in answers]
    assert len(exact) == 30
    for other in others:
        assert [path for path, _ in other] == [path for path, _ in exact]
        assert [score for _, score in other] == pytest.approx([score for _, score in exact], abs=1e-6)


async def test_growing_past_the_limit_changes_the_engine_in_the_open(notes: Notes) -> None:
    searcher = notes.searcher(engine("auto", exactLimit=2))
    await notes.add("deploy the staging server", "garden tomatoes")
    before = await searcher.answer("tomatoes")

    await notes.add("lunch with the team")
    after = await searcher.answer("tomatoes")

    assert (before.engines["vector"], after.engines["vector"]) == ("exact", "mapped")
    assert paths(after)[0] == "garden.md"


async def test_where_sqlite_vec_cannot_be_loaded_another_engine_answers_and_says_so(
    notes: Notes, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("sqlite_vec.loadable_path", lambda: str(tmp_path / "nothing"))
    await notes.add("deploy the staging server")
    searcher = notes.searcher(engine("sqlite-vec"))

    answer = await searcher.answer("staging")

    assert paths(answer) == ["deploy.md"]
    assert answer.engines["vector"] == "exact"
    assert codes(answer) == ["engine-fallback"]
    assert "cannot be loaded" in answer.degraded[0].reason
    assert "cannot be loaded" in (searcher.vector_status().load_error or "")


# --- keeping up with the index ---


@pytest.mark.parametrize("name", ["exact", "mapped", "sqlite-vec"])
async def test_a_search_sees_what_was_added_and_removed_since_the_last(notes: Notes, name: str) -> None:
    searcher = notes.searcher(engine(name) | {"query": {"hybrid": {"enabled": False}}})
    await notes.add("deploy the staging server", "garden tomatoes")
    await searcher.answer("lunch team")

    await notes.add("lunch with the team")
    await notes.remove("garden.md")
    answer = await searcher.answer("lunch team")

    assert paths(answer) == ["lunch.md", "deploy.md"]


async def test_only_new_vectors_are_fetched_after_a_change(notes: Notes, file: WatchedFile) -> None:
    await notes.add("deploy the staging server", "garden tomatoes")
    searcher = notes.searcher()
    await searcher.answer("staging")

    await notes.add("lunch with the team")
    await searcher.answer("lunch")

    assert file.fetched == [[1, 2], [3]]


async def test_vectors_of_another_space_are_not_compared(notes: Notes) -> None:
    await notes.add("deploy the staging server")
    stranger = HashEmbedder()
    stranger.model = "another"

    answer = await notes.searcher({"query": {"hybrid": {"enabled": False}}}, embedder=stranger).answer(
        "staging server"
    )

    assert answer.results == ()


async def test_pending_vectors_are_counted(notes: Notes) -> None:
    await notes.add("deploy the staging server")
    await notes.add("garden tomatoes", "lunch with the team", embedded=False)

    answer = await notes.searcher().answer("garden")

    assert codes(answer) == ["vectors-pending"]
    assert answer.degraded[0].reason.startswith("no vector yet for 2 of 3 passages")
    assert paths(answer)[0] == "garden.md"


async def test_warming_loads_what_the_first_search_needs(notes: Notes) -> None:
    await notes.add("deploy the staging server")
    searcher = notes.searcher()
    assert searcher.vector_status().available is None

    await searcher.warm()

    assert searcher.vector_status().available is True
    assert searcher.vector_status().dims == 64
    assert searcher.vector_status().engine == "exact"


# --- what is missing is said ---


async def test_without_an_embedder_keywords_answer_and_say_so(notes: Notes) -> None:
    await notes.add("deploy the staging server")

    answer = await notes.searcher(without_embedder=True).answer("staging")

    assert paths(answer) == ["deploy.md"]
    assert codes(answer) == ["keyword-only"]
    assert dict(answer.engines) == {"keyword": "fts5"}


async def test_a_failing_embedder_leaves_keywords_and_its_reason(notes: Notes) -> None:
    await notes.add("deploy the staging server")

    answer = await notes.searcher(embedder=FailingEmbedder()).answer("staging")

    assert paths(answer) == ["deploy.md"]
    assert codes(answer) == ["keyword-only"]
    assert "it was asked to fail" in answer.degraded[0].reason


async def test_after_a_failure_the_next_query_asks_the_embedder_again(notes: Notes) -> None:
    await notes.add("deploy the staging server")
    searcher = notes.searcher(embedder=FailingEmbedder(failures=1))

    first, second = await searcher.answer("staging"), await searcher.answer("staging")

    assert (codes(first), codes(second)) == (["keyword-only"], [])


class RaisingEmbedder(HashEmbedder):
    """Raises what its author did not think of."""

    def __init__(self, error: BaseException) -> None:
        super().__init__()
        self.error = error

    async def embed(self, input: EmbedderInput) -> Sequence[float]:  # noqa: A002 - the interface's name
        raise self.error


@pytest.mark.parametrize("error", [OSError("connection refused"), asyncio.CancelledError()])
async def test_whatever_a_foreign_embedder_raises_keywords_answer(notes: Notes, error: BaseException) -> None:
    await notes.add("deploy the staging server")

    answer = await notes.searcher(embedder=RaisingEmbedder(error)).answer("staging")

    assert paths(answer) == ["deploy.md"]
    assert codes(answer) == ["keyword-only"]


class HangingEmbedder(HashEmbedder):
    def __init__(self) -> None:
        super().__init__()
        self.asked = asyncio.Event()

    async def embed(self, input: EmbedderInput) -> Sequence[float]:  # noqa: A002 - the interface's name
        self.asked.set()
        return await asyncio.Event().wait() and ()


async def test_an_embedder_that_hangs_is_waited_for_no_longer_than_told(notes: Notes) -> None:
    await notes.add("deploy the staging server")

    answer = await notes.searcher(embedder=HangingEmbedder(), embed_timeout_s=0.01).answer("staging")

    assert paths(answer) == ["deploy.md"]
    assert "it gave no answer within 0.01 s" in answer.degraded[0].reason


class LoadingEmbedder(HangingEmbedder):
    """Answers its first question when its model is loaded, and no other."""

    async def embed(self, input: EmbedderInput) -> Sequence[float]:  # noqa: A002 - the interface's name
        if self.asked.is_set():
            return await super().embed(input)
        self.asked.set()
        loaded = asyncio.Event()
        asyncio.get_running_loop().call_later(0.05, loaded.set)
        await loaded.wait()
        return await HashEmbedder.embed(self, input)


async def test_only_the_first_vector_is_waited_for_as_long_as_a_model_takes_to_load(notes: Notes) -> None:
    await notes.add("deploy the staging server")
    searcher = notes.searcher(embedder=LoadingEmbedder(), embed_timeout_s=0.01, load_timeout_s=60)

    first, second = await searcher.answer("staging"), await searcher.answer("staging")

    assert first.degraded == ()
    assert "it gave no answer within 0.01 s" in second.degraded[0].reason


class CrookedEmbedder(HashEmbedder):
    """Keeps its promises about length and numbers only on paper."""

    def __init__(self, vector: Sequence[float]) -> None:
        super().__init__()
        self.vector = vector

    async def embed(self, input: EmbedderInput) -> Sequence[float]:  # noqa: A002 - the interface's name
        return self.vector


@pytest.mark.parametrize(
    ("vector", "problem"),
    [
        ([1.0], "64 numbers, got 1"),
        ([float("nan")] * 64, "not finite"),
        (["one"] * 64, "not a vector"),
        (None, "not a vector"),
    ],
)
async def test_a_query_vector_that_cannot_be_used_leaves_keywords(
    notes: Notes, vector: Sequence[float], problem: str
) -> None:
    await notes.add("deploy the staging server")

    answer = await notes.searcher(embedder=CrookedEmbedder(vector)).answer("staging")

    assert paths(answer) == ["deploy.md"]
    assert codes(answer) == ["keyword-only"]
    assert problem in answer.degraded[0].reason


class ListeningEmbedder(HashEmbedder):
    """Remembers what it was asked."""

    heard = ""

    async def embed(self, input: EmbedderInput) -> Sequence[float]:  # noqa: A002 - the interface's name
        self.heard = input.text
        return await super().embed(input)


async def test_of_a_question_of_a_megabyte_the_beginning_is_embedded(notes: Notes) -> None:
    await notes.add("deploy the staging server")
    embedder = ListeningEmbedder()

    answer = await notes.searcher(embedder=embedder).answer("staging " * 125_000)

    assert answer.degraded == ()
    assert embedder.heard.startswith("staging staging")
    assert len(embedder.heard) <= MAX_QUESTION_CHARS


async def test_a_query_without_direction_is_answered_by_keywords(notes: Notes) -> None:
    await notes.add("deploy the staging server")

    answer = await notes.searcher(embedder=CrookedEmbedder([0.0] * 64)).answer("staging")

    assert paths(answer) == ["deploy.md"]
    assert dict(answer.engines) == {"keyword": "fts5"}


@pytest.mark.parametrize(
    ("settings", "code", "engines"),
    [
        ({"store": {"fts": {"enabled": False}}}, "vector-only", {"vector": "exact"}),
        ({"query": {"hybrid": {"enabled": False}}}, "vector-only", {"vector": "exact"}),
        ({"store": {"vector": {"enabled": False}}}, "keyword-only", {"keyword": "fts5"}),
        ({"store": {"vector": {"enabled": False}, "fts": {"enabled": False}}}, "disabled", {}),
    ],
)
async def test_what_is_switched_off_is_named(
    notes: Notes, settings: dict[str, object], code: str, engines: dict[str, str]
) -> None:
    await notes.add("deploy the staging server")

    answer = await notes.searcher(settings).answer("staging server")

    assert codes(answer) == [code]
    assert dict(answer.engines) == engines
    assert paths(answer) == (["deploy.md"] if engines else [])


async def test_keywords_stand_in_for_vectors_where_hybrid_is_off_and_embedding_fails(notes: Notes) -> None:
    await notes.add("deploy the staging server")
    searcher = notes.searcher({"query": {"hybrid": {"enabled": False}}}, embedder=FailingEmbedder())

    answer = await searcher.answer("staging")

    assert paths(answer) == ["deploy.md"]
    assert codes(answer) == ["keyword-only"]


async def test_without_keywords_a_failing_embedder_leaves_nothing_and_says_so(notes: Notes) -> None:
    await notes.add("deploy the staging server")
    searcher = notes.searcher({"store": {"fts": {"enabled": False}}}, embedder=FailingEmbedder())

    answer = await searcher.answer("staging")

    assert answer.results == ()
    assert codes(answer) == ["unavailable"]


async def test_a_broken_keyword_index_is_an_error_and_not_an_empty_answer(notes: Notes) -> None:
    await notes.add("deploy the staging server")
    await notes.file.write(lambda connection: connection.execute("DROP TABLE chunks_fts").close())

    with pytest.raises(IndexProblem):
        await notes.searcher().answer("staging")


# --- at the same time ---


@pytest.mark.parametrize("name", ["exact", "mapped", "sqlite-vec"])
async def test_concurrent_first_searches_agree(notes: Notes, name: str) -> None:
    await notes.add(*(f"note{number} speaks of water" for number in range(50)))
    searcher = notes.searcher(engine(name))

    first, *others = await asyncio.gather(*(searcher.answer("note7 water") for _ in range(8)))

    assert paths(first)[0] == "note7.md"
    assert [one.results for one in others] == [first.results] * 7


async def test_words_are_looked_up_while_the_query_is_embedded(notes: Notes, file: WatchedFile) -> None:
    await notes.add("deploy the staging server")
    embedder = MeetingEmbedder()
    searcher = notes.searcher(embedder=embedder)
    embedder.read_began.set()
    await searcher.answer("what a searcher reads only once")
    embedder.asked.clear()
    embedder.read_began.clear()
    file.waits_for = embedder

    answer = await asyncio.wait_for(searcher.answer("staging"), 10)

    assert answer.degraded == ()
    assert paths(answer) == ["deploy.md"]


@pytest.mark.parametrize("readings", range(1, 5))
@pytest.mark.parametrize("path", [(), ("deploy*",)], ids=["all", "filtered"])
@pytest.mark.parametrize("without_embedder", [True, False], ids=["words", "both"])
async def test_a_note_that_is_written_anew_while_it_is_searched_for_is_found(
    notes: Notes, file: WatchedFile, readings: int, path: tuple[str, ...], without_embedder: bool
) -> None:
    await notes.write({"deploy.md": "deploy the staging server", "garden.md": "garden tomatoes"})

    async def write_anew() -> None:
        await notes.remove("deploy.md")
        await notes.add("deploy the staging server and the other one")

    searcher = notes.searcher(without_embedder=without_embedder)
    file.interruptions = [None] * (readings - 1) + [write_anew]
    answer = await searcher.answer("staging", SearchOptions(filters=SearchFilters(paths=path)))

    assert paths(answer)[:1] == ["deploy.md"]
    assert answer.results[0].exact


async def test_a_search_cancelled_while_embedding_leaves_the_searcher_usable(notes: Notes) -> None:
    await notes.add("deploy the staging server")
    hanging = HangingEmbedder()
    search = asyncio.ensure_future(notes.searcher(embedder=hanging).answer("staging"))
    await hanging.asked.wait()

    search.cancel()

    with pytest.raises(asyncio.CancelledError):
        await search
    assert paths(await notes.searcher().answer("staging")) == ["deploy.md"]


async def test_a_cancelled_first_load_is_taken_over_by_the_next_search(notes: Notes) -> None:
    await notes.add("deploy the staging server")
    searcher = notes.searcher()
    searches = [asyncio.ensure_future(searcher.answer("staging")) for _ in range(4)]
    await asyncio.sleep(0)

    searches[0].cancel()
    first, *others = await asyncio.gather(*searches, return_exceptions=True)

    assert isinstance(first, asyncio.CancelledError)
    assert [paths(answer) for answer in others if isinstance(answer, SearchAnswer)] == [["deploy.md"]] * 3


@pytest.mark.thorough
async def test_what_an_interrupted_load_has_fetched_is_not_fetched_again(
    notes: Notes, file: WatchedFile
) -> None:
    await notes.add(*(f"note{number}" for number in range(index_vectors.VECTORS_PER_STATEMENT + 1)))
    searcher = notes.searcher()
    file.refuse_fetch = 1
    with pytest.raises(IndexProblem):
        await searcher.warm()

    await searcher.warm()

    assert [len(ids) for ids in file.fetched] == [index_vectors.VECTORS_PER_STATEMENT, 1, 1]
    assert searcher.vector_status().engine == "exact"


async def test_a_closed_searcher_holds_no_vectors(notes: Notes) -> None:
    await notes.add("deploy the staging server")
    searcher = notes.searcher()
    await searcher.answer("staging")

    await searcher.close()
    await searcher.close()

    assert searcher.vector_status().engine is None


async def test_an_embedding_id_is_never_given_to_another_text(notes: Notes) -> None:
    """Vectors in memory go by it, and would stay those of a text that is gone."""
    await notes.add("deploy the staging server", "garden tomatoes")
    searcher = notes.searcher({"query": {"hybrid": {"enabled": False}}})
    await searcher.answer("garden")
    await notes.remove("garden.md")
    await notes.file.write(lambda connection: embedding_cache.prune(connection, 0))
    await notes.add("lunch with the team")

    answer = await searcher.answer("lunch with the team")

    assert paths(answer)[0] == "lunch.md"
    assert answer.results[0].score > 0.9


async def test_a_passage_that_is_gone_makes_room_for_the_next(notes: Notes) -> None:
    """Ranking and reading see the index at two moments; a sync may come between."""
    await notes.add("garden tomatoes")
    gone, there = KeywordHit(id=999, bm25=2.0, exact=False), KeywordHit(id=1, bm25=1.0, exact=False)

    page = await notes.file.read(
        lambda connection: make_page(
            IndexPassages(connection=connection, space=None),
            found=Candidates(depth=48, keyword=KeywordAnswer(hits=[gone, there], scale=1.0), near=None),
            after=Page(),
            options=SearchOptions(max_results=1),
            policy=RankingPolicy(hybrid=BuiltinSettings().query.hybrid, today=NOW.date()),
            keywords=analyse("garden"),
        )
    )

    assert [result.path for result in page.results] == ["garden.md"]


# --- age ---


def ranked_by(**hybrid: object) -> dict[str, object]:
    return {"query": {"hybrid": hybrid}}


DECAY = ranked_by(temporalDecay={"enabled": True, "halfLifeDays": 30})


async def test_of_equal_notes_the_newer_comes_first_where_age_counts(notes: Notes) -> None:
    await notes.write({"memory/2026-01-30.md": "the red lamp", "memory/2026-03-01.md": "the red lamp"})

    answer = await notes.searcher(DECAY, without_embedder=True).answer("red lamp")
    plain = await notes.searcher(without_embedder=True).answer("red lamp")

    assert paths(answer) == ["memory/2026-03-01.md", "memory/2026-01-30.md"]
    assert answer.results[1].score == pytest.approx(answer.results[0].score / 2)
    assert paths(plain) == ["memory/2026-01-30.md", "memory/2026-03-01.md"]


@pytest.mark.parametrize(
    ("path", "source", "factor"),
    [
        ("memory/2026-01-30-lamps.md", "memory", 0.5),
        ("memory/house/2025-12-31.md", "memory", 0.25),
        ("memory/2027-01-01.md", "memory", 1.0),
        ("MEMORY.md", "memory", 1.0),
        ("memory/lamps.md", "memory", 1.0),
        ("../elsewhere/lamps.md", "memory", 0.5),
        ("sessions/a1.jsonl", "sessions", 0.5),
    ],
)
async def test_age_comes_from_the_name_or_the_last_change(
    notes: Notes, path: str, source: MemorySource, factor: float
) -> None:
    await notes.write({path: "the red lamp"}, source=source, mtime_ns=NOW_NS - 30 * DAY_NS)
    settings: dict[str, object] = {"sources": ["memory", "sessions"]}

    plain = await notes.searcher(settings, without_embedder=True).answer("red lamp")
    faded = await notes.searcher(settings | DECAY, without_embedder=True).answer("red lamp")

    assert faded.results[0].score == pytest.approx(plain.results[0].score * factor)


async def test_age_counts_before_the_least_score_and_never_cuts_an_exact_hit(notes: Notes) -> None:
    await notes.write(
        {
            "memory/2020-01-01.md": "the red lamp",
            "memory/2020-01-02.md": "a red door",
            "memory/2026-03-01.md": "a red chair",
        }
    )

    answer = await notes.searcher(DECAY, without_embedder=True).answer(
        "red lamp", SearchOptions(max_results=9, min_score=0.05)
    )

    assert paths(answer) == ["memory/2026-03-01.md", "memory/2020-01-01.md"]
    assert answer.results[1].exact


# --- results that differ ---

MMR = ranked_by(mmr={"enabled": True})
LAMPS = {
    "memory/a.md": "the red lamp stands on the context in the hall",
    "memory/b.md": "the red lamp stands on the context in the hall",
    "memory/c.md": "a lamp for Oslo, red, bought from Maya last winter together with tea",
    "memory/d.md": "a lamp",
}


async def test_a_repetition_makes_room_where_results_shall_differ(notes: Notes) -> None:
    await notes.write(LAMPS)

    plain = await notes.searcher(without_embedder=True).answer("red lamp")
    differing = await notes.searcher(MMR, without_embedder=True).answer("red lamp")

    assert paths(plain) == [f"memory/{name}.md" for name in "abcd"]
    assert paths(differing) == [f"memory/{name}.md" for name in "acbd"]


async def test_no_score_rises_by_differing_and_none_is_better_than_the_one_before(notes: Notes) -> None:
    await notes.write(LAMPS)

    plain = await notes.searcher(without_embedder=True).answer("red lamp")
    differing = await notes.searcher(MMR, without_embedder=True).answer("red lamp")

    earned = {result.path: result.score for result in plain.results}
    scores = [result.score for result in differing.results]
    assert scores == sorted(scores, reverse=True)
    assert all(result.score <= earned[result.path] for result in differing.results)


EVERYTHING: dict[str, object] = {
    "sources": ["memory", "sessions"],
    **ranked_by(mmr={"enabled": True}, temporalDecay={"enabled": True}),
}


@pytest.mark.parametrize("settings", [DECAY, MMR, EVERYTHING], ids=["decay", "mmr", "everything"])
async def test_however_results_are_ordered_a_short_answer_begins_the_long_one(
    notes: Notes, settings: dict[str, object]
) -> None:
    """Also beyond the candidates that are looked at first, and with any least score."""
    colours = ("red", "blue", "green")
    await notes.write(
        {
            f"memory/2026-01-{1 + at % 31:02}-{at}.md": f"the {colours[at % 3]} lamp {at % 7} of {at}"
            for at in range(90)
        }
    )
    await notes.write({f"sessions/{at}.jsonl": f"a red lamp {at % 5}" for at in range(60)}, source="sessions")
    searcher = notes.searcher(settings, without_embedder=True)

    longest = (await searcher.answer("red lamp 3", SearchOptions(max_results=200))).results
    scores = [result.score for result in longest]
    assert scores == sorted(scores, reverse=True)
    assert len({result.path for result in longest}) == len(longest) == 150
    for wanted in (1, 2, 5, 30, 70, 120):
        short = await searcher.answer("red lamp 3", SearchOptions(max_results=wanted))
        assert short.results == longest[:wanted]
    cut = await searcher.answer("red lamp 3", SearchOptions(max_results=200, min_score=0.4))
    assert list(cut.results) == [hit for hit in longest if hit.exact or hit.score >= 0.4]


async def test_the_order_lasts_through_the_public_door(tmp_path: Path) -> None:
    """Several memories are merged by score, so an order that scores do not show would be undone."""
    write_notes(tmp_path / "notes", LAMPS)
    query = {"dedup": "overlap"}
    settings = {"memory": {"embedding": {"provider": "none"}, "query": query, "builtin": MMR}}

    async with open_memory(tmp_path / "notes", tmp_path / "state", settings) as memory:
        await memory.sync()
        response = await memory.query("red lamp")

    assert [result.path for result in response.results] == [f"memory/{name}.md" for name in "acbd"]


# --- notes among transcripts ---

BOTH: dict[str, object] = {"sources": ["memory", "sessions"]}


async def test_transcripts_do_not_crowd_out_notes(notes: Notes) -> None:
    await notes.write({f"sessions/{at}.jsonl": "red lamp" for at in range(120)}, source="sessions")
    await notes.write(
        {f"memory/{at}.md": f"the red lamp, among {at} other things of this house" for at in range(3)}
    )

    answer = await notes.searcher(BOTH, without_embedder=True).answer("red lamp")

    assert [result.source for result in answer.results] == ["sessions", "memory"] * 3
    assert [result.score for result in answer.results] == sorted(
        (result.score for result in answer.results), reverse=True
    )


async def test_without_transcripts_among_the_sources_nothing_is_balanced(notes: Notes) -> None:
    await notes.write({f"sessions/{at}.jsonl": "red lamp" for at in range(3)}, source="sessions")
    await notes.write({"memory/a.md": "the red lamp, among other things of this house"})

    answer = await notes.searcher(without_embedder=True).answer("red lamp")

    assert [result.source for result in answer.results] == ["sessions"] * 3 + ["memory"]


async def test_notes_are_found_by_meaning_among_many_transcripts(notes: Notes) -> None:
    await notes.add(*(f"lamp{at} talk about water" for at in range(60)))
    await notes.file.write(
        lambda connection: connection.execute("UPDATE chunks SET source = 'sessions'").close()
    )
    await notes.add("garden talk about all that needs water")

    settings = {**BOTH, "store": {"fts": {"enabled": False}}}
    answer = await notes.searcher(settings).answer("talk about water")

    assert "garden.md" in paths(answer)


# --- how much vectors count ---


class BlurredEmbedder(HashEmbedder):
    """To it all texts are nearly alike, as those of a script that it cannot read."""

    async def embed(self, input: EmbedderInput) -> Sequence[float]:  # noqa: A002 - the interface's name
        return [value + 5.0 for value in await super().embed(input)]


@pytest.mark.parametrize(("embedder", "is_full"), [(HashEmbedder(), True), (BlurredEmbedder(), False)])
async def test_vectors_that_tell_no_texts_apart_count_less(
    notes: Notes, embedder: HashEmbedder, is_full: bool
) -> None:
    notes.embedder = embedder
    await notes.add("deploy the staging server", *(f"note{at} of house {at * 7}" for at in range(40)))

    by_default = await notes.searcher().answer("zebra staging")
    in_full = await notes.searcher(ranked_by(vectorWeight=0.3)).answer("zebra staging")

    scores = by_default.results[-1].score, in_full.results[-1].score
    assert (scores[0] == pytest.approx(scores[1])) is is_full
    assert scores[0] <= scores[1]


# --- a provider in trouble ---


def vectors_of(file: SqliteFile, embedder: EmbedderAdapter, *, rest_s: float = 30.0) -> VectorSearch:
    return VectorSearch(
        file,
        settings=VectorSettings(),
        embedder=embedder,
        space=EmbeddingSpace.of(embedder),
        embed_timeout_s=10.0,
        rest_s=rest_s,
    )


async def test_a_provider_that_keeps_failing_is_left_alone_for_a_while(file: SqliteFile) -> None:
    embedder = FailingEmbedder(2)
    vectors = vectors_of(file, embedder)
    for problem in ("it was asked to fail", "it was asked to fail", "it will be retried in 30 s"):
        with pytest.raises(EmbeddingError, match=problem):
            await vectors.embed("where is the lamp?")

    assert embedder.texts == []


async def test_after_its_rest_a_provider_is_asked_again(file: SqliteFile) -> None:
    vectors = vectors_of(file, FailingEmbedder(2), rest_s=0.0)
    for _ in range(2):
        with pytest.raises(EmbeddingError):
            await vectors.embed("where is the lamp?")

    assert await vectors.embed("where is the lamp?") is not None


def test_words_answer_before_the_deadline_of_a_provider_that_hangs() -> None:
    assert QuerySettings().timeout_ms / 2 > EMBED_TIMEOUT_S * 1000
