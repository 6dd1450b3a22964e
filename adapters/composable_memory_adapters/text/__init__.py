"""Words of notes and questions: which to look for, in which forms, and how well a text has them (pure)."""
