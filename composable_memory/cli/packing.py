"""`cmem pack`."""

from composable_memory.cli.options import check_names
from composable_memory.cli.runner import ExitCode, Place
from composable_memory.cli.screen import complain, say, tell_degraded, tell_if_empty, write_json, write_text
from composable_memory.runtime.opening import open_memory
from composable_memory.tools import MemoryContextPackRequest, memory_context_pack

__all__ = ["pack"]


async def pack(place: Place, request: MemoryContextPackRequest, *, strict: bool, as_json: bool) -> ExitCode:
    """Search and write the best of it as one text."""
    async with open_memory(place.workspace, place.state_dir, long_lived=False) as memory:
        check_names(memory, request.backends or ())
        reply = await memory_context_pack(memory, request)
        status = memory.status()
    if as_json:
        write_json(reply.as_json())
    elif reply.pack:
        write_text(f"{reply.pack}\n")
    elif not reply.unavailable:
        say("No matches.")
    tell_degraded(reply.degraded or ())
    if not reply.pack:
        tell_if_empty(status)
    if reply.unavailable:
        complain(reply.error or "the memory cannot be searched")
        return ExitCode.FAILED
    return ExitCode.DEGRADED if strict and reply.degraded else ExitCode.FINE
