"""The commands of `cmem graph`, which inspect and change a memory of facts."""

from composable_memory.cli.command_group import CommandSpec

__all__ = ["graph"]

graph = CommandSpec(
    summary="Browse the memory's facts: entities, when each fact was true, and where it comes from.",
    app="composable_memory_adapters.graphiti.cli.app:graph",
)
