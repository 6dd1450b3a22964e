"""What makes a typed function a tool of an agent: its name, its arguments, and how to call it."""

import difflib
from collections.abc import Awaitable, Callable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError
from pydantic.alias_generators import to_camel

from composable_memory.errors import ComposableMemoryError
from composable_memory.json_documents import problems_in
from composable_memory.tools.document import Document, ErrorReply, FilterArguments, Reply
from composable_memory_feedback.errors import FeedbackError
from composable_memory_ops_logs import OpsLogError
from composable_memory_ops_logs.quick_dataclass import dataclass

if TYPE_CHECKING:
    from composable_memory.runtime.memory import Memory


def _error_reply(problem: str) -> Document:
    return ErrorReply(error=problem)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """A typed function as agents see it.

    `run` takes a memory and a `request`; its arguments are the fields of the request, except those for
    programs only. `writes` says that it changes something, `destroys` that it may delete something, `quotes`
    that its reply contains text from notes. `unavailable` makes the reply for a memory that cannot be opened,
    from the reason.
    """

    name: str
    title: str
    description: str
    run: "Callable[[Memory, Any], Awaitable[Reply]]"
    writes: bool = False
    destroys: bool = False
    quotes: bool = False
    unavailable: Callable[[str], Document] = _error_reply

    @property
    def request(self) -> type[Document]:
        """Return the class of the arguments, as declared by `run`."""
        declared: type[Document] = self.run.__annotations__["request"]
        return declared

    @property
    def input_schema(self) -> dict[str, Any]:
        """Return the JSON schema of the arguments, without what is useless to an agent."""
        return _schema_of(self.request)

    async def call(
        self, memory: "Memory", arguments: Mapping[str, object], *, session_key: str | None = None
    ) -> Reply:
        """Call the tool; whatever is wrong with the call or the memory is in the reply."""
        if problem := self._unknown(arguments):
            return ErrorReply(error=problem)
        try:
            given = {name: one for name, one in arguments.items() if one is not None}  # null is missing
            request = self.request.model_validate(given)
            if "session_key" in type(request).model_fields:
                request = request.model_copy(update={"session_key": session_key})
            return await self.run(memory, request)
        except ValidationError as error:
            return ErrorReply(error="; ".join(problems_in(error)))
        except (ComposableMemoryError, FeedbackError, OpsLogError) as error:
            return ErrorReply(error=str(error))

    def _unknown(self, arguments: Mapping[str, object]) -> str | None:
        """Return the problem with an unknown argument, suggesting the nearest."""
        known = list(self.input_schema["properties"])
        for name in sorted(arguments.keys() - set(known)):
            near = difflib.get_close_matches(to_camel(name), known, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"{self.name} takes {', '.join(known) or 'none'}"
            return f"unknown argument {name!r}; {hint}"
        return None


@cache
def _schema_of(request: type[Document]) -> dict[str, Any]:
    schema = request.model_json_schema(by_alias=True)
    required, properties = schema.get("required", []), schema.get("properties", {})
    is_filtering = issubclass(request, FilterArguments)
    filters = FilterArguments.model_json_schema(by_alias=True)["properties"] if is_filtering else ()
    ordered = sorted(properties, key=lambda name: (name not in required, name in filters))
    slim = {"type": "object", "properties": {name: _simplify(properties[name]) for name in ordered}}
    return slim | ({"required": required} if required else {}) | {"additionalProperties": False}


def _simplify(one: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of an argument without its title, its default, and null."""
    options = [option for option in one.get("anyOf", ()) if option.get("type") != "null"]
    whole = one if len(options) != 1 else {**options[0], **one}
    return {name: value for name, value in whole.items() if name not in {"title", "default", "anyOf"}}
