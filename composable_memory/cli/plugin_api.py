"""What commands of an adapter or plug-in may use of the command line.

Such a command is a `typer.Typer` behind an entry point of the group `composable_memory.commands`, named as
the command. `cmem --help` imports its module for the help text, unless the entry point is a `CommandSpec`.
`composable_memory.json_documents` makes the JSON.
"""

from composable_memory.cli.command import ExitCode, Target, command, run
from composable_memory.cli.command_group import CommandSpec
from composable_memory.cli.options import (
    AsJson,
    Backend,
    Here,
    Session,
    StateDir,
    Strict,
    Workspace,
    check_names,
    parse_moment,
)
from composable_memory.cli.output import (
    one_line,
    plain,
    print_json,
    print_line,
    print_text,
    warn,
    warn_degraded,
)
from composable_memory_ops_logs.plurals import counted

__all__ = [
    "AsJson",
    "Backend",
    "CommandSpec",
    "ExitCode",
    "Here",
    "Session",
    "StateDir",
    "Strict",
    "Target",
    "Workspace",
    "check_names",
    "command",
    "counted",
    "one_line",
    "parse_moment",
    "plain",
    "print_json",
    "print_line",
    "print_text",
    "run",
    "warn",
    "warn_degraded",
]
