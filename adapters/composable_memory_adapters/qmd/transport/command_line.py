"""Asks QMD by a process for each question: slower than a server, and there as long as QMD is."""

from collections.abc import Sequence

from composable_memory.supervision.command import run_command
from composable_memory_adapters.qmd.transport.replies import hits_in, refusal
from composable_memory_adapters.qmd.values import (
    BACKEND_ID,
    CANDIDATES,
    Hit,
    Home,
    Installation,
    SearchRequest,
)

__all__ = ["CommandLine"]


class CommandLine:
    """Keeps `Searcher`; questions that come at once run side by side."""

    def __init__(self, installation: Installation, home: Home) -> None:
        self._installation = installation
        self._home = home

    async def ask(self, request: SearchRequest, *, timeout_s: float) -> Sequence[Hit]:
        """Return the documents that answer, best first; see `Searcher`."""
        reply = await run_command(
            [*self._installation.command, *_options(request), "--", _document(request)],
            environ=self._home.environ,
            cwd=self._home.root,
            timeout_s=timeout_s,
            owner=BACKEND_ID,
            operation="search",
            has_grace=False,  # or the answer would be later than it may be
        )
        if reply.code != 0:
            raise refusal(reply.code, reply.stdout, reply.stderr)
        return hits_in(reply.stdout, reply.stderr)


def _options(request: SearchRequest) -> list[str]:
    """Return the command's words up to the question."""
    # Naming the default index keeps QMD from taking over one that lies in the folder or above it.
    options = ["--index", "index", "query", "--json", "-n", str(request.limit)]
    options += ["-C", str(max(CANDIDATES, request.limit))]
    options += [] if request.expand else ["--no-rerank"]
    for collection in request.collections:
        options += ["-c", collection]
    return options


def _document(request: SearchRequest) -> str:
    """Return the question: the text itself if QMD is to widen it, else one line for each search."""
    if request.expand:
        return request.text
    return "\n".join(f"{one.kind}: {one.text}" for one in request.searches)
