"""The names used from graphiti-core, imported only here. Importing it takes seconds, see `load`."""

import logging

from composable_memory_adapters.graphiti.library import undisturbed

with undisturbed():
    from graphiti_core import Graphiti
    from graphiti_core.cross_encoder.client import CrossEncoderClient
    from graphiti_core.driver.driver import GraphDriver, GraphDriverSession, GraphProvider
    from graphiti_core.driver.falkordb import STOPWORDS
    from graphiti_core.driver.falkordb.fulltext import (
        build_falkor_fulltext_query,
        sanitize_falkor_fulltext_query,
    )
    from graphiti_core.edges import EntityEdge, EpisodicEdge
    from graphiti_core.embedder.client import EmbedderClient
    from graphiti_core.errors import GraphitiError
    from graphiti_core.llm_client.client import LLMClient, get_extraction_language_instruction
    from graphiti_core.llm_client.config import LLMConfig, ModelSize
    from graphiti_core.nodes import EntityNode, EpisodeType, EpisodicNode
    from graphiti_core.prompts.models import Message
    from graphiti_core.utils.bulk_utils import add_nodes_and_edges_bulk

# Without a handler, Python prints a library's warnings to stderr, one for each odd answer of a model.
logging.getLogger("graphiti_core").addHandler(logging.NullHandler())

__all__ = [
    "STOPWORDS",
    "CrossEncoderClient",
    "EmbedderClient",
    "EntityEdge",
    "EntityNode",
    "EpisodeType",
    "EpisodicEdge",
    "EpisodicNode",
    "GraphDriver",
    "GraphDriverSession",
    "GraphProvider",
    "Graphiti",
    "GraphitiError",
    "LLMClient",
    "LLMConfig",
    "Message",
    "ModelSize",
    "add_nodes_and_edges_bulk",
    "build_falkor_fulltext_query",
    "get_extraction_language_instruction",
    "sanitize_falkor_fulltext_query",
]
