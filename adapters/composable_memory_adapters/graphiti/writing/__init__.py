"""Writes entities, facts and episodes to the graph, and works out when each fact holds."""
