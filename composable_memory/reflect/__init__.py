"""Proposes the pages of `bank/` from what the notes retain, and applies what was agreed to."""
