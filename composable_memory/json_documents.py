"""JSON documents of the library, with keys in camelCase; and helpers for reading those of others."""

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime
from functools import cache
from typing import Any

from pydantic import BaseModel, JsonValue, ValidationError
from pydantic.alias_generators import to_camel
from pydantic_core import to_jsonable_python

MOST_SECONDS = 10**11
"""A larger number since 1970 is in milliseconds."""


def document(value: Any = None, /, **named: object) -> dict[str, JsonValue]:
    """Return a JSON document: the fields of a dataclass, if one is given, and the named ones.

    `document(took_ms=1.5, error=None)` is `{"tookMs": 1.5}`. A named field replaces that of the dataclass, so
    `document(result, exact=None)` leaves one out.
    """
    own = {one.name: getattr(value, one.name) for one in fields(value)} if value is not None else {}
    return {json_name(name): to_json(part) for name, part in (own | named).items() if part is not None}


def to_json(value: object) -> JsonValue:
    """Convert a value to plain JSON: dataclasses become documents, mappings keep their keys.

    What JSON cannot represent becomes text, and non-finite numbers become null.
    """
    if is_dataclass(value) and not isinstance(value, type):
        return document(value)
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json", by_alias=True, exclude_none=True)
    if isinstance(value, Mapping):
        return {str(key): to_json(part) for key, part in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [to_json(part) for part in value]
    return to_jsonable_python(value, fallback=str, inf_nan_mode="null")  # type: ignore[no-any-return]


def moment_in(value: object) -> datetime | None:
    """Parse a time: an ISO text, or seconds or milliseconds since 1970; None for anything else.

    Without a time zone it is in UTC. Times beyond the calendar in UTC are rejected.
    """
    try:
        if isinstance(value, int | float) and not isinstance(value, bool):
            return datetime.fromtimestamp(value / 1000 if abs(value) > MOST_SECONDS else value, UTC)
        moment = datetime.fromisoformat(value.strip()) if isinstance(value, str) else value
        if not isinstance(moment, datetime):
            return None
        moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        moment.astimezone(UTC)
    except (ValueError, OverflowError, OSError):
        return None
    return moment


def problems_in(error: ValidationError, whole: str = "") -> list[str]:
    """Return what is wrong with which part of a document, without quoting it; `whole` names the document."""
    told = error.errors(include_url=False, include_input=False, include_context=False)
    parts = (".".join(map(str, one["loc"])) or whole for one in told)
    reasons = (one["msg"].removeprefix("Value error, ") for one in told)
    return [f"{part}: {reason}" if part else reason for part, reason in zip(parts, reasons, strict=True)]


@cache
def json_name(name: str) -> str:
    """Return the JSON key of a field: `took_ms` becomes `tookMs`, and `from_` becomes `from`."""
    return to_camel(name.rstrip("_"))
