"""The JSON of hooks: what Claude Code, Codex, VS Code, Cursor and OpenClaw send and expect (pure)."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal

from composable_memory.paths import expanded
from composable_memory_ops_logs.quick_dataclass import dataclass

AgentKind = Literal["claude", "cursor", "openclaw", "generic"]
"""The caller's protocol: `claude` is that of Claude Code, and of Codex and VS Code, which use the same."""

_TURN_ENDS = ("Stop", "stop")
_COMPACTS = ("PreCompact", "preCompact", "compact:before")


@dataclass(frozen=True, slots=True, kw_only=True)
class HookCall:
    """One call of a hook, whichever agent made it; what the agent does not say is None, or empty.

    `event` is the agent's own name of the event. `tokens` is how full the context is, `compactions` how often
    it was compacted. `is_again` says that the agent only continues because of a hook, `is_envelope` that the
    JSON is an event of our own.
    """

    agent: AgentKind = "generic"
    event: str = ""
    source: str = "unknown"
    session_id: str | None = None
    session_key: str | None = None
    workspace: Path | None = None
    transcript: Path | None = None
    prompt: str = ""
    messages: tuple[tuple[str, str], ...] = ()
    summary: str = ""
    message_id: str | None = None
    sender_id: str | None = None
    tokens: int | None = None
    tokens_after: int | None = None
    context_window: int | None = None
    compactions: int | None = None
    is_again: bool = False
    is_envelope: bool = False

    @property
    def session(self) -> str:
        """Return the key of the session in the state of hooks; empty if the agent gives none."""
        return "/".join(one for one in (self.session_key, self.session_id) if one)

    @property
    def compacts_now(self) -> bool:
        """Return whether the agent is about to compact its context, with no turn before that."""
        return self.event in _COMPACTS

    @property
    def ends_turn(self) -> bool:
        """Return whether the agent would continue if told to."""
        return self.event in _TURN_ENDS


def read_call(text: str | bytes) -> HookCall:
    """Parse the JSON of a hook; accepts keys in camelCase and snake_case, and ignores unknown ones.

    Raises:
        ValueError: it is not a JSON object.
    """
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        data = None
    if not isinstance(data, dict):
        raise ValueError("stdin has no JSON object; pass the JSON of the agent's hook, such as {}")
    said = _Said(data)
    return HookCall(
        agent=_agent(data),
        event=said.text("hook_event_name", "hookEventName", "action") or "",
        source=_source(data, said),
        session_id=said.text("session_id", "sessionId", "conversation_id"),
        session_key=said.text("session_key", "sessionKey", "session"),
        workspace=said.path("workspace", "workspaceDir", "workspace_dir") or said.root() or said.path("cwd"),
        transcript=said.path("transcript", "transcript_path", "transcriptPath", "sessionFile"),
        prompt=said.text("prompt", "body", "bodyForAgent", "content") or "",
        messages=tuple(_messages(data.get("messages"))),
        summary=said.text("summary") or "",
        message_id=said.text("message_id", "messageId"),
        sender_id=said.text("sender_id", "senderId", "from"),
        tokens=said.number("tokens", "tokensBefore", "tokens_before", "totalTokens", "context_tokens"),
        tokens_after=said.number("tokensAfter", "tokens_after"),
        context_window=said.number("contextWindow", "context_window", "contextTokens", "context_window_size"),
        compactions=said.number("compactions", "compactionCount"),
        is_envelope=isinstance(data.get("payload"), dict),
        is_again=data.get("stop_hook_active") is True or bool(said.number("loop_count")),
    )


def answer(call: HookCall, hook: str, context: str | None) -> str:
    """Return what to print for the agent: nothing, or one JSON document.

    `context` is text for the model: information, or for the hook `compaction`, a request.
    """
    document: Mapping[str, object] | None
    match call.agent, hook:
        case "claude", "compaction":
            document = {"decision": "block", "reason": context} if context and call.ends_turn else None
        case "claude", "session-start" | "prompt":
            told = {"hookEventName": call.event, "additionalContext": context}
            document = {"hookSpecificOutput": told} if context else None
        case "claude", _:
            document = None
        case "cursor", "compaction":
            document = {"followup_message": context} if context and call.ends_turn else {}
        case "cursor", "session-start":
            document = {"additional_context": context} if context else {}
        case (
            "cursor",
            "prompt",
        ):  # Cursor accepts no context here, and blocks a prompt if it cannot parse the answer
            document = {"continue": True}
        case "cursor", _:
            document = {}
        case _:
            document = {"hook": hook, "context": context}
    return "" if document is None else json.dumps(document, ensure_ascii=False)


class _Said:
    """Looks up values of a document under any of several names, including in parts nested by OpenClaw."""

    def __init__(self, data: Mapping[str, object]) -> None:
        inner = _part(data, "context")
        entry = _part(inner, "previousSessionEntry") or _part(inner, "sessionEntry")
        self._parts = (data, inner, entry)

    def text(self, *names: str) -> str | None:
        """Return the first text that is not blank, without a lone surrogate at the end, where it was cut."""
        found = next((one for one in self._values(names) if isinstance(one, str) and one.strip()), None)
        return found and found.encode("utf-8", "replace").decode()

    def path(self, *names: str) -> Path | None:
        """Return the first text as a path."""
        found = self.text(*names)
        if not found or "\0" in found:
            return None
        return Path(expanded(found))

    def number(self, *names: str) -> int | None:
        """Return the first number that is 0 or more."""
        numbers = (one for one in self._values(names) if isinstance(one, int) and not isinstance(one, bool))
        return next((one for one in numbers if one >= 0), None)

    def root(self) -> Path | None:
        """Return the first of Cursor's workspace folders."""
        match next(iter(self._values(("workspace_roots",))), None):
            case [str() as root, *_] if root:
                return Path(root)
        return None

    def _values(self, names: tuple[str, ...]) -> Iterator[object]:
        return (part[name] for part in self._parts for name in names if name in part)


def _part(data: Mapping[str, object], name: str) -> Mapping[str, object]:
    found = data.get(name)
    return found if isinstance(found, dict) else {}


def _agent(data: Mapping[str, object]) -> AgentKind:
    if "cursor_version" in data or "conversation_id" in data:
        return "cursor"
    if "hook_event_name" in data or "hookEventName" in data:
        return "claude"
    return "openclaw" if {"type", "action", "sessionKey"} <= data.keys() else "generic"


def _source(data: Mapping[str, object], said: _Said) -> str:
    """Return who the session was with, as far as the JSON says."""
    match _agent(data):
        case "openclaw":
            return said.text("commandSource", "channelId") or "openclaw"
        case "claude" if "turn_id" in data:
            return "codex"
        case "claude":
            return "vscode" if "hookEventName" in data else "claude-code"
        case "cursor":
            return "cursor"
    return said.text("source") or "unknown"


def _messages(given: object) -> Iterator[tuple[str, str]]:
    """Yield the role and the text of each message of a generic call."""
    for one in given if isinstance(given, list) else ():
        match one:
            case {"role": "user" | "assistant" as role, "content": str() as text}:
                yield role, text
