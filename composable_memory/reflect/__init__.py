"""Proposes the pages of `bank/` from what the notes retain, and applies what was agreed to."""

from composable_memory.reflect.report import PageChange, Reflection

__all__ = ["PageChange", "Reflection"]
