"""A memory as a retriever of LlamaIndex."""

from typing import Any

from composable_memory_adapters.integrations import needs_extra
from composable_memory_adapters.integrations.shared import (
    AnyMemory,
    Passage,
    ask,
    ask_and_wait,
    find_passages,
)

with needs_extra("llama-index"):
    from llama_index.core.retrievers import BaseRetriever
    from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode


class MemoryRetriever(BaseRetriever):
    """Retrieves passages of a memory as scored nodes.

        engine = RetrieverQueryEngine.from_args(MemoryRetriever(memory, similarity_top_k=4), llm=llm)

    `retrieve` needs a memory of `open_memory_sync`; `aretrieve` also takes one of `open_memory`. Further
    arguments are search fields, such as `since`, `until`, `paths`, `tags`, `types`, `weak` and `session_key`.
    A node's metadata has its place, `citation`, `trace_id` and its known `facts`; a language model only sees
    the citation.
    """

    def __init__(self, memory: AnyMemory, *, similarity_top_k: int | None = None, **search: Any) -> None:
        super().__init__()
        self._memory = memory
        self._arguments = {"max_results": similarity_top_k, **search}

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        found = ask_and_wait(self._memory, find_passages, query_bundle.query_str, self._arguments)
        return [_node(one) for one in found]

    async def _aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        found = await ask(self._memory, find_passages, query_bundle.query_str, self._arguments)
        return [_node(one) for one in found]


def _node(passage: Passage) -> NodeWithScore:
    hidden = sorted(passage.metadata.keys() - {"citation"})
    node = TextNode(
        id_=passage.id,
        text=passage.text,
        metadata=passage.metadata,
        excluded_llm_metadata_keys=hidden,
        excluded_embed_metadata_keys=[*hidden, "citation"],
    )
    return NodeWithScore(node=node, score=passage.score)
