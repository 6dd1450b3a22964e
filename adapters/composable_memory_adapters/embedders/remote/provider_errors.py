"""The errors of an embedding provider: what failed, and what the user can do about it."""

from collections.abc import Iterable, Mapping
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from composable_memory.errors import EmbedderUnavailable, EmbeddingError
from composable_memory.json_documents import problems_in
from composable_memory_adapters.embedders.remote.settings import RemoteProvider
from composable_memory_adapters.http_failures import FailureKind, HttpFailure
from composable_memory_ops_logs import redact

AnswerT = TypeVar("AnswerT", bound=BaseModel)

DETAIL_CHARS = 200
"""How much of the provider's own message to show in an error."""

_LASTING = {
    FailureKind.CLOSED,
    FailureKind.KEY,
    FailureKind.NOT_FOUND,
    FailureKind.QUOTA,
    FailureKind.REDIRECTED,
    FailureKind.UNREACHABLE,
}
"""Failures that do not pass by themselves, so the provider counts as unavailable."""


class ProviderErrors:
    """Builds errors for one provider with one model at one host.

    `secrets` are masked in whatever the provider says.
    """

    def __init__(self, provider: RemoteProvider, model: str, host: str, secrets: Iterable[str]) -> None:
        self._provider = provider
        self._model = model
        self._host = host
        self._secrets = sorted(filter(None, secrets), key=len, reverse=True)
        self._advice = _advice(provider)

    def failed(self, failure: HttpFailure, advice: str | None = None) -> EmbeddingError:
        """Return the error for a failed request; `advice` replaces the default."""
        detail = self._redacted(failure.detail)
        what = f"{self._host} {failure.problem}" + (f": {detail}" if detail else "")
        fix = advice or self._advice[failure.kind]
        if failure.kind in _LASTING:
            return self.unavailable(what, fix)
        return EmbeddingError(self._provider.id, self._model, f"{what}; {fix}")

    def unavailable(self, what: str, fix: str) -> EmbedderUnavailable:
        """Return the error for a provider that cannot be used; the texts must not contain a secret."""
        return EmbedderUnavailable(self._provider.id, self._model, what, fix)

    def unreadable(self, problem: str) -> EmbeddingError:
        """Return the error for an unusable answer; `problem` must not contain a secret."""
        text = f"{self._host} sent an answer that cannot be used: {problem}"
        return EmbeddingError(self._provider.id, self._model, text)

    def parsed(self, body: bytes, answer: type[AnswerT]) -> AnswerT:
        """Parse and validate an answer.

        Raises:
            EmbeddingError: it is not JSON, or does not have the expected fields.
        """
        try:
            return answer.model_validate_json(body)
        except ValidationError as error:  # it quotes the answer, so it must not be chained to ours
            problem = problems_in(error, "JSON")[0]
        excerpt = self._redacted(body[:1024].decode("utf-8", "replace"))
        raise self.unreadable(f"{problem}; it begins {excerpt!r}")

    def _redacted(self, text: str) -> str:
        for secret in self._secrets:
            text = text.replace(secret, "***")
        text = " ".join(redact(text).split())
        return text if len(text) <= DETAIL_CHARS else f"{text[:DETAIL_CHARS]}…"


def _advice(provider: RemoteProvider) -> Mapping[FailureKind, str]:
    key = provider.setting
    return {
        FailureKind.BROKEN: "try again later",
        FailureKind.BUSY: "try again later; the problem is the provider's",
        FailureKind.CLOSED: "the embedder has been closed; open a new one",
        FailureKind.JOB: "the provider's own page about the job may say more",
        FailureKind.KEY: f"check the API key: {provider.key_places}",
        FailureKind.NOT_FOUND: f"check {key('model')} and {key('base_url')}",
        FailureKind.QUOTA: "the quota is used up: check the account's plan and billing",
        FailureKind.RATE: f"wait a moment, or lower {key('max_concurrent_requests')}",
        FailureKind.REDIRECTED: f"redirects to other hosts are not followed; correct {key('base_url')}",
        FailureKind.REJECTED: f"check {key('model')} and related settings",
        FailureKind.SLOW: f"raise {key('timeout_ms')}, or lower {key('max_batch_texts')}",
        FailureKind.TOO_LARGE: f"lower {key('max_batch_texts')}",
        FailureKind.UNREACHABLE: f"check the network and {key('base_url')}",
    }
