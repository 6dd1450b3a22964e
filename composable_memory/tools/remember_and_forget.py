"""Changing what is known, at an agent's wish: remembering, and forgetting, which a preview comes before."""

from typing import TYPE_CHECKING, Annotated, Self

from pydantic import Field, JsonValue, StringConstraints, WithJsonSchema, model_validator
from pydantic.json_schema import SkipJsonSchema

from composable_memory.forget.report import ForgetLine, ForgetPlan
from composable_memory.json_documents import document
from composable_memory.retain.retained_lines import MEMORY_TYPES
from composable_memory.tools.document import Document, OneOrSeveral, ValueReply, filled

if TYPE_CHECKING:
    from composable_memory.runtime.memory import Memory

MOST_EXAMPLES = 3


class MemoryRememberRequest(Document):
    """A sentence to remember, and what is known of it; see `Memory.remember`."""

    text: Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)] = Field(
        description="One sentence that can stand alone"
    )
    type: Annotated[str, WithJsonSchema({"enum": list(MEMORY_TYPES)})] | None = None
    entities: Annotated[tuple[str, ...], OneOrSeveral] = Field(
        default=(), description="Whom or what it is about"
    )
    confidence: Annotated[float, Field(ge=0.0, le=1.0)] | None = None
    tags: Annotated[tuple[str, ...], OneOrSeveral] = ()
    session_key: SkipJsonSchema[str | None] = None


async def memory_remember(memory: "Memory", request: MemoryRememberRequest) -> ValueReply:
    """Write a sentence into the day's note, unless the notes say so already.

    Raises:
        InvalidArgument: the text is too long or only a secret, or another argument is wrong.
        NoteNotWritten: the day's note cannot be written.
    """
    done = await memory.remember(
        request.text,
        type=request.type,
        entities=request.entities,
        confidence=request.confidence,
        tags=request.tags,
        session_key=request.session_key,
    )
    told = filled(document(done, path=None, start_line=None, end_line=None))
    if done.duplicate_of is not None:
        told["warning"] = "the notes say so already; nothing was written"
    return ValueReply(told)


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
        MemoryPathError: there is nothing at the place.
        NoteNotWritten: a note cannot be written; nothing was forgotten then.
        BackendUnavailable: another process is forgetting something.
    """
    if request.token is None:
        return ValueReply(_planned(await memory.plan_forgetting(request.target or "")))
    report = await memory.forget(request.token)
    if report.plan is not None:
        warning = "the notes have changed since the preview; nothing was forgotten, this is what would go now"
        return ValueReply(_planned(report.plan) | {"warning": warning})
    told = document(
        forgotten=[line.citation for line in report.lines if not line.stays],
        hidden=[_line(line) for line in report.lines if line.stays] or None,
        stores=report.stores,
    )
    if report.pending:
        told["warning"] = "some stores follow when the memory is opened next"
    return ValueReply(told)


def _planned(plan: ForgetPlan) -> dict[str, JsonValue]:
    told = document(
        lines=[_line(one) for one in plan.lines],
        candidates=[_line(one) for one in plan.candidates if one.token],
        more=sum(not one.token for one in plan.candidates) or None,
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
        if not plan.candidates[-1].token:
            action += " More fit than are shown: a target with more words finds them."
    return filled(told) | {"action": action}


def _line(line: ForgetLine) -> dict[str, JsonValue]:
    return filled(
        document(
            citation=line.citation,
            text=line.text,
            is_copy=line.is_copy or None,
            token=line.token,
            stays=line.stays,
        )
    )
