"""A store of vectors of an installed package: the builtin memory's searches by meaning go through it."""

import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import apsw
import pytest

from composable_memory import open_memory
from composable_memory.errors import ConfigError
from composable_memory.types import QueryResponse
from composable_memory_adapters.embedders.wordllama import WordLlamaEmbedder
from composable_memory_adapters.vectors.in_memory import InMemoryVectors
from tests.calls import watching_calls
from tests.installed_packages import install
from tests.notes import write_notes

PLUGIN = """
import json
from contextlib import asynccontextmanager
from composable_memory.content import VectorQuery, VectorQueryResult
from composable_memory.interfaces import VectorSpec
from composable_memory_adapters.vectors.in_memory import InMemoryVectors

calls = []

class Plain:
    def __init__(self, services):
        self.vectors = InMemoryVectors(services.dimensions)

    async def upsert(self, records):
        calls.append(f"upsert {len(records)}")
        await self.vectors.upsert(records)

    async def delete(self, ids):
        calls.append(f"delete {len(ids)}")
        await self.vectors.delete(ids)

    async def query(self, query):
        return await self.vectors.query(query)

class Farthest(Plain):
    async def query(self, query):
        opposite = VectorQuery(vector=[-value for value in query.vector], top_k=query.top_k)
        return await self.vectors.query(opposite)

class Nothing(Plain):
    async def query(self, query):
        return VectorQueryResult()

class Broken(Plain):
    async def query(self, query):
        raise ConnectionError("nobody listens")

class Persistent(Plain):
    kept = {}

    def __init__(self, services):
        super().__init__(services)
        self.vectors = self.kept.setdefault(services.collection, self.vectors)

    async def ids(self):
        calls.append("ids")
        return await self.vectors.ids()

def spec_of(kind):
    @asynccontextmanager
    async def open(services):
        yield kind(services)
        calls.append("closed")
    return VectorSpec(id=kind.__name__.lower(), summary="a store for a test", open=open)

plain, farthest, nothing, broken, persistent = map(spec_of, (Plain, Farthest, Nothing, Broken, Persistent))
"""
NAMES = ("plain", "farthest", "nothing", "broken", "persistent")
NOTES = {
    "memory/boat.md": "The boat leaks and has to be caulked before it sails again.",
    "memory/lunch.md": "The canteen serves noodles and soup on Tuesdays.",
    "memory/salary.md": "Wages are paid on the last day of each month.",
    "memory/garden.md": "Tomatoes want water every evening in July.",
}
QUESTION = "ship repair"
"""Shares no word with a note, so that only vectors can find one."""


@pytest.fixture
def folders(tmp_path: Path, state_dir: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Path, Path]]:
    site = tmp_path / "site"
    entries = "\n".join(f"{name} = vectors_of_this_test:{name}" for name in NAMES)
    entry_points = f"[composable_memory.vectors]\n{entries}\n"
    install(site, "vectors-of-this-test", entry_points, vectors_of_this_test=PLUGIN)
    monkeypatch.syspath_prepend(site)
    workspace = tmp_path / "notes"
    write_notes(workspace, NOTES)
    yield workspace, state_dir
    sys.modules.pop("vectors_of_this_test", None)


def engine(name: str) -> dict[str, object]:
    return {"embedding": {"provider": "wordllama"}, "builtin": {"store": {"vector": {"engine": name}}}}


async def asked(folders: tuple[Path, Path], config: dict[str, object]) -> QueryResponse:
    async with open_memory(*folders, config) as memory:
        await memory.sync()
        return await memory.query(QUESTION)


def paths(response: QueryResponse) -> list[str]:
    return [result.path for result in response.results]


def noted() -> list[str]:
    calls: list[str] = sys.modules["vectors_of_this_test"].calls
    return calls


async def test_a_query_of_the_default_memory_goes_through_the_interfaces(folders: tuple[Path, Path]) -> None:
    async with open_memory(*folders, engine("auto")) as memory:
        await memory.sync()
        with watching_calls() as called:
            response = await memory.query(QUESTION)

    assert paths(response)[0] == "memory/boat.md"
    assert InMemoryVectors.query.__code__ in called
    assert WordLlamaEmbedder.embed.__code__ in called


async def test_a_store_of_a_package_answers_as_our_own_does(folders: tuple[Path, Path]) -> None:
    own, theirs = await asked(folders, engine("auto")), await asked(folders, engine("plain"))

    assert paths(theirs) == paths(own)
    assert [one.score for one in theirs.results] == pytest.approx([one.score for one in own.results])
    assert theirs.degraded == ()
    assert theirs.answers[0].engines["vector"] == "plain"
    assert noted() == ["upsert 4", "closed"]


async def test_what_the_store_returns_decides(folders: tuple[Path, Path]) -> None:
    near = await asked(folders, engine("plain"))
    far = await asked(folders, engine("farthest"))
    none = await asked(folders, engine("nothing"))

    assert paths(near)[0] == "memory/boat.md"
    assert "memory/boat.md" not in paths(far)[:1]
    assert paths(none) == []


async def test_it_follows_the_notes(folders: tuple[Path, Path]) -> None:
    async with open_memory(*folders, engine("plain")) as memory:
        await memory.sync()
        await memory.query(QUESTION)
        (folders[0] / "memory/boat.md").unlink()
        (folders[0] / "memory/yard.md").write_text("The ship is in the yard.", "utf-8")
        await memory.sync()
        response = await memory.query(QUESTION)

    assert paths(response)[0] == "memory/yard.md"
    assert noted() == ["upsert 4", "delete 1", "upsert 1", "closed"]


async def test_one_that_outlives_the_process_is_handed_only_what_it_lacks(folders: tuple[Path, Path]) -> None:
    first = await asked(folders, engine("persistent"))
    again = await asked(folders, engine("persistent"))

    assert paths(first) == paths(again) != []
    assert noted() == ["ids", "upsert 4", "closed", "ids", "closed"]


async def test_only_what_has_changed_is_read_to_follow_the_notes(folders: tuple[Path, Path]) -> None:
    boat = folders[0] / "memory/boat.md"
    async with open_memory(*folders, engine("persistent")) as memory:
        await memory.sync()
        await memory.query(QUESTION)
        text = boat.read_text("utf-8")
        boat.unlink()
        await memory.sync()
        without = await memory.query(QUESTION)
        boat.write_text(text, "utf-8")  # its vector is in the cache, under the number that it had
        await memory.sync()
        again = await memory.query(QUESTION)

    assert "memory/boat.md" not in paths(without)
    assert paths(again)[0] == "memory/boat.md"
    assert noted() == ["ids", "upsert 4", "delete 1", "upsert 1", "closed"]


async def test_a_rebuilt_index_is_compared_as_a_whole(folders: tuple[Path, Path]) -> None:
    async with open_memory(*folders, engine("persistent")) as memory:
        await memory.sync()
        before = await memory.query(QUESTION)
        await memory.sync(force=True)
        after = await memory.query(QUESTION)

    assert paths(after) == paths(before)
    assert noted() == ["ids", "upsert 4", "ids", "closed"]


async def test_changes_that_the_log_has_dropped_are_found_by_comparing(folders: tuple[Path, Path]) -> None:
    async with open_memory(*folders, engine("persistent")) as memory:
        await memory.sync()
        await memory.query(QUESTION)
        (folders[0] / "memory/boat.md").unlink()
        (folders[0] / "memory/yard.md").write_text("The ship is in the yard.", "utf-8")
        await memory.sync()
        (index,) = (folders[1] / "memory").glob("*.sqlite")
        with closing(apsw.Connection(str(index))) as connection:
            last = connection.execute("SELECT max(position) FROM vector_changes").get
            connection.execute("DELETE FROM vector_changes WHERE position < ?", (last,))
        response = await memory.query(QUESTION)

    assert paths(response)[0] == "memory/yard.md"
    assert "memory/boat.md" not in paths(response)
    assert noted() == ["ids", "upsert 4", "ids", "delete 1", "upsert 1", "closed"]


async def test_one_that_fails_leaves_the_words_and_is_named(folders: tuple[Path, Path]) -> None:
    async with open_memory(*folders, engine("broken")) as memory:
        await memory.sync()
        response = await memory.query("noodles")

    assert paths(response) == ["memory/lunch.md"]
    (degraded,) = response.degraded
    assert degraded.code == "keyword-only"
    assert "broken" in degraded.reason
    assert "nobody listens" in degraded.reason


async def test_an_engine_that_nobody_offers_is_refused_with_those_there_are(
    folders: tuple[Path, Path],
) -> None:
    with pytest.raises(ConfigError) as refused:
        async with open_memory(*folders, engine("fasst")):
            pass

    assert all(name in str(refused.value) for name in ("fasst", *NAMES))


async def test_a_store_is_not_opened_anew_after_something_was_forgotten(folders: tuple[Path, Path]) -> None:
    workspace, _ = folders
    async with open_memory(*folders, engine("plain")) as memory:
        await memory.sync()
        await memory.query(QUESTION)
        plan = await memory.plan_forgetting("tomatoes want water every evening")
        await memory.forget(plan.token)
        for number in range(2):
            (workspace / f"memory/{number}.md").write_text(f"The ship is in yard {number}.", "utf-8")
            await memory.sync()
            response = await memory.query(QUESTION)

    assert response.answers[0].engines["vector"] == "plain"
    assert sys.modules["vectors_of_this_test"].calls.count("closed") == 1
