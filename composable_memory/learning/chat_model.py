"""Opens the language model of the settings, for judges, advisors and summaries."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from composable_memory.config.settings import JudgeSettings
from composable_memory_feedback.errors import FeedbackError
from composable_memory_feedback.language_model import LanguageModel

if TYPE_CHECKING:
    from composable_memory_feedback.chat import ChatClient


@asynccontextmanager
async def language_model(settings: JudgeSettings) -> AsyncIterator[LanguageModel]:
    """Open the language model of the settings.

    Raises:
        FeedbackError: none is configured, or its settings are unusable.
    """
    async with await asyncio.to_thread(_chat_client, settings) as client:
        yield client


def _chat_client(settings: JudgeSettings) -> "ChatClient":
    from composable_memory_feedback.chat import ChatClient, ChatEndpoint  # imports the HTTP client

    if settings.base_url is None:
        raise FeedbackError(
            "no language model is set",
            subject="memory.feedback.llm.base_url",
            advice="name an OpenAI-compatible endpoint, such as http://127.0.0.1:8080/v1",
        )
    endpoint = ChatEndpoint(
        base_url=settings.base_url,
        model=settings.model,
        api_key=settings.api_key.get_secret_value() if settings.api_key else None,
        timeout_s=settings.timeout_ms / 1000,
        max_tokens=settings.max_tokens,
    )
    return ChatClient(endpoint)
