"""Deadlines, breakers, retries and resources: what keeps a memory usable when others fail."""
