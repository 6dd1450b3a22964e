"""Changing what is known, at an agent's wish: forgetting, which a preview comes before."""

from typing import TYPE_CHECKING, Self

from pydantic import Field, JsonValue, model_validator

from composable_memory.forget.values import ForgetLine, ForgetPlan
from composable_memory.json_documents import document
from composable_memory.tools.document import Document, ValueReply, filled

if TYPE_CHECKING:
    from composable_memory.runtime.memory import Memory

MOST_EXAMPLES = 3


class MemoryForgetRequest(Document):
    """What is to be forgotten, or the token of a preview that is to be carried out."""

    target: str | None = Field(default=None, description="A question, a citation, or an id as ^m4k29x")
    token: str | None = Field(default=None, description="From the preview: forget just that")

    @model_validator(mode="after")
    def _one_step(self) -> Self:
        if (self.target is None) == (self.token is None):
            raise ValueError("give a target to see what would go, or then the token to forget it, not both")
        return self


async def memory_forget(memory: "Memory", request: MemoryForgetRequest) -> ValueReply:
    """Show what would be forgotten, with a token; with the token, forget it.

    Raises:
        InvalidArgument: the target is blank, or the token is none.
        MemoryPathError: there is nothing at the place, or a note cannot be written.
        BackendUnavailable: another process is forgetting something.
    """
    if request.token is None:
        return ValueReply(_planned(await memory.plan_forgetting(request.target or "")))
    report = await memory.forget(request.token)
    if report.plan is not None:
        warning = "the notes have changed since the preview; nothing was forgotten, this is what would go now"
        return ValueReply(_planned(report.plan) | {"warning": warning})
    told = document(forgotten=[line.citation for line in report.lines], stores=report.stores)
    if report.pending:
        told["warning"] = "some stores follow when the memory is opened next"
    return ValueReply(told)


def _planned(plan: ForgetPlan) -> dict[str, JsonValue]:
    told = document(
        lines=[_line(one) for one in plan.lines],
        candidates=[_line(one) for one in plan.candidates],
        stores=[document(one, examples=one.examples[:MOST_EXAMPLES] or None) for one in plan.stores],
    )
    action = "Nothing that is noted says so."
    if plan.token:
        told["token"] = plan.token
        action = (
            "Nothing is forgotten yet. Show this to the user; if they agree, call again with the token alone."
        )
    elif plan.candidates:
        action = "Several lines may be meant. Ask which; then call with the token of that one alone."
    return filled(told) | {"action": action}


def _line(line: ForgetLine) -> dict[str, JsonValue]:
    return filled(
        document(citation=line.citation, text=line.text, is_copy=line.is_copy or None, token=line.token)
    )
