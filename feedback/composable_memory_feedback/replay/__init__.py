"""Replay logged queries under another policy: which rankings change, and what the judgements say of it."""
