"""Proposes the pages of `bank/` from what the notes retain, and applies what was agreed to."""

from composable_memory.reflect.values import PageChange, Reflection

__all__ = ["PageChange", "Reflection"]
