"""Packing: the best notes and facts about a question as one text within a budget."""

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Self

from pydantic import Field, model_validator
from pydantic.json_schema import SkipJsonSchema

from composable_memory.errors import ComposableMemoryError, InvalidArgument
from composable_memory.query.context_pack import PackBudget, estimate_tokens
from composable_memory.tools.document import Document
from composable_memory.tools.search import (
    MemorySearchRequest,
    PackedSource,
    explained,
    first_index,
    query_cited,
    unavailable_search,
    why_unavailable,
)
from composable_memory.types import Degradation
from composable_memory_ops_logs import trace

if TYPE_CHECKING:
    from composable_memory.runtime.memory import Memory


class MemoryContextPackRequest(MemorySearchRequest):
    """What to search for and to pack: at most `max_chars` characters or `max_tokens` tokens, not both."""

    max_tokens: Annotated[int, Field(ge=1)] | None = None
    max_chars: Annotated[int, Field(ge=1)] | None = Field(
        default=None, description="Instead of tokens; default 2000"
    )
    weak: bool | None = None
    max_results: SkipJsonSchema[Annotated[int, Field(ge=1)] | None] = None
    min_score: SkipJsonSchema[None] = None

    @model_validator(mode="after")
    def _one_budget(self) -> Self:
        if self.max_chars is not None and self.max_tokens is not None:
            raise ValueError("give a number of characters or of tokens, not both")
        return self


class MemoryContextPackReply(Document):
    """The pack with its sources in the order of its pieces, or with `unavailable`, why there is none.

    `tokens` estimates how many tokens a language model reads for it. `is_too_small` says that nothing of
    what was found fits in the budget.
    """

    pack: str
    sources: tuple[PackedSource, ...] = ()
    tokens: int = 0
    trace_id: str | None = None
    degraded: tuple[Degradation, ...] | None = None
    weak: bool | None = None
    unavailable: bool | None = None
    error: str | None = None
    warning: str | None = None
    action: str | None = None
    is_too_small: bool = Field(default=False, exclude=True)


async def memory_context_pack(memory: "Memory", request: MemoryContextPackRequest) -> MemoryContextPackReply:
    """Pack the best results of all memories into one text within a budget.

    If the settings turn citations off, the pack does not say where facts come from.
    """
    query = memory.settings.memory.query
    most = request.max_results or max(query.depth, query.max_results)
    first = first_index(memory)
    try:
        response = await query_cited(memory, request.model_copy(update={"max_results": most}))
    except InvalidArgument as error:
        return MemoryContextPackReply(pack="", error=str(error))
    except ComposableMemoryError as error:
        return unavailable_pack(str(error))
    failure = why_unavailable(response)
    if failure is not None:
        known = {"trace_id": response.trace_id, "degraded": response.degraded}
        return unavailable_pack(failure).model_copy(update=known)
    shown = tuple(one if one.citation else replace(one, origin=None) for one in response.results)
    budget = PackBudget.of(request.max_chars, request.max_tokens)
    with trace(session_key=request.session_key):
        packed = memory.manager.pack(replace(response, results=shown), budget)
    reply = MemoryContextPackReply(
        pack=packed.pack,
        sources=tuple(PackedSource.model_validate(one, from_attributes=True) for one in packed.sources),
        tokens=estimate_tokens(packed.pack),
        trace_id=packed.trace_id,
        degraded=response.degraded,
    )
    if response.results and not packed.pack:
        told = {
            "warning": "nothing found fits in the budget",
            "action": "Use a larger budget.",
        }
        reply = reply.model_copy(update=told | {"is_too_small": True})
    return await explained(memory, request, reply, response, first)


def unavailable_pack(error: str) -> MemoryContextPackReply:
    """Return the reply if nothing can be packed, saying what to do about it."""
    reply = unavailable_search(error)
    return MemoryContextPackReply(
        pack="", unavailable=True, error=reply.error, warning=reply.warning, action=reply.action
    )
