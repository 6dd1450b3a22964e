"""The commands of `cmem postgres`: the tables on the server, made, brought up to date, and looked at."""

from composable_memory.cli.command_group import CommandSpec

__all__ = ["postgres"]

postgres = CommandSpec(
    summary="Make the tables of a team's memory on a PostgreSQL server, and look at them.",
    app="composable_memory_adapters.postgres.cli.app:postgres",
)
