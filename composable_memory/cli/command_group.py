"""The root of all commands: those of the core by module, those of installed packages by entry point."""

from collections.abc import Callable, Mapping
from functools import partial
from importlib import import_module
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, ClassVar

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_group

from composable_memory.cli.output import error
from composable_memory_ops_logs.quick_dataclass import dataclass

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

ENTRY_POINTS = "composable_memory.commands"
"""Entry points whose values are a `CommandSpec` or a `typer.Typer`, named as the command."""


@dataclass(frozen=True, slots=True)
class CommandSpec:
    """A command of an installed package: its line in the help, and the `module:name` of its `typer.Typer`.

    That module is imported when the command runs; put the spec into one that imports little. `extra` is the
    extra of its package with the required dependencies.
    """

    summary: str
    app: str
    extra: str | None = None


class _Listed(TyperCommand):
    """A command with its name and its line in the help; `load` imports the real one."""

    def __init__(self, name: str, summary: str, load: Callable[[], Any], group: str | None = None) -> None:
        super().__init__(name, help=summary, rich_help_panel=group)
        self.load = load


class CommandGroup(TyperGroup):
    """The commands of the core, then those of installed packages, which cannot replace one of the core.

    Only the module of the command that runs is imported. Reading the entry points takes about 20 ms, which a
    command of the core does not pay.
    """

    core: ClassVar[Mapping[str, tuple[str, str]]] = {}
    """For each command its module, which has it in a `typer.Typer` named `app`, and its line in the help."""
    groups: ClassVar[Mapping[str, str]] = {}
    """The heading of each command in the help."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        for name, (module, summary) in self.core.items():
            load = partial(_core_command, module, name)
            self.add_command(_Listed(name, summary, load, self.groups.get(name)))

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names of all commands, in the order of the help."""
        self._add_installed()
        return super().list_commands(ctx)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a command for listing; None if there is none."""
        if cmd_name not in self.commands:
            self._add_installed()
        return super().get_command(ctx, cmd_name)

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """Return the command to run, and its arguments."""
        name, found, rest = super().resolve_command(ctx, args)
        return name, self.load(name) if name else found, rest

    def load(self, name: str) -> Any:
        """Return a command that can be run."""
        command = self.commands[name]
        return command.load() if isinstance(command, _Listed) else command

    def _add_installed(self) -> None:
        from composable_memory.entry_points import offered  # most commands do not need them

        for entry in offered(ENTRY_POINTS):
            if entry.name not in self.commands:
                self.commands[entry.name] = _offered(entry, entry.load)


def all_commands(app: typer.Typer) -> dict[str, Any]:
    """Return all commands of a root by name, ready to run."""
    group = get_group(app)
    assert isinstance(group, CommandGroup)
    return {name: group.load(name) for name in group.list_commands(None)}


def _core_command(module: str, name: str) -> Any:
    """Return one command of a module without building the others, which would take time."""
    offered = import_module(module).app
    only = typer.Typer()
    only.registered_commands = [one for one in offered.registered_commands if one.name == name]
    only.registered_groups = [one for one in offered.registered_groups if one.name == name]
    return get_group(only).commands[name]


def _offered(entry: "EntryPoint", imported: Callable[[], Any], extra: str | None = None) -> Any:
    """Return the command of an entry point; one that cannot be imported says so when it is run."""
    try:
        offer = imported()
    except ModuleNotFoundError as problem:
        install = f"; run: pip install '{entry.dist.name}[{extra}]'" if extra and entry.dist else ""
        return _broken(entry, f"the package {problem.name} is not installed{install}")
    except (Exception, SystemExit) as problem:  # noqa: BLE001 - a third-party module may raise anything
        return _broken(entry, f"{type(problem).__name__}: {problem}")
    if isinstance(offer, CommandSpec):
        return _Listed(
            entry.name, offer.summary, lambda: _offered(entry, lambda: resolve_name(offer.app), offer.extra)
        )
    if not isinstance(offer, typer.Typer):
        return _broken(entry, f"{entry.value} is a {type(offer).__name__}, not a typer.Typer")
    parent = typer.Typer()
    parent.add_typer(offer, name=entry.name)
    return get_group(parent).commands[entry.name]


def _broken(entry: "EntryPoint", problem: str) -> TyperCommand:
    package = entry.dist.name if entry.dist else entry.value

    def fail() -> None:
        error(f"`{entry.name}` cannot be loaded from {package}: {problem}")
        raise typer.Exit(1)

    anything = {"ignore_unknown_options": True, "allow_extra_args": True}
    return TyperCommand(entry.name, callback=fail, help=f"Not usable: {problem}", context_settings=anything)
