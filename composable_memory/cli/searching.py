"""`cmem search` and `cmem get`."""

from collections.abc import Sequence

from composable_memory.cli.documents import DroppedHit, SearchDocument
from composable_memory.cli.options import check_names
from composable_memory.cli.runner import ExitCode, Place
from composable_memory.cli.screen import (
    complain,
    say,
    tell_degraded,
    tell_if_empty,
    warn,
    write_json,
    write_text,
)
from composable_memory.query.context_pack import validity_of
from composable_memory.runtime.opening import open_memory
from composable_memory.tools import (
    MemoryGetRequest,
    MemorySearchRequest,
    memory_get,
    query_cited,
    why_unavailable,
)
from composable_memory.types import Attribution, MemorySearchResult, QueryResponse

__all__ = ["get", "search", "show_results"]

WHERE_TO_LOOK = "hint: `cmem index` brings the index up to date, `cmem status` shows what is in it"


async def search(
    place: Place, request: MemorySearchRequest, *, explain: bool, strict: bool, as_json: bool
) -> ExitCode:
    """Search and show the answer."""
    async with open_memory(place.workspace, place.state_dir, long_lived=False) as memory:
        check_names(memory, request.backends or ())
        response = await query_cited(memory, request)
        status = memory.status()
    failure = why_unavailable(response)
    if as_json:
        write_json(SearchDocument.of(response, explain=explain).as_json())
    elif failure is None:
        _show(response, explain=explain)
    tell_degraded(response.degraded)
    if not response.results:
        tell_if_empty(status)
    if failure is not None:
        complain(failure)
        return ExitCode.FAILED
    return ExitCode.DEGRADED if strict and response.degraded else ExitCode.FINE


async def get(place: Place, request: MemoryGetRequest, *, as_json: bool) -> ExitCode:
    """Show a file or some of its lines."""
    async with open_memory(place.workspace, place.state_dir, long_lived=False) as memory:
        reply = await memory_get(memory, request)
    if as_json:
        write_json(reply.as_json())
    if reply.error is not None:
        complain(reply.error)
        return ExitCode.FAILED
    if not as_json:
        write_text(reply.text)
    if not reply.text:
        warn(f"{reply.path}: there is no such file, or no such lines, or nothing in them")
    return ExitCode.FINE


def show_results(results: Sequence[MemorySearchResult]) -> None:
    """Write each result: where it stands and what it says."""
    for result in results:
        _show_result(result)
        say()


def _show(response: QueryResponse, *, explain: bool) -> None:
    if not response.results:
        say("No matches.")
    if not response.results and any(one.code != "scope-denied" for one in response.degraded):
        warn(WHERE_TO_LOOK)
    if explain:
        _show_explained(response)
    else:
        show_results(response.results)


def _show_explained(response: QueryResponse) -> None:
    for result, attribution in zip(response.results, response.attributions, strict=True):
        _show_result(result)
        _show_attribution(attribution)
        say()
    for dropped in DroppedHit.all_of(response):
        _show_dropped(dropped)
    say(
        f"trace {response.trace_id}, weights {response.weights_version}, {response.latency_ms:.1f} ms",
        dim=True,
    )


def _show_result(result: MemorySearchResult) -> None:
    say(f"{result.score:.3f} {_place_of(result)} [{_answerer(result)}]", bold=True)
    for line in result.snippet.strip("\n").splitlines():
        say(f"  {line}")
    told = [validity_of(result)]
    if result.origin is not None and result.citation:
        told.append(f"from {' '.join(result.citation.splitlines())}")
    if any(told):
        say(f"  {', '.join(filter(None, told))}", dim=True)


def _show_attribution(one: Attribution) -> None:
    say(
        f"  raw {one.raw_score:.3f}, calibrated {one.calibrated_score:.3f}, weight {one.weight:g}, "
        f"rank {one.backend_rank} in {one.backend_id}",
        dim=True,
    )
    if one.support:
        say(f"  support {one.support:+.3f} {_why_supported(one)}", dim=True)
    for other in one.merged_with:
        say(f"  merged with {other}", dim=True)


def _why_supported(one: Attribution) -> str:
    return "by facts from its lines" if one.support > 0 else "since the passage it is from did not come up"


def _show_dropped(one: DroppedHit) -> None:
    say(f"dropped {_place_of(one)} [{one.backend_id}] {one.reason}: {one.detail}", dim=True)


def _answerer(result: MemorySearchResult) -> str:
    backend, stand_in = result.source_backend or "memory", result.metadata.get("answered_by")
    return f"{stand_in} for {backend}" if stand_in else backend


def _place_of(result: MemorySearchResult | DroppedHit) -> str:
    path = " ".join(result.path.splitlines())  # a file's name may hold what would look like another result
    return f"{path}:{result.start_line}-{result.end_line}" if result.start_line else path
