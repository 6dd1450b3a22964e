"""What holds for vectors in memory whatever is added, removed and asked."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from composable_memory_adapters.vectors.resident import ExactVectors, Ids, Matrix, SignBits, unit_rows

DIMS = 70
"""More than one word of bits, and no multiple of it."""

ids = st.integers(min_value=-(2**40), max_value=2**40)
seeds = st.integers(min_value=0, max_value=2**32 - 1)


def random_units(count: int, seed: int) -> Matrix:
    random = np.random.default_rng(seed)
    return unit_rows(random.standard_normal((count, DIMS), dtype=np.float32))


class KeepsUp(RuleBasedStateMachine):
    """Both engines hold what a dict would hold, after any adding, replacing and removing."""

    @initialize()
    def begin(self) -> None:
        self.model: dict[int, Matrix] = {}
        self.engines = (ExactVectors(DIMS), SignBits(DIMS, oversample=1, rescored=1))

    @rule(some=st.lists(ids, max_size=12, unique=True), seed=seeds)
    def add(self, some: list[int], seed: int) -> None:
        matrix = random_units(len(some), seed)
        self.model |= dict(zip(some, matrix, strict=True))
        for engine in self.engines:
            engine.add(some, matrix)

    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        some = data.draw(st.lists(st.sampled_from(sorted(self.model)) | ids if self.model else ids))
        for id_ in some:
            self.model.pop(id_, None)
        for engine in self.engines:
            engine.remove(some)

    @rule(seed=seeds, k=st.integers(min_value=1, max_value=30))
    def search(self, seed: int, k: int) -> None:
        query = random_units(1, seed)[0]
        exact, bits = self.engines
        expected = sorted(self.model, key=lambda id_: (-np.vecdot(self.model[id_], query), id_))[:k]

        assert [id_ for id_, _ in exact.search(query, k)] == expected
        found = bits.search(query, k, self.fetch)
        assert len(found) == min(k, len(self.model))
        assert found == sorted(found, key=lambda neighbour: (-neighbour[1], neighbour[0]))
        assert all(-1.0 <= cosine <= 1.0 for _, cosine in found)

    @rule(seed=seeds, some=st.lists(ids, max_size=5))
    def cosines(self, seed: int, some: list[int]) -> None:
        query = random_units(1, seed)[0]
        asked = [*some, *sorted(self.model)[:5]]

        for engine in self.engines:
            assert engine.cosines(query, asked, self.fetch).keys() == self.model.keys() & set(asked)

    @invariant()
    def the_ids_are_those_of_the_model(self) -> None:
        for engine in self.engines:
            assert engine.ids.tolist() == sorted(self.model)

    def fetch(self, wanted: Ids) -> tuple[Ids, Matrix]:
        rows = [self.model[id_] for id_ in wanted.tolist()]
        return wanted, np.array(rows, dtype=np.float32).reshape(len(rows), DIMS)


TestKeepsUp = KeepsUp.TestCase


@given(seed=seeds, k=st.integers(min_value=1, max_value=200))
def test_bits_that_rescore_everything_are_exact(seed: int, k: int) -> None:
    matrix = random_units(150, seed)
    exact, bits = ExactVectors(DIMS), SignBits(DIMS)
    for engine in (exact, bits):
        engine.add(range(150), matrix)
    query = random_units(1, seed + 1)[0]

    assert bits.search(query, k, lambda wanted: (wanted, matrix[wanted])) == exact.search(query, k)


@given(seed=seeds, factor=st.floats(min_value=1e-3, max_value=1e3))
def test_the_length_of_a_query_changes_nothing_but_rounding(seed: int, factor: float) -> None:
    vectors = ExactVectors(DIMS)
    vectors.add(range(30), random_units(30, seed))
    query = random_units(1, seed + 1)[0]

    plain, scaled = vectors.search(query, 30), vectors.search(query * np.float32(factor), 30)

    np.testing.assert_allclose([cosine for _, cosine in plain], [cosine for _, cosine in scaled], atol=1e-5)
