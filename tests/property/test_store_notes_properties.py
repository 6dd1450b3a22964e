"""Items of a store, written as notes and read again."""

import os
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from composable_memory.errors import NoteNotWritten
from composable_memory_adapters.integrations.store_notes import StoreNotes, item_path

NAMES = st.text(st.characters(codec="utf-8"), min_size=1, max_size=30)
LEAVES = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(st.characters(codec="utf-8"))
)
VALUES = st.recursive(LEAVES, lambda one: st.lists(one, max_size=3) | st.dictionaries(NAMES, one, max_size=3))


@given(
    namespace=st.lists(NAMES, min_size=1, max_size=3),
    key=NAMES,
    value=st.dictionaries(NAMES, VALUES, max_size=4),
    is_indexed=st.booleans(),
)
def test_what_is_put_is_got(namespace: list[str], key: str, value: dict[str, Any], is_indexed: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:
        notes = StoreNotes(Path(folder))
        notes.put(namespace, key, value, is_indexed=is_indexed)
        item = notes.get(namespace, key)

        assert item
        assert (list(item.namespace), item.key, item.value) == (namespace, key, value)
        assert item.is_indexed is is_indexed
        assert [*notes.below(namespace[:1])] == [item]


@given(one=st.lists(NAMES, min_size=2, max_size=3), other=st.lists(NAMES, min_size=2, max_size=3))
def test_two_items_share_no_file_whatever_their_names_and_their_case(
    one: list[str], other: list[str]
) -> None:
    paths = [str(item_path(names[:-1], names[-1])) for names in (one, other)]

    assert (paths[0].casefold() == paths[1].casefold()) is (one == other)
    assert all(
        ".." not in path.split("/") and len(part.encode()) < 100 for path in paths for part in path.split("/")
    )


def test_pipes_and_links_among_the_items_are_passed_over(tmp_path: Path) -> None:
    notes = StoreNotes(tmp_path)
    notes.put(["users"], "likes", {"text": "tea"}, is_indexed=True)
    folder = (tmp_path / item_path(["users"], "likes")).parent
    os.mkfifo(folder / "pipe.md")
    (folder / "link.md").symlink_to(folder / "likes.md")

    assert [one.key for one in notes.below(["users"])] == ["likes"]
    assert [notes.get(["users"], key) for key in ("pipe", "link")] == [None, None]


def test_a_workspace_that_is_gone_is_not_made_again(tmp_path: Path) -> None:
    notes = StoreNotes(tmp_path / "moved")

    with pytest.raises(NoteNotWritten, match="no longer exists"):
        notes.put(["users"], "likes", {"text": "tea"}, is_indexed=True)
    assert not (tmp_path / "moved").exists()
