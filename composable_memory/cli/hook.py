"""`cmem hook`: what the hooks of agents call; whatever goes wrong, the agent can continue."""

import asyncio
import os
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, contextmanager
from dataclasses import replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from composable_memory.cli.command import CheckedCommand, ExitCode, command
from composable_memory.cli.options import StateDir
from composable_memory.cli.output import warn
from composable_memory.config.layers import default_state_dir, load_settings
from composable_memory.config.settings import HooksSettings, Settings
from composable_memory.config.settings_files import WORKSPACE_FILES
from composable_memory.errors import ComposableMemoryError
from composable_memory.forget.tombstones import FOLDER, Forgotten
from composable_memory.hooks.agent_json import HookCall, answer, read_call
from composable_memory.hooks.session_state import SessionState, SessionStates
from composable_memory.paths import has_memory_files
from composable_memory.registry import Registry, discover_backends
from composable_memory.state.folders import existing_folder
from composable_memory.state.workspaces import REGISTRY_FILE, identify, kept_note_scope
from composable_memory_feedback.errors import FeedbackError
from composable_memory_ops_logs import OpsLogError
from composable_memory_ops_logs.quick_dataclass import dataclass

MOST_INPUT_BYTES = 64 * 1024 * 1024
MOST_PROMPTS = 5
"""How many of a user's latest messages count as one turn, at most."""
WHOLE = "."
GRACE_S = 1.0
"""How long a hook may take to end by itself after its deadline."""
NOW_VARIABLE = "COMPOSABLE_MEMORY_NOW"
EXPECTED = (ComposableMemoryError, FeedbackError, OpsLogError, OSError, ValueError)
PROJECT_VARIABLES = ("CLAUDE_PROJECT_DIR", "CURSOR_PROJECT_DIR")
NAMES = "session-start", "prompt", "turn", "compaction", "message", "summary", "session-end"

app = typer.Typer()


class _Harmless(CheckedCommand):
    """A command that does not exit with 2 on wrong usage: Claude Code takes that for a veto.

    It would reject every prompt of the user just because a folder was moved since the hook was added.
    """

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        with _told(strict="--strict" in args):
            return super().make_context(info_name, args, parent, **extra)

    def invoke(self, ctx: Any) -> Any:
        with _told(strict=ctx.params["strict"]):
            return super().invoke(ctx)


@contextmanager
def _told(*, strict: bool) -> Iterator[None]:
    try:
        yield
    except Exception as problem:
        if getattr(problem, "exit_code", None) == ExitCode.BAD_USAGE:
            code = ExitCode.FAILED if strict else ExitCode.FINE
            problem.exit_code = code  # type: ignore[attr-defined]  # of all errors of usage
        raise


@command(
    app,
    "hook",
    cls=_Harmless,
    epilog='Example: echo \'{"prompt": "Where does Ada live?"}\' | cmem hook prompt',
)
async def hook(
    name: Annotated[str, typer.Argument(metavar="HOOK", help=f"One of {', '.join(NAMES)}.")],
    *,
    workspace: Annotated[
        Path | None,
        typer.Option(
            "--workspace",
            "-w",
            metavar="DIR",
            file_okay=False,
            show_default="the agent's folder, if it holds a memory",
            help="The folder with your notes.",
        ),
    ] = None,
    state_dir: StateDir = None,
    strict: Annotated[bool, typer.Option("--strict", help="Exit with 1 if something goes wrong.")] = False,
) -> ExitCode:
    """Answer an agent's hook: with a recap, what is known about a prompt, or a memory flush.

    Reads the agent's JSON from stdin and prints the reply it expects. Always exits with 0, and reports
    problems on stderr.
    """  # fmt: skip
    limit = _Limit(ExitCode.FAILED if strict else ExitCode.FINE)
    try:
        do = _HOOKS.get(name)
        if do is None:
            raise ValueError(f"there is no hook {name!r}; there are {', '.join(_HOOKS)}")
        async with asyncio.timeout(limit.start(HooksSettings().deadline_ms)):
            text = await asyncio.to_thread(_stdin)
            call = read_call(text)
            run = await asyncio.to_thread(_Run.of, call, text, workspace, state_dir)
        context = None
        if run is not None:
            async with asyncio.timeout(limit.start(run.limit_ms(name))):
                context = await do(run)
        _print(answer(call, name, context))
        limit.code = ExitCode.FINE
    except TimeoutError:
        warn(f"hook {name}: not done in {limit.seconds:g} s, stopped; see memory.hooks.deadline_ms")
    except EXPECTED as problem:
        warn(f"hook {name}: {problem}")
    except Exception as problem:  # noqa: BLE001 - it must not break the agent that calls it
        warn(f"hook {name}: unexpected {type(problem).__name__}: {problem}")
    finally:
        sys.stdout.flush()
        limit.start(0)
    return limit.code


class _Limit:
    """Ends the process if it does not end by itself: a thread may hang where nothing can cancel it.

    `code` is the exit code it then uses.
    """

    def __init__(self, code: ExitCode) -> None:
        self.code = code
        self.seconds = 0.0
        self._timer: threading.Timer | None = None

    def start(self, limit_ms: int) -> float:
        """Restart the timer, and return the limit in seconds."""
        if self._timer is not None:
            self._timer.cancel()
        self.seconds = limit_ms / 1000
        self._timer = threading.Timer(self.seconds + GRACE_S, lambda: os._exit(self.code))
        self._timer.daemon = True
        self._timer.start()
        return self.seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class _Run:
    """One call with its workspace."""

    call: HookCall
    text: bytes
    workspace: Path
    state_dir: Path
    settings: Settings
    registry: Registry
    states: SessionStates

    @classmethod
    def of(cls, call: HookCall, text: bytes, workspace: Path | None, state_dir: Path | None) -> "_Run | None":
        """Return the run of a call; None in a folder that is not a memory. Reads the disk."""
        told = next(
            (Path(os.environ[one]) for one in PROJECT_VARIABLES if os.environ.get(one)), call.workspace
        )
        folder = existing_folder(workspace or told or Path())
        if workspace is None and not _holds_memory(folder):
            return None
        state = state_dir or default_state_dir(os.environ)
        registry = discover_backends()
        return cls(
            call=call,
            text=text,
            workspace=folder,
            state_dir=state,
            settings=load_settings(folder, state_dir=state, registry=registry).settings,
            registry=registry,
            states=SessionStates.of(state, folder),
        )

    @property
    def hooks(self) -> HooksSettings:
        """Return the settings of hooks."""
        return self.settings.memory.hooks

    def forgotten(self) -> Forgotten | None:
        """Return what was forgotten in the workspace; None if nothing ever was. Reads files."""
        return Forgotten(self.state_dir, self._id()) if (self.state_dir / FOLDER).is_dir() else None

    def note_paths(self) -> tuple[str, ...]:
        """Return what `MemoryProviderStatus.note_paths` would, without opening the memory. Reads files."""
        options = self.settings.memory.builtin.options
        extras, scope = options.get("extra_paths", ()), options.get("scope", "auto")
        if scope == "auto" and (self.state_dir / REGISTRY_FILE).exists():
            scope = kept_note_scope(self.state_dir, self._id())
        named = extras if isinstance(extras, list | tuple) else [extras]
        return (*map(str, named), *([WHOLE] if scope == "folder" else ()))

    def _id(self) -> str:
        return identify(self.state_dir, self.workspace, now=_now(), name=self.settings.memory.id).id

    def limit_ms(self, name: str) -> int:
        """Return how long this hook may take; a summary by a model takes additional time."""
        llm = self.settings.memory.feedback.llm
        summarises = name == "session-end" and llm.base_url is not None
        return self.hooks.deadline_ms + (llm.timeout_ms if summarises else 0)


def _holds_memory(folder: Path) -> bool:
    return has_memory_files(folder) or any((folder / name).is_file() for name in WORKSPACE_FILES)


def _print(text: str) -> None:
    if text:
        sys.stdout.write(f"{text}\n")


def _stdin() -> bytes:
    if sys.stdin.isatty():
        raise ValueError("give the JSON of the agent's hook on stdin")
    text = sys.stdin.buffer.read(MOST_INPUT_BYTES + 1)
    if len(text) > MOST_INPUT_BYTES:
        raise ValueError(f"stdin holds more than {MOST_INPUT_BYTES >> 20} MB")
    return text


def _now() -> datetime:
    """Return the user's time, or the one that tests and replays set."""
    if given := os.environ.get(NOW_VARIABLE):
        return datetime.fromisoformat(given).astimezone()
    return datetime.now().astimezone()


async def _session_start(run: _Run) -> str | None:
    from composable_memory.hooks.prompt_context import session_recap

    await asyncio.to_thread(run.states.prune)
    await run.states.change(run.call.session, lambda state: state.shown.clear())
    return await session_recap(
        run.workspace,
        run.hooks,
        now=_now(),
        session_key=run.call.session_key,
        forgotten=await asyncio.to_thread(run.forgotten),
        note_paths=await asyncio.to_thread(run.note_paths),
    )


async def _prompt(run: _Run) -> str | None:
    from composable_memory.hooks.prompt_context import recall_for_prompt
    from composable_memory.runtime.opening import open_memory

    if not run.hooks.auto_recall:
        return None
    state = await run.states.read(run.call.session)
    known = len(state.shown)
    async with open_memory(run.workspace, run.state_dir, registry=run.registry, long_lived=False) as memory:
        told = await recall_for_prompt(memory, run.call.prompt, session_key=run.call.session_key, state=state)
    if new := state.shown[known:]:
        await run.states.change(run.call.session, lambda state: state.shown.extend(new))
    return told


async def _turn(run: _Run) -> str | None:
    from composable_memory.hooks.capture import capture_turn, worth_remembering
    from composable_memory.hooks.session_memory import said_in
    from composable_memory.runtime.opening import open_memory

    call = run.call
    if not run.hooks.auto_capture:
        return None
    known = await run.states.read(call.session)
    said = [one for one in await asyncio.to_thread(said_in, call) if one[0] > known.captured_line]
    prompts = [text for _, role, text in said if role == "user"][-MOST_PROMPTS:] or [call.prompt]
    most = run.hooks.capture_max_chars
    captured: list[str] = []
    if any(worth_remembering(one, max_chars=most) for one in prompts):
        async with open_memory(
            run.workspace, run.state_dir, registry=run.registry, long_lived=False
        ) as memory:
            done = await capture_turn(memory, prompts, session_key=call.session_key, max_chars=most)
        captured = [one.citation for one in done if one.duplicate_of is None]

    def note(state: SessionState) -> None:
        state.captured_line = max((line for line, *_ in said), default=state.captured_line)

    await run.states.change(call.session, note)
    return " ".join(captured) or None


async def _compaction(run: _Run) -> str | None:
    from composable_memory.hooks.flush import plan_flush, tokens_in_transcript

    call = run.call
    if not call.session:
        raise ValueError("give `sessionId`: the agent is asked once per compaction cycle")
    if call.tokens is None and call.transcript is not None and not call.compacts_now:
        used, window = await asyncio.to_thread(tokens_in_transcript, call.transcript)
        call = replace(call, tokens=used, context_window=call.context_window or window)
    now = _now()
    plan = await run.states.change(
        call.session, lambda state: plan_flush(call, run.hooks.flush, state, now=now)
    )
    if call.ends_turn:  # so that one command suffices at the end of a turn
        try:
            await _turn(run)
        except EXPECTED as problem:
            warn(f"hook turn: {problem}")
    return plan


async def _record(run: _Run, name: str) -> str | None:
    from composable_memory.hooks.recorder import SessionRecorder
    from composable_memory.hooks.session_events import event_of, parse_event
    from composable_memory.runtime.opening import open_memory

    event = parse_event(run.text) if run.call.is_envelope else event_of(run.call, name, now=_now())
    session = f"{event.payload.session_key}/{event.payload.session_id or ''}"
    covers = (await run.states.read(session)).uncovered
    async with open_memory(run.workspace, run.state_dir, registry=run.registry, long_lived=False) as memory:
        recorder = SessionRecorder(memory)
        recorder.resume(event, covers)
        recorded = await recorder.record(event)

    def note(state: SessionState) -> None:
        if event.type == "compaction.summary":
            state.uncovered = [one for one in state.uncovered if one not in covers]
        elif recorded.content_id and recorded.content_id not in state.uncovered:
            state.uncovered.append(recorded.content_id)

    await run.states.change(session, note)
    return recorded.content_id


async def _session_end(run: _Run) -> str | None:
    from composable_memory.hooks.session_memory import save_session
    from composable_memory.runtime.opening import open_memory

    forgotten = await asyncio.to_thread(run.forgotten)
    async with AsyncExitStack() as stack:
        memory = None
        if not await asyncio.to_thread(has_memory_files, run.workspace):
            # Opened before `memory/` is created, as that affects which files count as notes.
            opened = open_memory(run.workspace, run.state_dir, registry=run.registry, long_lived=False)
            try:
                memory = await stack.enter_async_context(opened)
            except EXPECTED as problem:  # write the note anyway: there is no later chance
                warn(f"hook session-end: {problem}")
        saved = await save_session(
            run.workspace, run.call, run.settings.memory, run.states, now=_now(), forgotten=forgotten
        )
        if saved is None:
            return None
        if memory is not None:
            try:
                await memory.sync(reason="hook")
            except EXPECTED as problem:
                warn(f"hook session-end: {problem}")
    if saved.problem is not None:
        warn(f"hook session-end: the last messages are kept instead of a summary: {saved.problem}")
    return saved.path.relative_to(run.workspace).as_posix()


_HOOKS: Mapping[str, Callable[[_Run], Awaitable[str | None]]] = {
    "session-start": _session_start,
    "prompt": _prompt,
    "turn": _turn,
    "compaction": _compaction,
    "message": partial(_record, name="message"),
    "summary": partial(_record, name="summary"),
    "session-end": _session_end,
}
