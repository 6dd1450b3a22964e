"""Embedding providers, each one behind `EmbedderAdapter`."""

__all__: list[str] = []
