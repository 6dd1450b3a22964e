"""Times in texts, and the time that a question asks about."""
