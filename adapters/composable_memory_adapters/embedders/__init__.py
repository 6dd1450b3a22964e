"""Embedding providers, each one behind `EmbedderAdapter`, and the orders in which they are asked."""

import os

__all__ = ["AUTO", "AUTO_REMOTE", "default_threads"]

AUTO = ("local", "wordllama")
"""For settings that name no provider: stays on this machine."""

AUTO_REMOTE = ("local", "openai", "gemini", "voyage", "mistral", *AUTO)
"""May take a service that is paid for, if there is a key for it."""

MOST_THREADS = 4


def default_threads() -> int:
    """Return half of the processors that this process may use: the other half is for those who ask."""
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(MOST_THREADS, usable // 2))
