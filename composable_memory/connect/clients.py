"""Where each agent keeps its MCP servers and hooks, and in which shape (pure).

Taken from the documentation of the agents; what that does not say is left out.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Literal, TypeAlias

from composable_memory_ops_logs.quick_dataclass import dataclass

SERVER = "composable-memory"
"""The name of our server in the files of all agents."""

Scope = Literal["user", "project"]
HookShape = Literal["groups", "flat"]
"""Whether an event has groups of hooks, as Claude Code has it, or the hooks themselves."""

HOOK_TIMEOUT_S = 15
LAST_HOOK_TIMEOUT_S = 60
"""At the end of a session a language model may be asked for a summary."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """What the paths of files depend on."""

    home: Path
    project: Path
    environ: Mapping[str, str]
    platform: str = sys.platform

    def folder(self, variable: str, otherwise: str) -> Path:
        """Return the folder that a variable names, or one in the home folder."""
        named = self.environ.get(variable)
        return Path(named).expanduser() if named else self.home / otherwise

    def settings(self) -> Path:
        """Return the folder for the settings of desktop applications."""
        if self.platform == "darwin":
            return self.home / "Library" / "Application Support"
        if self.platform == "win32":
            return self.folder("APPDATA", "AppData/Roaming")
        return self.folder("XDG_CONFIG_HOME", ".config")


Locate: TypeAlias = Callable[[Places], Path]


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """An agent: its files for each scope, where servers stand in them, and the hooks of its events."""

    title: str
    servers: Mapping[Scope, Locate]
    key: tuple[str, ...] = ("mcpServers",)
    has_type: bool = True
    hook_files: Mapping[Scope, Locate] = field(default_factory=dict)
    hooks: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    shape: HookShape = "groups"
    version: int | None = None
    hint: str = ""

    def server(self, words: Sequence[str]) -> dict[str, object]:
        """Return the entry of a server that these words start."""
        kind = {"type": "stdio"} if self.has_type else {}
        return {**kind, "command": words[0], "args": [*words[1:]]}

    def hook(self, command: str, name: str) -> dict[str, object]:
        """Return the entry of a hook."""
        if self.version is not None:
            return {"command": command}
        limit = LAST_HOOK_TIMEOUT_S if name == "session-end" else HOOK_TIMEOUT_S
        entry = {"type": "command", "command": command, "timeout": limit}
        return {"hooks": [entry]} if self.shape == "groups" else entry


def _claude_servers(places: Places) -> Path:
    return places.folder("CLAUDE_CONFIG_DIR", "") / ".claude.json"


def _openclaw(places: Places) -> Path:
    named = places.environ.get("OPENCLAW_CONFIG_PATH")
    return (
        Path(named).expanduser()
        if named
        else places.folder("OPENCLAW_STATE_DIR", ".openclaw") / "openclaw.json"
    )


CLIENTS: Mapping[str, Client] = {
    "claude-code": Client(
        title="Claude Code",
        servers={"user": _claude_servers, "project": lambda at: at.project / ".mcp.json"},
        hook_files={
            "user": lambda at: at.folder("CLAUDE_CONFIG_DIR", ".claude") / "settings.json",
            "project": lambda at: at.project / ".claude" / "settings.json",
        },
        hooks={
            "SessionStart": ("session-start",),
            "UserPromptSubmit": ("prompt",),
            "Stop": ("compaction",),
            "PreCompact": ("compaction",),
            "SessionEnd": ("session-end",),
        },
        hint="Start a new session; `/mcp` shows the server. It asks whether a project's server may run.",
    ),
    "codex": Client(
        title="Codex",
        servers={
            "user": lambda at: at.folder("CODEX_HOME", ".codex") / "config.toml",
            "project": lambda at: at.project / ".codex" / "config.toml",
        },
        key=("mcp_servers",),
        has_type=False,
        hook_files={
            "user": lambda at: at.folder("CODEX_HOME", ".codex") / "hooks.json",
            "project": lambda at: at.project / ".codex" / "hooks.json",
        },
        hooks={
            "SessionStart": ("session-start",),
            "UserPromptSubmit": ("prompt",),
            "Stop": ("compaction",),
            "PreCompact": ("compaction", "session-end"),
        },
        hint=(
            "Start a new session; `codex mcp list` shows the server. Codex runs hooks only after you reviewed"
            " them in `/hooks`, and reads a project's files only if you trust the project."
        ),
    ),
    "cursor": Client(
        title="Cursor",
        servers={
            "user": lambda at: at.home / ".cursor" / "mcp.json",
            "project": lambda at: at.project / ".cursor" / "mcp.json",
        },
        hook_files={
            "user": lambda at: at.home / ".cursor" / "hooks.json",
            "project": lambda at: at.project / ".cursor" / "hooks.json",
        },
        hooks={"sessionStart": ("session-start",), "sessionEnd": ("session-end",)},
        shape="flat",
        version=1,
        hint="Restart Cursor, and switch the server on in its settings if it is off.",
    ),
    "vscode": Client(
        title="VS Code",
        servers={
            "user": lambda at: at.settings() / "Code" / "User" / "mcp.json",
            "project": lambda at: at.project / ".vscode" / "mcp.json",
        },
        key=("servers",),
        hook_files={"project": lambda at: at.project / ".github" / "hooks" / f"{SERVER}.json"},
        hooks={"SessionStart": ("session-start",)},
        shape="flat",
        hint="`MCP: List Servers` starts the server. VS Code also runs the hooks of Claude Code.",
    ),
    "openclaw": Client(
        title="OpenClaw",
        servers={"user": _openclaw},
        key=("mcp", "servers"),
        has_type=False,
        hint="`openclaw mcp list` shows the server. Its hooks have to be TypeScript.",
    ),
}
GENERIC = "generic"
"""Stands for any other client of MCP, whose files are not known."""
