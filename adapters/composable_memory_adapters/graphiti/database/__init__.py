"""The private graph server, the shared ones, and the one way to ask them: Cypher."""
