"""Reads the exports of other memories: detects the origin, and reads memories, notes and conversations.

The parts of an export are parsed by pydantic models. A record that does not fit is reported with its place,
and the others are read. Call it in a thread.
"""

import io
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, TypeVar

import pydantic
from pydantic import AliasChoices, AliasPath, Field

from composable_memory.front_matter import front_matter
from composable_memory.imports.export_files import ExportedFile, Unreadable, elements, files_of
from composable_memory.json_documents import problems_in
from composable_memory.paths import encoding_of, is_note
from composable_memory.transcripts import messages_of, texts_in
from composable_memory_ops_logs.quick_dataclass import dataclass

T = TypeVar("T", bound=pydantic.BaseModel)
ROLES = {"user": "user", "human": "user", "assistant": "assistant"}
NOBODY = frozenset({"", "default", "default_user", "user"})
"""User ids that name nobody."""
SHOWN = ("text", "multimodal_text")
BROKEN = (ValueError, LookupError, TypeError, AttributeError)
"""What a record with an unexpected structure may raise."""


class Problem(NamedTuple):
    """What could not be read: its place and the reason."""

    where: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """An item of an export: a sentence, a note, which may be a file there, or a conversation.

    `id` is the origin's own, blank if it has none; `at` is when it was said or written. A turn of a
    conversation has a role, a text, and a time.
    """

    kind: Literal["memory", "note", "conversation"]
    id: str
    text: str = ""
    title: str = ""
    at: datetime | None = None
    path: str = ""
    changed_at: datetime | None = None
    about: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    turns: tuple[tuple[str, str, datetime | None], ...] = ()


Found = Iterator[Record | Problem]


def read_export(origin: str, files: Iterable[ExportedFile]) -> Found:
    """Yield the records in the files of an origin, and the problems."""
    for file in files:
        for pattern, read in READERS[origin].items():
            if re.search(pattern, file.name, re.IGNORECASE):
                try:
                    yield from read(file)
                except (*BROKEN, OSError, RecursionError) as error:
                    yield Problem(file.name, _reason(error))


def _reason(error: Exception) -> str:
    match error:
        case pydantic.ValidationError():
            return problems_in(error)[0]
        case UnicodeDecodeError():  # its message would contain the whole file
            return f"it is not UTF-8 (byte {error.start}); save it as UTF-8"
        case UnicodeEncodeError():
            return "it is not UTF-8; save it as UTF-8"
        case Unreadable():
            return str(error)
    return f"{error!r:.200}"


def _field(default: object, *names: str | AliasPath) -> Any:
    return Field(default=default, validation_alias=AliasChoices(*names))


def _aware(moment: datetime) -> datetime | None:
    if moment.year == 1:  # the zero time of Go and .NET
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


Moment = Annotated[datetime, pydantic.AfterValidator(_aware)] | None


class _Shape(pydantic.BaseModel):
    """A part of an export; null counts as missing, and ids may be numbers."""

    model_config = pydantic.ConfigDict(coerce_numbers_to_str=True)

    @pydantic.model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, data: object) -> object:
        return {key: one for key, one in data.items() if one is not None} if isinstance(data, dict) else data


class _Entry(_Shape):
    """A memory of mem0, a passage or block of Letta, a document of a Claude project."""

    id: str = _field("", "id", "uuid")
    text: str = _field(..., "memory", "text", "content", "data", "value")
    title: str = _field("", "label", "filename")
    user_id: str = ""
    tags: list[str] = _field([], "categories", "tags")
    at: Moment = _field(None, "updated_at", "created_at")


class _Message(_Shape):
    """A message of ChatGPT, Claude or Letta."""

    id: str = ""
    role: str = _field(..., "sender", "role", AliasPath("author", "role"))
    kind: str = _field("text", AliasPath("content", "content_type"))
    content: Any = _field(None, AliasPath("content", "parts"), "content")
    text: str = _field("", AliasPath("content", "text"), "text")
    at: Moment = _field(None, "create_time", "created_at")
    recipient: str = "all"
    is_hidden: bool = _field(False, AliasPath("metadata", "is_visually_hidden_from_conversation"))
    calls: list[dict[str, Any]] = _field([], "tool_calls")

    @property
    def words(self) -> str:
        """Return what was said; a message that calls tools only says what it sends, the rest is thought."""
        if self.calls:
            sent = (one.get("function", {}) for one in self.calls)
            texts = (one["arguments"] for one in sent if one.get("name") == "send_message")
            return "\n".join(json.loads(text)["message"] for text in texts)
        parts = self.content if isinstance(self.content, list) else ()
        said = [*(one for one in parts if isinstance(one, str)), *texts_in(self.content)]
        return _unpacked("\n".join(said).strip() or self.text)


class _Talk(_Shape):
    """A conversation: a list of messages; in ChatGPT a tree, in which an edited question is a new branch."""

    id: str = _field("", "uuid", "conversation_id", "id")
    title: str = _field("", "name", "title")
    at: Moment = _field(None, "create_time", "created_at")
    messages: list[Any] = _field([], "chat_messages", "messages")
    current_node: str = ""
    mapping: dict[str, dict[str, Any]] = {}

    @property
    def shown(self) -> list[Any]:
        """Return the messages; of a tree those of the branch shown last."""
        at, branch = self.current_node or next(reversed(self.mapping), ""), dict[str, Any]()
        while at in self.mapping and at not in branch:  # a broken tree may have a cycle
            branch[at] = self.mapping[at].get("message")
            at = str(self.mapping[at].get("parent"))
        return [*self.messages, *(one for one in reversed(branch.values()) if one)]


def _unpacked(text: str) -> str:
    """Return the words in Letta's JSON for agents, blank for heartbeats; any other text as it is."""
    try:
        said = json.loads(text) if text.startswith("{") else None
    except ValueError:
        return text
    match said:
        case {"type": "heartbeat" | "login" | "system_alert"}:
            return ""
        case {"type": "user_message", "message": str(words)}:
            return words
    return text


def _each(items: Iterable[object], where: str, shape: type[T], read: Callable[[T], Found]) -> Found:
    """Yield what is read from items, problems for those with a wrong structure, and where they break off."""
    number = -1
    try:
        for number, item in enumerate(items):
            try:
                if isinstance(item, Unreadable):
                    raise item
                line = item if isinstance(item, str) else None
                yield from read(shape.model_validate_json(line) if line else shape.model_validate(item))
            except BROKEN as error:
                yield Problem(f"{where}[{number}]", _reason(error))
    except (Unreadable, OSError, RecursionError) as error:
        why = f"it and everything after it is not read: {_reason(error)}"
        yield Problem(f"{where}[{number + 1}]", why)


def text_of(file: ExportedFile) -> str:
    """Return a file as text.

    Raises:
        OSError: it cannot be read.
        UnicodeDecodeError: it is not text.
    """
    data = file.read()
    return data.decode(encoding_of(data))  # PowerShell writes UTF-16


def json_of(file: ExportedFile, *parts: str) -> Iterator[Any]:
    """Yield the elements of a document, or of parts of it; of JSON lines each line, unparsed."""
    with file.opened() as data:
        encoding = encoding_of(data.peek(2))
        with io.TextIOWrapper(data, encoding, errors="surrogateescape", newline="\n") as text:
            if file.name.lower().endswith(".jsonl"):
                yield from (line for line in text if line.strip())
            else:
                yield from elements(text, *parts)


def _memories(file: ExportedFile) -> Found:
    items = json_of(file, "results", "memories", "passages")
    yield from _each(items, file.name, _Entry, partial(_written, "memory"))


def _written(kind: Literal["memory", "note"], one: _Entry) -> Found:
    about = (one.user_id,) if one.user_id.lower() not in NOBODY else ()
    own, tags = one.id or one.title, tuple(one.tags)
    yield Record(kind=kind, id=own, title=one.title, text=one.text, at=one.at, about=about, tags=tags)


def _talks(file: ExportedFile) -> Found:
    yield from _each(json_of(file, "agents"), file.name, _Talk, _talk)


def _talk(talk: _Talk) -> Found:
    """Yield a conversation, the memories that ChatGPT saved in it, and messages that cannot be read."""
    turns: list[tuple[str, str, datetime | None]] = []
    for found in _each(talk.shown, talk.title or talk.id, _Message, _said):
        if isinstance(found, Record) and found.kind == "conversation":
            turns += found.turns
        else:
            yield found
    own = talk.id or talk.title
    yield Record(kind="conversation", id=own, title=talk.title, at=talk.at, turns=tuple(turns))


def _said(one: _Message) -> Found:
    role, words = ROLES.get(one.role), one.words
    if one.recipient == "bio":  # this is how ChatGPT saves memories, one per line
        for number, line in enumerate(words.split("\n")):
            yield Record(kind="memory", id=f"{one.id}/{number}", text=line, at=one.at)
    elif role and words and one.recipient == "all" and one.kind in SHOWN and not one.is_hidden:
        yield Record(kind="conversation", id=one.id, turns=((role, words, one.at),))


def _claude_notes(file: ExportedFile) -> Found:
    """Yield what Claude remembers, and the documents of projects."""
    for one in json_of(file):
        texts = {"conversations_memory": one.get("conversations_memory"), **one.get("project_memories", {})}
        for name, text in texts.items():
            yield Record(kind="note", id=name, title=f"Memory of Claude: {name}", text=text or "")
        yield from _each(one.get("docs", []), file.name, _Entry, partial(_written, "note"))


def _agents(file: ExportedFile) -> Found:
    """Yield the content of a Letta agent file in the current or first format; its ids are local to it."""
    blocks = _each(json_of(file, "blocks", "core_memory"), file.name, _Entry, partial(_written, "note"))
    for one in chain(blocks, _talks(file)):
        yield replace(one, id=f"{file.name}/{one.id}") if isinstance(one, Record) else one


def _note(file: ExportedFile) -> Found:
    if is_note(file.name):
        text = text_of(file).replace("\r\n", "\n")
        yield Record(kind="note", id=file.name, text=text, path=file.name, changed_at=file.changed_at)


def _transcript(file: ExportedFile) -> Found:
    said = [one for one in messages_of(file.read().decode("utf-8", "replace")) if not one.is_inserted]
    turns = tuple((one.speaker.lower(), one.text, one.at) for one in said)
    at = next((one.at for one in said if one.at), None)
    yield Record(kind="conversation", id=file.name.rpartition("/")[2], turns=turns, at=at)


CONVERSATIONS = r"(^|/)conversations[^/]*\.json$"
MEMORIES, PROJECTS = r"(^|/)memor[^/]*(/[^/]+)?\.json$", r"(^|/)projects[^/]*(/[^/]+)?\.json$"
WORKSPACE = r"(^|/)(DREAMS|MEMORY)\.md$|(^|/)(memory|bank)/"
READERS: Mapping[str, Mapping[str, Callable[[ExportedFile], Found]]] = {
    "mem0": {r"\.jsonl?$": _memories},
    "basic-memory": {"": _note},
    "chatgpt": {CONVERSATIONS: _talks, MEMORIES: _memories},
    "claude": {CONVERSATIONS: _talks, rf"{MEMORIES}|{PROJECTS}": _claude_notes},
    "obsidian": {"": _note},
    "openclaw": {WORKSPACE: _note, r"(^|/)sessions/[^/]+\.jsonl$": _transcript},
    "letta": {r"\.af$": _agents, r"\.jsonl?$": _memories},
}
"""For each origin, the readers for files by patterns of their names."""


# --- detecting the origin of an export, by what only that origin writes -------------------------------------

MOST_LOOKED_AT = 20
"""How many files to open; of each the first element is read."""
OF_NOTES = ("basic-memory", "obsidian")
"""Origins that export a folder of notes, in which JSON files prove nothing."""

_OPENCLAW = re.compile(r"^([^/]+/)?(MEMORY\.md|openclaw\.json)$|(^|/)sessions/[^/]+\.jsonl$")
_BASIC_MEMORY = ("title:", "type:", "permalink:")
_OWNERS = ("user_id", "agent_id", "run_id", "app_id", "hash")


def origins_of(export: Path, wanted: str) -> frozenset[str]:
    """Return the origins that an export looks like; empty if there is no evidence.

    If there are files that an export of `wanted` would have, only these are opened.

    Raises:
        OSError: it cannot be read.
    """
    root = export.expanduser()
    known = {"obsidian"} if (root / ".obsidian").is_dir() else set[str]()
    names = [one.name for one in files_of(root)]
    known |= {"openclaw" for one in names if _OPENCLAW.search(one)}
    read = {name for name in names if _is_read(name, wanted)}
    files = (one for one in files_of(root) if one.name in read or not read)
    for file in islice(files, MOST_LOOKED_AT):
        known |= set(_signs(file))
    return frozenset(known)


def _is_read(name: str, origin: str) -> bool:
    if origin in OF_NOTES:
        return is_note(name)
    return any(re.search(pattern, name, re.IGNORECASE) for pattern in READERS[origin])


def _signs(file: ExportedFile) -> Iterator[str]:
    name = file.name.lower()
    try:
        if name.endswith(".af"):
            yield "letta"
        elif is_note(name):
            head = text_of(file)
            head = head[: front_matter(head).length]
            if all(f"\n{key}" in head for key in _BASIC_MEMORY):
                yield "basic-memory"
        elif name.endswith((".json", ".jsonl")):
            first = next(json_of(file), None)
            yield from filter(None, [_origin_of(json.loads(first) if isinstance(first, str) else first)])
    except (*BROKEN, OSError, RecursionError):
        return


def _origin_of(item: object) -> str:
    """Return the origin of an element of a JSON document; empty if it could be anyone's."""
    match item:
        case {"mapping": dict()}:
            return "chatgpt"
        case {"chat_messages": list()} | {"conversations_memory": _} | {"prompt_template": _, "docs": list()}:
            return "claude"
        case {"agents": list()} | {"core_memory": list()} | {"embedding_config": _}:
            return "letta"
        case {"id": str(own)} if own.startswith("passage-"):
            return "letta"
        case {"memory": str(), **rest} if any(one in rest for one in _OWNERS):
            return "mem0"
        case {"results": [first, *_]} | {"memories": [first, *_]} | {"passages": [first, *_]}:
            return _origin_of(first)
    return ""
