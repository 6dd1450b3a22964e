"""Words of notes and queries: which to look up, in which forms, and how well a text matches them (pure)."""
