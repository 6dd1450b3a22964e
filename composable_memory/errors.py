"""Everything that composable-memory raises on purpose.

    ComposableMemoryError
    ├─ ConfigError              a setting cannot be used: which key, from where, what instead
    ├─ InvalidArgument          a call cannot take what it was given: which argument (also a ValueError)
    ├─ MemoryPathError          a path is not allowed: which one, which roots are
    ├─ NoteNotWritten           a note could not be changed: which one, why, and what to do
    ├─ BackendError             a backend failed: which one, doing what, in which trace
    │  ├─ BackendUnavailable    something it needs is missing, and how to get it
    │  ├─ BackendTimeout        it did not answer in time (also a TimeoutError)
    │  ├─ BackendRejected       it understood and refused
    │  ├─ BackendGarbled        its answer is unreadable
    │  └─ UnsupportedOperation  it never promised this
    ├─ EmbeddingError           a text could not be embedded: by which provider and model
    │  ├─ EmbedderUnavailable   the provider cannot be used, and how to make it usable
    │  ├─ EmbeddingPending      the provider has accepted the texts and will have their vectors later
    │  └─ DimensionMismatch     vectors have another length than those in the index
    └─ IndexProblem             an index file cannot be used: which file
       ├─ IndexTooNew           it was written by a later version
       └─ IndexDamaged          it is not a valid database

A message says what failed, which thing, and what to do next. Classes build the text from facts.
"""

from collections.abc import Sequence
from pathlib import Path
from types import UnionType


class ComposableMemoryError(Exception):
    """Base class of all errors of this library."""


class ConfigError(ComposableMemoryError):
    """A setting cannot be used."""

    def __init__(
        self, key: str, problem: str, *, origin: str | None = None, nearest: str | None = None
    ) -> None:
        where = f" (from {origin})" if origin else ""
        hint = f"; did you mean {nearest!r}?" if nearest else ""
        super().__init__(f"setting {key}{where}: {problem}{hint}")
        self.key = key
        self.origin = origin
        self.nearest = nearest


class InvalidArgument(ComposableMemoryError, ValueError):
    """A call was given an invalid argument."""

    def __init__(self, argument: str, expected: str, got: object) -> None:
        shown = f"{got!r:.80}" if isinstance(got, str | int | float | None) else type(got).__name__
        super().__init__(f"{argument} has to be {expected}, not {shown}")
        self.argument = argument


class MemoryPathError(ComposableMemoryError):
    """A path is not one of the memory files."""

    def __init__(self, path: str, problem: str, *, allowed: Sequence[str] = ()) -> None:
        shown = ("all notes in the workspace" if one == "**" else one for one in allowed)
        roots = f"; readable are {', '.join(shown)}" if allowed else ""
        super().__init__(f"cannot read {path!r}: {problem}{roots}")
        self.path = path
        self.problem = problem
        self.allowed = tuple(allowed)


class PathRefused(ComposableMemoryError):
    """A file or folder given to a command is unsuitable."""

    def __init__(self, path: Path, problem: str) -> None:
        super().__init__(f"{path} {problem}")
        self.path = path


class NoteNotWritten(ComposableMemoryError):
    """A note could not be changed; it is unchanged."""

    def __init__(self, path: str, problem: str, *, fix: str) -> None:
        super().__init__(f"cannot write {path!r}: {problem}; {fix}")
        self.path = path
        self.problem = problem
        self.fix = fix


class BackendError(ComposableMemoryError):
    """A backend failed while doing something."""

    def __init__(self, backend_id: str, operation: str, problem: str, *, trace_id: str | None = None) -> None:
        super().__init__(f"backend {backend_id!r} failed to {operation}: {problem}")
        self.backend_id = backend_id
        self.operation = operation
        self.trace_id = trace_id


class BackendUnavailable(BackendError):
    """Something a backend needs is missing."""

    def __init__(self, backend_id: str, missing: str, *, fix: str, operation: str = "open") -> None:
        super().__init__(backend_id, operation, f"{missing}; {fix}")
        self.missing = missing
        self.fix = fix


class BackendTimeout(BackendError, TimeoutError):
    """A backend did not answer within its deadline."""

    def __init__(self, backend_id: str, operation: str, *, limit_s: float, elapsed_s: float) -> None:
        super().__init__(
            backend_id,
            operation,
            f"no answer after {elapsed_s:.2f} s (limit {limit_s:g} s); raise its timeout_ms or check its "
            f"health",
        )
        self.limit_s = limit_s
        self.elapsed_s = elapsed_s


class BackendRejected(BackendError):
    """A backend understood the request and refused it."""

    def __init__(self, backend_id: str, operation: str, *, status: str, body: str) -> None:
        super().__init__(backend_id, operation, f"refused with {status}: {body[:200]}")
        self.status = status


class BackendGarbled(BackendError):
    """A backend's answer is unreadable."""

    def __init__(self, backend_id: str, operation: str, *, excerpt: str, expected: str) -> None:
        problem = f"expected {expected}, got {excerpt[:200]}"
        super().__init__(backend_id, operation, problem)
        self.problem = problem
        self.excerpt = excerpt[:200]
        self.expected = expected


class UnsupportedOperation(BackendError):
    """A backend was asked for something that it does not support."""

    def __init__(self, backend_id: str, operation: str) -> None:
        super().__init__(
            backend_id, operation, "it does not support this; `cmem backends list` shows what it supports"
        )


class EmbeddingError(ComposableMemoryError):
    """A text could not be embedded."""

    def __init__(self, provider: str, model: str, problem: str) -> None:
        super().__init__(f"embedding with {provider} ({model}) failed: {problem}")
        self.provider = provider
        self.model = model


class EmbedderUnavailable(EmbeddingError):
    """An embedding provider cannot be used."""

    def __init__(self, provider: str, model: str, what: str, fix: str) -> None:
        super().__init__(provider, model, f"{what}; {fix}")
        self.what = what
        self.fix = fix


class EmbeddingPending(EmbeddingError):
    """A provider has accepted the texts and will have their vectors later."""

    def __init__(self, provider: str, model: str, job: str) -> None:
        super().__init__(
            provider, model, f"job {job} is not finished; `cmem index` fetches the result once it is"
        )
        self.job = job


class DimensionMismatch(EmbeddingError):
    """A provider returned vectors of another length than promised."""

    def __init__(self, provider: str, model: str, *, expected: int, got: int) -> None:
        super().__init__(
            provider,
            model,
            f"expected vectors of {expected} numbers, got {got}; "
            "check the model and `dimensions`, then rebuild with `cmem index --force`",
        )
        self.expected = expected
        self.got = got


class IndexProblem(ComposableMemoryError):
    """An index file cannot be used."""

    def __init__(self, db_path: Path, problem: str) -> None:
        super().__init__(f"index {db_path}: {problem}")
        self.db_path = db_path


class IndexTooNew(IndexProblem):
    """An index file was written by a later version."""

    def __init__(self, db_path: Path, *, found: int, supported: int) -> None:
        super().__init__(
            db_path,
            f"its format is {found}, but this version reads only up to {supported}; "
            "upgrade composable-memory or use another state folder",
        )
        self.found = found
        self.supported = supported


class IndexDamaged(IndexProblem):
    """An index file is not a valid database."""

    def __init__(self, db_path: Path, problem: str) -> None:
        super().__init__(
            db_path,
            f"{problem}; your notes are untouched: `cmem index` repairs it or builds a new one (add "
            f"`--force` if it may be another program's file)",
        )
        self.problem = problem


def require(name: str, value: object, kind: type | UnionType, expected: str) -> None:
    """Refuse `value` unless it is of a type.

    Raises:
        InvalidArgument: it is not.
    """
    if not isinstance(value, kind):
        raise InvalidArgument(name, expected, value)


def require_text(name: str, value: object, *, optional: bool = False) -> None:
    """Refuse anything but text; None is accepted if the argument is optional."""
    if not (optional and value is None):
        require(name, value, str, "a text")


def require_whole(name: str, value: object, *, optional: bool = False) -> None:
    """Refuse anything but a whole number of at least 1; None is accepted if the argument is optional."""
    if optional and value is None:
        return
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise InvalidArgument(name, "a whole number, 1 or more", value)


def require_all(name: str, values: object, kind: type, expected: str) -> None:
    """Refuse anything but a list or tuple of a type; a string is not a list of strings."""
    if isinstance(values, str) or not isinstance(values, Sequence):
        raise InvalidArgument(name, expected, values)
    for value in values:
        require(name, value, kind, expected)
