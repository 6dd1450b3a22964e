"""Reads the settings files of the user and of a workspace, and decides what in the latter needs consent.

The parsed text is exactly the one whose hash and owner were checked. Consent is given to the bytes of one
file in one folder: the folder is identified by device, inode and birth time, the file by its name and hash.
So neither a copy elsewhere nor a file changed by a pull is trusted.
"""

import json
import os
import shlex
import stat
from collections.abc import Collection
from datetime import datetime
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

from composable_memory.config.aliases import OPENCLAW_KEYS, merge_openclaw
from composable_memory.config.trees import Layer, Tree, merge, without
from composable_memory.config.trust import Request, requests
from composable_memory.config.validation import check_sections, ids_of_sections, place_sections
from composable_memory.errors import ConfigError
from composable_memory.folder_identity import FolderIdentity
from composable_memory.registry import Registry
from composable_memory_ops_logs.private_files import BINARY, make_private_folder, replace_file
from composable_memory_ops_logs.quick_dataclass import dataclass

MAX_FILE_BYTES = 2**20
ROOT_USER = 0
_READ = os.O_RDONLY | BINARY | getattr(os, "O_NONBLOCK", 0)
"""How to open a file: in binary mode on Windows too, and without blocking on a pipe that has no writer."""

WORKSPACE_FILES = (
    *(".composable-memory.yaml", ".composable-memory.yml", "composable-memory.yaml", "composable-memory.yml"),
    *("openclaw.yml", "openclaw.yaml", "openclaw.json"),
)
"""The names of a workspace's settings file; the first that exists is used."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingsFile:
    """A settings file as read: its text, the SHA-256 of its bytes, and the id of its owner."""

    path: Path
    text: str
    digest: str
    owner: int

    @property
    def is_of_a_stranger(self) -> bool:
        """Return whether another user owns the file or its folder, and so could have put anything there."""
        owners = {self.owner, self.path.parent.stat().st_uid}
        return os.name == "posix" and not owners <= {os.geteuid(), ROOT_USER}


def read_settings_file(path: Path) -> SettingsFile | None:
    """Return the content of a file of up to 1 MiB of UTF-8 text, or None if it does not exist.

    Raises:
        ConfigError: it is not such a file, or cannot be read.
    """
    try:
        with os.fdopen(os.open(path, _READ), "rb") as stream:
            found = os.fstat(stream.fileno())
            if not stat.S_ISREG(found.st_mode):
                raise ConfigError("memory", "not a regular file", origin=str(path))
            data = stream.read(MAX_FILE_BYTES + 1)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise ConfigError("memory", f"cannot be read: {error.strerror}", origin=str(path)) from error
    if len(data) > MAX_FILE_BYTES:
        raise ConfigError("memory", f"larger than {MAX_FILE_BYTES} bytes", origin=str(path))
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ConfigError("memory", "not text in UTF-8", origin=f"{path}:{line}") from error
    return SettingsFile(path=path, text=text, digest=sha256(data).hexdigest(), owner=found.st_uid)


CONSENTS = "trusted"
"""The subfolder of the state folder with one file for each trusted settings file."""


class Consent(NamedTuple):
    """When the user trusted a file, and whether it is still unchanged."""

    given_at: datetime
    is_current: bool


def consent_to(file: SettingsFile, state_dir: Path) -> Consent | None:
    """Return the user's consent to a workspace's file, or None."""
    if not (state_dir / CONSENTS).is_dir() or _is_within_reach(state_dir, file) or file.is_of_a_stranger:
        return None
    here = FolderIdentity.at(file.path.parent)
    try:
        kept = json.loads(_record(state_dir, here, file.path.name).read_bytes())
        known = FolderIdentity(Path(kept["path"]), kept["device"], kept["inode"], kept["birth"])
        given_at = datetime.fromisoformat(kept["givenAt"])
    except (OSError, ValueError, TypeError, KeyError):  # missing, or not written by us
        return None
    return Consent(given_at, kept.get("sha256") == file.digest) if known.is_same(here) else None


def give_consent(file: SettingsFile, state_dir: Path, *, now: datetime) -> None:
    """Trust a file as it was read.

    Raises:
        ConfigError: another user owns it, or could write the consent.
        OSError: the consent cannot be written.
    """
    if file.is_of_a_stranger:
        problem = "the file or its folder belongs to another user; copy what you need to your own file"
        raise ConfigError("workspace", problem, origin=str(file.path))
    if _is_within_reach(state_dir, file):
        problem = (
            f"{state_dir} is inside the workspace, so whoever sends you the workspace could send consent "
            f"with it"
        )
        raise ConfigError("state_dir", f"{problem}; choose another state folder")
    here = FolderIdentity.at(file.path.parent)
    kept = {**here._asdict(), "path": str(here.path), "file": file.path.name, "sha256": file.digest}
    record = _record(state_dir, here, file.path.name)
    make_private_folder(record.parent)
    text = json.dumps({**kept, "givenAt": now.isoformat()})
    replace_file(record, text.encode(), survives="kill")


def revoke_consent(workspace: Path, names: tuple[str, ...], state_dir: Path) -> tuple[str, ...]:
    """Revoke trust in these files of a workspace; return the names of those that were trusted.

    Raises:
        OSError: a consent cannot be removed.
    """
    here = FolderIdentity.at(workspace)
    records = {name: _record(state_dir, here, name) for name in names}
    revoked = tuple(name for name, record in records.items() if record.exists())
    for name in revoked:
        records[name].unlink()
    return revoked


def _record(state_dir: Path, folder: FolderIdentity, name: str) -> Path:
    known_by = (folder.inode, folder.birth) if folder.birth else (str(folder.path),)
    key = "\0".join((*known_by, name)).encode("utf-8", "surrogateescape")
    return state_dir / CONSENTS / f"{sha256(key).hexdigest()[:32]}.json"


def _is_within_reach(state_dir: Path, file: SettingsFile) -> bool:
    return state_dir.expanduser().resolve().is_relative_to(file.path.parent.resolve())


@dataclass(frozen=True, slots=True, kw_only=True)
class FileLayer:
    """The content of a file, and remarks for the user on what in it is ignored."""

    tree: Tree
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkspaceFile:
    """The settings file of a workspace, what in it needs consent, and the user's consent if given."""

    file: SettingsFile
    said: FileLayer
    requests: tuple[Request, ...] = ()
    consent: Consent | None = None

    @property
    def is_trusted(self) -> bool:
        """Return whether nothing in the file needs consent, or the user consented to its present content."""
        return not self.requests or (self.consent is not None and self.consent.is_current)


def parse_file(
    file: SettingsFile, layer: Layer, installed: Collection[str], workspace: Path | None = None
) -> FileLayer:
    """Parse a file, with the sections of the `installed` backends in their places.

    In the user's own file, settings for this `workspace` override those for all.

    Raises:
        ConfigError: it cannot be parsed.
    """
    # Imported here: usually there is no settings file, and importing the YAML reader takes a tenth of a
    # search.
    from composable_memory.config.yaml_reader import WORKSPACES, parse

    foreign = OPENCLAW_KEYS if file.path.name.startswith("openclaw.") else None
    content = parse(file.text, file.path, layer, foreign=foreign)
    notes: list[str] = []
    tree = place_sections(content["memory"], installed)
    for folder, section in content.get(WORKSPACES, {}).items():
        if workspace and isinstance(section, dict) and _names(folder, workspace):
            tree = merge(tree, place_sections(section, installed))
    if foreign:
        tree, notes = merge_openclaw(tree, content)
    return FileLayer(tree=tree, notes=tuple(notes))


def find_workspace_file(
    workspace: Path, registry: Registry, *, own_file: Path, state_dir: Path
) -> WorkspaceFile | None:
    """Return the workspace's settings file; None if there is none, or it is also the user's own file.

    Raises:
        ConfigError: it cannot be read or parsed.
    """
    names = iter(WORKSPACE_FILES)
    for name in names:
        if _is_same_file(workspace / name, own_file):
            return None
        if (file := read_settings_file(workspace / name)) is None:
            continue
        layer = parse_file(file, "workspace", ids_of_sections(registry))
        others = [
            f"{workspace / other} is ignored: {name} counts"
            for other in names
            if (workspace / other).exists()
        ]
        layer = FileLayer(tree=layer.tree, notes=(*layer.notes, *others))
        asked = tuple(requests(layer.tree, workspace, registry))
        consent = consent_to(file, state_dir) if asked else None
        return WorkspaceFile(file=file, said=layer, requests=asked, consent=consent)
    return None


def read_workspace(workspace: Path, registry: Registry, *, own_file: Path, state_dir: Path) -> FileLayer:
    """Return the settings of a workspace's file. Reads the disk to see where paths lead.

    Raises:
        ConfigError: it cannot be read, or has settings that need the user's consent.
    """
    found = find_workspace_file(workspace, registry, own_file=own_file, state_dir=state_dir)
    if found is None:
        return FileLayer(tree={})
    if found.is_trusted:
        return found.said
    check_sections(found.said.tree, registry)  # consent would not make a misspelt section valid
    advice = _advice(found, own_file)
    for asked in found.requests:
        if not asked.leaf.is_implied:
            raise ConfigError(asked.key, f"{asked.problem}; {advice}", origin=str(asked.leaf.origin))
    left = {asked.key.removeprefix("memory.") for asked in found.requests}
    notes = (f"{one.key} ({one.leaf.origin}) is ignored: {one.problem}; {advice}" for one in found.requests)
    return FileLayer(tree=without(found.said.tree, left), notes=(*found.said.notes, *notes))


def _advice(found: WorkspaceFile, own_file: Path) -> str:
    command = shlex.join(["cmem", "trust", str(found.file.path.parent.resolve())])
    changed = (
        f"the file changed since you trusted it on {found.consent.given_at:%Y-%m-%d}; "
        if found.consent
        else ""
    )
    return f"{changed}`{command}` shows what the file asks for and lets you allow it, or set it in {own_file}"


def _names(folder: str, workspace: Path) -> bool:
    try:
        return _is_same_file(Path(folder).expanduser(), workspace)
    except RuntimeError:  # the home of an unknown user
        return False


def _is_same_file(one: Path, other: Path) -> bool:
    try:
        return one.samefile(other)
    except OSError:  # one of them does not exist
        return False
