"""The engines that find near vectors in memory."""

from collections.abc import Sequence

import numpy as np
import pytest

from composable_memory_adapters.vectors.resident import (
    ExactVectors,
    Ids,
    Matrix,
    ResidentVectors,
    SignBits,
    from_bytes,
    unit_rows,
)

DIMS = 96


class Store:
    """What a database would hold: all vectors by id."""

    def __init__(self) -> None:
        self.rows: dict[int, Matrix] = {}
        self.fetched: list[int] = []

    def put(self, vectors: ResidentVectors, ids: Sequence[int], matrix: Matrix) -> None:
        self.rows |= dict(zip(ids, matrix, strict=True))
        vectors.add(ids, matrix)

    def fetch(self, ids: Ids) -> tuple[Ids, Matrix]:
        known = [id_ for id_ in ids.tolist() if id_ in self.rows]
        self.fetched += known
        matrix = np.array([self.rows[id_] for id_ in known], dtype=np.float32).reshape(len(known), DIMS)
        return np.array(known, dtype=np.int64), matrix


def random_units(count: int, seed: int = 0) -> Matrix:
    random = np.random.default_rng(seed)
    return unit_rows(random.standard_normal((count, DIMS), dtype=np.float32))


def axis(index: int, sign: float = 1.0) -> Matrix:
    vector = np.zeros(DIMS, dtype=np.float32)
    vector[index] = sign
    return vector


@pytest.fixture(params=["exact", "bits"])
def vectors(request: pytest.FixtureRequest) -> ResidentVectors:
    return ExactVectors(DIMS) if request.param == "exact" else SignBits(DIMS)


@pytest.fixture
def store() -> Store:
    return Store()


def test_the_nearest_come_first_with_their_cosines(vectors: ResidentVectors, store: Store) -> None:
    diagonal = unit_rows(np.array([axis(0) + axis(1)]))[0]
    store.put(vectors, [7, 3, 5], np.array([axis(1), diagonal, axis(0)]))

    found = vectors.search(axis(0) * 4, 3, store.fetch)

    assert [id_ for id_, _ in found] == [5, 3, 7]
    assert [cosine for _, cosine in found] == pytest.approx([1.0, 0.5**0.5, 0.0])


def test_equal_cosines_are_ordered_by_id(vectors: ResidentVectors, store: Store) -> None:
    store.put(vectors, [9, 2, 4, 1], np.array([axis(0)] * 4))

    found = vectors.search(axis(0), 2, store.fetch)

    assert found == [(1, 1.0), (2, 1.0)]


def test_no_more_are_returned_than_there_are(vectors: ResidentVectors, store: Store) -> None:
    store.put(vectors, [1, 2], random_units(2))

    assert len(vectors.search(axis(0), 10, store.fetch)) == 2


def test_nothing_is_found_where_nothing_is_kept(vectors: ResidentVectors, store: Store) -> None:
    assert vectors.search(axis(0), 5, store.fetch) == []


def test_a_query_without_direction_has_no_neighbours(vectors: ResidentVectors, store: Store) -> None:
    store.put(vectors, [1], random_units(1))

    assert vectors.search(np.zeros(DIMS), 5, store.fetch) == []
    assert vectors.cosines(np.zeros(DIMS), [1], store.fetch) == {}


def test_a_removed_vector_is_not_found_and_unknown_ids_are_fine(
    vectors: ResidentVectors, store: Store
) -> None:
    store.put(vectors, [1, 2, 3], random_units(3))

    vectors.remove([2, 99])

    assert vectors.ids.tolist() == [1, 3]
    assert {id_ for id_, _ in vectors.search(axis(0), 5, store.fetch)} == {1, 3}


def test_adding_an_id_again_replaces_its_vector(vectors: ResidentVectors, store: Store) -> None:
    store.put(vectors, [1, 2], np.array([axis(0), axis(1)]))

    store.put(vectors, [1], np.array([axis(2)]))

    assert vectors.ids.tolist() == [1, 2]
    assert vectors.search(axis(2), 1, store.fetch) == [(1, 1.0)]


def test_ids_are_kept_in_order_however_they_come(vectors: ResidentVectors, store: Store) -> None:
    store.put(vectors, [5, 1], np.array([axis(5), axis(1)]))
    store.put(vectors, [3], np.array([axis(3)]))

    assert vectors.ids.tolist() == [1, 3, 5]
    assert vectors.search(axis(3), 1, store.fetch) == [(3, 1.0)]


def test_cosines_are_given_for_what_is_present(vectors: ResidentVectors, store: Store) -> None:
    store.put(vectors, [1, 2, 3], np.array([axis(0), axis(0, -1.0), axis(1)]))

    assert vectors.cosines(axis(0), [2, 1, 77], store.fetch) == {1: 1.0, 2: -1.0}


@pytest.mark.parametrize("broken", [np.nan, np.inf])
def test_a_damaged_vector_hides_no_other(vectors: ResidentVectors, store: Store, broken: float) -> None:
    store.put(vectors, [1, 2, 3], np.array([np.full(DIMS, broken), axis(0), axis(1)], dtype=np.float32))

    assert vectors.search(axis(0), 1, store.fetch) == [(2, 1.0)]


def test_a_matrix_that_does_not_fit_is_refused(vectors: ResidentVectors) -> None:
    with pytest.raises(ValueError, match="matrix"):
        vectors.add([1, 2], random_units(1))


def test_the_callers_matrix_may_change_afterwards() -> None:
    vectors, matrix = ExactVectors(DIMS), np.array([axis(0)])
    vectors.add([1], matrix)

    matrix[:] = 0

    assert vectors.search(axis(0), 1) == [(1, 1.0)]


def test_bits_take_an_eighth_of_a_byte_a_dimension_and_an_id() -> None:
    vectors = SignBits(256)

    vectors.add(range(1000), np.ones((1000, 256), dtype=np.float32))

    assert vectors.nbytes == 1000 * (256 // 8 + 8)


def test_bits_find_what_the_exact_comparison_finds_and_fetch_little(store: Store) -> None:
    matrix = random_units(20_000)
    ids = range(1, len(matrix) + 1)
    bits, exact = SignBits(DIMS, rescored=800), ExactVectors(DIMS)
    store.put(bits, ids, matrix)
    exact.add(ids, matrix)
    found = wanted = 0

    for query in matrix[:20] + 0.1 * random_units(20, seed=1):
        best = {id_ for id_, _ in exact.search(query, 10)}
        found += len(best & {id_ for id_, _ in bits.search(query, 10, store.fetch)})
        wanted += len(best)

    assert found / wanted > 0.9
    assert len(store.fetched) / 20 < 0.05 * len(matrix)


def test_bits_return_only_what_the_store_still_has(store: Store) -> None:
    vectors = SignBits(DIMS)
    store.put(vectors, [1, 2], np.array([axis(0), axis(1)]))

    del store.rows[1]

    assert vectors.search(axis(0), 2, store.fetch) == [(2, 0.0)]


def test_many_equal_vectors_do_not_swell_the_shortlist(store: Store) -> None:
    vectors = SignBits(DIMS, oversample=4, rescored=8)
    store.put(vectors, range(5000), np.repeat(random_units(1), 5000, axis=0))

    found = vectors.search(store.rows[0], 3, store.fetch)

    assert [id_ for id_, _ in found] == [0, 1, 2]
    assert len(store.fetched) == 12


def test_a_search_under_way_keeps_the_vectors_it_began_with() -> None:
    vectors, store = SignBits(DIMS), Store()
    store.put(vectors, [1, 2], np.array([axis(0), axis(1)]))

    def fetch_while_another_thread_removes(ids: Ids) -> tuple[Ids, Matrix]:
        vectors.remove([1])
        return store.fetch(ids)

    assert vectors.search(axis(0), 1, fetch_while_another_thread_removes) == [(1, 1.0)]
    assert vectors.ids.tolist() == [2]


def test_bytes_become_rows() -> None:
    assert np.array_equal(
        from_bytes(axis(0).tobytes() + axis(1).tobytes(), DIMS), np.array([axis(0), axis(1)])
    )
    assert from_bytes(b"", DIMS).shape == (0, DIMS)


def test_unit_rows_leave_the_zero_vector_alone() -> None:
    rows = unit_rows(np.array([[3.0, 4.0], [0.0, 0.0]], dtype=np.float32))

    assert rows.tolist() == [[pytest.approx(0.6), pytest.approx(0.8)], [0.0, 0.0]]
