"""Proposes the pages of `bank/` from what the notes retain, and writes them once approved."""
