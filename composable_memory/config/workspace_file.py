"""The settings file of a workspace: which one counts, and what of it, with the user's consent and without."""

import shlex
from collections.abc import Collection
from pathlib import Path

from composable_memory.config.aliases import OPENCLAW_KEYS, is_of_openclaw, with_openclaw
from composable_memory.config.sections import check_sections, gather_sections, ids_of_sections
from composable_memory.config.settings_file import Consent, SettingsFile, consent_to, read_settings_file
from composable_memory.config.trees import Layer, Tree, merge, without
from composable_memory.config.trust import Request, requests
from composable_memory.errors import ConfigError
from composable_memory.registry import Registry
from composable_memory_ops_logs.quick_dataclass import dataclass

WORKSPACE_FILES = (
    *(".composable-memory.yaml", ".composable-memory.yml", "composable-memory.yaml", "composable-memory.yml"),
    *("openclaw.yml", "openclaw.yaml", "openclaw.json"),
)
"""The names of a workspace's settings file; the first that is there counts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileLayer:
    """What a file says, and remarks for the user on what of it does not count."""

    tree: Tree
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkspaceFile:
    """The settings file of a workspace, what in it needs the user's consent, and that consent."""

    file: SettingsFile
    said: FileLayer
    requests: tuple[Request, ...] = ()
    consent: Consent | None = None

    @property
    def is_trusted(self) -> bool:
        """Return whether nothing in the file needs consent, or the user consented to it as it is."""
        return not self.requests or (self.consent is not None and self.consent.is_current)


def parse_file(
    file: SettingsFile, layer: Layer, installed: Collection[str], workspace: Path | None = None
) -> FileLayer:
    """Return what a file says, with the sections of the `installed` backends in their places.

    What the user's own file says of `workspace` alone goes before what it says of all.

    Raises:
        ConfigError: it cannot be understood.
    """
    # Most places have no settings file, and loading the YAML reader takes a tenth as long as a search.
    from composable_memory.config.yaml_reader import WORKSPACES, parse

    foreign = OPENCLAW_KEYS if is_of_openclaw(file.path) else None
    content = parse(file.text, file.path, layer, foreign=foreign)
    notes: list[str] = []
    tree = gather_sections(content["memory"], installed)
    for folder, section in content.get(WORKSPACES, {}).items():
        if workspace and isinstance(section, dict) and _names(folder, workspace):
            tree = merge(tree, gather_sections(section, installed))
    if foreign:
        tree, notes = with_openclaw(tree, content)
    return FileLayer(tree=tree, notes=tuple(notes))


def find_workspace_file(
    workspace: Path, registry: Registry, *, own_file: Path, state_dir: Path
) -> WorkspaceFile | None:
    """Return the file that counts; None if there is none, or it is the one that the user named as their own.

    Raises:
        ConfigError: it cannot be read or understood.
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
    """Return what counts of a workspace's file. Looks at the disk, to see where paths lead.

    Raises:
        ConfigError: it cannot be read, or says what the user would have to consent to.
    """
    found = find_workspace_file(workspace, registry, own_file=own_file, state_dir=state_dir)
    if found is None:
        return FileLayer(tree={})
    if found.is_trusted:
        return found.said
    check_sections(found.said.tree, registry)  # consent would not make a misspelt one known
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
    return f"{changed}`{command}` shows what the file asks for and allows it, or set it in {own_file}"


def _names(folder: str, workspace: Path) -> bool:
    try:
        return _is_same_file(Path(folder).expanduser(), workspace)
    except RuntimeError:  # the home of a user who is not known here
        return False


def _is_same_file(one: Path, other: Path) -> bool:
    try:
        return one.samefile(other)
    except OSError:  # one of them is not there
        return False
