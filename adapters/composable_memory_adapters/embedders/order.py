"""The orders in which embedding providers are asked where settings name an order instead of a provider."""

__all__ = ["AUTO", "AUTO_REMOTE"]

AUTO = ("local", "wordllama")
"""Stays on this machine."""

AUTO_REMOTE = ("local", "openai", "gemini", "voyage", "mistral", *AUTO)
"""May take a service that is paid for, if there is a key for it."""
