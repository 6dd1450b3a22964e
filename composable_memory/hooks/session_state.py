"""What hooks keep of each session between two calls: counts, places and hashes, but no words."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import asdict, field, fields
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import TypeVar

from composable_memory.errors import BackendUnavailable
from composable_memory.state.folders import make_state_folder, workspace_hash
from composable_memory.supervision.file_lock import file_lock
from composable_memory_ops_logs.private_files import replace_file
from composable_memory_ops_logs.quick_dataclass import dataclass

FOLDER = "hooks"
KEPT_S = 30 * 86_400.0
MOST_HASHES = 2_000
LOCK_PATIENCE_S = 1.0
SAVING_PATIENCE_S = 3.0

T = TypeVar("T")


@dataclass(slots=True, kw_only=True)
class SessionState:
    """What is known about one session. `flushed` is the compaction cycle in which the agent was last asked.

    `shown` are hashes of passages in its context, `captured_line` is the last line read for capture;
    `uncovered` are the messages that no summary covers yet; `saved_line` is the last line of its transcript
    that is in a session memory.
    """

    compactions: int = 0
    flushed: int | None = None
    shown: list[str] = field(default_factory=list)
    captured_line: int = 0
    uncovered: list[str] = field(default_factory=list)
    saved_line: int = 0

    def fresh(self, texts: Iterable[str]) -> list[str]:
        """Return those of `texts` that were not shown already."""
        return [text for text in texts if digest(text) not in self.shown]


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionStates:
    """The states of the sessions of one workspace, each in a file in the state folder."""

    folder: Path
    workspace: str

    @classmethod
    def of(cls, state_dir: Path, workspace: Path) -> "SessionStates":
        """Return the states for a workspace; reads the disk.

        Raises:
            ConfigError: the folder cannot be created.
        """
        return cls(folder=make_state_folder(state_dir / FOLDER), workspace=workspace_hash(workspace))

    async def read(self, session: str) -> SessionState:
        """Return the present state of a session."""
        return await asyncio.to_thread(_read, self._path(session)) if session else SessionState()

    async def change(self, session: str, change: Callable[[SessionState], T]) -> T:
        """Apply `change` to the state of a session, store it, and return the result; one process at a time.

        For a session without a name nothing is stored.

        Raises:
            BackendUnavailable: another process holds the lock for a second, or the folder cannot be written.
        """
        if not session:
            return change(SessionState())
        path = self._path(session)
        async with self._locked(".lock", LOCK_PATIENCE_S):
            state = await asyncio.to_thread(_read, path)
            before = asdict(state)
            result = change(state)
            for seen in (state.shown, state.uncovered):
                del seen[:-MOST_HASHES]
            if asdict(state) != before:
                content = json.dumps(asdict(state)).encode()
                await asyncio.to_thread(partial(replace_file, path, content, survives="kill"))
        return result

    def saving(self) -> AbstractAsyncContextManager[None]:
        """Let one process at a time save what was said.

        Raises:
            BackendUnavailable: another process holds the lock for three seconds, or the folder cannot be
            written.
        """
        return self._locked(".saving.lock", SAVING_PATIENCE_S)

    @asynccontextmanager
    async def _locked(self, name: str, patience_s: float) -> AsyncIterator[None]:
        path = self.folder / name
        async with file_lock(path, owner="hooks", patience_s=patience_s) as is_ours:
            if not is_ours:
                problem = f"another hook holds {path}"
                raise BackendUnavailable("hooks", problem, fix="try again", operation="note the session")
            yield

    def prune(self, *, now: float | None = None) -> None:
        """Delete the states of sessions, of any workspace, that were silent for 30 days; reads the disk."""
        oldest = (time.time() if now is None else now) - KEPT_S
        for path in self.folder.glob("*.json"):
            if path.stat().st_mtime < oldest:
                path.unlink(missing_ok=True)

    def _path(self, session: str) -> Path:
        return self.folder / f"{self.workspace}-{digest(session)}.json"


def digest(text: str) -> str:
    """Return a hash of a text that ignores case and white space."""
    words = " ".join(text.lower().split())
    return sha256(words.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def _read(path: Path) -> SessionState:
    """Read a state; a new one if it is missing or unreadable."""
    try:
        known = json.loads(path.read_bytes())
        return SessionState(
            **{one.name: known[one.name] for one in fields(SessionState) if one.name in known}
        )
    except (OSError, ValueError, TypeError):
        return SessionState()
