"""Items of a key-value store as notes that a person can read and edit, one for each item."""

import hashlib
import logging
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from typing import Any
from uuid import uuid4

import yaml

from composable_memory.errors import InvalidArgument, MemoryPathError
from composable_memory.paths import opened_file
from composable_memory.retain.note_file import require_workspace
from composable_memory_ops_logs.private_files import sync_folder
from composable_memory_ops_logs.quick_dataclass import dataclass

FOLDER = PurePosixPath("memory/store")
"""The place of the notes in the workspace, with a folder for each namespace."""

_PLAIN = re.compile(r"[a-z0-9][a-z0-9_-]{0,79}")
_ODD = re.compile(r"[^a-z0-9]+")
_LINE_BREAKS = re.compile("[\r\x85\u2028\u2029\ufeff]")
"""Characters that YAML may read as a line break, or skip, unless they are escaped."""
_HEAD = re.compile(r"---\n(.*?\n)---\n\n?(.*)", re.DOTALL)
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredItem:
    """The value under a key of a namespace; `is_indexed` means that queries may find it."""

    namespace: tuple[str, ...]
    key: str
    value: dict[str, Any]
    created_at: datetime
    updated_at: datetime
    is_indexed: bool = True


class StoreNotes:
    """The items in a workspace; blocks.

    A name that is not a portable file name gets a hash, so that two never share a file. Other files in the
    folder, such as a person's notes, are left alone.
    """

    def __init__(self, workspace: Path) -> None:
        self._workspace = workspace

    def get(self, namespace: Sequence[str], key: str) -> StoredItem | None:
        """Return the item, or None."""
        return self.read(item_path(namespace, key))

    def put(self, namespace: Sequence[str], key: str, value: Mapping[str, Any], *, is_indexed: bool) -> None:
        """Write an item; an existing one keeps its creation time.

        Raises:
            InvalidArgument: the value cannot be written as YAML.
            MemoryPathError: the folder leads out of the workspace.
            NoteNotWritten: the workspace no longer exists.
        """
        path = item_path(namespace, key)
        require_workspace(self._workspace, str(path))
        before, now = self.get(namespace, key), datetime.now(UTC)
        item = StoredItem(
            namespace=tuple(namespace),
            key=key,
            value=dict(value),
            created_at=before.created_at if before else now,
            updated_at=now,
            is_indexed=is_indexed,
        )
        text, target = _format(item), self._target(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        draft = target.with_name(f".{target.name}.{uuid4().hex[:8]}")
        try:
            with draft.open("x", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            draft.replace(target)
            sync_folder(target.parent)
        finally:
            draft.unlink(missing_ok=True)

    def delete(self, namespace: Sequence[str], key: str) -> None:
        """Remove an item."""
        self._target(item_path(namespace, key)).unlink(missing_ok=True)

    def below(self, prefix: Sequence[str]) -> Iterator[StoredItem]:
        """Return the items whose namespace begins with `prefix`, the last changed first."""
        root = self._target(namespace_folder(prefix))
        paths = (namespace_folder(prefix) / one.relative_to(root).as_posix() for one in root.rglob("*.md"))
        found = [item for path in paths if (item := self.read(path))]
        yield from sorted(found, key=lambda one: (-one.updated_at.timestamp(), one.namespace, one.key))

    def read(self, path: PurePosixPath) -> StoredItem | None:
        """Read the item in a file; None if it is not an item, or not at its own place."""
        try:
            with (
                opened_file(self._target(path)) as (descriptor, _),
                open(descriptor, encoding="utf-8", closefd=False) as file,
            ):
                item = _parse(file.read())
        except FileNotFoundError:
            return None
        except (OSError, ValueError, yaml.YAMLError) as error:
            log.warning("%s is no item of the store, and is passed over: %s", path, error)
            return None
        return item if item and item_path(item.namespace, item.key) == path else None

    def _target(self, path: PurePosixPath) -> Path:
        target = (self._workspace / path).parent.resolve() / path.name
        if not target.is_relative_to(self._workspace.resolve()):
            raise MemoryPathError(str(path), "its folder is outside the workspace")
        return target


def namespace_folder(namespace: Sequence[str]) -> PurePosixPath:
    """Return the folder of a namespace."""
    return FOLDER.joinpath(*map(_file_name, namespace))


def item_path(namespace: Sequence[str], key: str) -> PurePosixPath:
    """Return the file of an item."""
    return namespace_folder(namespace) / f"{_file_name(key)}.md"


def _file_name(name: str) -> str:
    if _PLAIN.fullmatch(name):
        return name
    shown = _ODD.sub("-", name.lower())[:40].strip("-")
    digest = hashlib.sha256(name.encode(errors="surrogatepass")).hexdigest()[:16]
    return f"{shown}.{digest}" if shown else digest


class _Dumper(yaml.SafeDumper):
    """Writes multi-line text as a block, which is easier to read and to search."""


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.Node:
    style = '"' if _LINE_BREAKS.search(text) else "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _text)


def _format(item: StoredItem) -> str:
    head = {
        "type": "store",
        "namespace": list(item.namespace),
        "key": item.key,
        "created_at": item.created_at.isoformat(),
        "updated_at": item.updated_at.isoformat(),
    } | ({} if item.is_indexed else {"index": False})
    try:
        return f"---\n{_yaml(head)}---\n\n{_yaml(item.value)}"
    except (yaml.YAMLError, UnicodeEncodeError, RecursionError) as error:
        raise InvalidArgument("value", "texts, numbers, lists and mappings", item.value) from error


def _yaml(value: object) -> str:
    text: str = yaml.dump(value, Dumper=_Dumper, allow_unicode=True, sort_keys=False, width=10**9)
    text.encode()
    return text


def _parse(text: str) -> StoredItem | None:
    """Parse a note; None if it is not an item."""
    found = _HEAD.fullmatch(text.replace("\r\n", "\n"))
    head = yaml.load(found[1], _LOADER) if found else None  # noqa: S506 - the safe one
    if found is None or not isinstance(head, dict) or head.get("type") != "store":
        return None
    value = yaml.load(found[2], _LOADER)  # noqa: S506 - the safe one
    if not isinstance(value, dict):
        raise ValueError("its text is no mapping")
    try:
        return StoredItem(
            namespace=tuple(map(str, head["namespace"])),
            key=str(head["key"]),
            value=value,
            created_at=datetime.fromisoformat(str(head["created_at"])),
            updated_at=datetime.fromisoformat(str(head["updated_at"])),
            is_indexed=head.get("index") is not False,
        )
    except (KeyError, TypeError) as error:
        raise ValueError(f"its head lacks {error}") from error
