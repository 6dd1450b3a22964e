"""Sends requests to QMD: over the fast transport while it is up, otherwise by one process per request."""

import asyncio
from collections.abc import Sequence

from composable_memory.errors import BackendError, BackendTimeout
from composable_memory.supervision.run_command import run_command
from composable_memory_adapters.qmd.transport.replies import hits_in, refusal
from composable_memory_adapters.qmd.types import (
    BACKEND_ID,
    Hit,
    Home,
    Installation,
    SearchRequest,
    Transport,
    TransportName,
)
from composable_memory_ops_logs.quick_dataclass import dataclass

FAST_SHARE = 0.5
"""Share of the time limit that the fast transport gets before a process is started for the rest of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchReply:
    """QMD's hits, and the transport that brought them."""

    hits: Sequence[Hit]
    transport: TransportName


class QmdClient:
    """Tries the fast transport first and falls back to a process, all within one deadline."""

    def __init__(self, process: Transport, *, fast: Transport | None = None) -> None:
        self._process = process
        self._fast = fast
        self._fast_error: BackendError | None = None

    @property
    def transport(self) -> TransportName:
        """Return the transport that the next request will take, as far as is known."""
        is_fast = self._fast is not None and self._fast_error is None and self._fast.is_up
        return self._fast.name if self._fast is not None and is_fast else self._process.name

    @property
    def fast_error(self) -> BackendError | None:
        """Return why the fast transport failed when it was last tried; None if it did not."""
        return self._fast_error

    async def ask(self, request: SearchRequest, *, timeout_s: float) -> SearchReply:
        """Return what QMD finds within `timeout_s`.

        Raises:
            BackendError: no transport brought an answer; the error is that of the last one tried.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        error: BackendError | None = None
        if self._fast is not None and self._fast.is_up:
            # If the request needs models, wait for the server that has them loaded: another process would
            # have to load them first.
            share = 1.0 if request.expand else FAST_SHARE
            try:
                hits = await self._fast.ask(request, timeout_s=timeout_s * share)
            except BackendError as failure:
                # A rejection is not final either: QMD's server says `Internal Server Error` for any failure.
                self._fast_error = error = failure
            else:
                self._fast_error = None
                return SearchReply(hits=hits, transport=self._fast.name)
        left_s = deadline - loop.time()
        if left_s <= 0.0 and isinstance(error, BackendTimeout):
            raise error
        hits = await self._process.ask(request, timeout_s=max(left_s, 0.001))
        return SearchReply(hits=hits, transport=self._process.name)


class ProcessTransport:
    """Keeps `Transport`: starts a `qmd` process for each request, which is slower but needs no server."""

    name: TransportName = "process"
    is_up = True

    def __init__(self, installation: Installation, home: Home) -> None:
        self._installation = installation
        self._home = home

    async def ask(self, request: SearchRequest, *, timeout_s: float) -> Sequence[Hit]:
        """Return the documents that match, best first; see `Transport`. Requests may run concurrently."""
        reply = await run_command(
            [*self._installation.command, *_options(request), "--", _query_document(request)],
            environ=self._home.environ,
            cwd=self._home.root,
            timeout_s=timeout_s,
            owner=BACKEND_ID,
            operation="search",
            has_grace=False,  # or the answer would come after the deadline
        )
        if reply.code != 0:
            raise refusal(reply.code, reply.stdout, reply.stderr)
        return hits_in(reply.stdout, reply.stderr)


def _options(request: SearchRequest) -> list[str]:
    """Return the arguments of the command up to the query."""
    # Without `--index`, QMD would use a `.qmd` folder in the working directory or above it.
    options = ["--index", "index", "query", "--json", "-n", str(request.limit)]
    options += ["-C", str(request.candidates)]
    options += [] if request.expand else ["--no-rerank"]
    for collection in request.collections:
        options += ["-c", collection]
    return options


def _query_document(request: SearchRequest) -> str:
    """Return the query: the text itself if QMD is to expand it, otherwise one line for each search."""
    if request.expand:
        return request.text
    return "\n".join(f"{one.kind}: {one.text}" for one in request.searches)
