"""Finding near vectors in memory."""

import numpy as np
import pytest

from composable_memory_adapters.vectors.in_memory import (
    ExactVectors,
    Matrix,
    from_bytes,
    unit_rows,
)

DIMS = 96


def random_units(count: int, seed: int = 0) -> Matrix:
    random = np.random.default_rng(seed)
    return unit_rows(random.standard_normal((count, DIMS), dtype=np.float32))


def axis(index: int, sign: float = 1.0) -> Matrix:
    vector = np.zeros(DIMS, dtype=np.float32)
    vector[index] = sign
    return vector


@pytest.fixture
def vectors() -> ExactVectors:
    return ExactVectors(DIMS)


def test_the_nearest_come_first_with_their_cosines(vectors: ExactVectors) -> None:
    diagonal = unit_rows(np.array([axis(0) + axis(1)]))[0]
    vectors.add([7, 3, 5], np.array([axis(1), diagonal, axis(0)]))

    found = vectors.search(axis(0) * 4, 3)

    assert [id_ for id_, _ in found] == [5, 3, 7]
    assert [cosine for _, cosine in found] == pytest.approx([1.0, 0.5**0.5, 0.0])


def test_equal_cosines_are_ordered_by_id(vectors: ExactVectors) -> None:
    vectors.add([9, 2, 4, 1], np.array([axis(0)] * 4))

    found = vectors.search(axis(0), 2)

    assert found == [(1, 1.0), (2, 1.0)]


def test_no_more_are_returned_than_there_are(vectors: ExactVectors) -> None:
    vectors.add([1, 2], random_units(2))

    assert len(vectors.search(axis(0), 10)) == 2


def test_nothing_is_found_where_nothing_is_kept(vectors: ExactVectors) -> None:
    assert vectors.search(axis(0), 5) == []


def test_a_query_without_direction_has_no_neighbours(vectors: ExactVectors) -> None:
    vectors.add([1], random_units(1))

    assert vectors.search(np.zeros(DIMS), 5) == []
    assert vectors.cosines(np.zeros(DIMS), [1]) == {}


def test_a_removed_vector_is_not_found_and_unknown_ids_are_fine(vectors: ExactVectors) -> None:
    vectors.add([1, 2, 3], random_units(3))

    vectors.remove([2, 99])

    assert vectors.ids.tolist() == [1, 3]
    assert {id_ for id_, _ in vectors.search(axis(0), 5)} == {1, 3}


def test_adding_an_id_again_replaces_its_vector(vectors: ExactVectors) -> None:
    vectors.add([1, 2], np.array([axis(0), axis(1)]))

    vectors.add([1], np.array([axis(2)]))

    assert vectors.ids.tolist() == [1, 2]
    assert vectors.search(axis(2), 1) == [(1, 1.0)]


def test_ids_are_kept_in_order_however_they_come(vectors: ExactVectors) -> None:
    vectors.add([5, 1], np.array([axis(5), axis(1)]))
    vectors.add([3], np.array([axis(3)]))

    assert vectors.ids.tolist() == [1, 3, 5]
    assert vectors.search(axis(3), 1) == [(3, 1.0)]


def test_cosines_are_given_for_what_is_present(vectors: ExactVectors) -> None:
    vectors.add([1, 2, 3], np.array([axis(0), axis(0, -1.0), axis(1)]))

    assert vectors.cosines(axis(0), [2, 1, 77]) == {1: 1.0, 2: -1.0}


@pytest.mark.parametrize("broken", [np.nan, np.inf])
def test_a_damaged_vector_hides_no_other(vectors: ExactVectors, broken: float) -> None:
    vectors.add([1, 2, 3], np.array([np.full(DIMS, broken), axis(0), axis(1)], dtype=np.float32))

    assert vectors.search(axis(0), 1) == [(2, 1.0)]


def test_a_matrix_that_does_not_fit_is_refused(vectors: ExactVectors) -> None:
    with pytest.raises(ValueError, match="matrix"):
        vectors.add([1, 2], random_units(1))


def test_the_callers_matrix_may_change_afterwards() -> None:
    vectors, matrix = ExactVectors(DIMS), np.array([axis(0)])
    vectors.add([1], matrix)

    matrix[:] = 0

    assert vectors.search(axis(0), 1) == [(1, 1.0)]


def test_bytes_become_rows() -> None:
    assert np.array_equal(
        from_bytes(axis(0).tobytes() + axis(1).tobytes(), DIMS), np.array([axis(0), axis(1)])
    )
    assert from_bytes(b"", DIMS).shape == (0, DIMS)


def test_unit_rows_leave_the_zero_vector_alone() -> None:
    rows = unit_rows(np.array([[3.0, 4.0], [0.0, 0.0]], dtype=np.float32))

    assert rows.tolist() == [[pytest.approx(0.6), pytest.approx(0.8)], [0.0, 0.0]]
