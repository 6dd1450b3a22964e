"""Embedding providers, each one behind `EmbedderAdapter`, and the orders in which they are asked."""

__all__ = ["AUTO", "AUTO_REMOTE"]

AUTO = ("local", "wordllama")
"""For settings that name no provider: stays on this machine."""

AUTO_REMOTE = ("local", "openai", "gemini", "voyage", "mistral", *AUTO)
"""May take a service that is paid for, if there is a key for it."""
