"""How a command is declared and run: one async function, whose options are its parameters."""

import inspect
from collections.abc import Callable, Coroutine
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from composable_memory.cli.caller import CLIENT, environment
from composable_memory.cli.exit_codes import ExitCode, run
from composable_memory.cli.options import StateDir, Workspace
from composable_memory_ops_logs.quick_dataclass import dataclass

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

    from composable_memory.runtime.memory import Memory


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The memory that a command is about; without a state folder, the one in the user's."""

    workspace: Path
    state_dir: Path | None

    def open(self, *, anew: bool = False) -> "AbstractAsyncContextManager[Memory]":
        """Open the memory for a single command; `anew` even if the server has one that would do."""
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
        return request.open() if anew else client.kept.lent(request)

    def state_folder(self) -> Path:
        """Return where its indexes and logs are."""
        from composable_memory.config.layers import default_state_dir

        return self.path(self.state_dir or default_state_dir(environment()))

    def path(self, given: Path) -> Path:
        """Return a path as whoever gave it means it."""
        client = CLIENT.get()
        return given.expanduser() if client is None else client.path(given)


Command = Callable[..., Coroutine[Any, Any, ExitCode | None]]
"""Does the work of a command; None means that it ended fine."""

TARGET_OPTIONS = (
    inspect.Parameter("workspace", inspect.Parameter.KEYWORD_ONLY, default=Path(), annotation=Workspace),
    inspect.Parameter("state_dir", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=StateDir),
)
LAST_OPTIONS = ("strict", "as_json")
"""In the help, these come after the options of the target."""


def command(app: typer.Typer, name: str, *, epilog: str | None = None) -> Callable[[Command], Command]:
    """Add an async function to `app` as a command; its docstring is the help text.

    A parameter `target: Target` becomes the options `--workspace` and `--state-dir`. With `as_json`, errors
    are printed as JSON as well.
    """

    def register(function: Command) -> Command:
        app.command(name, epilog=epilog)(_with_options(function))
        return function

    return register


def _with_options(function: Command) -> Callable[..., None]:
    """Return a function for Typer, which knows neither coroutines nor targets."""
    given = inspect.signature(function).parameters.values()
    has_target = any(one.name == "target" for one in given)
    own = [one for one in given if one.name not in ("target", *LAST_OPTIONS)]
    last = [one for one in given if one.name in LAST_OPTIONS]
    parameters = [*own, *(TARGET_OPTIONS if has_target else ()), *last]

    @wraps(function)
    def call(**values: Any) -> None:
        if has_target:
            values["target"] = Target(workspace=values.pop("workspace"), state_dir=values.pop("state_dir"))
        run(function(**values), as_json=bool(values.get("as_json")))

    keywords = [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in parameters]
    call.__signature__ = inspect.Signature(keywords)  # type: ignore[attr-defined]
    return call
