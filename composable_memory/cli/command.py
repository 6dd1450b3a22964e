"""How commands are declared and run: an async function, whose parameters are its options."""

import inspect
from collections.abc import Callable, Coroutine
from dataclasses import fields, is_dataclass
from enum import IntEnum
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from typer.core import TyperCommand

from composable_memory.cli.options import StateDir, Workspace
from composable_memory.cli.output import CLIENT, environment, error, print_json
from composable_memory.paths import homeless
from composable_memory_ops_logs.quick_dataclass import dataclass

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

    from composable_memory.runtime.memory import Memory


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The memory that a command is about; without a state folder, the one in the user's."""

    workspace: Workspace = Path()
    state_dir: StateDir = None

    def open(self, *, anew: bool = False) -> "AbstractAsyncContextManager[Memory]":
        """Open the memory for a single command; with `anew`, do not use an open one of the server."""
        from composable_memory.runtime.opening import open_memory

        if (client := CLIENT.get()) is None:
            return open_memory(self.workspace, self.state_dir, long_lived=False)
        from composable_memory.runtime.warm_memory import Request

        request = Request(
            workspace=client.path(self.workspace),
            state_dir=self.state_folder(),
            environ=client.environ,
            registry=client.registry,
        )
        return request.open() if anew else client.kept.borrow(request)

    def state_folder(self) -> Path:
        """Return the folder of its indexes and logs."""
        from composable_memory.config.layers import default_state_dir

        return self.path(self.state_dir or default_state_dir(environment()))

    def path(self, given: Path) -> Path:
        """Resolve a path as the caller means it."""
        client = CLIENT.get()
        return given.expanduser() if client is None else client.path(given)


class ExitCode(IntEnum):
    """How a command ended."""

    FINE = 0
    FAILED = 1
    BAD_USAGE = 2
    DEGRADED = 3


Command = Callable[..., Coroutine[Any, Any, ExitCode | None]]
"""Does the work of a command; None means success."""


class CheckedCommand(TyperCommand):
    """A command that explains what to do about surplus words."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments; surplus ones end the command."""
        ctx.allow_extra_args = True
        if (rest := super().parse_args(ctx, args)) and not ctx.resilient_parsing:
            words = " ".join(rest)
            *_, last = [None, *(one.name for one in self.params if one.param_type_name == "argument")]
            if isinstance(text := ctx.params.get(last), str):
                ctx.fail(f'too many words: put those that belong together in quotes, as "{text} {words}"')
            ctx.fail(f"{ctx.command_path} takes no such argument: {words}")
        return rest


LAST_OPTIONS = ("strict", "as_json")
"""In the help, these come after the options of the target."""


def command(
    app: typer.Typer, name: str, *, epilog: str | None = None, cls: type[TyperCommand] = CheckedCommand
) -> Callable[[Command], Command]:
    """Add an async function to `app` as a command; its docstring is the help text.

    A parameter whose type is a dataclass becomes an option for each of its fields: `target: Target` becomes
    `--workspace` and `--state-dir`. With `as_json`, errors are printed as JSON too.
    """

    def register(function: Command) -> Command:
        app.command(name, epilog=epilog, cls=cls)(_with_options(function))
        return function

    return register


def _with_options(function: Command) -> Callable[..., None]:
    """Return a function for Typer, which supports neither coroutines nor groups of options."""
    given = inspect.signature(function).parameters
    groups: dict[str, Any] = {
        name: one.annotation for name, one in given.items() if is_dataclass(one.annotation)
    }

    @wraps(function)
    def call(**values: Any) -> None:
        for value in values.values():
            if isinstance(value, Path):
                require_home(value)
        for name, group in groups.items():
            values[name] = group(**{one.name: values.pop(one.name) for one in fields(group)})
        run(function(**values), as_json=bool(values.get("as_json")))

    parameters = [
        one
        for name in sorted(given, key=_order)
        for one in (_options_of(groups[name]) if name in groups else [given[name]])
    ]
    keywords = [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in parameters]
    call.__signature__ = inspect.Signature(keywords)  # type: ignore[attr-defined]
    return call


def require_home(path: Path) -> None:
    """Refuse a path like `~somebody/notes` if the system knows no such user."""
    if problem := homeless(str(path)):
        raise typer.BadParameter(problem)


def _options_of(group: type) -> list[inspect.Parameter]:
    return [
        inspect.Parameter(one.name, inspect.Parameter.KEYWORD_ONLY, default=one.default, annotation=one.type)
        for one in fields(group)
    ]


def _order(name: str) -> int:
    """Order parameters for the help: those of the command, those of the target, the last ones."""
    return 2 if name in LAST_OPTIONS else int(name == "target")


def run(work: Coroutine[Any, Any, ExitCode | None], *, as_json: bool = False) -> None:
    """Run a command to its end; an expected error becomes one line, or with `as_json` a document.

    For a client of the server it only hands the coroutine over, and the server's loop runs it.

    Raises:
        typer.Exit: always otherwise, with the exit code.
    """
    outcome = _outcome(work, as_json=as_json)
    if (client := CLIENT.get()) is not None:
        client.works.append(outcome)
        return
    import asyncio  # late, because help and version do not need it

    raise typer.Exit(asyncio.run(outcome))


async def _outcome(work: Coroutine[Any, Any, ExitCode | None], *, as_json: bool) -> ExitCode:
    """Return how a command ended."""
    # Imported late, because help and version need none of it.
    from composable_memory.errors import ComposableMemoryError
    from composable_memory_feedback.errors import FeedbackError
    from composable_memory_ops_logs import OpsLogError

    try:
        return await work or ExitCode.FINE
    except BrokenPipeError:
        raise
    except (ComposableMemoryError, FeedbackError, OpsLogError, OSError) as problem:
        if as_json:
            print_json({"error": str(problem)})
        error(str(problem))
        return ExitCode.FAILED
