"""The private graph server, shared servers, and the one way to query them: Cypher."""
