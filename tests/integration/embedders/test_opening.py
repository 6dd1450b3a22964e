"""Opening asks nothing of a provider it knows, and says what is missing where something is."""

import socket
import subprocess
import sys
from dataclasses import replace

import pytest

from composable_memory.errors import EmbedderUnavailable
from composable_memory.interfaces import EmbedderServices, EmbedderSpec, SupportsFingerprint
from composable_memory_adapters.embedders import gemini, ollama, openai
from composable_memory_adapters.embedders.openai import OpenAiEmbedder, OpenAiSettings
from composable_memory_adapters.embedders.remote.embedder import open_remote
from tests.integration.embedders import loopback
from tests.integration.embedders.conftest import Naps
from tests.integration.embedders.loopback import Reply

NOWHERE = "http://127.0.0.1:9"
SPECS = [
    gemini.spec,
    openai.mistral_spec,
    ollama.spec,
    openai.spec,
    openai.compatible_spec,
    openai.voyage_spec,
]


def configured(spec: EmbedderSpec, **keys: object) -> object:
    return spec.settings.model_validate(keys)


@pytest.mark.parametrize(
    ("spec", "variables"),
    [
        (openai.spec, "OPENAI_API_KEY"),
        (gemini.spec, "GEMINI_API_KEY or GOOGLE_API_KEY"),
        (openai.voyage_spec, "VOYAGE_API_KEY"),
        (openai.mistral_spec, "MISTRAL_API_KEY"),
    ],
    ids=lambda value: getattr(value, "id", ""),
)
async def test_a_missing_key_is_named_before_and_at_opening(
    spec: EmbedderSpec, variables: str, embedder_services: EmbedderServices
) -> None:
    place = f"memory.embedding.providers.{spec.id}.api_key_env"
    expected = f"no API key for {spec.id}; set {variables} or {place}"

    assert spec.lacks(configured(spec), embedder_services) == expected
    with pytest.raises(EmbedderUnavailable) as raised:
        async with spec.open(configured(spec), embedder_services):
            pass
    assert expected in str(raised.value)


@pytest.mark.parametrize("spec", [ollama.spec, openai.compatible_spec], ids=lambda spec: spec.id)
def test_servers_of_ones_own_need_no_key(spec: EmbedderSpec, embedder_services: EmbedderServices) -> None:
    settings = configured(spec, base_url=NOWHERE, model="some")

    assert spec.lacks(settings, embedder_services) is None


def test_a_compatible_server_has_to_be_described(embedder_services: EmbedderServices) -> None:
    spec = openai.compatible_spec
    prefix = "memory.embedding.providers.openai-compatible"

    no_url = spec.lacks(configured(spec, model="some"), embedder_services)
    no_model = spec.lacks(configured(spec, base_url=NOWHERE, model=" "), embedder_services)

    assert no_url == f"no base_url for openai-compatible; set {prefix}.base_url"
    assert no_model == f"no model for openai-compatible; set {prefix}.model"


def test_an_unusable_url_is_named_without_being_shown(embedder_services: EmbedderServices) -> None:
    cases: list[tuple[str, str]] = [
        ("ftp://host", "the base_url has to begin with http:// or https:// and a host"),
        ("api.example.org/v1", "the base_url has to begin with http:// or https:// and a host"),
        ("https://", "the base_url has to begin with http:// or https:// and a host"),
        ("https://me:hunter2@host", "the base_url contains a user or password, which belongs in a header"),
        ("https://host:port", "the base_url is not a URL"),
        ("https://[::1", "the base_url is not a URL"),
    ]
    for base_url, problem in cases:
        lacks = openai.spec.lacks(configured(openai.spec, base_url=base_url, api_key="k"), embedder_services)

        assert lacks == f"{problem}; correct memory.embedding.providers.openai.base_url"


async def test_a_key_that_http_cannot_carry_is_refused_without_being_shown(
    embedder_services: EmbedderServices,
) -> None:
    cases: list[str] = ["two\nlines", "schlüssel", "\x00", "tab\x7f"]
    for key in cases:
        for keys in ({"api_key": key}, {"headers": {"X-Key": key}, "api_key": "k"}):
            with pytest.raises(EmbedderUnavailable, match="HTTP does not allow") as raised:
                async with openai.spec.open(configured(openai.spec, **keys), embedder_services):
                    pass
            assert key not in str(raised.value)


def test_a_header_that_proves_who_asks_stands_in_for_a_key(embedder_services: EmbedderServices) -> None:
    settings = configured(openai.spec, headers={"Authorization": "Basic abc"})

    assert openai.spec.lacks(settings, embedder_services) is None


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.id)
async def test_a_known_length_needs_no_request(
    spec: EmbedderSpec, embedder_services: EmbedderServices
) -> None:
    given: dict[str, object] = {"base_url": NOWHERE, "api_key": "k"}
    if spec is openai.compatible_spec:
        given |= {"model": "some", "dimensions": 12}

    async with spec.open(configured(spec, **given), embedder_services) as embedder:
        assert embedder.dimensions > 0
        assert list(await embedder.embed_batch([])) == []


@pytest.mark.parametrize(
    ("spec", "model", "dimensions"),
    [
        (openai.spec, "openai/text-embedding-3-large", 3072),
        (gemini.spec, "models/gemini-embedding-001", 3072),
        (openai.voyage_spec, "voyage/voyage-3-lite", 512),
        (openai.mistral_spec, "codestral-embed", 1536),
        (ollama.spec, "ollama/mxbai-embed-large:latest", 1024),
    ],
)
async def test_models_are_known_with_prefix_and_tag(
    spec: EmbedderSpec, model: str, dimensions: int, embedder_services: EmbedderServices
) -> None:
    settings = configured(spec, model=model, api_key="k")

    async with spec.open(settings, embedder_services) as embedder:
        assert embedder.dimensions == dimensions
        assert not embedder.model.startswith(("openai/", "models/", "voyage/", "ollama/"))


async def test_an_unknown_length_is_measured_by_one_request(embedder_services: EmbedderServices) -> None:
    async with loopback.listening(loopback.openai) as server:
        settings = configured(openai.spec, model="new", base_url=server.url, api_key="k")
        async with openai.spec.open(settings, embedder_services) as embedder:
            assert embedder.dimensions == loopback.SHORT
            assert len(server.received) == 1


async def test_what_cannot_be_measured_has_to_be_set(embedder_services: EmbedderServices, naps: Naps) -> None:
    def answer(_received: loopback.Received) -> Reply:
        return Reply.of({"data": [{"index": 0, "embedding": []}]})

    async with loopback.listening(answer) as server:
        settings = OpenAiSettings.model_validate({"model": "new", "base_url": server.url, "api_key": "k"})
        with pytest.raises(EmbedderUnavailable, match="an empty vector") as raised:
            async with open_remote(OpenAiEmbedder, settings, embedder_services, pace=naps.pace):
                pass

    assert raised.value.fix == "set memory.embedding.providers.openai.dimensions"


async def test_ollama_that_does_not_run_says_how_to_start_it(
    embedder_services: EmbedderServices, naps: Naps
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound and not listening: connections are refused
        base_url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        settings = ollama.OllamaSettings.model_validate({"model": "new", "base_url": base_url})
        with pytest.raises(EmbedderUnavailable, match="start it with `ollama serve`"):
            async with open_remote(ollama.OllamaEmbedder, settings, embedder_services, pace=naps.pace):
                pass

    assert len(naps.taken) == 3


async def fingerprint(services: EmbedderServices, **keys: object) -> str:
    settings = configured(openai.spec, **{"api_key": "k", **keys})
    async with openai.spec.open(settings, services) as embedder:
        assert isinstance(embedder, SupportsFingerprint)
        return embedder.fingerprint


async def test_the_fingerprint_follows_what_shapes_the_vectors(embedder_services: EmbedderServices) -> None:
    plain = await fingerprint(embedder_services)

    assert await fingerprint(embedder_services, base_url=NOWHERE) != plain
    assert await fingerprint(embedder_services, max_text_bytes=100) != plain
    assert await fingerprint(embedder_services, headers={"X-Route": "a"}) != plain
    assert await fingerprint(embedder_services, headers={"X-Route": "a"}) != await fingerprint(
        embedder_services, headers={"X-Route": "b"}
    )


async def test_the_fingerprint_does_not_follow_keys_and_spelling(embedder_services: EmbedderServices) -> None:
    plain = await fingerprint(embedder_services)
    secrets = {"Authorization": "Basic abc", "x-api-key": "abc", "Cookie": "abc"}

    assert await fingerprint(embedder_services, api_key="another") == plain
    assert await fingerprint(embedder_services, base_url="https://api.openai.com/v1/") == plain
    assert await fingerprint(embedder_services, headers=secrets) == plain
    assert await fingerprint(embedder_services, max_batch_texts=3, timeout_ms=10) == plain
    assert await fingerprint(embedder_services, headers={"a-b": "1", "C": "2"}) == await fingerprint(
        embedder_services, headers={"c": "2", "A-B": "1"}
    )


def test_the_key_of_the_settings_goes_before_that_of_the_environment(
    embedder_services: EmbedderServices,
) -> None:
    services = replace(embedder_services, environ={"OPENAI_API_KEY": "from-environment"})
    find = OpenAiEmbedder.provider.key

    assert find(OpenAiSettings(), services.environ) == "from-environment"
    assert find(OpenAiSettings.model_validate({"apiKey": "own"}), services.environ) == "own"


def test_listing_and_opening_providers_loads_no_http_client() -> None:
    program = """
import asyncio, sys
from composable_memory_adapters.embedders import gemini, ollama, openai
async def main():
    services = type("Services", (), {"environ": {"OPENAI_API_KEY": "k"}, "clock": None})()
    async with openai.spec.open(openai.OpenAiSettings(), services) as embedder:
        print(embedder.dimensions)
asyncio.run(main())
print([name for name in ("httpx", "anyio") if name in sys.modules])
"""
    paths = [entry for entry in sys.path if entry]
    run = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path[:0] = {paths!r}\n{program}"],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )

    assert run.stdout.split("\n")[:2] == ["1536", "[]"]
