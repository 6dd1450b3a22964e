"""The format of a log line, in both directions: event to JSON, JSON to event."""

import re
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime
from functools import cache
from itertools import chain
from types import NoneType
from typing import Any, TypeAlias, TypeVar, cast, get_args, get_origin, get_type_hints
from zlib import crc32

import orjson

from composable_memory_ops_logs.events import EventDetail, JsonValue, OpsEvent, Status
from composable_memory_ops_logs.quick_dataclass import dataclass

Made = TypeVar("Made")

_LINE_OPTIONS = orjson.OPT_APPEND_NEWLINE | orjson.OPT_SERIALIZE_NUMPY
_CHECKSUM = b',"crc32":'
_CHECKSUM_BYTES = 24
"""Upper bound of the size of the field, with a newline."""
_PLACE = re.compile(rb',"at":(\d+),"crc32":\d+\}\n?\Z')
_PLACE_BYTES = 56
"""Upper bound of the size of the two fields."""
_STATUSES = frozenset(get_args(Status))
_WITHOUT_TEXTS = frozenset((bool, int, float, NoneType))


def event_to_wire(event: OpsEvent) -> dict[str, object]:
    """Return the event as the mapping that is written: camelCase keys, without None."""
    detail = event.detail
    return head_to_wire(event) | {
        "detail": value_to_wire(detail) if isinstance(detail, EventDetail) else detail
    }


def head_to_wire(event: OpsEvent) -> dict[str, object]:
    """Return an event without its detail, as it is written."""
    wire: dict[str, object] = {
        "id": event.id,
        "ts": format_time(event.ts),
        "action": event.action,
        "status": event.status,
        "traceId": event.trace_id,
    }
    if event.session_key is not None:
        wire["sessionKey"] = event.session_key
    if event.run_id is not None:
        wire["runId"] = event.run_id
    if event.backend is not None:
        wire["backend"] = event.backend
    if event.duration_ms is not None:
        wire["durationMs"] = event.duration_ms
    wire["schemaVersion"] = event.schema_version
    return wire


def value_to_wire(value: object, *without: str) -> dict[str, object]:
    """Return a part of an event, such as a `FinalResult`, as it is written, `without` some fields."""
    kind: type = type(value)
    return _encoder(kind, *without)(value)


def value_from_wire(kind: type[Made], wire: Any) -> Made:
    """Read back what `value_to_wire` returned; types are not checked.

    Raises:
        AttributeError, TypeError: it is of another kind.
    """
    hints = get_type_hints(kind)
    given = {}
    for name in _names(kind):
        if (value := wire.get(_to_camel(name))) is None:
            continue
        annotation = _Annotation.of(hints[name])
        if annotation.nested is not None and annotation.many:
            value = tuple(value_from_wire(annotation.nested, one) for one in value)
        elif annotation.nested is not None:
            value = value_from_wire(annotation.nested, value)
        given[name] = value
    return kind(**given)


def to_line(wire: Mapping[str, object]) -> bytes:
    """Return one line of JSON with its newline; values unknown to JSON become texts or lists."""
    try:
        return orjson.dumps(wire, default=_plain, option=_LINE_OPTIONS)
    except orjson.JSONEncodeError:
        return orjson.dumps(_repair(wire), option=_LINE_OPTIONS)


def sealed(line: bytes) -> bytes:
    """Add the last field to a line: a checksum of everything before it, which reveals any damage."""
    head = line[:-2]
    return b"%b%b%d}\n" % (head, _CHECKSUM, crc32(head))


def placed(line: bytes, at: int) -> bytes:
    """Add to a sealed line where it begins in its file, which reveals missing lines."""
    end = line.rfind(_CHECKSUM, max(0, len(line) - _CHECKSUM_BYTES))
    return line if end < 0 else sealed(b'%b,"at":%d}\n' % (line[:end], at))


def place_of(line: bytes) -> int | None:
    """Return where in its file a line was written; None if it does not say, or not reliably."""
    found = _PLACE.search(line, max(0, len(line) - _PLACE_BYTES))
    return int(found[1]) if found and is_whole(line) else None


def is_sealed(line: bytes) -> bool:
    """Return whether a line has a checksum; those of earlier versions have none."""
    return line.rfind(_CHECKSUM, max(0, len(line) - _CHECKSUM_BYTES)) >= 0


def is_whole(line: bytes) -> bool:
    """Return whether a line is undamaged, by its checksum, or if it has none, by its end."""
    end = line.rfind(_CHECKSUM, max(0, len(line) - _CHECKSUM_BYTES))
    if end < 0:
        return line[-2:].rstrip().endswith(b"}")
    return line[end + len(_CHECKSUM) :].rstrip() == b"%d}" % crc32(memoryview(line)[:end])


def texts_in(value: object) -> list[str]:
    """Return the texts inside a JSON-like value, each with its key, which may reveal a secret."""
    if isinstance(value, str):
        return [value]
    found: list[str] = []
    if value.__class__ in _WITHOUT_TEXTS:
        return found
    if isinstance(value, dict) or (value.__class__ is not list and isinstance(value, Mapping)):
        for key, item in value.items():  # common types first: abstract classes are slow
            if isinstance(item, str):
                found.append(f"{key}={item}")
            else:
                found.append(str(key))
                found += () if item.__class__ in _WITHOUT_TEXTS else texts_in(item)
    elif isinstance(value, (list, tuple, Sequence, Set)):
        kinds = {*map(type, value)}
        if kinds == {str}:
            return [*value]
        if kinds == {list}:  # rows of a table
            return texts_in([*chain.from_iterable(value)])
        for item in () if _WITHOUT_TEXTS.issuperset(kinds) else value:
            if isinstance(item, str):
                found.append(item)
            elif item.__class__ not in _WITHOUT_TEXTS:
                found += texts_in(item)
    return found


def event_from_wire(wire: Any) -> OpsEvent:
    """Read an event back; its detail stays a plain mapping, so that lines of newer versions can be read.

    Raises:
        ValueError: it is not an event.
    """
    try:
        if wire["status"] not in _STATUSES:
            raise ValueError(f"unknown status {wire['status']!r}")
        return OpsEvent(
            id=_text(wire["id"]),
            ts=datetime.fromisoformat(wire["ts"]).astimezone(UTC),
            action=_text(wire["action"]),
            status=wire["status"],
            trace_id=_text(wire["traceId"]),
            session_key=wire.get("sessionKey"),
            run_id=wire.get("runId"),
            backend=wire.get("backend"),
            duration_ms=wire.get("durationMs"),
            schema_version=int(wire.get("schemaVersion", 0)),
            detail=_mapping(wire.get("detail", {})),
        )
    except (AttributeError, KeyError, OverflowError, TypeError) as error:
        raise ValueError(f"not an event: {error!r}") from error


def _plain(value: object) -> object:
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, Sequence | Set):
        return list(value)
    return str(value)


def _repair(value: object) -> object:
    """Replace what JSON cannot represent: text that is not UTF-8, long integers, odd keys."""
    if value is None or isinstance(value, bool | float):
        return value
    if isinstance(value, int):
        return value if value.bit_length() < 64 else str(value)
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, Mapping):
        return {str(_repair(key)): _repair(item) for key, item in value.items()}
    if isinstance(value, Sequence | Set):
        return [_repair(item) for item in value]
    return _repair(str(value))


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is not a text")
    return value


def _mapping(value: object) -> Mapping[str, JsonValue]:
    if not isinstance(value, dict):
        raise TypeError(f"{value!r} is not an object")
    return cast("Mapping[str, JsonValue]", value)


def format_time(ts: datetime) -> str:
    """Format a time as in log lines: in UTC, to the millisecond."""
    return ts.astimezone(UTC).isoformat(timespec="milliseconds")[:-6] + "Z"


_Encoder: TypeAlias = Callable[[Any], dict[str, object]]


@cache
def _encoder(kind: type, *without: str) -> _Encoder:
    """Compile an expression, as `dataclasses` does: three times as fast as a loop over the fields."""
    hints = get_type_hints(kind)
    known: dict[str, object] = {"nothing": {}}
    entries = []
    for number, name in enumerate(one for one in _names(kind) if one not in without):
        value = _Annotation.of(hints[name])
        if value.nested is not None:
            known[f"encode{number}"] = _encoder(value.nested)
        entry = f"{_to_camel(name)!r}: {value.encode_expression(name, number)}"
        entries.append(f"**({{{entry}}} if o.{name} is not None else nothing)" if value.optional else entry)
    return cast("_Encoder", eval(f"lambda o: {{{', '.join(entries)}}}", known))  # noqa: S307 - only our names


def _names(kind: type) -> Sequence[str]:
    """Return the fields of a dataclass or a named tuple; empty for other types."""
    if is_dataclass(kind):
        return [field.name for field in fields(kind)]
    return cast("Sequence[str]", getattr(kind, "_fields", ()))


@dataclass(frozen=True, slots=True)
class _Annotation:
    """How to write a field, from its type."""

    nested: type | None
    many: bool
    optional: bool

    @classmethod
    def of(cls, annotation: object) -> "_Annotation":
        union = get_args(annotation) if type(None) in get_args(annotation) else (annotation,)
        members = tuple(member for member in union if member is not type(None))
        many = get_origin(members[0]) is Sequence
        inner = get_args(members[0])[0] if many else members[0]
        nested = inner if isinstance(inner, type) and _names(inner) else None
        return cls(nested=nested, many=many, optional=len(union) > 1)

    def encode_expression(self, name: str, number: int) -> str:
        if self.nested is None:
            return f"o.{name}"
        if self.many:
            return f"[*map(encode{number}, o.{name})]"
        return f"encode{number}(o.{name})"


def _to_camel(name: str) -> str:
    head, *rest = name.split("_")
    return head + "".join(word.capitalize() for word in rest)
