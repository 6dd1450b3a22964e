"""Commands that installed packages add, found when help lists them or when one of them is run."""

from importlib.metadata import EntryPoint, entry_points
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from composable_memory.cli.screen import complain

__all__ = ["COMMAND_GROUP", "ExtensibleGroup"]

COMMAND_GROUP = "composable_memory.commands"
"""Entry points whose values are a `typer.Typer`; the name of one is the name of its command."""
OWN_DISTRIBUTION = "composable-memory"


class ExtensibleGroup(TyperGroup):
    """The commands of the core, then those of installed packages, which cannot replace one of the core.

    Reading the entry points takes about 20 ms, which running a command of the core does not pay.
    """

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names of all commands, in the order of the help."""
        self._add_installed()
        return super().list_commands(ctx)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return the command of this name; None if there is none."""
        if cmd_name not in self.commands:
            self._add_installed()
        return super().get_command(ctx, cmd_name)

    def _add_installed(self) -> None:
        for entry in sorted(entry_points(group=COMMAND_GROUP), key=_precedence):
            if entry.name not in self.commands:
                self.commands[entry.name] = _loaded(entry)


def _precedence(entry: EntryPoint) -> tuple[bool, str, str]:
    """Put our own commands first, so that no other package takes their names; the rest by name."""
    owner = entry.dist.name if entry.dist else ""
    return owner != OWN_DISTRIBUTION, owner, entry.name


def _loaded(entry: EntryPoint) -> Any:
    """Return the command of an entry point; one that cannot be imported says so when it is run."""
    try:
        commands = entry.load()
    except (Exception, SystemExit) as error:  # noqa: BLE001 - the module of a stranger may raise anything
        return _broken(entry, f"{type(error).__name__}: {error}")
    if not isinstance(commands, typer.Typer):
        return _broken(entry, f"{entry.value} is a {type(commands).__name__}, not a typer.Typer")
    parent = typer.Typer()
    parent.add_typer(commands, name=entry.name)
    return typer.main.get_group(parent).commands[entry.name]


def _broken(entry: EntryPoint, problem: str) -> TyperCommand:
    package = entry.dist.name if entry.dist else entry.value

    def fail() -> None:
        complain(f"`{entry.name}` cannot be loaded from {package}: {problem}")
        raise typer.Exit(1)

    anything = {"ignore_unknown_options": True, "allow_extra_args": True}
    return TyperCommand(entry.name, callback=fail, help=f"Not usable: {problem}", context_settings=anything)
