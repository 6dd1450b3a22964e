"""The one door to graphiti-core: writing to the graph, and reading episodes with a language model."""
