"""The store of vectors in memory, as a `VectorAdapter`."""

import asyncio

import pytest

from composable_memory.content import VectorMatch, VectorQuery, VectorRecord
from composable_memory.errors import DimensionMismatch
from composable_memory.interfaces import SupportsDelete, SupportsHealth, VectorAdapter
from composable_memory_adapters.vectors.in_memory import InMemoryVectors, satisfies


def record(id_: str, *values: float, **metadata: str | bool | int) -> VectorRecord:
    return VectorRecord(id=id_, values=values, metadata=metadata)


def ask(*vector: float, top_k: int = 10, **wanted: str | bool | int) -> VectorQuery:
    return VectorQuery(vector=vector, top_k=top_k, filter=wanted or None)


async def found(store: InMemoryVectors, query: VectorQuery) -> list[str]:
    return [match.id for match in (await store.query(query)).matches]


def test_it_keeps_its_promises() -> None:
    store = InMemoryVectors()

    assert isinstance(store, VectorAdapter)
    assert isinstance(store, SupportsDelete)
    assert isinstance(store, SupportsHealth)


async def test_the_nearest_come_first_with_score_and_metadata() -> None:
    store = InMemoryVectors()
    await store.upsert([record("far", 0, 1), record("near", 3, 0, kind="note")])

    answer = await store.query(ask(2, 0, top_k=1))

    assert answer.matches == (VectorMatch(id="near", score=1.0, metadata={"kind": "note"}),)


async def test_storing_an_id_again_replaces_it() -> None:
    store = InMemoryVectors()
    await store.upsert([record("a", 1, 0, kind="old"), record("b", 0, 1)])

    await store.upsert([record("a", 0, -1, kind="new")])

    assert await found(store, ask(0, -1)) == ["a", "b"]
    assert (await store.query(ask(0, -1, top_k=1))).matches[0].metadata == {"kind": "new"}


async def test_the_last_record_of_an_id_in_one_call_counts() -> None:
    store = InMemoryVectors()

    await store.upsert([record("a", 1, 0), record("a", 0, 1)])

    assert (await store.query(ask(0, 1))).matches == (VectorMatch(id="a", score=1.0),)


async def test_equal_scores_come_in_the_order_of_storing() -> None:
    store = InMemoryVectors()
    await store.upsert([record(id_, 1, 0) for id_ in ("c", "a", "b")])

    assert await found(store, ask(1, 0, top_k=2)) == ["c", "a"]


async def test_a_filter_keeps_records_with_these_values() -> None:
    store = InMemoryVectors()
    await store.upsert(
        [record("a", 1, 0, lang="en"), record("b", 1, 0, lang="de"), record("c", 0, 1, lang="de")]
    )

    assert await found(store, ask(1, 0, lang="de")) == ["b", "c"]
    assert await found(store, ask(1, 0, top_k=1, lang="de")) == ["b"]
    assert await found(store, ask(1, 0, lang="fr")) == []


def test_true_does_not_satisfy_one_and_absent_does_not_satisfy_null() -> None:
    assert satisfies({"n": 1}, {"n": 1.0})
    assert not satisfies({"n": 1}, {"n": True})
    assert not satisfies({}, {"n": None})


async def test_a_deleted_record_is_gone_and_unknown_ids_are_fine() -> None:
    store = InMemoryVectors()
    await store.upsert([record("a", 1, 0), record("b", 0, 1)])

    await store.delete(["a", "nobody", "a"])

    assert await found(store, ask(1, 0)) == ["b"]


async def test_another_length_is_refused_and_changes_nothing() -> None:
    store = InMemoryVectors()
    await store.upsert([record("a", 1, 0)])

    with pytest.raises(DimensionMismatch) as caught:
        await store.upsert([record("b", 0, 1), record("c", 1, 2, 3)])

    assert (caught.value.expected, caught.value.got) == (2, 3)
    assert await found(store, ask(0, 1)) == ["a"]
    with pytest.raises(DimensionMismatch):
        await store.query(ask(1, 2, 3))


async def test_records_of_unlike_length_do_not_decide_the_length() -> None:
    store = InMemoryVectors()
    with pytest.raises(DimensionMismatch):
        await store.upsert([record("a", 1), record("b", 1, 2)])

    await store.upsert([record("b", 1, 2)])

    assert await found(store, ask(1, 2)) == ["b"]


async def test_a_length_given_at_the_start_holds_from_the_first_record_on() -> None:
    with pytest.raises(DimensionMismatch):
        await InMemoryVectors(dims=3).upsert([record("a", 1, 0)])


@pytest.mark.parametrize("query", [ask(1, 0, top_k=0), ask(0, 0)])
async def test_asking_for_nothing_or_without_direction_finds_nothing(query: VectorQuery) -> None:
    store = InMemoryVectors()
    await store.upsert([record("a", 1, 0)])

    assert await found(store, query) == []


async def test_an_empty_store_answers_any_query() -> None:
    store = InMemoryVectors()
    await store.upsert([])

    assert await found(store, ask(1, 2, 3)) == []
    assert (await store.health()).ok


async def test_concurrent_changes_all_arrive() -> None:
    store = InMemoryVectors()

    await asyncio.gather(*(store.upsert([record(f"r{number}", 1, number)]) for number in range(20)))
    await asyncio.gather(*(store.delete([f"r{number}"]) for number in range(0, 20, 2)))

    assert sorted(await found(store, ask(1, 1, top_k=99))) == sorted(f"r{n}" for n in range(1, 20, 2))
