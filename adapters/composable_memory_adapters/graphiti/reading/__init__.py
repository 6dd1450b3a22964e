"""Searches facts and browses the graph, in the database's own query language for speed."""
