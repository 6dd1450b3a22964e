"""The embedder that comes with the product: right, offline, and out of the loop's way."""

import asyncio
import json
import math
import os
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterable
from importlib.util import find_spec
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer

from composable_memory.config.validation import check
from composable_memory.content import EmbedderInput
from composable_memory.errors import ConfigError, EmbedderUnavailable
from composable_memory.interfaces import EmbedderAdapter, EmbedderServices
from composable_memory.testing import FIXED_NOW, EmbedderContract, Opener
from composable_memory_adapters.embedders.wordllama import (
    PROVIDER,
    SHORT_CHARS,
    SLICE_TEXTS,
    TOKENIZER,
    ShortTexts,
    WordLlamaEmbedder,
    WordLlamaSettings,
    spec,
)
from composable_memory_ops_logs import OpsLog

TEXTS = [
    "Caroline went to the support group.",
    "naïve Straße, 昨天讨论的部署方案, 東京タワー, 서버 😀",
    "def retry(budget: int) -> None:\n\treturn a/b.py\x00",
    "a",
    " leading and trailing space ",
    "word " * 900,
]

THEIR_VECTORS = """
import json, sys
from pathlib import Path
import wordllama
model = wordllama.WordLlama.load(cache_dir=Path(wordllama.__file__).parent, disable_download=True)
json.dump(model.embed(json.load(sys.stdin), norm=True).tolist(), sys.stdout)
"""
WHAT_IS_IMPORTED = """
import asyncio, sys
from composable_memory.content import EmbedderInput
from composable_memory_adapters.embedders.wordllama import WordLlamaEmbedder
before = "numpy" in sys.modules or "tokenizers" in sys.modules
async def main():
    embedder = WordLlamaEmbedder()
    await embedder.embed_batch([EmbedderInput(text="hello")])
    await embedder.close()
asyncio.run(main())
network = ("wordllama", "tokenizers", "requests", "urllib3", "huggingface_hub", "httpx")
print(before, [name for name in network if name in sys.modules])
"""


@pytest.fixture
def services(tmp_path: Path) -> EmbedderServices:
    """Return what a provider gets when it opens; this one needs none of it."""
    return EmbedderServices(state_dir=tmp_path, environ={}, ops_log=OpsLog(None), clock=lambda: FIXED_NOW)


@pytest.fixture
async def embedder(services: EmbedderServices) -> AsyncIterator[WordLlamaEmbedder]:
    async with spec.open(WordLlamaSettings(), services) as opened:
        assert isinstance(opened, WordLlamaEmbedder)
        yield opened


def run_python(code: str, text: str = "") -> str:
    finished = subprocess.run(
        [sys.executable, "-c", code],
        input=text,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    return finished.stdout


def inputs(texts: Iterable[str]) -> list[EmbedderInput]:
    return [EmbedderInput(text=text) for text in texts]


def weights_file(**tensor: object) -> bytes:
    header = json.dumps({"embedding.weight": tensor}).encode()
    return len(header).to_bytes(8, "little") + header


class TestContract(EmbedderContract):
    """What every embedder must do."""

    @pytest.fixture
    def open_embedder(self, services: EmbedderServices) -> Opener[EmbedderAdapter]:
        return lambda: spec.open(WordLlamaSettings(), services)


async def test_vectors_are_those_of_the_package_itself(embedder: WordLlamaEmbedder) -> None:
    theirs = json.loads(await asyncio.to_thread(run_python, THEIR_VECTORS, json.dumps(TEXTS)))
    ours = await embedder.embed_batch(inputs(TEXTS))

    for one, other in zip(ours, theirs, strict=True):
        assert one == pytest.approx(other, abs=1e-6)


@pytest.fixture(scope="module")
def tokenizer_file() -> bytes:
    found = find_spec(PROVIDER)
    assert found
    assert found.origin
    return (Path(found.origin).parent / TOKENIZER).read_bytes()


def test_short_texts_are_split_as_by_the_library(tokenizer_file: bytes) -> None:
    short, library = ShortTexts.of(tokenizer_file), Tokenizer.from_buffer(tokenizer_file)
    assert short
    library.no_truncation()
    signs = st.characters(codec="utf-8") | st.sampled_from([*" \n▁aeot", "  ", "the", "<0x0A>", "é"])

    @given(st.lists(signs, min_size=1, max_size=80).map("".join) | st.sampled_from(TEXTS))
    def compare(text: str) -> None:
        if short.takes(text):
            assert short.token_ids(text) == library.encode(text, add_special_tokens=False).ids

    compare()


def test_what_is_long_or_holds_a_token_of_the_model_is_left_to_the_library(tokenizer_file: bytes) -> None:
    short = ShortTexts.of(tokenizer_file)
    assert short

    for text, is_taken in {
        "x" * SHORT_CHARS: True,
        "x" * (SHORT_CHARS + 1): False,
        "an <unk>": False,
    }.items():
        assert short.takes(text) is is_taken
    other = tokenizer_file.replace(b'"byte_fallback": true', b'"byte_fallback": false')
    assert other != tokenizer_file
    assert ShortTexts.of(other) is None


async def test_a_full_slice_gives_what_single_texts_give(embedder: WordLlamaEmbedder) -> None:
    texts = inputs(f"{TEXTS[number % len(TEXTS)]} {number}" for number in range(SLICE_TEXTS + 3))
    together = await embedder.embed_batch(texts)

    assert len(together) == len(texts)
    for text, vector in zip(texts, together, strict=True):
        assert await embedder.embed(text) == pytest.approx(vector, abs=1e-6)


async def test_vectors_have_unit_length_and_those_of_blank_texts_none(embedder: WordLlamaEmbedder) -> None:
    vectors = await embedder.embed_batch(inputs(["hello", "", " \n\t\u3000", "\ud800", "\x00"]))

    assert [math.hypot(*vector) for vector in vectors] == pytest.approx([1, 0, 0, 1, 1], abs=1e-6)


async def test_no_texts_have_no_vectors(embedder: WordLlamaEmbedder) -> None:
    assert await embedder.embed_batch([]) == []


async def test_neither_the_package_nor_a_network_client_is_imported() -> None:
    assert await asyncio.to_thread(run_python, WHAT_IS_IMPORTED) == "False []\n"


async def test_a_question_does_not_wait_for_a_whole_batch(embedder: WordLlamaEmbedder) -> None:
    batch = asyncio.create_task(embedder.embed_batch(inputs(["some passage"] * SLICE_TEXTS * 5)))
    await asyncio.sleep(0)

    await embedder.embed(EmbedderInput(text="a question", kind="query"))

    assert not batch.done()
    assert len(await batch) == SLICE_TEXTS * 5


async def test_a_cancelled_call_leaves_the_embedder_usable(embedder: WordLlamaEmbedder) -> None:
    batch = asyncio.create_task(embedder.embed_batch(inputs(["some passage"] * SLICE_TEXTS * 5)))
    await asyncio.sleep(0)
    batch.cancel()

    assert len(await embedder.embed(EmbedderInput(text="a question"))) == 256
    assert batch.cancelled()


async def test_closing_ends_the_thread_and_may_be_repeated() -> None:
    before = {*threading.enumerate()}  # another test may have left one
    embedder = WordLlamaEmbedder()
    await embedder.embed(EmbedderInput(text="hello"))
    own = {thread for thread in threading.enumerate() if thread.name.startswith("wordllama")} - before
    assert own

    await embedder.close()
    await embedder.close()

    assert not own & {*threading.enumerate()}
    with pytest.raises(EmbedderUnavailable, match="closed"):
        await embedder.embed(EmbedderInput(text="hello"))


async def test_a_package_that_is_not_installed_is_said_with_the_line_that_installs_it(
    monkeypatch: pytest.MonkeyPatch, embedder: WordLlamaEmbedder
) -> None:
    monkeypatch.setitem(sys.modules, "wordllama", None)

    with pytest.raises(EmbedderUnavailable, match="not installed; run `pip install wordllama`"):
        await embedder.embed(EmbedderInput(text="hello"))
    assert spec.missing() is not None


@pytest.mark.parametrize(
    "weights",
    [
        None,
        b"",
        b"\x02\0\0\0\0\0\0\0{}",
        weights_file(dtype="F32", shape=[1, 256], data_offsets=[0, 1024]) + bytes(1024),
        weights_file(dtype="F16", shape=[1, 64], data_offsets=[0, 128]) + bytes(128),
        weights_file(dtype="F16", shape=[1, 256], data_offsets=[0, 512]) + bytes(100),
    ],
    ids=["no file", "empty", "no tensor", "another type", "another length", "cut off"],
)
async def test_damaged_files_are_said_with_the_line_that_repairs_them(
    weights: bytes | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, embedder: WordLlamaEmbedder
) -> None:
    package = tmp_path / "wordllama"
    for folder in ("weights", "tokenizers"):
        (package / folder).mkdir(parents=True)
    (package / "__init__.py").touch()
    tokenizer = '{"version": "1.0", "model": {"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "a"}}'
    (package / "tokenizers/l2_supercat_tokenizer_config.json").write_text(tokenizer, encoding="utf-8")
    if weights is not None:
        (package / "weights/l2_supercat_256.safetensors").write_bytes(weights)
    monkeypatch.delitem(sys.modules, "wordllama", raising=False)
    monkeypatch.syspath_prepend(tmp_path)

    with pytest.raises(EmbedderUnavailable, match="force-reinstall"):
        await embedder.embed(EmbedderInput(text="hello"))


async def test_the_package_is_there(embedder: WordLlamaEmbedder) -> None:
    assert spec.missing() is None
    assert isinstance(embedder, EmbedderAdapter)
    assert (embedder.id, embedder.model, embedder.dimensions) == ("wordllama", "l2_supercat_256", 256)


def test_its_model_may_be_named_and_no_other() -> None:
    key = "memory.embedding.providers.wordllama"
    assert check(spec.settings, {"model": "l2_supercat_256"}, key=key) == WordLlamaSettings()

    for name, value in {"model": "l3_supercat_1024", "threads": 4}.items():
        with pytest.raises(ConfigError, match=rf"setting {key}\.{name}: "):
            check(spec.settings, {name: value}, key=key)
