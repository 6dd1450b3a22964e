"""A memory as a retriever of LangChain."""

from typing import Any

from pydantic import Field, InstanceOf

from composable_memory import BlockingMemory, Memory
from composable_memory_adapters.integrations import needs_extra
from composable_memory_adapters.integrations.shared import (
    Passage,
    ask,
    ask_and_wait,
    find_passages,
)

with needs_extra("langchain"):
    from langchain_core.callbacks import AsyncCallbackManagerForRetrieverRun, CallbackManagerForRetrieverRun
    from langchain_core.documents import Document
    from langchain_core.retrievers import BaseRetriever


class MemoryRetriever(BaseRetriever):
    """Retrieves passages of a memory as documents.

        retriever = MemoryRetriever(memory=memory, k=4, search_kwargs={"tags": ["work"]})

    `invoke` needs a memory of `open_memory_sync`; `ainvoke` also takes one of `open_memory`. `search_kwargs`
    are further search fields, such as `since`, `until`, `paths`, `tags`, `types`, `weak` and `session_key`;
    `invoke` accepts them too. A document's metadata has its place, `citation`, `score`, `trace_id` and its
    known `facts`.
    """

    memory: InstanceOf[Memory] | InstanceOf[BlockingMemory] = Field(repr=False)
    k: int | None = None
    """The maximum number of documents; by default that of the settings."""
    search_kwargs: dict[str, Any] = Field(default_factory=dict)

    def _get_relevant_documents(
        self, query: str, *, run_manager: CallbackManagerForRetrieverRun, **kwargs: Any
    ) -> list[Document]:
        del run_manager  # there are no intermediate steps to report to callbacks
        found = ask_and_wait(self.memory, find_passages, query, self._arguments(kwargs))
        return [_document(one) for one in found]

    async def _aget_relevant_documents(
        self, query: str, *, run_manager: AsyncCallbackManagerForRetrieverRun, **kwargs: Any
    ) -> list[Document]:
        del run_manager
        found = await ask(self.memory, find_passages, query, self._arguments(kwargs))
        return [_document(one) for one in found]

    def _arguments(self, given: dict[str, Any]) -> dict[str, Any]:
        arguments = {"k": self.k, **self.search_kwargs, **given}
        return {"max_results": arguments.pop("k"), **arguments}


def _document(passage: Passage) -> Document:
    return Document(id=passage.id, page_content=passage.text, metadata=passage.metadata)
