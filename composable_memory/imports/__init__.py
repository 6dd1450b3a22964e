"""Imports what other memories have exported: their memories, notes and conversations, each once."""
