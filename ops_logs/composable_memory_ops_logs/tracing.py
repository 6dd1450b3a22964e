"""The trace id that ties together everything one request causes, carried by the context, not by arguments."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from uuid import uuid4

_trace_id: ContextVar[str | None] = ContextVar("composable_memory_trace_id", default=None)
_session_key: ContextVar[str | None] = ContextVar("composable_memory_session_key", default=None)
_run_id: ContextVar[str | None] = ContextVar("composable_memory_run_id", default=None)


@contextmanager
def trace(
    trace_id: str | None = None, *, session_key: str | None = None, run_id: str | None = None
) -> Iterator[str]:
    """Enter a trace and yield its id: the given one, else the one already active here, else a new UUID4.

    Tasks and `asyncio.to_thread` calls started inside inherit it; threads started by hand do not.
    A session key or run id that is not given stays what it was. Leaving restores all three.
    """
    entered = trace_id or _trace_id.get() or new_id()
    tokens = [
        variable.set(value or variable.get())
        for variable, value in ((_trace_id, entered), (_session_key, session_key), (_run_id, run_id))
    ]
    try:
        yield entered
    finally:
        for token in tokens:
            token.var.reset(token)


def current_trace_id() -> str | None:
    """Return the id of the trace this code runs in, or None outside any trace."""
    return _trace_id.get()


def current_session_key() -> str | None:
    """Return the session key given to the innermost trace that has one."""
    return _session_key.get()


def current_run_id() -> str | None:
    """Return the run id given to the innermost trace that has one."""
    return _run_id.get()


def new_id() -> str:
    """Return a random UUID4 in its usual text form."""
    return str(uuid4())
