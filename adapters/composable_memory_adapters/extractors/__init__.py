"""Extractors of entities and relations: by rules that need no model, or by a language model."""

from composable_memory_adapters.extractors.heuristic import HeuristicExtractor
from composable_memory_adapters.extractors.llm import Chat, ChatMessage, LlmExtractor

__all__ = ["Chat", "ChatMessage", "HeuristicExtractor", "LlmExtractor"]
