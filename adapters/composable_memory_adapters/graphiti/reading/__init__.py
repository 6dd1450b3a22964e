"""From a question to facts, and looking through the graph; in the database's own language, for speed."""
