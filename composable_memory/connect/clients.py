"""Where each agent keeps its MCP servers and hooks, and in which format, from `clients.toml`."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Final, Literal, TypeAlias

from pydantic import TypeAdapter

from composable_memory.data_files import tables
from composable_memory_ops_logs.quick_dataclass import dataclass

SERVER = "composable-memory"
"""The name of our server in every agent's files."""

Scope = Literal["user", "project"]
HookShape = Literal["groups", "flat"]
"""Whether an event has groups of hooks, as in Claude Code, or the hooks themselves."""

HOOK_TIMEOUT_S = 15
LAST_HOOK_TIMEOUT_S = 60
"""Longer, because a language model may be asked for a summary at the end of a session."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """What the paths of files depend on."""

    home: Path
    project: Path
    environ: Mapping[str, str]
    platform: str = sys.platform

    def find(self, paths: Sequence[str]) -> Path:
        """Return the first path whose variable is set; paths are as in `clients.toml`."""
        for path in paths:
            first, _, rest = path.partition("/")
            match first:
                case "~":
                    return self.home / rest
                case "PROJECT":
                    return self.project / rest
                case "SETTINGS":
                    return self.find(_SETTINGS.get(self.platform, ("$XDG_CONFIG_HOME", "~/.config"))) / rest
            if named := self.environ.get(first.removeprefix("$")):
                return Path(named).expanduser() / rest
        raise LookupError(f"no variable of {', '.join(paths)} is set")


_SETTINGS = {"darwin": ("~/Library/Application Support",), "win32": ("$APPDATA", "~/AppData/Roaming")}
"""Where desktop applications keep their settings, by operating system."""

Paths: TypeAlias = Mapping[Scope, tuple[str, ...]]
"""The paths of a file for each scope, for `Places.find`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """An agent: its files for each scope, where they list servers, and the hooks for its events."""

    title: str
    servers: Paths
    key: tuple[str, ...] = ("mcpServers",)
    has_type: bool = True
    hook_files: Paths = field(default_factory=dict)
    hooks: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    shape: HookShape = "groups"
    version: int | None = None
    hint: str = ""

    def server(self, words: Sequence[str]) -> dict[str, object]:
        """Return the entry for a server started by this command line."""
        kind = {"type": "stdio"} if self.has_type else {}
        return {**kind, "command": words[0], "args": [*words[1:]]}

    def hook(self, command: str, name: str) -> dict[str, object]:
        """Return the entry for a hook."""
        if self.version is not None:
            return {"command": command}
        limit = LAST_HOOK_TIMEOUT_S if name == "session-end" else HOOK_TIMEOUT_S
        entry = {"type": "command", "command": command, "timeout": limit}
        return {"hooks": [entry]} if self.shape == "groups" else entry


CLIENTS: Final[Mapping[str, Client]] = TypeAdapter(dict[str, Client]).validate_python(
    tables(__package__, "clients.toml")
)
GENERIC = "generic"
"""Stands for any other MCP client, whose files are not known."""
