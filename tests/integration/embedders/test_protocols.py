"""Each provider is asked in its own words, and only what needs to be sent is sent."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from math import hypot

import pytest

from composable_memory.content import EmbedderInput
from composable_memory.errors import EmbedderUnavailable
from composable_memory.interfaces import EmbedderAdapter, EmbedderServices, EmbedderSpec
from composable_memory_adapters.embedders import gemini, ollama, openai
from tests.integration.embedders import loopback
from tests.integration.embedders.loopback import Loopback, Received, Reply

PASSAGES = [EmbedderInput(text="ferry at noon"), EmbedderInput(text="tomatoes")]
QUESTION = EmbedderInput(text="when?", kind="query")


@asynccontextmanager
async def asked(
    spec: EmbedderSpec,
    services: EmbedderServices,
    answer: loopback.Answerer = loopback.openai,
    **keys: object,
) -> AsyncIterator[tuple[EmbedderAdapter, Loopback]]:
    """Open a provider whose server is on loopback; vectors are short, if nothing else is said."""
    given = {"base_url": "", "api_key": "key-of-a-test", "dimensions": loopback.SHORT, **keys}
    async with loopback.listening(answer) as server:
        given["base_url"] = f"{server.url}{given['base_url']}"
        async with spec.open(spec.settings.model_validate(given), services) as embedder:
            yield embedder, server


async def sent(
    spec: EmbedderSpec,
    services: EmbedderServices,
    answer: loopback.Answerer = loopback.openai,
    **keys: object,
) -> tuple[Received, Received]:
    """Return what is sent for two passages, and for a question."""
    async with asked(spec, services, answer, **keys) as (embedder, server):
        await embedder.embed_batch(PASSAGES)
        await embedder.embed(QUESTION)
        return server.received[-2], server.received[-1]


async def test_openai(embedder_services: EmbedderServices) -> None:
    passages, question = await sent(openai.spec, embedder_services, base_url="/v1/", model="openai/small")

    assert (passages.method, passages.path) == ("POST", "/v1/embeddings")
    assert passages.headers["authorization"] == "Bearer key-of-a-test"
    assert passages.headers["content-type"] == "application/json"
    assert passages.json == {"model": "small", "input": ["ferry at noon", "tomatoes"], "dimensions": 32}
    assert question.json == {"model": "small", "input": ["when?"], "dimensions": 32}


async def test_mistral(embedder_services: EmbedderServices) -> None:
    passages, _ = await sent(openai.mistral_spec, embedder_services, model="mistral/codestral-embed")

    assert passages.path == "/embeddings"
    assert passages.json == {
        "model": "codestral-embed",
        "input": ["ferry at noon", "tomatoes"],
        "output_dimension": 32,
    }


async def test_voyage_is_told_what_a_text_is(embedder_services: EmbedderServices) -> None:
    passages, question = await sent(openai.voyage_spec, embedder_services, model="voyage/voyage-4")

    assert passages.json == {
        "model": "voyage-4",
        "input": ["ferry at noon", "tomatoes"],
        "input_type": "document",
        "output_dimension": 32,
    }
    assert question.json["input_type"] == "query"


async def test_a_compatible_server_gets_nothing_but_model_and_texts(
    embedder_services: EmbedderServices,
) -> None:
    passages, _ = await sent(
        openai.compatible_spec,
        embedder_services,
        base_url="/v1?api-version=7",
        model="openai/whatever",
        api_key=None,
    )

    assert passages.path == "/v1/embeddings?api-version=7"
    assert "authorization" not in passages.headers
    assert passages.json == {"model": "openai/whatever", "input": ["ferry at noon", "tomatoes"]}


async def test_gemini_is_told_what_a_text_is(embedder_services: EmbedderServices) -> None:
    passages, question = await sent(
        gemini.spec,
        embedder_services,
        loopback.gemini,
        base_url="/v1beta/openai/",
        model="google/gemini-embedding-001",
    )

    assert passages.path == "/v1beta/models/gemini-embedding-001:batchEmbedContents"
    assert passages.headers["x-goog-api-key"] == "key-of-a-test"
    assert "authorization" not in passages.headers
    assert passages.json["requests"][1] == {
        "model": "models/gemini-embedding-001",
        "content": {"parts": [{"text": "tomatoes"}]},
        "taskType": "RETRIEVAL_DOCUMENT",
        "outputDimensionality": 32,
    }
    assert question.json["requests"][0]["taskType"] == "RETRIEVAL_QUERY"


async def test_gemini_takes_a_token_of_oauth(embedder_services: EmbedderServices) -> None:
    key = '{"token": "oauth-token", "projectId": "p,q"}'
    passages, _ = await sent(gemini.spec, embedder_services, loopback.gemini, api_key=key)

    assert passages.headers["authorization"] == "Bearer oauth-token"
    assert "x-goog-api-key" not in passages.headers


async def test_shortened_vectors_of_gemini_have_unit_length(embedder_services: EmbedderServices) -> None:
    async with asked(gemini.spec, embedder_services, loopback.gemini) as (embedder, _):
        assert hypot(*await embedder.embed(QUESTION)) == pytest.approx(1.0)


async def test_ollama(embedder_services: EmbedderServices) -> None:
    passages, _ = await sent(ollama.spec, embedder_services, loopback.ollama, api_key=None)

    assert passages.path == "/api/embed"
    assert "authorization" not in passages.headers
    assert passages.json == {
        "model": "nomic-embed-text",
        "input": ["ferry at noon", "tomatoes"],
        "dimensions": 32,
    }


async def test_an_ollama_that_is_too_old_is_told_from_a_model_that_is_missing(
    embedder_services: EmbedderServices,
) -> None:
    async with asked(ollama.spec, embedder_services, loopback.ollama_of_old) as (embedder, _):
        with pytest.raises(EmbedderUnavailable, match=r"update Ollama to 0\.3"):
            await embedder.embed(QUESTION)


async def test_a_length_that_the_model_has_anyway_is_not_asked_for(
    embedder_services: EmbedderServices,
) -> None:
    def answer(received: Received) -> Reply:
        assert "dimensions" not in received.json
        return Reply.of({"data": [{"index": 0, "embedding": [0.5] * 1536}]})

    async with asked(openai.spec, embedder_services, answer, dimensions=1536) as (embedder, _):
        assert await embedder.embed(QUESTION) == [0.5] * 1536


async def test_blank_texts_are_not_sent(embedder_services: EmbedderServices) -> None:
    async with asked(openai.spec, embedder_services) as (embedder, server):
        texts = ["", "ferry", " \n", "boat", "\u3000"]
        vectors = await embedder.embed_batch([EmbedderInput(text=text) for text in texts])
        await embedder.embed(EmbedderInput(text="  "))

        assert [request.json["input"] for request in server.received] == [["ferry", "boat"]]
        assert [any(vector) for vector in vectors] == [False, True, False, True, False]


async def test_long_texts_are_cut_and_broken_ones_mended(embedder_services: EmbedderServices) -> None:
    async with asked(openai.spec, embedder_services, max_text_bytes=16) as (embedder, server):
        await embedder.embed_batch([EmbedderInput(text="港" * 9), EmbedderInput(text="a\ud800b")])

        assert server.received[0].json["input"] == ["港" * 5, "a?b"]


async def test_texts_are_spread_over_requests_and_keep_their_order(
    embedder_services: EmbedderServices,
) -> None:
    texts = [f"text number {number}" for number in range(25)]
    inputs = [
        EmbedderInput(text=text, kind="query" if number % 3 else "document")
        for number, text in enumerate(texts)
    ]
    async with asked(openai.voyage_spec, embedder_services, max_batch_texts=4) as (embedder, server):
        vectors = await embedder.embed_batch(inputs)

        assert vectors == [loopback.vector_of(text) for text in texts]
        sizes = sorted((one.json["input_type"], len(one.json["input"])) for one in server.received)
        assert sizes == [("document", 1), *[("document", 4)] * 2, *[("query", 4)] * 4]


async def test_no_more_requests_go_on_at_once_than_allowed(embedder_services: EmbedderServices) -> None:
    going, most = 0, 0

    async def answer(received: Received) -> Reply:
        nonlocal going, most
        going += 1
        most = max(most, going)
        for _ in range(20):
            await asyncio.sleep(0)
        going -= 1
        return loopback.openai(received)

    inputs = [EmbedderInput(text=f"text {number}") for number in range(12)]
    async with asked(
        openai.spec, embedder_services, answer, max_batch_texts=1, max_concurrent_requests=3
    ) as (embedder, server):
        await embedder.embed_batch(inputs)

        assert len(server.received) == 12
        assert most == 3


async def test_headers_of_the_settings_win(embedder_services: EmbedderServices) -> None:
    headers = {"AUTHORIZATION": "Basic abc", "X-Team": "boats"}
    passages, _ = await sent(openai.spec, embedder_services, headers=headers)

    assert passages.headers["authorization"] == "Basic abc"
    assert passages.headers["x-team"] == "boats"


async def test_a_proxy_of_the_environment_is_not_asked_for_this_machine(
    embedder_services: EmbedderServices, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)

    passages, _ = await sent(openai.spec, embedder_services)

    assert passages.path == "/embeddings"


async def test_keys_are_taken_from_the_environment(embedder_services: EmbedderServices) -> None:
    services = replace(
        embedder_services, environ={"GEMINI_API_KEY": " ", "GOOGLE_API_KEY": "key-of-google\n"}
    )

    passages, _ = await sent(gemini.spec, services, loopback.gemini, api_key=None)

    assert passages.headers["x-goog-api-key"] == "key-of-google"
