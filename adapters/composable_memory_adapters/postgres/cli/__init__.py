"""`cmem postgres`: the tables on the server; `cmem migrate`: a memory moved there and back."""

from composable_memory.cli.command_group import CommandSpec

__all__ = ["migrate", "postgres"]

postgres = CommandSpec(
    summary="Make the tables of a team's memory on a PostgreSQL server, and look at them.",
    app="composable_memory_adapters.postgres.cli.app:postgres",
    extra="postgres",
)

migrate = CommandSpec(
    summary="Move a memory from its own file to a PostgreSQL server, and back; nothing is embedded again.",
    app="composable_memory_adapters.postgres.cli.migrating:migrate",
    extra="postgres",
)
