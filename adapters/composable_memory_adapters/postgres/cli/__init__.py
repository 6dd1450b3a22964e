"""`cmem postgres`: the tables on the server; `cmem migrate`: a memory moved there and back."""

from composable_memory.cli.command_group import CommandSpec

__all__ = ["migrate", "postgres"]

postgres = CommandSpec(
    summary="Create, maintain and inspect a team's memory on a PostgreSQL server.",
    app="composable_memory_adapters.postgres.cli.app:postgres",
    extra="postgres",
)

migrate = CommandSpec(
    summary="Move a memory from its index file to a PostgreSQL server, or back, without embedding it again.",
    app="composable_memory_adapters.postgres.cli.migrating:migrate",
    extra="postgres",
)
