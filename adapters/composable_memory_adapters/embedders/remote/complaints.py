"""Makes errors that people can act on: who failed at what, what was said, what to do; never with a secret."""

from collections.abc import Iterable, Mapping
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from composable_memory.errors import EmbedderUnavailable, EmbeddingError
from composable_memory_adapters.embedders.remote.refusals import HttpFailure, Trouble
from composable_memory_adapters.embedders.remote.settings import RemoteProvider
from composable_memory_ops_logs import redact

__all__ = ["Complaints"]

AnswerT = TypeVar("AnswerT", bound=BaseModel)

SAID_CHARS = 200
"""How much of what the other side said stands in an error."""
UNUSABLE = frozenset(
    {
        Trouble.CLOSED,
        Trouble.KEY,
        Trouble.NOT_FOUND,
        Trouble.QUOTA,
        Trouble.REDIRECTED,
        Trouble.UNREACHABLE,
    }
)
"""What does not end by itself, so that the provider counts as unavailable."""


class Complaints:
    """The errors of one provider with one model at one host. `secrets` are cut out of whatever was said."""

    def __init__(self, provider: RemoteProvider, model: str, host: str, secrets: Iterable[str]) -> None:
        self._provider = provider
        self._model = model
        self._host = host
        self._secrets = sorted(filter(None, secrets), key=len, reverse=True)
        self._advice = _advice(provider)

    def failed(self, failure: HttpFailure, advice: str | None = None) -> EmbeddingError:
        """Return the error for a failed request; `advice` counts instead of the usual one."""
        said = self._censored(failure.said)
        what = f"{self._host} {failure.problem}" + (f": {said}" if said else "")
        fix = advice or self._advice[failure.trouble]
        if failure.trouble in UNUSABLE:
            return self.unusable(what, fix)
        return EmbeddingError(self._provider.id, self._model, f"{what}; {fix}")

    def unusable(self, what: str, fix: str) -> EmbedderUnavailable:
        """Return the error for a provider that cannot be used; the texts must not hold a secret."""
        return EmbedderUnavailable(self._provider.id, self._model, what, fix)

    def unreadable(self, problem: str) -> EmbeddingError:
        """Return the error for an answer that cannot be used; `problem` must not hold a secret."""
        text = f"{self._host} gave an answer that cannot be used: {problem}"
        return EmbeddingError(self._provider.id, self._model, text)

    def parsed(self, body: bytes, answer: type[AnswerT]) -> AnswerT:
        """Return an answer as a value.

        Raises:
            EmbeddingError: it is not JSON, or of another shape.
        """
        try:
            return answer.model_validate_json(body)
        except ValidationError as error:  # quotes the answer, so it must not be in the chain of ours
            first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"])) or "JSON"
        excerpt = self._censored(body[:1024].decode("utf-8", "replace"))
        raise self.unreadable(f"{where}: {first['msg']}; it begins {excerpt!r}")

    def _censored(self, text: str) -> str:
        for secret in self._secrets:
            text = text.replace(secret, "***")
        text = " ".join(redact(text).split())
        return text if len(text) <= SAID_CHARS else f"{text[:SAID_CHARS]}…"


def _advice(provider: RemoteProvider) -> Mapping[Trouble, str]:
    key = provider.setting
    return {
        Trouble.BROKEN: "try again later",
        Trouble.BUSY: "try again later, the trouble is the provider's",
        Trouble.CLOSED: "the embedder was closed meanwhile; open a new one",
        Trouble.JOB: "the provider's own pages on the job may tell more",
        Trouble.KEY: f"check the API key: {provider.key_places}",
        Trouble.NOT_FOUND: f"check {key('model')} and {key('base_url')}",
        Trouble.QUOTA: "the quota is used up: look at the plan and the billing of the account",
        Trouble.RATE: f"wait a little, or lower {key('max_concurrent_requests')}",
        Trouble.REDIRECTED: f"redirects to other hosts are not followed; correct {key('base_url')}",
        Trouble.REJECTED: f"check {key('model')} and the settings beside it",
        Trouble.SLOW: f"raise {key('timeout_ms')}, or lower {key('max_batch_texts')}",
        Trouble.TOO_LARGE: f"lower {key('max_batch_texts')}",
        Trouble.UNREACHABLE: f"check the network and {key('base_url')}",
    }
