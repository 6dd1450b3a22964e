"""Embedding providers, each behind `EmbedderAdapter`, and the orders in which they are tried."""

import os

__all__ = ["AUTO", "AUTO_REMOTE", "default_threads"]

AUTO = ("local", "wordllama")
"""The order if the settings name no provider; all run on this machine."""

AUTO_REMOTE = ("local", "openai", "gemini", "voyage", "mistral", *AUTO)
"""The order that may use a paid service, if there is a key for it."""

MOST_THREADS = 4


def default_threads() -> int:
    """Return half of the processors available to this process; the other half is for the user."""
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(MOST_THREADS, usable // 2))
