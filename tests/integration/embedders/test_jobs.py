"""Many texts are left with a provider as a job, and their vectors come back as if they had been asked for."""

import asyncio
import json
import logging
import os
import re
import signal
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from functools import partial
from hashlib import sha256
from math import hypot
from pathlib import Path
from typing import Any

import pytest

from composable_memory.content import EmbedderInput
from composable_memory.errors import DimensionMismatch, EmbeddingError, EmbeddingPending
from composable_memory.interfaces import BackendServices, EmbedderServices, SupportsJobs
from composable_memory.supervision.backoff import Pace
from composable_memory.testing import FIXED_NOW
from composable_memory_adapters.builtin.backend import open_builtin
from composable_memory_adapters.builtin.settings import BuiltinSettings
from composable_memory_adapters.embedders.batch_jobs.embedder import EmbedderWithJobs
from composable_memory_adapters.embedders.gemini import GeminiEmbedder
from composable_memory_adapters.embedders.openai import OpenAiEmbedder, VoyageEmbedder
from composable_memory_adapters.embedders.remote.embedder import open_remote
from tests.integration.embedders import loopback
from tests.integration.embedders.conftest import Naps
from tests.integration.embedders.job_servers import (
    SERVERS,
    GeminiServer,
    JobServer,
    OpenAiServer,
    VoyageServer,
)
from tests.integration.embedders.loopback import Loopback, Reply
from tests.integration.embedders.test_faults import KEY, RATE_LIMITED, no_key_in

KINDS: dict[type[JobServer], type[EmbedderWithJobs[Any]]] = {
    OpenAiServer: OpenAiEmbedder,
    VoyageServer: VoyageEmbedder,
    GeminiServer: GeminiEmbedder,
}
TEXTS = ["ferry at noon", "tomatoes", "pump relay", "pilot's boat", "dentist on Monday"]
INPUTS = [EmbedderInput(text=text) for text in TEXTS]
each_provider = pytest.mark.parametrize("kind", SERVERS, ids=lambda kind: kind.spec.id)


class FewToAJob(OpenAiEmbedder):
    """Puts two texts into a job, so that a few make several."""

    @property
    def texts_per_job(self) -> int:
        return 2


@asynccontextmanager
async def asked(
    server: JobServer,
    services: EmbedderServices,
    pace: Pace,
    *,
    kind: type[EmbedderWithJobs[Any]] | None = None,
    at: Loopback | None = None,
    api_key: str = KEY,
    **batch: object,
) -> AsyncIterator[EmbedderWithJobs[Any]]:
    """Open a provider over a server; over the one that listens `at`, where there is one."""
    if at is None:
        async with (
            loopback.listening(server) as listening,
            asked(server, services, pace, kind=kind, at=listening, api_key=api_key, **batch) as embedder,
        ):
            yield embedder
        return
    given = {
        "base_url": at.url + server.base,
        "api_key": api_key,
        "dimensions": loopback.SHORT,
        "batch": {"enabled": True, "min_texts": 2, **batch},
    }
    opening = open_remote(
        kind or KINDS[type(server)], server.spec.settings.model_validate(given), services, pace=pace
    )
    async with opening as embedder:
        assert isinstance(embedder, EmbedderWithJobs)
        yield embedder


def as_lists(vectors: Sequence[Sequence[float]]) -> list[list[float]]:
    return [list(vector) for vector in vectors]


def expected(server: JobServer, texts: Sequence[str] = TEXTS) -> list[Any]:
    vectors = [loopback.vector_of(text) for text in texts]
    if not isinstance(server, GeminiServer):
        return vectors
    return [pytest.approx([value / hypot(*vector) for value in vector]) for vector in vectors]


def records(services: EmbedderServices) -> list[Path]:
    return sorted(services.state_dir.glob("embedding-jobs/*"))


# --- how it goes ------------------------------------------------------------------------------------------


@each_provider
async def test_a_job_brings_the_vectors_of_the_texts_in_their_order(
    kind: type[JobServer], embedder_services: EmbedderServices, naps: Naps
) -> None:
    server = kind(looks=4)
    async with asked(server, embedder_services, naps.pace) as embedder:
        assert as_lists(await embedder.embed_job(INPUTS)) == expected(server)

        assert server.asked == {"upload": 1, "create": 1, "look": 4, "download": 1}
        assert naps.taken == [2.0, 2.0, 2.0]
        assert embedder.batch_status().failures == 0


async def test_what_openai_is_sent(embedder_services: EmbedderServices, naps: Naps) -> None:
    server = OpenAiServer()
    async with asked(server, embedder_services, naps.pace) as embedder:
        await embedder.embed_job(INPUTS[:2])

    upload = server.uploads[0]
    assert (upload["purpose"], upload["name"]) == ("batch", "memory-embeddings.jsonl")
    assert upload["lines"][0] == {
        "custom_id": sha256(b"ferry at noon").hexdigest(),
        "method": "POST",
        "url": "/v1/embeddings",
        "body": {"model": "text-embedding-3-small", "input": "ferry at noon", "dimensions": 32},
    }
    assert server.jobs["batch_1"].order == {
        "input_file_id": "file-1",
        "endpoint": "/v1/embeddings",
        "completion_window": "24h",
        "metadata": {"source": "composable-memory"},
    }


async def test_what_voyage_is_sent(embedder_services: EmbedderServices, naps: Naps) -> None:
    server = VoyageServer()
    async with asked(server, embedder_services, naps.pace) as embedder:
        await embedder.embed_job(INPUTS[:2])

    line = {"custom_id": sha256(b"tomatoes").hexdigest(), "body": {"input": "tomatoes"}}
    assert server.uploads[0]["lines"][1] == line
    assert server.jobs["batch_1"].order == {
        "input_file_id": "file-1",
        "endpoint": "/v1/embeddings",
        "completion_window": "12h",
        "request_params": {"model": "voyage-4-large", "input_type": "document", "output_dimension": 32},
        "metadata": {"source": "composable-memory"},
    }


async def test_what_gemini_is_sent(embedder_services: EmbedderServices, naps: Naps) -> None:
    server = GeminiServer()
    async with asked(server, embedder_services, naps.pace) as embedder:
        await embedder.embed_job(INPUTS[:2])

    upload = server.uploads[0]
    assert upload["about"]["file"]["mimeType"] == "application/jsonl"
    assert upload["lines"][0] == {
        "key": sha256(b"ferry at noon").hexdigest(),
        "request": {
            "model": "models/gemini-embedding-001",
            "content": {"parts": [{"text": "ferry at noon"}]},
            "taskType": "RETRIEVAL_DOCUMENT",
            "outputDimensionality": 32,
        },
    }


@each_provider
async def test_blank_long_equal_and_odd_texts_are_embedded_as_by_requests(
    kind: type[JobServer], embedder_services: EmbedderServices, naps: Naps
) -> None:
    texts = ["", "ferry", " \n", "ferry", "港 boat " * 6000, 'a\ud800b "quoted"\n\u2028line', "ferry"]
    inputs = [EmbedderInput(text=text) for text in texts]
    inputs[-1] = EmbedderInput(text="ferry", kind="query")
    server = kind()
    async with asked(server, embedder_services, naps.pace) as embedder:
        by_job = as_lists(await embedder.embed_job(inputs))
        by_request = as_lists(await embedder.embed_batch(inputs))

    assert by_job == by_request
    assert sum(len(upload["lines"]) for upload in server.uploads) == 4


async def test_nothing_but_blanks_makes_no_job(embedder_services: EmbedderServices, naps: Naps) -> None:
    server = OpenAiServer()
    async with asked(server, embedder_services, naps.pace) as embedder:
        assert as_lists(await embedder.embed_job([EmbedderInput(text=" ")])) == [[0.0] * loopback.SHORT]
        assert as_lists(await embedder.embed_job([])) == []

    assert not server.asked


async def test_of_several_keys_only_the_first_has_jobs(
    embedder_services: EmbedderServices, naps: Naps
) -> None:
    server = GeminiServer(first=[RATE_LIMITED])
    async with loopback.listening(server) as at:
        keys = {"at": at, "api_key": "first, second"}
        async with asked(server, embedder_services, naps.pace, **keys) as embedder:  # type: ignore[arg-type]
            await embedder.embed_job(INPUTS)

        assert {request.headers["x-goog-api-key"] for request in at.received} == {"first"}


async def test_many_texts_are_several_jobs_and_few_go_on_at_once(
    embedder_services: EmbedderServices, naps: Naps
) -> None:
    server = OpenAiServer(looks=3)
    async with asked(server, embedder_services, naps.pace, kind=FewToAJob, concurrency=2) as embedder:
        assert embedder.job_limit == 4
        assert as_lists(await embedder.embed_job(INPUTS)) == expected(server)

    assert [len(job.lines) for job in server.jobs.values()] == [2, 2, 1]
    assert server.most_at_once == 2


async def test_a_large_file_is_sent_whole(embedder_services: EmbedderServices, naps: Naps) -> None:
    inputs = [EmbedderInput(text=f"{number} " + "boat " * 1500) for number in range(60)]
    server = OpenAiServer()
    async with asked(server, embedder_services, naps.pace) as embedder:
        vectors = as_lists(await embedder.embed_job(inputs))

    assert vectors == [loopback.vector_of(item.text) for item in inputs]


# --- when a job is worth it -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("batch", "texts", "takes"),
    [({}, 200, True), ({}, 199, False), ({"min_texts": 5}, 5, True), ({"enabled": False}, 9999, False)],
)
async def test_jobs_are_for_many_texts(
    batch: dict[str, object], texts: int, takes: bool, embedder_services: EmbedderServices
) -> None:
    given = {"api_key": KEY, "batch": {"enabled": True, **batch}}
    for kind in SERVERS:
        async with kind.spec.open(kind.spec.settings.model_validate(given), embedder_services) as embedder:
            assert isinstance(embedder, SupportsJobs)
            assert embedder.takes_jobs(texts) is takes
            assert embedder.batch_status().enabled is given["batch"]["enabled"]  # type: ignore[index]
            assert 1000 <= embedder.job_limit <= 50_000


async def test_where_jobs_are_off_requests_are_made_and_nothing_is_written(
    embedder_services: EmbedderServices, naps: Naps
) -> None:
    before = sorted(embedder_services.state_dir.rglob("*"))
    server = OpenAiServer()
    async with asked(server, embedder_services, naps.pace, enabled=False) as embedder:
        assert as_lists(await embedder.embed_job(INPUTS)) == expected(server)

    assert set(server.asked) == {"embed"}
    assert sorted(embedder_services.state_dir.rglob("*")) == before


# --- jobs that outlive a call -----------------------------------------------------------------------------


@each_provider
async def test_a_job_that_is_not_waited_for_is_fetched_by_the_next_process(
    kind: type[JobServer], embedder_services: EmbedderServices, naps: Naps
) -> None:
    server = kind(looks=4)
    async with loopback.listening(server) as at:
        for _ in range(2):
            async with asked(server, embedder_services, naps.pace, at=at, wait=False) as embedder:
                with pytest.raises(EmbeddingPending) as raised:
                    await embedder.embed_job(INPUTS)
                assert raised.value.job in server.jobs
                assert embedder.batch_status().failures == 0
        async with asked(server, embedder_services, naps.pace, at=at, wait=False) as embedder:
            assert as_lists(await embedder.embed_job(INPUTS)) == expected(server)

    assert (server.asked["create"], naps.taken) == (1, [])


async def test_a_job_that_takes_too_long_is_left_to_another_time(
    embedder_services: EmbedderServices, naps: Naps
) -> None:
    server = OpenAiServer(looks=1000)
    batch: dict[str, Any] = {"timeout_minutes": 1, "poll_interval_ms": 10_000}
    async with asked(server, embedder_services, naps.pace, **batch) as embedder:
        with pytest.raises(EmbeddingPending, match="job batch_1 is not finished"):
            await embedder.embed_job(INPUTS)
        assert naps.taken == [10.0] * 6

        server.looks = 0
        assert as_lists(await embedder.embed_job(INPUTS)) == expected(server)
        assert server.asked["create"] == 1


async def test_cancelling_ends_the_polling_at_once_and_leaves_the_job(
    embedder_services: EmbedderServices, naps: Naps
) -> None:
    server, waits = OpenAiServer(), asyncio.Event()

    async def sleep(_seconds: float) -> None:
        waits.set()
        await asyncio.Event().wait()

    async with loopback.listening(server) as at:
        async with asked(server, embedder_services, Pace(sleep=sleep), at=at) as embedder:
            task = asyncio.create_task(embedder.embed_job(INPUTS))
            await asyncio.wait_for(waits.wait(), 10)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert embedder.batch_status().failures == 0
            assert server.asked["look"] == 1
        async with asked(server, embedder_services, naps.pace, at=at) as embedder:
            assert as_lists(await embedder.embed_job(INPUTS)) == expected(server)

    assert server.asked["create"] == 1


KILLED = """
import asyncio, sys
from datetime import UTC, datetime
from pathlib import Path
from composable_memory.content import EmbedderInput
from composable_memory.interfaces import EmbedderServices
from composable_memory_adapters.embedders.openai import spec
from composable_memory_ops_logs import OpsLog

async def main(url, state_dir, *texts):
    services = EmbedderServices(
        state_dir=Path(state_dir), environ={}, ops_log=OpsLog(None), clock=lambda: datetime.now(UTC)
    )
    keys = {"base_url": url, "api_key": "k", "dimensions": 32, "batch": {"enabled": True}}
    async with spec.open(spec.settings.model_validate(keys), services) as embedder:
        await embedder.embed_job([EmbedderInput(text=text) for text in texts])

asyncio.run(main(*sys.argv[1:]))
"""


async def test_what_a_killed_process_has_paid_for_is_fetched(
    embedder_services: EmbedderServices, naps: Naps
) -> None:
    server, looked = OpenAiServer(looks=10_000), asyncio.Event()

    def answer(received: loopback.Received) -> Reply:
        if server.deed(received) == "look":
            looked.set()
        return server(received)

    async with loopback.listening(answer) as at:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            KILLED,
            at.url,
            str(embedder_services.state_dir),
            *TEXTS,
            env={"PYTHONPATH": os.pathsep.join(sys.path), "PATH": os.environ["PATH"]},
        )
        try:
            await asyncio.wait_for(looked.wait(), 60)
        finally:
            process.send_signal(signal.SIGKILL)
            await process.wait()
        server.looks = 0
        async with asked(server, embedder_services, naps.pace, at=at) as embedder:
            assert as_lists(await embedder.embed_job(INPUTS)) == expected(server)

    assert server.asked["create"] == 1


async def test_texts_that_came_later_are_added_by_requests_and_many_by_a_job(
    embedder_services: EmbedderServices, naps: Naps
) -> None:
    server = OpenAiServer()
    more = [*INPUTS[1:], *(EmbedderInput(text=f"note {number}") for number in range(4))]
    async with asked(server, embedder_services, naps.pace, min_texts=3) as embedder:
        await embedder.embed_job(INPUTS)
        few = as_lists(await embedder.embed_job(more[:6]))
        assert (server.asked["create"], server.asked["embed"]) == (1, 1)
        many = as_lists(await embedder.embed_job(more))
        assert (server.asked["create"], server.asked["embed"]) == (2, 1)

    assert many == [loopback.vector_of(item.text) for item in more]
    assert few == many[:6]


async def test_jobs_that_are_not_waited_for_are_begun_one_load_after_the_other(
    embedder_services: EmbedderServices, naps: Naps
) -> None:
    server = OpenAiServer(looks=2)
    batch: dict[str, Any] = {"kind": FewToAJob, "wait": False, "concurrency": 1, "min_texts": 1}
    async with asked(server, embedder_services, naps.pace, **batch) as embedder:
        for created in (1, 2, 3):
            with pytest.raises(EmbeddingPending):
                await embedder.embed_job(INPUTS)
            assert len(server.jobs) == created
        assert as_lists(await embedder.embed_job(INPUTS)) == expected(server)

    assert server.most_at_once == 1


async def test_a_job_that_the_provider_does_not_know_is_forgotten(
    embedder_services: EmbedderServices, naps: Naps
) -> None:
    server = OpenAiServer(looks=5)
    async with asked(server, embedder_services, naps.pace, wait=False) as embedder:
        with pytest.raises(EmbeddingPending):
            await embedder.embed_job(INPUTS)
        server.jobs.clear()
        server.looks = 1
        assert as_lists(await embedder.embed_job(INPUTS)) == expected(server)

    assert server.asked["create"] == 2
    assert len(records(embedder_services)) == 1


@pytest.mark.parametrize(("hours", "jobs"), [(47, 1), (49, 2)])
async def test_a_job_is_forgotten_when_its_time_is_over(
    hours: int, jobs: int, embedder_services: EmbedderServices, naps: Naps
) -> None:
    server = OpenAiServer()
    later = replace(embedder_services, clock=lambda: FIXED_NOW + timedelta(hours=hours))
    async with loopback.listening(server) as at:
        for services in (embedder_services, later):
            async with asked(server, services, naps.pace, at=at) as embedder:
                await embedder.embed_job(INPUTS)

    assert len(server.jobs) == jobs
    assert len(records(embedder_services)) == 1


async def test_another_model_does_not_take_the_job(embedder_services: EmbedderServices, naps: Naps) -> None:
    server = OpenAiServer()
    async with loopback.listening(server) as at:
        for dimensions in (16, 32):
            given = {"base_url": at.url, "api_key": KEY, "dimensions": dimensions, "batch": {"enabled": True}}
            settings: Any = server.spec.settings.model_validate(given)
            async with open_remote(OpenAiEmbedder, settings, embedder_services, pace=naps.pace) as embedder:
                assert isinstance(embedder, OpenAiEmbedder)
                assert len((await embedder.embed_job(INPUTS))[0]) == dimensions

    assert len(server.jobs) == 2


@pytest.mark.parametrize("damage", [b"", b'{"job": "batch_1"', b"[]"])
async def test_a_damaged_record_is_dropped(
    damage: bytes, embedder_services: EmbedderServices, naps: Naps
) -> None:
    server = OpenAiServer()
    async with asked(server, embedder_services, naps.pace) as embedder:
        await embedder.embed_job(INPUTS)
        records(embedder_services)[0].write_bytes(damage)
        assert as_lists(await embedder.embed_job(INPUTS)) == expected(server)

    assert server.asked["create"] == 2
    assert len(records(embedder_services)) == 1


async def test_a_half_written_record_does_not_stay(embedder_services: EmbedderServices, naps: Naps) -> None:
    async with asked(OpenAiServer(), embedder_services, naps.pace) as embedder:
        await embedder.embed_job(INPUTS)
        (record,) = records(embedder_services)
        for name, age in (("old", timedelta(hours=49)), ("new", timedelta(hours=1))):
            partial_file = record.with_name(f".{record.stem[:-16]}{name}.json.1a2b3c.new")
            partial_file.write_bytes(b'{"job": ')
            written = (FIXED_NOW - age).timestamp()
            os.utime(partial_file, (written, written))
        await embedder.embed_job(INPUTS)

    assert [file.suffix for file in records(embedder_services)] == [".new", ".json"]


async def test_a_record_holds_hashes_and_is_for_its_owner_alone(
    embedder_services: EmbedderServices, naps: Naps
) -> None:
    async with asked(OpenAiServer(), embedder_services, naps.pace) as embedder:
        await embedder.embed_job(INPUTS)

    (file,) = records(embedder_services)
    record = json.loads(file.read_text(encoding="utf-8"))
    assert file.name.startswith("openai-")
    assert (file.stat().st_mode & 0o777, file.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    assert set(record) == {"job", "created", "texts"}
    assert record["job"] == "batch_1"
    assert record["texts"] == sorted(sha256(text.encode()).hexdigest() for text in TEXTS)


async def test_no_job_is_created_where_it_cannot_be_recorded(
    embedder_services: EmbedderServices, naps: Naps
) -> None:
    (embedder_services.state_dir / "embedding-jobs").write_text("in the way", encoding="utf-8")
    server = OpenAiServer()
    async with asked(server, embedder_services, naps.pace) as embedder:
        with pytest.raises(EmbeddingError, match="cannot be recorded"):
            await embedder.embed_job(INPUTS)

    assert not server.asked


# --- what goes wrong --------------------------------------------------------------------------------------


@each_provider
@pytest.mark.parametrize("end", ["failed", "cancelled"])
async def test_a_job_that_fails_says_why_and_is_forgotten(
    end: str, kind: type[JobServer], embedder_services: EmbedderServices, naps: Naps
) -> None:
    server = kind(end=end)
    async with asked(server, embedder_services, naps.pace) as embedder:
        with pytest.raises(EmbeddingError, match=rf"0 of 5 vectors with job .*{end}.*enqueued too much"):
            await embedder.embed_job(INPUTS)

        status = embedder.batch_status()
        assert (status.enabled, status.failures, status.last_provider) == (True, 1, server.spec.id)
        assert "enqueued too much" in str(status.last_error)
        assert records(embedder_services) == []


@each_provider
async def test_what_an_expired_job_has_brought_is_used(
    kind: type[JobServer], embedder_services: EmbedderServices, naps: Naps
) -> None:
    server = kind(end="expired", spoil=lambda lines: lines[:3])
    async with asked(server, embedder_services, naps.pace) as embedder:
        assert as_lists(await embedder.embed_job(INPUTS)) == expected(server)

        assert server.asked["embed"] == 1
        assert embedder.batch_status().failures == 1
        assert "brought 3 of 5 vectors" in str(embedder.batch_status().last_error)


def instead(line: bytes, spoilt: dict[str, object] | bytes) -> bytes:
    """Return a line with the id of another, and something else in it."""
    if isinstance(spoilt, bytes):
        return spoilt
    told = json.loads(line)
    name = "key" if "key" in told else "custom_id"
    return json.dumps({name: told[name], **spoilt}).encode()


def with_first_line(spoilt: dict[str, object] | bytes, lines: list[bytes]) -> list[bytes]:
    return [instead(lines[0], spoilt), *lines[1:]]


@each_provider
async def test_a_line_that_cannot_be_used_is_asked_for_again(
    kind: type[JobServer], embedder_services: EmbedderServices, naps: Naps
) -> None:
    cases: list[tuple[dict[str, object] | bytes, str]] = [
        (b"", "brought 4 of 5"),
        (b'{"custom_id": "x", "key', "a line cannot be read: JSON"),
        (b"<html>", "a line cannot be read: JSON"),
        (b'{"custom_id": "strange", "key": "strange"}', "vector.? for a text"),
        ({"error": {"code": "server_error", "message": "bad luck"}}, "bad luck"),
        (
            {
                "response": {
                    "body": {"data": [{"embedding": [float("nan")] * 32}]},
                    "embedding": {"values": [float("inf")]},
                }
            },
            "Input should be a finite number",
        ),
        ({"response": {"body": {"error": {"message": "too long"}}}}, "too long|no vector for a text"),
    ]
    for number, (spoilt, problem) in enumerate(cases):
        server = kind(spoil=partial(with_first_line, spoilt))
        services = replace(embedder_services, state_dir=embedder_services.state_dir / str(number))
        async with asked(server, services, naps.pace) as embedder:
            assert as_lists(await embedder.embed_job(INPUTS)) == expected(server)

            status = embedder.batch_status()
            assert (server.asked["embed"], status.failures) == (1, 1)
            assert re.search(problem, str(status.last_error))


@each_provider
async def test_a_job_that_brings_nothing_fails(
    kind: type[JobServer], embedder_services: EmbedderServices, naps: Naps
) -> None:
    server = kind(spoil=lambda _lines: [b"404 page not found"])
    async with asked(server, embedder_services, naps.pace) as embedder:
        with pytest.raises(EmbeddingError, match="brought 0 of 5 vectors"):
            await embedder.embed_job(INPUTS)

    assert records(embedder_services) == []


async def test_a_line_without_end_is_left(embedder_services: EmbedderServices, naps: Naps) -> None:
    server = OpenAiServer(spoil=lambda _lines: [b" " * (5 * 2**20) + b"x" * (5 * 2**20)])
    async with asked(server, embedder_services, naps.pace) as embedder:
        with pytest.raises(EmbeddingError, match="sent a line of more than 4 MiB"):
            await embedder.embed_job(INPUTS)


@each_provider
async def test_vectors_of_another_length_are_refused(
    kind: type[JobServer], embedder_services: EmbedderServices, naps: Naps
) -> None:
    def shorter(lines: list[bytes]) -> list[bytes]:
        return [line.replace(b"[0.0, ", b"[").replace(b"[1.0, ", b"[") for line in lines]

    server = kind(spoil=shorter)
    async with asked(server, embedder_services, naps.pace) as embedder:
        with pytest.raises(DimensionMismatch):
            await embedder.embed_job(INPUTS)

        assert embedder.batch_status().failures == 1
        assert records(embedder_services) == []


@each_provider
@pytest.mark.parametrize("trouble", [RATE_LIMITED, Reply.of({}, 503)], ids=["429", "503"])
async def test_trouble_that_passes_is_waited_for(
    trouble: Reply, kind: type[JobServer], embedder_services: EmbedderServices, naps: Naps
) -> None:
    server = kind(first=[trouble, trouble])
    async with asked(server, embedder_services, naps.pace) as embedder:
        assert as_lists(await embedder.embed_job(INPUTS)) == expected(server)

        assert embedder.batch_status().failures == 0


async def test_a_provider_that_cannot_be_asked_for_a_while_loses_no_job(
    embedder_services: EmbedderServices, naps: Naps
) -> None:
    server = OpenAiServer()
    async with asked(server, embedder_services, naps.pace, wait=False) as embedder:
        with pytest.raises(EmbeddingPending):
            await embedder.embed_job(INPUTS)
        server.first = [Reply.of({}, 503)] * 8
        with pytest.raises(EmbeddingPending):
            await embedder.embed_job(INPUTS)
        assert as_lists(await embedder.embed_job(INPUTS)) == expected(server)

        assert (server.asked["create"], embedder.batch_status().failures) == (1, 0)


async def test_success_begins_the_count_of_failures_anew(
    embedder_services: EmbedderServices, naps: Naps
) -> None:
    server = OpenAiServer(end="failed")
    async with asked(server, embedder_services, naps.pace) as embedder:
        for end in ("failed", "completed", "failed"):
            server.end = end
            if end == "failed":
                with pytest.raises(EmbeddingError):
                    await embedder.embed_job(INPUTS)
            else:
                await embedder.embed_job(INPUTS[:3])
        assert (embedder.batch_status().failures, embedder.takes_jobs(9999)) == (1, True)


async def test_after_two_failures_jobs_are_off(embedder_services: EmbedderServices, naps: Naps) -> None:
    server = OpenAiServer(end="failed")
    async with asked(server, embedder_services, naps.pace) as embedder:
        for _ in range(2):
            assert embedder.takes_jobs(5)
            with pytest.raises(EmbeddingError):
                await embedder.embed_job(INPUTS)
        status = embedder.batch_status()
        assert (status.enabled, status.failures, status.limit) == (False, 2, 2)
        assert not embedder.takes_jobs(9999)

        assert as_lists(await embedder.embed_job(INPUTS)) == expected(server)
        assert server.asked["create"] == 2


@each_provider
async def test_a_provider_without_jobs_is_asked_once(
    kind: type[JobServer], embedder_services: EmbedderServices, naps: Naps
) -> None:
    unknown = Reply.of({"error": {"message": "asyncBatchEmbedContent is not supported"}}, 404)
    server = kind(first=[unknown])
    async with asked(server, embedder_services, naps.pace) as embedder:
        with pytest.raises(EmbeddingError, match=r"takes no jobs \(404 Not Found\): asyncBatchEmbedContent"):
            await embedder.embed_job(INPUTS)

        assert not embedder.batch_status().enabled
        assert not embedder.takes_jobs(9999)


async def test_gemini_without_the_method_takes_no_jobs(
    embedder_services: EmbedderServices, naps: Naps
) -> None:
    server = GeminiServer()

    def answer(received: loopback.Received) -> Reply:
        deed = server.deed(received)
        return Reply.of({"error": {"message": "no"}}, 404) if deed == "create" else server(received)

    async with (
        loopback.listening(answer) as at,
        asked(server, embedder_services, naps.pace, at=at) as embedder,
    ):
        with pytest.raises(EmbeddingError, match="takes no jobs"):
            await embedder.embed_job(INPUTS)
        assert not embedder.takes_jobs(9999)


async def test_no_key_and_no_text_is_recorded_logged_or_shown(
    embedder_services: EmbedderServices, naps: Naps, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    echo = json.dumps({"custom_id": "x", "error": f"no such key: {KEY}"}).encode()
    server = OpenAiServer(spoil=lambda _lines: [echo])
    async with asked(server, embedder_services, naps.pace) as embedder:
        with pytest.raises(EmbeddingError, match=r"no such key: \*\*\*") as raised:
            await embedder.embed_job(INPUTS)
        assert no_key_in(raised.value)
        assert KEY not in str(embedder.batch_status())
        server.spoil = lambda lines: lines
        await embedder.embed_job(INPUTS)

        (record,) = (file.read_text(encoding="utf-8") for file in records(embedder_services))
        for secret in (KEY, *TEXTS):
            assert secret not in record
            assert secret not in caplog.text


async def test_a_key_that_expires_leaves_the_job(embedder_services: EmbedderServices, naps: Naps) -> None:
    server = OpenAiServer()
    async with asked(server, embedder_services, naps.pace, wait=False) as embedder:
        with pytest.raises(EmbeddingPending):
            await embedder.embed_job(INPUTS)
        server.first = [Reply.of({"error": {"message": "expired"}}, 401)]
        with pytest.raises(EmbeddingError, match="check the API key"):
            await embedder.embed_job(INPUTS)
        assert as_lists(await embedder.embed_job(INPUTS)) == expected(server)

        assert server.asked["create"] == 1


# --- an index ---------------------------------------------------------------------------------------------


def write_notes(workspace: Path, name: str) -> None:
    for number in range(6):
        file = workspace / "memory" / f"{name}-{number}.md"
        file.write_text(f"# {name} {number}\n\nThe {name} of day {number} was calm.\n", encoding="utf-8")


async def test_an_index_is_filled_by_requests_when_jobs_fail_and_asks_for_no_third(
    services: BackendServices, embedder_services: EmbedderServices, naps: Naps
) -> None:
    server = OpenAiServer(end="failed")
    settings = BuiltinSettings.model_validate({"sync": {"onSearch": False}})
    async with (
        asked(server, embedder_services, naps.pace) as embedder,
        open_builtin(settings, replace(services, embedder=embedder, embedder_is_local=False)) as memory,
    ):
        for name in ("harbour", "voyage", "landfall"):
            await asyncio.to_thread(partial(write_notes, services.workspace_dir, name))
            await memory.sync()

        answer = await memory.answer("voyage of day 3")
        batch = memory.status().batch
        assert answer.degraded == ()
        chunks = memory.status().chunks
        assert memory.status().custom["embedding"] == {"embedded": chunks, "total": chunks}
        assert batch is not None
        assert (batch.enabled, batch.failures, server.asked["create"]) == (False, 2, 2)


async def test_an_index_fetches_what_it_did_not_wait_for(
    services: BackendServices, embedder_services: EmbedderServices, naps: Naps
) -> None:
    server = OpenAiServer(looks=2)
    settings = BuiltinSettings.model_validate({"sync": {"onSearch": False}})
    async with (
        asked(server, embedder_services, naps.pace, wait=False) as embedder,
        open_builtin(settings, replace(services, embedder=embedder, embedder_is_local=False)) as memory,
    ):
        first = await memory.sync()
        second = await memory.sync()

    assert server.asked["embed"] == 0
    assert (server.asked["create"], server.asked["download"]) == (1, 1)
    assert first.embedded == 0
    assert second.embedded > 0
