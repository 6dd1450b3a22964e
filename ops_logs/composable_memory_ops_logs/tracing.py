"""The trace id that links everything one request causes, passed in the context, not as an argument."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_trace_id: ContextVar[str | None] = ContextVar("composable_memory_trace_id", default=None)
_session_key: ContextVar[str | None] = ContextVar("composable_memory_session_key", default=None)
_run_id: ContextVar[str | None] = ContextVar("composable_memory_run_id", default=None)


@contextmanager
def trace(
    trace_id: str | None = None, *, session_key: str | None = None, run_id: str | None = None
) -> Iterator[str]:
    """Enter a trace and yield its id: the given one, else the one already active, else a new UUID4.

    Tasks and `asyncio.to_thread` calls started inside inherit it; threads started by hand do not. A session
    key or run id that is not given stays as it was. Leaving restores all three.
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
    try:
        own = _spare.pop()
    except IndexError:
        many = os.urandom(_AT_ONCE * _BYTES).hex()
        own, *others = (many[at : at + 2 * _BYTES] for at in range(0, len(many), 2 * _BYTES))
        _spare.extend(others)
    variant = "89ab"[int(own[16], 16) % 4]  # `UUID` does the same in three times the time
    return f"{own[:8]}-{own[8:12]}-4{own[13:16]}-{variant}{own[17:20]}-{own[20:]}"


_BYTES = 16
_AT_ONCE = 64
# A query needs half a dozen. A system call for each would give the log's thread a chance to run every time,
# and it keeps the interpreter for milliseconds.
_spare: list[str] = []
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_spare.clear)
