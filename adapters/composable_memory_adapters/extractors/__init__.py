"""Extractors of entities and relations, by rules that need no model."""

from composable_memory_adapters.extractors.heuristic import HeuristicExtractor

__all__ = ["HeuristicExtractor"]
