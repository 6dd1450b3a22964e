"""What holds for stores of vectors whatever is added, removed, filed and asked."""

import asyncio
import shutil
import sys
import tempfile
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from composable_memory.content import VectorQuery
from composable_memory_adapters.vectors import int8_file
from composable_memory_adapters.vectors.in_memory import (
    ExactVectors,
    InMemoryVectors,
    Matrix,
    unit_rows,
)
from composable_memory_adapters.vectors.int8_file import Codes
from composable_memory_adapters.vectors.mapped import FEWEST_MORE, MappedVectors

DIMS = 70
CLOSE = 5e-5
"""How far a cosine from a file may be off: the root of `DIMS` times a 500th of the scale of such vectors."""
RECENT = 6
"""As many vectors may be in memory before they are put into the file."""

ids = st.integers(min_value=0, max_value=60)
seeds = st.integers(min_value=0, max_value=2**32 - 1)


def random_units(count: int, seed: int, dims: int = DIMS) -> Matrix:
    random = np.random.default_rng(seed)
    return unit_rows(random.standard_normal((count, dims), dtype=np.float32))


class Elsewhere:
    """Has every vector there ever was, as an index has for a while."""

    def __init__(self) -> None:
        self.vectors = ExactVectors(DIMS)

    def new_key(self) -> str:
        return "index"

    async def publish(self, made: Path, place: Path, key: str) -> None:
        await asyncio.to_thread(made.replace, place)


class FollowsAnIndex(RuleBasedStateMachine):
    """A store in memory and a mapped one hold what a dict would hold, also after the file was torn."""

    @initialize()
    def begin(self) -> None:
        self.model: dict[int, Matrix] = {}
        self.log: list[int] = []
        self.next_id = 0
        self.runner = asyncio.Runner()
        self.folder = Path(tempfile.mkdtemp())
        self.file = self.folder / "vectors"
        self.elsewhere = Elsewhere()
        self.exact = InMemoryVectors(DIMS)
        self.open()

    def teardown(self) -> None:
        self.runner.close()
        shutil.rmtree(self.folder)

    @rule()
    def open(self) -> None:
        self.mapped = MappedVectors(
            self.file, key="index", dims=DIMS, stored=self.elsewhere, recent_bytes=RECENT * 4 * DIMS
        )
        self.runner.run(self.mapped.open())
        since = self.mapped.position
        if since is None:
            self.runner.run(self.mapped.fill(self.everything, len(self.log)))
        else:
            changed = set(self.log[since:])
            self.runner.run(self.mapped.delete([str(id_) for id_ in changed - self.model.keys()]))
            self.put(self.mapped, sorted(changed & self.model.keys()))
            self.settle()

    async def everything(self) -> AsyncIterator[tuple[Sequence[int], bytes]]:
        for start in range(0, len(self.model), 4):
            some = sorted(self.model)[start : start + 4]
            yield some, b"".join(self.model[id_].tobytes() for id_ in some)

    @rule(count=st.integers(min_value=0, max_value=12), seed=seeds)
    def add(self, count: int, seed: int) -> None:
        new = range(self.next_id, self.next_id + count)
        self.next_id += count
        matrix = random_units(count, seed)
        self.elsewhere.vectors.add(new, matrix)
        self.model |= dict(zip(new, matrix, strict=True))
        self.follow(new)

    @rule(some=st.lists(ids, max_size=8, unique=True))
    def remove(self, some: list[int]) -> None:
        for id_ in some:
            self.model.pop(id_, None)
        for store in (self.exact, self.mapped):
            self.runner.run(store.delete([str(id_) for id_ in some]))
        self.log += some
        self.settle()

    @rule(some=st.lists(ids, max_size=4, unique=True))
    def come_back(self, some: list[int]) -> None:
        known, matrix = self.elsewhere.vectors.fetch(some)
        self.model |= dict(zip(known.tolist(), matrix, strict=True))
        self.follow(known.tolist())

    @rule(data=st.data())
    def damage(self, data: st.DataObject) -> None:
        """The process keeps what it has mapped; whoever opens the file next must not trust it."""
        if not self.file.exists():
            return
        content = bytearray(self.file.read_bytes())
        if data.draw(st.booleans()):
            del content[data.draw(st.integers(min_value=0, max_value=len(content) - 1)) :]
        else:
            content[data.draw(st.integers(min_value=0, max_value=len(content) - 1))] ^= 0x40
        torn = self.folder / "torn"
        torn.write_bytes(content)
        torn.replace(self.file)
        self.open()

    @rule(seed=seeds, k=st.integers(min_value=1, max_value=30))
    def search(self, seed: int, k: int) -> None:
        (query,) = random_units(1, seed)
        cosines = {id_: float(np.vecdot(vector, query)) for id_, vector in self.model.items()}
        asked = VectorQuery(vector=query.tolist(), top_k=k)
        for store in (self.exact, self.mapped):
            found = self.runner.run(store.query(asked)).matches
            assert len(found) == min(k, len(self.model))
            assert [match.score for match in found] == sorted((one.score for one in found), reverse=True)
            for match in found:
                assert match.score == pytest.approx(cosines[int(match.id)], abs=CLOSE)
            assert store.cosines(query, range(self.next_id)) == pytest.approx(cosines, abs=CLOSE)
            if len(self.model) <= k + FEWEST_MORE:
                best = sorted(cosines.values(), reverse=True)[:k]
                assert [match.score for match in found] == pytest.approx(best, abs=CLOSE)

    @invariant()
    def the_ids_are_those_of_the_model(self) -> None:
        for store in (self.exact, self.mapped):
            assert sorted(map(int, self.runner.run(store.ids()))) == sorted(self.model)

    def follow(self, new: Sequence[int]) -> None:
        for store in (self.exact, self.mapped):
            self.put(store, new)
        self.log += new
        self.settle()

    def put(self, store: InMemoryVectors | MappedVectors, some: Sequence[int]) -> None:
        numbers = b"".join(self.model[id_].tobytes() for id_ in some)
        self.runner.run(store.upsert_packed([str(id_) for id_ in some], numbers))

    def settle(self) -> None:
        self.runner.run(self.mapped.settle(len(self.log)))


TestFollowsAnIndex = FollowsAnIndex.TestCase
TestFollowsAnIndex.settings = settings(max_examples=15, stateful_step_count=25)


@given(
    seed=seeds,
    dims=st.sampled_from([1, 63, 256, 1500]),
    count=st.integers(min_value=1, max_value=1200),
    k=st.integers(min_value=1, max_value=40),
)
def test_numpy_finds_what_simsimd_finds(seed: int, dims: int, count: int, k: int) -> None:
    pytest.importorskip("simsimd")
    codes = Codes.of(range(count), random_units(count, seed, dims)).matrix
    (asked,) = Codes.of([0], random_units(1, seed + 1, dims)).matrix

    by_numpy = int8_file.numpy_products(codes, asked)

    assert np.array_equal(int8_file.products(codes, asked), by_numpy)
    assert np.array_equal(by_numpy, codes.astype(np.int64) @ asked.astype(np.int64))


def test_searching_takes_no_reference_from_none() -> None:
    codes = Codes.of(range(10), random_units(10, 0)).matrix
    before = sys.getrefcount(None)

    for _ in range(10_000):
        int8_file.products(codes, codes[0])

    assert sys.getrefcount(None) > before - 5_000


@given(seed=seeds, gone=st.lists(st.integers(min_value=0, max_value=199), unique=True))
def test_codes_name_the_nearest_without_those_that_are_gone(seed: int, gone: list[int]) -> None:
    matrix, (query,) = random_units(200, seed), random_units(1, seed + 1)
    kept = Codes.of(range(200), matrix)
    left = sorted(set(range(200)) - set(gone))

    found = kept.nearest(query, 48, np.array(sorted(gone), dtype=np.intp)).tolist()

    best = sorted(left, key=lambda id_: -np.vecdot(matrix[id_], query))[:24]
    assert len(found) == min(48, len(left))
    assert set(best) <= set(found) <= set(left)


def test_of_equal_vectors_the_first_are_named() -> None:
    many = int8_file.BLOCK + 1000
    kept = Codes.of(range(many), np.repeat(random_units(1, 0), many, axis=0))

    found = kept.nearest(random_units(1, 0)[0], 30, np.empty(0, dtype=np.intp))

    assert found.tolist() == [*range(30)]


@given(seed=seeds, count=st.integers(min_value=1, max_value=50))
def test_codes_with_what_was_rounded_off_are_nearly_the_vectors(seed: int, count: int) -> None:
    matrix = random_units(count, seed)

    found = Codes.of(range(count), matrix).vectors()

    assert np.abs(np.vecdot(found, matrix) - 1.0).max() < 1e-4
    assert np.linalg.norm(found - matrix, axis=1).max() < 1e-4


@pytest.mark.parametrize("order", [(0, 1, 2), (1, 2, 0), (2, 0, 1)])
def test_the_nearest_of_many_are_found_wherever_they_are(order: Sequence[int]) -> None:
    (query,) = random_units(1, 0)
    near = unit_rows(query + 0.05 * random_units(60, 1))
    far = np.repeat(random_units(64, 2), int8_file.BLOCK // 64, axis=0)
    parts = [far, near, unit_rows(far - query)]
    matrix = np.concatenate([parts[at] for at in order])

    found = Codes.of(range(len(matrix)), matrix).nearest(query, 60, np.empty(0, dtype=np.intp))

    first = sum(len(parts[at]) for at in order[: order.index(1)])
    assert found.tolist() == [*range(first, first + 60)]


def test_vectors_that_are_gone_hide_none_behind_them() -> None:
    (query,) = random_units(1, 0)
    far, many = unit_rows(random_units(1, 1) - query), int8_file.BLOCK
    matrix = np.concatenate([np.repeat(query[None, :], many, axis=0), np.repeat(far, many, axis=0)])

    found = Codes.of(range(2 * many), matrix).nearest(query, 30, np.arange(5, many))

    assert found.tolist() == [*range(5), *range(many, many + 25)]


@given(seed=seeds, factor=st.floats(min_value=1e-3, max_value=1e3))
def test_the_length_of_a_query_changes_nothing_but_rounding(seed: int, factor: float) -> None:
    vectors = ExactVectors(DIMS)
    vectors.add(range(30), random_units(30, seed))
    query = random_units(1, seed + 1)[0]

    plain, scaled = vectors.search(query, 30), vectors.search(query * np.float32(factor), 30)

    np.testing.assert_allclose([cosine for _, cosine in plain], [cosine for _, cosine in scaled], atol=1e-5)
