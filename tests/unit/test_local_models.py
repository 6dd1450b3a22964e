"""What is known of a local model before it is loaded: its file's header, its prefixes, its settings."""

import struct
from pathlib import Path

import pytest
from pydantic import ValidationError

from composable_memory.errors import EmbedderUnavailable
from composable_memory.interfaces import EmbedderServices
from composable_memory.testing import FIXED_NOW
from composable_memory_adapters.embedders.local import LocalSettings, spec
from composable_memory_adapters.embedders.local.models import (
    GgufHeader,
    Prompts,
    local_model,
    prompts_for,
    read_header,
)
from composable_memory_ops_logs import OpsLog

HUB_MODEL = "hf:someone/some-model-GGUF/some-model.gguf"


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value.encode())) + value.encode()


def pair(key: str, kind: int, value: bytes) -> bytes:
    return text(key) + struct.pack("<I", kind) + value


def number(key: str, value: int) -> bytes:
    return pair(key, 4, struct.pack("<I", value))


LIST_OF_TEXTS = pair("general.tags", 9, struct.pack("<IQ", 8, 2) + text("one") + text("two"))
LIST_OF_NUMBERS = pair("general.sizes", 9, struct.pack("<IQ", 5, 3) + struct.pack("<3i", 1, 2, 3))
PAIRS = (
    pair("general.architecture", 8, text("bert")),
    LIST_OF_TEXTS,
    LIST_OF_NUMBERS,
    pair("general.name", 8, text("naïve")),
    number("bert.context_length", 512),
    number("bert.embedding_length", 384),
    pair("tokenizer.ggml.model", 8, text("bert")),
)


def gguf(*pairs: bytes, magic: bytes = b"GGUF", version: int = 3, weights: bytes = b"weights") -> bytes:
    return magic + struct.pack("<IQQ", version, 1, len(pairs)) + b"".join(pairs) + weights


@pytest.fixture
def services(tmp_path: Path) -> EmbedderServices:
    return EmbedderServices(state_dir=tmp_path, environ={}, ops_log=OpsLog(None), clock=lambda: FIXED_NOW)


def written(folder: Path, data: bytes, name: str = "model.gguf") -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


# --- the header ---------------------------------------------------------------------------------------------


def test_a_header_tells_what_the_model_is(tmp_path: Path) -> None:
    for version in (2, 3):
        header = read_header(written(tmp_path, gguf(*PAIRS, version=version)))

        assert header == GgufHeader(architecture="bert", name="naïve", dimensions=384, digest=header.digest)


def test_the_digest_tells_files_apart_by_size_head_and_tail(tmp_path: Path) -> None:
    files = [
        gguf(*PAIRS),
        gguf(*PAIRS, weights=b"Weights"),
        gguf(*PAIRS, weights=b"weights!"),
        gguf(*PAIRS[:3], *PAIRS[4:]),
    ]
    digests = {read_header(written(tmp_path, data, f"{name}.gguf")).digest for name, data in enumerate(files)}

    assert len(digests) == len(files)


def test_what_is_no_model_is_said(tmp_path: Path) -> None:
    cases: list[tuple[bytes, str]] = [
        (b"", "not a GGUF file"),
        (b"PK\x03\x04 and more", "not a GGUF file"),
        (gguf(*PAIRS, version=1), "of version 1; readable are 2 and 3"),
        (gguf(*PAIRS, version=0x03000000), "of version 50331648"),
        (gguf(PAIRS[0]), "does not hold a model that embeds texts"),
        (
            gguf(PAIRS[0], number("bert.context_length", 512), number("bert.embedding_length", 0)),
            "embeds texts",
        ),
        (gguf(pair("general.name", 77, b"")), "unknown type 77"),
        (gguf(struct.pack("<Q", 2**60) + b"x"), "damaged"),
        (gguf(text("k") + struct.pack("<I", 8) + struct.pack("<Q", 3) + b"\xff\xfe\xfd"), "damaged"),
    ]
    for data, problem in cases:
        with pytest.raises(ValueError, match=problem):
            read_header(written(tmp_path, data))


def test_a_header_that_is_cut_off_anywhere_is_refused(tmp_path: Path) -> None:
    whole = gguf(*PAIRS[:-1], weights=b"")
    for length in range(len(whole)):
        with pytest.raises(ValueError, match=r"GGUF|damaged|embeds"):
            read_header(written(tmp_path, whole[:length]))


# --- the model ----------------------------------------------------------------------------------------------


def test_a_file_tells_its_dimensions_and_its_name(tmp_path: Path) -> None:
    model = local_model(LocalSettings(model_path=str(written(tmp_path, gguf(*PAIRS)))), tmp_path)

    assert (model.name, model.dimensions, model.prompts) == ("model.gguf", 384, Prompts())


def test_a_relative_path_begins_where_models_are_kept(tmp_path: Path) -> None:
    written(tmp_path / "models", gguf(*PAIRS), "mine.gguf")

    assert local_model(LocalSettings(model_path="mine.gguf"), tmp_path).dimensions == 384


def test_a_model_goes_before_a_model_path(tmp_path: Path) -> None:
    settings = LocalSettings(model=HUB_MODEL, model_path="mine.gguf", dimensions=384)

    assert local_model(settings, tmp_path).name == HUB_MODEL.removeprefix("hf:")


def test_a_path_without_a_model_is_said(tmp_path: Path) -> None:
    cases: list[tuple[str, str]] = [
        ("nothing.gguf", "there is no file .*nothing.gguf"),
        ("", "cannot be read"),
        ("zip.gguf", "not a GGUF"),
    ]
    for name, problem in cases:
        written(tmp_path, b"PK", "zip.gguf")

        with pytest.raises(EmbedderUnavailable, match=problem):
            local_model(LocalSettings(model_path=str(tmp_path / name)), tmp_path)


def test_the_default_is_known_without_being_here(tmp_path: Path) -> None:
    model = local_model(LocalSettings(), tmp_path)

    assert (model.dimensions, model.path) == (768, None)
    assert "embeddinggemma" in model.name
    assert model.prompts.query == "task: search result | query: "
    assert not (tmp_path / "models").exists()


def test_another_hub_model_needs_its_dimensions_until_it_is_here(tmp_path: Path) -> None:
    settings = LocalSettings(model=HUB_MODEL)
    with pytest.raises(EmbedderUnavailable, match=r"unknown .*; set memory\S+local\.dimensions"):
        local_model(settings, tmp_path)

    written(tmp_path / "models" / "someone--some-model-GGUF", gguf(*PAIRS), "some-model.gguf")
    assert local_model(settings, tmp_path).dimensions == 384


def test_the_fingerprint_of_a_hub_model_is_the_same_before_and_after_the_download(tmp_path: Path) -> None:
    settings = LocalSettings(model=HUB_MODEL, dimensions=384)
    before = local_model(settings, tmp_path).fingerprint
    written(tmp_path / "models" / "someone--some-model-GGUF", gguf(*PAIRS), "some-model.gguf")

    assert local_model(settings, tmp_path).fingerprint == before


def test_the_fingerprint_changes_with_all_that_shapes_the_vectors(tmp_path: Path) -> None:
    path = written(tmp_path, gguf(*PAIRS))
    changes: list[dict[str, object]] = [{}, {"query_prefix": "q"}, {"document_prefix": "q"}, {"n_ctx": 100}]
    settings = [LocalSettings.model_validate({"model_path": str(path), **change}) for change in changes]
    fingerprints = {local_model(each, tmp_path).fingerprint for each in settings}
    path.write_bytes(gguf(*PAIRS, weights=b"others"))
    fingerprints.add(local_model(settings[0], tmp_path).fingerprint)

    assert len(fingerprints) == len(changes) + 1
    same = LocalSettings(model_path=str(path), threads=3)
    assert local_model(same, tmp_path).fingerprint in fingerprints


def test_a_family_has_its_prefixes() -> None:
    cases: list[tuple[str, tuple[str, str]]] = [
        (
            "ggml-org/embeddinggemma-300m-qat-q8_0-GGUF",
            ("task: search result | query: ", "title: none | text: "),
        ),
        ("nomic-embed-text-v1.5.Q8_0.gguf", ("search_query: ", "search_document: ")),
        ("multilingual-e5-small", ("query: ", "passage: ")),
        ("multilingual_e5_small", ("query: ", "passage: ")),
        ("multilingual-e5-large-instruct", ("", "")),
        ("table5-model", ("", "")),
        ("all-MiniLM-L6-v2", ("", "")),
        ("", ("", "")),
    ]
    for name, prompts in cases:
        found = prompts_for(name)

        assert (found.query, found.document) == prompts


def test_a_family_reads_as_much_as_it_was_trained_for() -> None:
    assert [prompts_for(name).max_tokens for name in ("all-MiniLM-L6-v2", "others")] == [256, 2048]


def test_prefixes_and_length_may_be_set(tmp_path: Path) -> None:
    settings = LocalSettings(query_prefix="", document_prefix="d: ", n_ctx=100)

    assert local_model(settings, tmp_path).prompts == Prompts(query="", document="d: ", max_tokens=100)


# --- the settings -------------------------------------------------------------------------------------------


def test_a_reference_that_leads_nowhere_is_refused() -> None:
    cases: list[tuple[str, str]] = [
        ("https://example.org/model.gguf", "download other files yourself"),
        ("hf:someone", "expected hf:organisation/repository"),
        ("hf:../x", "expected hf:organisation/repository"),
        ("hf:someone/../../x.gguf", "expected hf:organisation/repository"),
        (r"hf:someone/model/..\..\x.gguf", "expected hf:organisation/repository"),
        ("hf:someone/model/model.bin", "has to be a .gguf file"),
        ("", "at least 1 character"),
    ]
    for reference, problem in cases:
        with pytest.raises(ValidationError, match=problem):
            LocalSettings(model_path=reference)


def test_only_a_file_that_is_here_makes_it_a_choice(services: EmbedderServices) -> None:
    cases: list[tuple[dict[str, str], str | None]] = [
        ({}, "no model file is set"),
        ({"model_path": "nothing.gguf"}, "there is no file"),
        ({"model_path": HUB_MODEL}, "is on a model hub"),
        ({"model_path": "."}, "there is no file"),
        ({"model_path": "mine.gguf"}, None),
        ({"model": "mine.gguf"}, None),
    ]
    for options, lack in cases:
        written(services.state_dir / "models", b"anything", "mine.gguf")
        found = spec.lacks(LocalSettings.model_validate(options), services)

        assert found is None if lack is None else lack in str(found)
