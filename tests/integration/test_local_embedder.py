"""A real model at work in this process, and how it gets here from a hub: a server on this machine."""

import asyncio
import base64
import hashlib
import json
import math
import os
import struct
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager, suppress
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from composable_memory import open_memory
from composable_memory.content import EmbedderInput
from composable_memory.errors import DimensionMismatch, EmbedderUnavailable
from composable_memory.interfaces import EmbedderAdapter, EmbedderServices
from composable_memory.testing import FIXED_NOW, EmbedderContract, Opener
from composable_memory_adapters.embedders.local import LocalSettings, spec
from composable_memory_adapters.embedders.local.embedder import LocalEmbedder
from composable_memory_ops_logs import OpsLog
from tests.models.make_minilm_gguf import make
from tests.variants import variants

MODEL_VARIABLE = "COMPOSABLE_MEMORY_TEST_GGUF"
READY_MADE = os.environ.get(MODEL_VARIABLE)
REFERENCE = Path(__file__).parents[1] / "models" / "minilm_reference.json"
"""What the original weights give in 32 bits, computed by numpy: text to vector, 16-bit floats in base 64."""

REPOSITORY = "someone/minilm-GGUF"
FILE = "minilm.Q8_0.gguf"

OpenLocal = Callable[..., AbstractAsyncContextManager[LocalEmbedder]]


@pytest.fixture(scope="session")
def minilm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the file of a small real model."""
    return Path(READY_MADE) if READY_MADE else make(tmp_path_factory.mktemp("models") / "all-MiniLM.gguf")


@pytest.fixture
def services(state_dir: Path, ops_log: OpsLog) -> EmbedderServices:
    environ = {name: value for name, value in os.environ.items() if not name.startswith("HF_")}
    return EmbedderServices(state_dir=state_dir, environ=environ, ops_log=ops_log, clock=lambda: FIXED_NOW)


@pytest.fixture
def open_local(services: EmbedderServices) -> OpenLocal:
    @asynccontextmanager
    async def open_with(**options: object) -> AsyncIterator[LocalEmbedder]:
        async with spec.open(LocalSettings.model_validate(options), services) as embedder:
            assert isinstance(embedder, LocalEmbedder)
            yield embedder

    return open_with


def question(text: str) -> EmbedderInput:
    return EmbedderInput(text=text, kind="query")


def reference() -> dict[str, list[float]]:
    texts = json.loads(REFERENCE.read_text(encoding="utf-8"))
    return {text: halves(base64.b64decode(data)) for text, data in texts.items()}


def halves(data: bytes) -> list[float]:
    return list(struct.unpack(f"<{len(data) // 2}e", data))


def cosine(one: Sequence[float], other: Sequence[float]) -> float:
    return math.sumprod(one, other) if hasattr(math, "sumprod") else sum(map(float.__mul__, one, other))


def model_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("local_")]


@pytest.mark.thorough
class TestContract(EmbedderContract):
    """What every embedder must do."""

    @pytest.fixture
    def open_embedder(self, open_local: OpenLocal, minilm: Path) -> Opener[EmbedderAdapter]:
        return partial(open_local, model_path=str(minilm))


# --- the model ----------------------------------------------------------------------------------------------


async def test_vectors_are_those_of_the_original_model(open_local: OpenLocal, minilm: Path) -> None:
    """Also that of a text which is longer than the model reads."""
    expected = reference()
    async with open_local(model_path=str(minilm)) as embedder:
        vectors = await embedder.embed_batch([EmbedderInput(text=text) for text in expected])

    for vector, original in zip(vectors, expected.values(), strict=True):
        assert cosine(vector, original) > 0.998
        assert math.hypot(*vector) == pytest.approx(1.0)


async def test_texts_are_ranked_as_by_the_original_model(open_local: OpenLocal, minilm: Path) -> None:
    expected = reference()
    asked, *passages = expected
    async with open_local(model_path=str(minilm)) as embedder:
        vectors = {text: await embedder.embed(EmbedderInput(text=text)) for text in expected}

    def ranked(by: dict[str, Sequence[float]]) -> list[str]:
        return sorted(passages, key=lambda text: cosine(by[asked], by[text]), reverse=True)

    assert ranked(vectors) == ranked(dict(expected))


async def test_a_text_that_is_too_long_is_cut_and_keeps_the_token_that_ends_it(
    open_local: OpenLocal, minilm: Path
) -> None:
    """Thirty words and the two tokens around them are just what is read."""
    async with open_local(model_path=str(minilm), n_ctx=32) as embedder:
        short, long = [
            await embedder.embed(EmbedderInput(text="ferry " * 30 + end)) for end in ("", "harbour " * 50_000)
        ]

    assert long == pytest.approx(short, abs=1e-5)


async def test_words_that_look_like_control_tokens_are_words(open_local: OpenLocal, minilm: Path) -> None:
    async with open_local(model_path=str(minilm)) as embedder:
        plain, marked = [
            await embedder.embed(EmbedderInput(text=text)) for text in ("the ferry", "the ferry [SEP] [PAD]")
        ]

    assert cosine(plain, marked) < 0.95


async def test_questions_and_passages_get_their_prefixes(open_local: OpenLocal, minilm: Path) -> None:
    prefixes = {"query_prefix": "query: ", "document_prefix": "passage: "}
    async with (
        open_local(model_path=str(minilm)) as bare,
        open_local(model_path=str(minilm), **prefixes) as e5,
    ):
        asked = await e5.embed(question("the ferry"))
        stored = await e5.embed(EmbedderInput(text="the ferry"))

        assert asked == pytest.approx(await bare.embed(question("query: the ferry")), abs=1e-6)
        assert stored == pytest.approx(await bare.embed(EmbedderInput(text="passage: the ferry")), abs=1e-6)


async def test_a_question_does_not_wait_for_a_whole_batch(open_local: OpenLocal, minilm: Path) -> None:
    async with open_local(model_path=str(minilm)) as embedder:
        batch = asyncio.create_task(embedder.embed_batch([EmbedderInput(text="some passage")] * 40))
        await asyncio.sleep(0)

        await embedder.embed(question("a question"))

        assert not batch.done()
        assert len(await batch) == 40


async def test_closing_waits_for_the_text_at_work_and_for_no_other(
    open_local: OpenLocal, minilm: Path
) -> None:
    async with open_local(model_path=str(minilm)) as embedder:
        await embedder.embed(question("warm"))
        texts = [EmbedderInput(text="some passage")] * 1000
        batches = [asyncio.create_task(embedder.embed_batch(texts)) for _ in range(4)]
        await asyncio.sleep(0)
        await embedder.close()
        await embedder.close()

        outcomes = await asyncio.gather(*batches, return_exceptions=True)

    assert [type(outcome) for outcome in outcomes] == [EmbedderUnavailable] * 4
    assert "the embedder is closed" in str(outcomes[0])
    assert model_threads() == []


SPEAKING = """
import asyncio, os, sys
from pathlib import Path
from composable_memory.content import EmbedderInput
from composable_memory.interfaces import EmbedderServices
from composable_memory_adapters.embedders.local import LocalSettings, spec
from composable_memory_ops_logs import OpsLog, utc_now

async def main():
    services = EmbedderServices(
        state_dir=Path("nowhere"), environ=os.environ, ops_log=OpsLog(None), clock=utc_now
    )
    async with spec.open(LocalSettings(model_path=sys.argv[1]), services) as embedder:
        early = {"llama_cpp", "numpy", "huggingface_hub"} & set(sys.modules)
        embedding = asyncio.create_task(embedder.embed(EmbedderInput(text="hello")))
        lines = 0
        while not embedding.done():
            os.write(1, b"line\\n")
            lines += 1
            await asyncio.sleep(0.001)
        os.write(1, f"{lines} {early or 'nothing'}".encode())

asyncio.run(main())
"""


async def test_loading_is_silent_and_loses_nothing_of_what_others_say(minilm: Path) -> None:
    """An MCP server answers on the standard output while the model loads."""
    run = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-c", SPEAKING, str(minilm)],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )

    *lines, last = run.stdout.splitlines()
    assert last == f"{len(lines)} nothing"
    assert set(lines) == {"line"}
    assert run.stderr == ""


async def test_a_file_that_is_cut_off_is_said_with_what_is_wrong(
    open_local: OpenLocal, minilm: Path, tmp_path: Path
) -> None:
    short = tmp_path / "short.gguf"
    with minilm.open("rb") as whole:
        short.write_bytes(whole.read(5_000_000))

    async with open_local(model_path=str(short)) as embedder:
        with pytest.raises(EmbedderUnavailable, match=r"cannot be loaded \(.*not within the file bounds"):
            await embedder.embed(question("hello"))


async def test_a_package_that_is_not_installed_is_said_with_the_line_that_installs_it(
    open_local: OpenLocal, minilm: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "llama_cpp", None)

    assert "not installed; run `pip install" in str(spec.missing())
    async with open_local(model_path=str(minilm)) as embedder:
        with pytest.raises(EmbedderUnavailable, match=r"pip install \"composable-memory\[local\]\""):
            await embedder.embed(question("hello"))


async def test_a_configured_file_is_what_auto_chooses(minilm: Path, workspace: Path, state_dir: Path) -> None:
    embedding = {"providers": {"local": {"modelPath": str(minilm)}}}
    async with open_memory(workspace, state_dir, {"memory": {"embedding": embedding}}) as memory:
        await memory.sync()
        response = await memory.query("when does the ship depart?")

    assert memory.embedder.embedder is not None
    assert (memory.embedder.embedder.id, memory.embedder.is_local) == ("local", True)
    assert response.results


# --- from a hub ---------------------------------------------------------------------------------------------


class Hub(ThreadingHTTPServer):
    """A hub with one repository that holds `content`; stops before the end of it until it `flows`."""

    daemon_threads = True

    def __init__(self, content: bytes) -> None:
        super().__init__(("127.0.0.1", 0), Answer)
        self.content = content
        self.asked: list[tuple[str, str, dict[str, str]]] = []
        self.flows = threading.Event()
        self.flows.set()
        self.has_stalled = threading.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    @property
    def downloads(self) -> list[dict[str, str]]:
        return [headers for method, path, headers in self.asked if method == "GET" and "/resolve/" in path]


class Answer(BaseHTTPRequestHandler):
    server: Hub
    protocol_version = "HTTP/1.1"

    def do_HEAD(self) -> None:
        self._answer(b"")

    def do_GET(self) -> None:
        if self.path.startswith("/api/"):
            listing = [{"type": "file", "path": name, "size": 1, "oid": "0"} for name in ("README.md", FILE)]
            self._answer(json.dumps(listing).encode())
        else:
            self._answer(self.server.content)

    def _answer(self, body: bytes) -> None:
        hub = self.server
        hub.asked.append((self.command, self.path, dict(self.headers)))
        content = hub.content if "/resolve/" in self.path else body
        start = int((self.headers.get("Range") or "bytes=0-").removeprefix("bytes=").partition("-")[0])
        known = self.path.startswith("/api/") or self.path == f"/{REPOSITORY}/resolve/main/{FILE}"
        self.send_response(404 if not known else 206 if start else 200)
        size = len(content) - start if known else 0
        self.send_header("Content-Length", str(size))
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        self.send_header("ETag", f'"{hashlib.sha256(content).hexdigest()}"')
        self.send_header("X-Repo-Commit", "0" * 40)
        self.end_headers()
        if self.command == "GET" and size:
            self._send(body[start:])

    def _send(self, body: bytes) -> None:
        most = len(body) - 1000
        self.wfile.write(body[:most])
        if not self.server.flows.is_set():
            self.server.has_stalled.set()
            self.server.flows.wait(timeout=60)
        with suppress(ConnectionError):  # the other side was closed meanwhile
            self.wfile.write(body[most:])

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the interface's name
        pass


@contextmanager
def serving(content: bytes) -> Iterator[Hub]:
    with Hub(content) as hub:
        thread = threading.Thread(target=hub.serve_forever)
        thread.start()
        try:
            yield hub
        finally:
            hub.flows.set()
            hub.shutdown()
            thread.join()


@pytest.fixture
def hub(minilm: Path) -> Iterator[Hub]:
    with serving(minilm.read_bytes()) as hub:
        yield hub


def from_hub(hub: Hub, model: str = f"hf:{REPOSITORY}/{FILE}") -> dict[str, object]:
    return {"model": model, "hub_url": hub.url, "dimensions": 384}


@pytest.mark.parametrize(
    "model", variants([f"hf:{REPOSITORY}/{FILE}", f"hf:{REPOSITORY}"], f"hf:{REPOSITORY}")
)
async def test_the_first_passage_brings_the_model_and_the_next_opening_needs_no_hub(
    open_local: OpenLocal, hub: Hub, model: str, state_dir: Path
) -> None:
    async with open_local(**from_hub(hub, model)) as embedder:
        assert hub.asked == []
        before = embedder.fingerprint
        vector = await embedder.embed(EmbedderInput(text="the ferry"))
    asked = len(hub.asked)
    async with open_local(model=model) as again:
        assert await again.embed(question("the ferry")) == pytest.approx(vector, abs=1e-6)

    assert (again.model, again.fingerprint) == (model.removeprefix("hf:"), before)
    assert len(hub.asked) == asked
    assert (state_dir / "models" / "someone--minilm-GGUF" / FILE).is_file()


async def test_no_token_is_sent(
    services: EmbedderServices, hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = LocalSettings.model_validate(from_hub(hub))
    environ = {**services.environ, "HF_TOKEN": "sesame"}
    with_token = EmbedderServices(
        state_dir=services.state_dir, environ=environ, ops_log=services.ops_log, clock=services.clock
    )
    async with spec.open(settings, with_token) as embedder:
        await embedder.embed(EmbedderInput(text="the ferry"))

    assert hub.downloads
    assert "sesame" not in str(hub.asked)


async def test_a_question_is_refused_while_the_model_comes_and_answered_afterwards(
    open_local: OpenLocal, hub: Hub
) -> None:
    hub.flows.clear()
    async with open_local(**from_hub(hub)) as embedder:
        passage = asyncio.create_task(embedder.embed(EmbedderInput(text="the ferry")))
        await asyncio.to_thread(hub.has_stalled.wait, 60)

        with pytest.raises(EmbedderUnavailable, match="the model is being downloaded; keywords answer"):
            await embedder.embed(question("the ferry"))
        hub.flows.set()

        vector = await passage
        assert await embedder.embed(question("the ferry")) == pytest.approx(vector, abs=1e-6)


async def test_a_question_starts_the_download_without_waiting_for_it(open_local: OpenLocal, hub: Hub) -> None:
    hub.flows.clear()
    async with open_local(**from_hub(hub)) as embedder:
        with pytest.raises(EmbedderUnavailable, match="being downloaded"):
            await embedder.embed(question("the ferry"))

        assert await asyncio.to_thread(hub.has_stalled.wait, 60)


async def test_a_caller_who_gives_up_does_not_stop_the_download(open_local: OpenLocal, hub: Hub) -> None:
    hub.flows.clear()
    async with open_local(**from_hub(hub)) as embedder:
        passage = asyncio.create_task(embedder.embed(EmbedderInput(text="the ferry")))
        await asyncio.to_thread(hub.has_stalled.wait, 60)
        passage.cancel()
        await asyncio.wait([passage])
        hub.flows.set()

        assert len(await embedder.embed(EmbedderInput(text="the ferry"))) == 384
    assert len(hub.downloads) == 1


async def test_closing_stops_a_download_and_the_next_one_goes_on_from_there(
    open_local: OpenLocal, hub: Hub
) -> None:
    hub.flows.clear()
    async with open_local(**from_hub(hub)) as embedder:
        passage = asyncio.create_task(embedder.embed(EmbedderInput(text="the ferry")))
        await asyncio.to_thread(hub.has_stalled.wait, 60)
        await embedder.close()
        with pytest.raises(EmbedderUnavailable, match="closed"):
            await passage
    hub.flows.set()

    async with open_local(**from_hub(hub)) as embedder:
        assert len(await embedder.embed(EmbedderInput(text="the ferry"))) == 384
    _, second = hub.downloads
    assert int(second["Range"].removeprefix("bytes=").removesuffix("-")) > 5_000_000


@pytest.mark.thorough
async def test_a_hub_that_refuses_is_quoted_and_not_asked_again_at_once(
    open_local: OpenLocal,
) -> None:
    with serving(b"") as hub:
        options = from_hub(hub, "hf:someone/nothing-GGUF/nothing.gguf")
        async with open_local(**options) as embedder:
            with pytest.raises(EmbedderUnavailable, match=r"could not be downloaded: .*404"):
                await embedder.embed(EmbedderInput(text="the ferry"))
            asked = len(hub.asked)
            with pytest.raises(EmbedderUnavailable, match="could not be downloaded"):
                await embedder.embed(question("the ferry"))

        assert len(hub.asked) == asked > 0


async def test_a_model_whose_vectors_have_another_length_is_refused(open_local: OpenLocal, hub: Hub) -> None:
    async with open_local(**{**from_hub(hub), "dimensions": 768}) as embedder:
        with pytest.raises(DimensionMismatch, match="expected vectors of 768 numbers, got 384"):
            await embedder.embed(EmbedderInput(text="the ferry"))


async def test_a_blank_text_needs_no_model(open_local: OpenLocal) -> None:
    async with open_local() as embedder:
        assert list(await embedder.embed(EmbedderInput(text=" "))) == [0.0] * 768
