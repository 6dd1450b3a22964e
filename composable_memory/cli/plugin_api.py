"""What commands of an adapter or a plug-in use of the command line.

Such a command is a `typer.Typer` behind an entry point of the group `composable_memory.commands`, which is
named as the command. `cmem --help` imports its module for the help text; so import what a command does when
it runs, as the commands of the core do. A JSON document is a subclass of `composable_memory.tools.Document`.
"""

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
from composable_memory.cli.runner import ExitCode, Place, run
from composable_memory.cli.screen import (
    Line,
    complain,
    counted,
    one_line,
    plain,
    say,
    say_lines,
    tell_degraded,
    warn,
    write_json,
    write_text,
)

__all__ = [
    "AsJson",
    "Backend",
    "ExitCode",
    "Here",
    "Line",
    "Place",
    "Session",
    "StateDir",
    "Strict",
    "Workspace",
    "check_names",
    "complain",
    "counted",
    "one_line",
    "parse_moment",
    "plain",
    "run",
    "say",
    "say_lines",
    "tell_degraded",
    "warn",
    "write_json",
    "write_text",
]
