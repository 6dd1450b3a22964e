"""Every text goes into one job, once, and no file is larger than allowed."""

import json
from collections.abc import Mapping
from hashlib import sha256

from hypothesis import given
from hypothesis import strategies as st

from composable_memory.content import EmbedderInput
from composable_memory_adapters.embedders.jobs.batches import Parcel, ordered, parcelled
from composable_memory_adapters.embedders.remote.embedder import Kind

INPUTS = st.lists(
    st.builds(EmbedderInput, text=st.text(max_size=12), kind=st.sampled_from(["query", "document"])),
    max_size=20,
)


def line(text_id: str, text: str, kind: Kind) -> Mapping[str, object]:
    return {"id": text_id[:4], "text": text, "kind": kind}


def parcels(inputs: list[EmbedderInput], *, max_texts: int = 5, max_bytes: int = 300) -> list[Parcel]:
    texts = ordered(inputs, max_text_bytes=16).texts
    return list(parcelled(texts, line, max_texts=max_texts, max_bytes=max_bytes))


def test_a_passage_is_named_by_its_hash_and_a_question_otherwise() -> None:
    passage, question = EmbedderInput(text="ferry"), EmbedderInput(text="ferry", kind="query")
    ids = ordered([passage, question, EmbedderInput(text=" \n"), passage], max_text_bytes=16).ids

    assert ids[0] == ids[3] == sha256(b"ferry").hexdigest()
    assert ids[1] not in {ids[0], None}
    assert ids[2] is None


def test_texts_with_the_same_beginning_are_one_where_only_that_is_embedded() -> None:
    order = ordered([EmbedderInput(text="a" * 16 + end) for end in "bc"], max_text_bytes=16)

    assert [text.text for text in order.texts.values()] == ["a" * 16]
    assert order.ids[0] == order.ids[1]


@given(INPUTS)
def test_every_text_is_in_one_parcel_with_others_of_its_kind(inputs: list[EmbedderInput]) -> None:
    order, made = ordered(inputs, max_text_bytes=16), parcels(inputs)

    assert sorted(text_id for parcel in made for text_id in parcel.ids) == sorted(order.texts)
    for parcel in made:
        assert {order.texts[text_id].kind for text_id in parcel.ids} == {parcel.kind}
        sent = [json.loads(text)["text"] for text in parcel.content.splitlines()]
        assert sorted(sent) == sorted(order.texts[text_id].text for text_id in parcel.ids)


@given(INPUTS, st.integers(1, 6), st.integers(60, 400))
def test_no_file_is_larger_than_allowed(inputs: list[EmbedderInput], most: int, size: int) -> None:
    for parcel in parcels(inputs, max_texts=most, max_bytes=size):
        assert 1 <= len(parcel.ids) <= most
        assert len(parcel.content) <= size or len(parcel.ids) == 1
