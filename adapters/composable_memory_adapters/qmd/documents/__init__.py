"""From what QMD finds to passages: whose files these are, which may be read, what in them answers."""
