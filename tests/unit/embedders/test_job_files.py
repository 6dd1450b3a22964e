"""Every text goes into one job, once, and no file is larger than allowed."""

import json
from collections.abc import Mapping
from hashlib import sha256

from hypothesis import given
from hypothesis import strategies as st

from composable_memory.content import EmbedderInput
from composable_memory_adapters.embedders.batch_jobs.provider_jobs import InputFile, input_files, job_inputs
from composable_memory_adapters.embedders.remote.embedder import Kind

INPUTS = st.lists(
    st.builds(EmbedderInput, text=st.text(max_size=12), kind=st.sampled_from(["query", "document"])),
    max_size=20,
)


def line(text_id: str, text: str, kind: Kind) -> Mapping[str, object]:
    return {"id": text_id[:4], "text": text, "kind": kind}


def files(inputs: list[EmbedderInput], *, max_texts: int = 5, max_bytes: int = 300) -> list[InputFile]:
    texts = job_inputs(inputs, max_text_bytes=16).texts
    return list(input_files(texts, line, max_texts=max_texts, max_bytes=max_bytes))


def test_a_passage_is_named_by_its_hash_and_a_question_otherwise() -> None:
    passage, question = EmbedderInput(text="ferry"), EmbedderInput(text="ferry", kind="query")
    ids = job_inputs([passage, question, EmbedderInput(text=" \n"), passage], max_text_bytes=16).ids

    assert ids[0] == ids[3] == sha256(b"ferry").hexdigest()
    assert ids[1] not in {ids[0], None}
    assert ids[2] is None


def test_texts_with_the_same_beginning_are_one_where_only_that_is_embedded() -> None:
    prepared = job_inputs([EmbedderInput(text="a" * 16 + end) for end in "bc"], max_text_bytes=16)

    assert [text.text for text in prepared.texts.values()] == ["a" * 16]
    assert prepared.ids[0] == prepared.ids[1]


@given(INPUTS)
def test_every_text_is_in_one_file_with_others_of_its_kind(inputs: list[EmbedderInput]) -> None:
    prepared, made = job_inputs(inputs, max_text_bytes=16), files(inputs)

    assert sorted(text_id for file in made for text_id in file.ids) == sorted(prepared.texts)
    for file in made:
        assert {prepared.texts[text_id].kind for text_id in file.ids} == {file.kind}
        sent = [json.loads(text)["text"] for text in file.content.splitlines()]
        assert sorted(sent) == sorted(prepared.texts[text_id].text for text_id in file.ids)


@given(INPUTS, st.integers(1, 6), st.integers(60, 400))
def test_no_file_is_larger_than_allowed(inputs: list[EmbedderInput], most: int, size: int) -> None:
    for file in files(inputs, max_texts=most, max_bytes=size):
        assert 1 <= len(file.ids) <= most
        assert len(file.content) <= size or len(file.ids) == 1
