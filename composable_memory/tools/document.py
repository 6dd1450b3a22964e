"""JSON documents, the input and output of the tools: keys in camelCase, unset values left out."""

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Literal, Self, TypeAlias

from pydantic import (
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    JsonValue,
    StringConstraints,
    WithJsonSchema,
    model_validator,
)

from composable_memory.json_documents import json_name
from composable_memory.query.filters import parse_since, parse_until
from composable_memory.types import MemorySource, SearchFilters
from composable_memory_ops_logs.quick_dataclass import dataclass


class Document(BaseModel):
    """A JSON document of a stable shape; values of the library inside it are written in camelCase too."""

    # Build each schema on first use: a search must not wait for those of the status.
    model_config = ConfigDict(
        frozen=True, extra="forbid", alias_generator=json_name, populate_by_name=True, defer_build=True
    )

    @property
    def is_error(self) -> bool:
        """Return whether it reports an error; that no memory is available is a valid answer."""
        return bool(getattr(self, "error", None)) and not getattr(self, "unavailable", None)

    def as_json(self) -> dict[str, JsonValue]:
        """Return the document as plain JSON values."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)


@dataclass(frozen=True, slots=True)
class ValueReply:
    """A reply whose JSON is built from values of the library."""

    content: dict[str, JsonValue]
    is_error: bool = False

    def as_json(self) -> dict[str, JsonValue]:
        """Return it as plain JSON values."""
        return self.content


Reply: TypeAlias = Document | ValueReply
"""The reply of a tool."""


def filled(content: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    """Return a document without its empty values."""
    return {name: value for name, value in content.items() if value not in (None, "", [], {})}


class ErrorReply(Document):
    """Why a tool could not do what was asked."""

    status: Literal["error"] = "error"
    error: str


def _one_or_several(value: object) -> object:
    if isinstance(value, str):
        return (value,)
    return () if value is None else value


OneOrSeveral = BeforeValidator(_one_or_several)
"""Agents give one value, programs may give several."""

TEXT = WithJsonSchema({"type": "string"})


class FilterArguments(Document):
    """Filters for results, see `SearchFilters`. `now` is the caller's clock."""

    since: str | None = Field(default=None, description="2026-05-03, 2026-05, last week, 7d")
    until: str | None = None
    paths: Annotated[tuple[str, ...], OneOrSeveral, TEXT] = Field(
        default=(), validation_alias="path", description="Folder, path or glob"
    )
    tags: Annotated[tuple[str, ...], OneOrSeveral, TEXT] = Field(default=(), validation_alias="tag")
    sources: Annotated[
        tuple[MemorySource, ...],
        OneOrSeveral,
        WithJsonSchema({"enum": ["memory", "sessions"]}),
    ] = Field(default=(), validation_alias="source")
    types: Annotated[tuple[str, ...], OneOrSeveral, TEXT] = Field(
        default=(), validation_alias="type", description="note, transcript, fact, or md"
    )
    now: AwareDatetime | None = Field(default=None, description="Your clock")

    @property
    def is_narrow(self) -> bool:
        """Return whether any filter is given."""
        return bool(self.since or self.until or self.paths or self.tags or self.sources or self.types)

    def filters(self, now: datetime) -> SearchFilters:
        """Return the filters; relative times are counted from `now`.

        Raises:
            InvalidArgument: one of them is invalid.
        """
        now = self.now or now
        return SearchFilters(
            since=parse_since(self.since, now) if self.since else None,
            until=parse_until(self.until, now) if self.until else None,
            paths=self.paths,
            tags=self.tags,
            sources=self.sources,
            types=self.types,
        )


class FilterRequest(FilterArguments):
    """A query, which may be blank if there is a filter, and filters for results."""

    query: Annotated[str, StringConstraints(strip_whitespace=True)]

    @model_validator(mode="after")
    def _asks_for_something(self) -> Self:
        if not (self.query or self.is_narrow):
            raise ValueError("a blank query needs a filter")
        return self
