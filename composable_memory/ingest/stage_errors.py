"""Runs a foreign part of the pipeline and classifies how it failed."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import field
from json import JSONDecodeError
from typing import Literal, TypeVar

from composable_memory.errors import (
    BackendError,
    BackendGarbled,
    BackendRejected,
    BackendUnavailable,
    ConfigError,
    DimensionMismatch,
    EmbedderUnavailable,
    EmbeddingError,
    EmbeddingPending,
    IndexProblem,
    MemoryPathError,
    NoteNotWritten,
    PathRefused,
    UnsupportedOperation,
)
from composable_memory.types import JsonValue
from composable_memory_ops_logs.quick_dataclass import dataclass

PipelineErrorCode = Literal[
    "not_configured",
    "invalid_input",
    "adapter_unavailable",
    "rate_limited",
    "timeout",
    "upstream_error",
    "serialization_error",
    "unknown",
]

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineError:
    """Why a stage failed; `retryable` says that the same may work later, without anything being changed."""

    code: PipelineErrorCode
    message: str
    retryable: bool = False
    details: Mapping[str, JsonValue] = field(default_factory=dict)


async def attempt(work: Callable[[], Awaitable[T]]) -> T | PipelineError:
    """Do `work`; whatever it raises becomes a value. Cancelling goes through."""
    try:
        return await work()
    except Exception as error:  # noqa: BLE001 - a stranger's part may raise anything, and others go on
        return error_of(error)


def error_of(error: Exception) -> PipelineError:
    """Describe an exception: what kind of failure it is, and whether trying again may help."""
    code, retryable = _code(error)
    return PipelineError(
        code=code,
        message=str(error) or type(error).__name__,
        retryable=retryable,
        details={"type": type(error).__name__},
    )


def _code(error: Exception) -> tuple[PipelineErrorCode, bool]:
    if isinstance(error, BackendRejected | EmbeddingError):
        return _refused(error)
    return next((known for kinds, known in _CODES if isinstance(error, kinds)), ("unknown", False))


def _refused(error: BackendRejected | EmbeddingError) -> tuple[PipelineErrorCode, bool]:
    """Tell apart what a service did not take, by the status in its own or in its message's words."""
    status = error.status if isinstance(error, BackendRejected) else str(error)
    if "429" in status or "rate limit" in status.lower():
        return "rate_limited", True
    if isinstance(error, EmbedderUnavailable):
        return "adapter_unavailable", False
    if isinstance(error, DimensionMismatch):
        return "invalid_input", False
    if isinstance(error, BackendRejected):
        return ("invalid_input", False) if status.startswith("4") else ("upstream_error", status[:1] == "5")
    return "upstream_error", isinstance(error, EmbeddingPending)


# The first that fits: `BackendTimeout` is a `TimeoutError`, and this an `OSError`.
_CODES: tuple[tuple[tuple[type[Exception], ...], tuple[PipelineErrorCode, bool]], ...] = (
    ((TimeoutError,), ("timeout", True)),
    ((ConfigError, UnsupportedOperation), ("not_configured", False)),
    ((BackendUnavailable, ConnectionError), ("adapter_unavailable", True)),
    ((BackendGarbled, JSONDecodeError, UnicodeError, RecursionError), ("serialization_error", False)),
    ((IndexProblem, OSError), ("adapter_unavailable", False)),
    ((BackendError,), ("upstream_error", False)),
    ((MemoryPathError, NoteNotWritten, PathRefused, ValueError), ("invalid_input", False)),
)
