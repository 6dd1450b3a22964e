"""Backends and embedders that keep the promises of `composable_memory.interfaces`."""

__all__: list[str] = []
