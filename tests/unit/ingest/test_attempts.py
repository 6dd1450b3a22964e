"""Whatever a part raises has a code that says what kind of failure it is."""

import asyncio
import json
from pathlib import Path

import pytest

from composable_memory import errors
from composable_memory.ingest.pipeline import attempt
from composable_memory.ingest.requests import PipelineError, error_of

CASES: list[tuple[Exception, str, bool]] = [
    (errors.ConfigError("key", "problem"), "not_configured", False),
    (errors.UnsupportedOperation("g", "query"), "not_configured", False),
    (errors.BackendUnavailable("g", "no server", fix="start it"), "adapter_unavailable", True),
    (errors.EmbedderUnavailable("p", "m", "no key", "set it"), "adapter_unavailable", False),
    (errors.IndexDamaged(Path("x"), "problem"), "adapter_unavailable", False),
    (ConnectionRefusedError("no"), "adapter_unavailable", True),
    (errors.BackendTimeout("g", "write", limit_s=1, elapsed_s=2), "timeout", True),
    (TimeoutError(), "timeout", True),
    (errors.BackendRejected("g", "write", status="429", body=""), "rate_limited", True),
    (errors.BackendRejected("g", "write", status="422", body=""), "invalid_input", False),
    (errors.BackendRejected("g", "write", status="503", body=""), "upstream_error", True),
    (errors.EmbeddingError("p", "m", "HTTP 429"), "rate_limited", True),
    (errors.EmbeddingError("p", "m", "HTTP 500"), "upstream_error", False),
    (errors.EmbeddingPending("p", "m", "job-1"), "upstream_error", True),
    (errors.DimensionMismatch("p", "m", expected=3, got=4), "invalid_input", False),
    (errors.BackendGarbled("g", "read", excerpt="?", expected="JSON"), "serialization_error", False),
    (json.JSONDecodeError("bad", "x", 0), "serialization_error", False),
    (errors.MemoryPathError("x", "problem"), "invalid_input", False),
    (errors.NoteNotWritten("x", "problem", fix="a fix"), "invalid_input", False),
    (errors.PathRefused(Path("x"), "is no folder"), "invalid_input", False),
    (errors.InvalidArgument("query", "a text", 5), "invalid_input", False),
    (ValueError("bad"), "invalid_input", False),
    (KeyError("nobody foresaw this"), "unknown", False),
]


@pytest.mark.parametrize(("error", "code", "retryable"), CASES, ids=lambda case: type(case).__name__)
def test_an_error_has_its_code(error: Exception, code: str, retryable: bool) -> None:
    told = error_of(error)

    assert (told.code, told.retryable) == (code, retryable)
    assert told.message
    assert told.details == {"type": type(error).__name__}


def test_every_error_of_ours_is_known() -> None:
    kinds = {type(error) for error, _, _ in CASES}
    offered = {one for one in vars(errors).values() if isinstance(one, type)}
    ours = {one for one in offered if issubclass(one, errors.ComposableMemoryError)}
    roots = {errors.ComposableMemoryError, errors.BackendError, errors.IndexProblem, errors.IndexTooNew}

    assert ours - kinds - roots == set()


async def test_what_is_raised_becomes_a_value() -> None:
    async def fail() -> None:
        raise RuntimeError("boom")

    assert await attempt(fail) == PipelineError(
        code="unknown", message="boom", details={"type": "RuntimeError"}
    )


async def test_cancelling_goes_through() -> None:
    task = asyncio.ensure_future(attempt(asyncio.Event().wait))
    await asyncio.sleep(0)
    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task
