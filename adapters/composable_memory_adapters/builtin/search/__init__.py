"""From a question to results: words and meaning, made one ranking."""
