"""Whatever a server does, the caller gets vectors or an error to act on, and never sees a key."""

import asyncio
import gzip
import json
import logging
import socket
import traceback
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from composable_memory.content import EmbedderInput
from composable_memory.errors import DimensionMismatch, EmbedderUnavailable, EmbeddingError
from composable_memory.interfaces import EmbedderServices
from composable_memory_adapters.embedders.gemini import GeminiEmbedder, GeminiSettings
from composable_memory_adapters.embedders.ollama import OllamaEmbedder, OllamaSettings
from composable_memory_adapters.embedders.openai import OpenAiEmbedder, OpenAiSettings
from composable_memory_adapters.embedders.remote.embedder import open_remote
from tests.integration.embedders import loopback
from tests.integration.embedders.conftest import Naps
from tests.integration.embedders.loopback import Loopback, Received, Reply, in_turn

KEY = "kEy-Of-A-tEsT-7781"
TEXT = EmbedderInput(text="ferry at noon")
RATE_LIMITED = Reply.of({"error": {"message": "slow down"}}, 429)


@asynccontextmanager
async def asked(
    services: EmbedderServices, naps: Naps, answer: loopback.Answerer, **keys: object
) -> AsyncIterator[tuple[OpenAiEmbedder, Loopback]]:
    """Open OpenAI over a server that answers so."""
    async with loopback.listening(answer) as server:
        given = {"base_url": server.url, "api_key": KEY, "dimensions": loopback.SHORT, **keys}
        settings = OpenAiSettings.model_validate(given)
        async with open_remote(OpenAiEmbedder, settings, services, pace=naps.pace) as embedder:
            assert isinstance(embedder, OpenAiEmbedder)
            yield embedder, server


async def failure(
    services: EmbedderServices, naps: Naps, reply: Reply, **keys: object
) -> tuple[EmbeddingError, int]:
    """Return the error that a server causes which always answers so, and how often it was asked."""
    async with asked(services, naps, lambda _received: reply, **keys) as (embedder, server):
        with pytest.raises(EmbeddingError) as raised:
            await embedder.embed(TEXT)
        assert no_key_in(raised.value)
        return raised.value, len(server.received)


def no_key_in(error: BaseException) -> bool:
    """Look through everything that could be printed of an error: its text, its cause and its context."""
    shown = "".join(traceback.format_exception(error)) + repr(vars(error))
    assert KEY not in shown
    assert (error.__cause__, error.__context__) == (None, None)
    return True


# --- what passes ------------------------------------------------------------------------------------------


async def test_a_rate_limit_is_waited_for(embedder_services: EmbedderServices, naps: Naps) -> None:
    answer = in_turn(RATE_LIMITED, RATE_LIMITED, then=loopback.openai)
    async with asked(embedder_services, naps, answer) as (embedder, server):
        assert await embedder.embed(TEXT) == loopback.vector_of(TEXT.text)

        assert len(server.received) == 3
        assert naps.taken == [pytest.approx(0.55), pytest.approx(1.1)]


@pytest.mark.parametrize(
    ("header", "waited"), [("7", 7.0), ("3600", 60.0), ("Wed, 21 Oct 2015 07:28:00 GMT", 0.55), ("?", 0.55)]
)
async def test_the_wait_that_the_server_asks_for_is_kept(
    header: str, waited: float, embedder_services: EmbedderServices, naps: Naps
) -> None:
    limited = Reply.of({}, 429, retry_after=header)
    async with asked(embedder_services, naps, in_turn(limited, then=loopback.openai)) as (embedder, _):
        await embedder.embed(TEXT)

        assert naps.taken == [pytest.approx(waited)]


@pytest.mark.parametrize(
    "trouble",
    [Reply.of({}, 500), Reply(status=503, body=b"<html>busy</html>"), Reply(body=b"{}" * 500, cut=True)],
    ids=["500", "503", "connection lost"],
)
async def test_trouble_of_the_server_is_waited_for(
    trouble: Reply, embedder_services: EmbedderServices, naps: Naps
) -> None:
    async with asked(embedder_services, naps, in_turn(trouble, then=loopback.openai)) as (embedder, _):
        assert await embedder.embed(TEXT) == loopback.vector_of(TEXT.text)
        assert len(naps.taken) == 1


async def test_the_next_key_of_gemini_is_taken_at_once(
    embedder_services: EmbedderServices, naps: Naps
) -> None:
    def answer(received: Received) -> Reply:
        return RATE_LIMITED if received.headers["x-goog-api-key"] == "first" else loopback.gemini(received)

    async with loopback.listening(answer) as server:
        given = {"base_url": server.url, "api_key": "first, second", "dimensions": loopback.SHORT}
        settings = GeminiSettings.model_validate(given)
        async with open_remote(GeminiEmbedder, settings, embedder_services, pace=naps.pace) as embedder:
            await embedder.embed(TEXT)
            await embedder.embed(TEXT)

        used = [request.headers["x-goog-api-key"] for request in server.received]
        assert (used, naps.taken) == (["first", "second", "second"], [])


async def test_when_every_key_is_at_its_limit_it_is_waited_for(
    embedder_services: EmbedderServices, naps: Naps
) -> None:
    async with loopback.listening(in_turn(RATE_LIMITED, RATE_LIMITED, then=loopback.gemini)) as server:
        given = {"base_url": server.url, "api_key": "first,second", "dimensions": loopback.SHORT}
        settings = GeminiSettings.model_validate(given)
        async with open_remote(GeminiEmbedder, settings, embedder_services, pace=naps.pace) as embedder:
            await embedder.embed(TEXT)

        assert len(server.received) == 3
        assert naps.taken == [pytest.approx(0.55)]


# --- what does not ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "body", "kind", "advice", "calls"),
    [
        (
            400,
            {"error": {"message": "bad"}},
            EmbeddingError,
            "check memory.embedding.providers.openai.model",
            1,
        ),
        (
            401,
            {"error": {"message": f"bad {KEY}"}},
            EmbedderUnavailable,
            "check the API key: OPENAI_API_KEY",
            1,
        ),
        (403, {"error": {"message": "no"}}, EmbedderUnavailable, "check the API key", 1),
        (404, {"error": {"message": "what"}}, EmbedderUnavailable, "providers.openai.model and", 1),
        (429, {"error": {"code": "insufficient_quota"}}, EmbedderUnavailable, "the quota is used up", 1),
        (429, {"error": {"message": "slow"}}, EmbeddingError, "max_concurrent_requests", 4),
        (502, {"error": {"message": "down"}}, EmbeddingError, "try again later", 4),
    ],
)
async def test_a_refusal_says_what_to_do(
    status: int,
    body: object,
    kind: type[EmbeddingError],
    advice: str,
    calls: int,
    embedder_services: EmbedderServices,
    naps: Naps,
) -> None:
    error, made = await failure(embedder_services, naps, Reply.of(body, status))

    assert type(error) is kind
    assert (error.provider, error.model) == ("openai", "text-embedding-3-small")
    assert "127.0.0.1:" in str(error)
    assert f"answered {status}" in str(error)
    assert advice in str(error)
    assert made == calls


def embedding_list(*items: tuple[int | None, object]) -> dict[str, object]:
    return {"data": [{"index": index, "embedding": vector} for index, vector in items]}


GOOD = [0.5] * loopback.SHORT


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        (b'{"data": [{"index": 0, "embedding": [0.1, 0.', "JSON: Invalid JSON"),
        (b"<!doctype html><title>Sign in</title>", "JSON: Invalid JSON"),
        (b"", "JSON: Invalid JSON"),
        (b"[]", "JSON: Input should be an object"),
        (b'{"vectors": []}', "data: Field required"),
        (b'{"data": [{"index": 0}]}', "data.0.embedding: Field required"),
        (
            b'{"data": [{"index": 0, "embedding": [0.5, NaN]}]}',
            "data.0.embedding.1: Input should be a finite",
        ),
        (
            b'{"data": [{"index": 0, "embedding": [-Infinity]}]}',
            "data.0.embedding.0: Input should be a finite",
        ),
        (b'{"data": [{"index": 0, "embedding": [1e999]}]}', "data.0.embedding.0: Input should be a finite"),
        (
            b'{"data": [{"index": 0, "embedding": [null]}]}',
            "data.0.embedding.0: Input should be a valid number",
        ),
        (
            b'{"data": [{"index": 0, "embedding": ["0.5"]}]}',
            "data.0.embedding.0: Input should be a valid number",
        ),
        (b'{"data": [{"index": 0, "embedding": "AACA"}]}', "data.0.embedding: Input should be a valid array"),
        (json.dumps(embedding_list()).encode(), "0 vectors for 1 text"),
        (json.dumps(embedding_list((0, GOOD), (1, GOOD))).encode(), "2 vectors for 1 text"),
        (json.dumps(embedding_list((1, GOOD))).encode(), "the indexes of its vectors are not 0, 1"),
        (
            json.dumps(embedding_list((0, GOOD), (0, GOOD))).encode(),
            "the indexes of its vectors are not 0, 1",
        ),
        (json.dumps(embedding_list((0, GOOD), (None, GOOD))).encode(), "the indexes of its vectors are not"),
    ],
)
async def test_an_answer_that_cannot_be_used_is_refused(
    body: bytes, problem: str, embedder_services: EmbedderServices, naps: Naps
) -> None:
    error, made = await failure(embedder_services, naps, Reply(body=body))

    assert "answer that cannot be used" in str(error)
    assert problem in str(error)
    assert made == 1


async def test_vectors_of_another_length_are_refused(embedder_services: EmbedderServices, naps: Naps) -> None:
    error, _ = await failure(embedder_services, naps, Reply.of(embedding_list((0, [0.5] * 3))))

    assert isinstance(error, DimensionMismatch)
    assert (error.expected, error.got) == (loopback.SHORT, 3)


async def test_vectors_without_places_keep_the_order_of_the_answer(
    embedder_services: EmbedderServices, naps: Naps
) -> None:
    other = [0.25] * loopback.SHORT
    reply = Reply.of({"data": [{"embedding": GOOD}, {"embedding": other}]})
    async with asked(embedder_services, naps, lambda _received: reply) as (embedder, _):
        assert await embedder.embed_batch([TEXT, EmbedderInput(text="boat")]) == [GOOD, other]


async def test_an_answer_without_end_is_left(embedder_services: EmbedderServices, naps: Naps) -> None:
    bomb = gzip.compress(b" " * (65 * 2**20), compresslevel=1)
    reply = Reply(body=bomb, headers={"content-encoding": "gzip"})

    error, _ = await failure(embedder_services, naps, reply)

    assert "answered with more than 64 MiB" in str(error)


async def test_another_host_is_not_followed(embedder_services: EmbedderServices, naps: Naps) -> None:
    async with loopback.listening(loopback.openai) as other:
        reply = Reply(status=307, headers={"location": f"{other.url}/{KEY}"})

        error, made = await failure(embedder_services, naps, reply)

        assert "another host, http://127.0.0.1;" in str(error)
        assert (made, other.received) == (1, [])


async def test_the_same_host_is_followed(embedder_services: EmbedderServices, naps: Naps) -> None:
    moved = Reply(status=308, headers={"location": "/moved/embeddings"})
    async with asked(embedder_services, naps, in_turn(moved, then=loopback.openai)) as (embedder, server):
        assert await embedder.embed(TEXT) == loopback.vector_of(TEXT.text)

        assert [request.path for request in server.received] == ["/embeddings", "/moved/embeddings"]
        assert server.received[1].json == server.received[0].json


async def test_a_circle_of_redirects_is_left(embedder_services: EmbedderServices, naps: Naps) -> None:
    error, made = await failure(embedder_services, naps, Reply(status=307, headers={"location": "/round"}))

    assert "more than 3 redirects" in str(error)
    assert made == 4


async def test_nobody_listens(embedder_services: EmbedderServices, naps: Naps) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound and not listening: connections are refused
        base_url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        settings = OpenAiSettings.model_validate({"base_url": base_url, "api_key": KEY})
        async with open_remote(OpenAiEmbedder, settings, embedder_services, pace=naps.pace) as embedder:
            with pytest.raises(EmbedderUnavailable, match=r"cannot be reached.*check the network") as raised:
                await embedder.embed(TEXT)

    assert no_key_in(raised.value)
    assert naps.taken == [pytest.approx(0.55), pytest.approx(1.1), pytest.approx(2.2)]


async def silence(_received: Received) -> Reply:
    await asyncio.Event().wait()
    raise AssertionError


async def test_silence_has_an_end_and_is_not_waited_for_again(
    embedder_services: EmbedderServices, naps: Naps
) -> None:
    async with asked(embedder_services, naps, silence, timeout_ms=1_000) as (embedder, server):
        with pytest.raises(EmbeddingError, match=r"in full within 1 s; raise .*timeout_ms") as raised:
            await embedder.embed(TEXT)
        assert no_key_in(raised.value)

        await asyncio.wait_for(server.deserted.wait(), 10)
        assert (len(server.received), naps.taken) == (1, [])


async def test_a_body_that_drips_has_an_end(embedder_services: EmbedderServices, naps: Naps) -> None:
    dripping = Reply(body=b" " * 10_000, drip=True)
    async with asked(embedder_services, naps, in_turn(dripping, then=loopback.openai), timeout_ms=200) as (
        embedder,
        _,
    ):
        with pytest.raises(EmbeddingError, match=r"in full within 0\.2 s"):
            await embedder.embed(TEXT)

        assert await embedder.embed(TEXT) == loopback.vector_of(TEXT.text)


async def test_what_was_paid_for_beside_a_failing_request_is_not_asked_for_again(
    embedder_services: EmbedderServices, naps: Naps
) -> None:
    asked_for: list[str] = []

    def answer(received: Received) -> Reply:
        asked_for.extend(received.json["input"])
        return Reply.of({}, 401) if "bad" in received.json["input"] else loopback.openai(received)

    async with asked(embedder_services, naps, answer, max_batch_texts=1) as (embedder, _):
        with pytest.raises(EmbedderUnavailable, match="check the API key"):
            await embedder.embed_batch([EmbedderInput(text=text) for text in ("good", "bad", "fair")])
        again = await embedder.embed_batch([EmbedderInput(text=text) for text in ("fair", "good")])

        assert sorted(asked_for) == ["bad", "fair", "good"]
        assert again == [loopback.vector_of("fair"), loopback.vector_of("good")]


# --- what callers do --------------------------------------------------------------------------------------


async def test_a_cancelled_call_closes_its_connection_and_leaves_the_rest_usable(
    embedder_services: EmbedderServices, naps: Naps
) -> None:
    async with asked(embedder_services, naps, silence) as (embedder, server):
        task = asyncio.create_task(embedder.embed(TEXT))
        await asyncio.wait_for(server.arrived.wait(), 10)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.wait_for(server.deserted.wait(), 10)

        server.answer = loopback.openai
        assert await embedder.embed(TEXT) == loopback.vector_of(TEXT.text)


async def test_the_callers_own_deadline_is_the_callers(
    embedder_services: EmbedderServices, naps: Naps
) -> None:
    async with asked(embedder_services, naps, silence) as (embedder, _):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await embedder.embed(TEXT)


async def test_closing_twice_is_fine_and_closed_is_closed(
    embedder_services: EmbedderServices, naps: Naps
) -> None:
    async with asked(embedder_services, naps, loopback.openai) as (embedder, _):
        await embedder.embed(TEXT)
        await embedder.close()
        await embedder.close()

        with pytest.raises(EmbedderUnavailable, match="the embedder is closed; open a new one"):
            await embedder.embed(TEXT)


async def test_closing_ends_a_call_that_is_under_way(embedder_services: EmbedderServices, naps: Naps) -> None:
    async with asked(embedder_services, naps, silence) as (embedder, server):
        task = asyncio.create_task(embedder.embed(TEXT))
        await asyncio.wait_for(server.arrived.wait(), 10)
        await embedder.close()

        with pytest.raises(EmbedderUnavailable, match="the embedder has been closed"):
            await asyncio.wait_for(task, 10)


async def test_no_key_is_logged_or_shown(
    embedder_services: EmbedderServices, naps: Naps, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    echo = Reply.of({"error": {"message": f"no such key: {KEY} (Bearer {KEY})"}}, 401)
    answer = in_turn(Reply.of({}, 500), echo, then=loopback.openai)
    async with asked(embedder_services, naps, answer, headers={"X-Team": KEY + "-2"}) as (embedder, _):
        with pytest.raises(EmbedderUnavailable, match=r"no such key: \*\*\*"):
            await embedder.embed(TEXT)
        await embedder.embed(TEXT)

        assert "httpx" in {record.name for record in caplog.records}
        assert KEY not in caplog.text
        assert KEY not in repr(embedder) + repr(embedder.settings) + str(embedder.settings)


# --- Ollama -----------------------------------------------------------------------------------------------


async def test_a_model_that_was_not_pulled_is_to_be_pulled(
    embedder_services: EmbedderServices, naps: Naps
) -> None:
    async with loopback.listening(loopback.ollama) as server:
        given = {"base_url": server.url, "model": "llama:7b", "dimensions": loopback.SHORT}
        settings = OllamaSettings.model_validate(given)
        async with open_remote(OllamaEmbedder, settings, embedder_services, pace=naps.pace) as embedder:
            with pytest.raises(EmbedderUnavailable, match="run `ollama pull llama:7b`"):
                await embedder.embed(TEXT)
