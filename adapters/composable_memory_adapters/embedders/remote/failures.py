"""Failed requests: what an error response means, and the error that tells the user what to do about it."""

import re
from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from http.client import responses
from typing import TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import from_json

from composable_memory.errors import EmbedderUnavailable, EmbeddingError
from composable_memory_adapters.embedders.remote.settings import RemoteProvider
from composable_memory_ops_logs import redact

AnswerT = TypeVar("AnswerT", bound=BaseModel)

DETAIL_CHARS = 200
"""How much of what the other side said stands in an error."""


class FailureKind(StrEnum):
    """Why a request failed."""

    UNREACHABLE = "unreachable"
    BROKEN = "broken"
    SLOW = "slow"
    REDIRECTED = "redirected"
    TOO_LARGE = "too large"
    KEY = "key"
    NOT_FOUND = "not found"
    QUOTA = "quota"
    RATE = "rate"
    BUSY = "busy"
    REJECTED = "rejected"
    CLOSED = "closed"
    JOB = "job"


_TRANSIENT = {FailureKind.UNREACHABLE, FailureKind.BROKEN, FailureKind.RATE, FailureKind.BUSY}
_LASTING = {
    FailureKind.CLOSED,
    FailureKind.KEY,
    FailureKind.NOT_FOUND,
    FailureKind.QUOTA,
    FailureKind.REDIRECTED,
    FailureKind.UNREACHABLE,
}
"""What does not end by itself, so that the provider counts as unavailable."""


class HttpFailure(Exception):
    """A failed request. `detail` is what the other side or the network said, with every secret still in it.

    `is_explained` says that the other side gave its reason in JSON, as an API does and other servers do not.
    It stays among the embedders: `ProviderErrors` turns it into an `EmbeddingError`.
    """

    def __init__(
        self,
        kind: FailureKind,
        problem: str,
        *,
        detail: str = "",
        is_explained: bool = False,
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(problem)
        self.kind = kind
        self.problem = problem
        self.detail = detail
        self.is_explained = is_explained
        self.retry_after_s = retry_after_s

    @property
    def may_pass(self) -> bool:
        """Return whether the same request may succeed a little later."""
        return self.kind in _TRANSIENT


class ProviderErrors:
    """Builds the errors of one provider with one model at one host.

    `secrets` are cut out of whatever the other side said.
    """

    def __init__(self, provider: RemoteProvider, model: str, host: str, secrets: Iterable[str]) -> None:
        self._provider = provider
        self._model = model
        self._host = host
        self._secrets = sorted(filter(None, secrets), key=len, reverse=True)
        self._advice = _advice(provider)

    def failed(self, failure: HttpFailure, advice: str | None = None) -> EmbeddingError:
        """Return the error for a failed request; `advice` counts instead of the usual one."""
        detail = self._redacted(failure.detail)
        what = f"{self._host} {failure.problem}" + (f": {detail}" if detail else "")
        fix = advice or self._advice[failure.kind]
        if failure.kind in _LASTING:
            return self.unavailable(what, fix)
        return EmbeddingError(self._provider.id, self._model, f"{what}; {fix}")

    def unavailable(self, what: str, fix: str) -> EmbedderUnavailable:
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
            problem = first_problem(error)
        excerpt = self._redacted(body[:1024].decode("utf-8", "replace"))
        raise self.unreadable(f"{problem}; it begins {excerpt!r}")

    def _redacted(self, text: str) -> str:
        for secret in self._secrets:
            text = text.replace(secret, "***")
        text = " ".join(redact(text).split())
        return text if len(text) <= DETAIL_CHARS else f"{text[:DETAIL_CHARS]}…"


def first_problem(error: ValidationError) -> str:
    """Return the first problem of a value that does not validate, without quoting the value."""
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    where = ".".join(map(str, first["loc"])) or "JSON"
    return f"{where}: {first['msg']}"


def failure_of_response(status: int, body: bytes, *, retry_after_s: float | None = None) -> HttpFailure:
    """Return the failure that a response with an error status reports.

    `retry_after_s` is what the header `Retry-After` asks for; some providers ask in the body instead.

    The status decides. Only what is written for programs (codes, types, reasons) tells a spent quota from a
    rate limit, never the words for people: some providers speak of a quota whenever calls come too fast.
    """
    answer = _parsed(body)
    message = message_of(answer)
    codes = set(_values(answer, {"code", "type", "status", "reason", "quotaId"}))
    delays = list(_values(answer, {"retryDelay"}))
    return HttpFailure(
        _kind(status, codes),
        f"answered {status} {responses.get(status, '')}".rstrip(),
        detail=message or body.decode("utf-8", "replace"),
        is_explained=bool(message),
        retry_after_s=retry_after_s or _seconds(delays),
    )


def message_of(answer: object) -> str:
    """Return the message for people: `error.message`, `error`, `message` or `detail`, as APIs have it."""
    if isinstance(answer, str):
        return answer
    if isinstance(answer, list):
        return next(filter(None, map(message_of, answer)), "")
    if not isinstance(answer, Mapping):
        return ""
    parts = (message_of(answer.get(name)) for name in ("error", "message", "detail", "data"))
    return next(filter(None, parts), "")


def _kind(status: int, codes: set[str]) -> FailureKind:
    match status:
        case 401 | 403:
            return FailureKind.KEY
        case 400 if "API_KEY_INVALID" in codes:
            return FailureKind.KEY
        case 402:
            return FailureKind.QUOTA
        case 404:
            return FailureKind.NOT_FOUND
        case 429:
            return FailureKind.QUOTA if any(map(_names_a_spent_quota, codes)) else FailureKind.RATE
        case _ if status >= 500:
            return FailureKind.BUSY
    return FailureKind.REJECTED


def _names_a_spent_quota(code: str) -> bool:
    return "quota" in code.lower() or "PerDay" in code


def _parsed(body: bytes) -> object:
    try:
        answer: object = from_json(body)
    except ValueError:
        return None
    return answer


def _values(answer: object, names: set[str]) -> Iterator[str]:
    """Yield every text under one of these names, however deep it stands."""
    if isinstance(answer, Mapping):
        for name, value in answer.items():
            if name in names and isinstance(value, str):
                yield value
            yield from _values(value, names)
    elif isinstance(answer, list):
        for item in answer:
            yield from _values(item, names)


def _seconds(delays: list[str]) -> float | None:
    """Return the longest of durations such as `11.6s`."""
    found = [float(delay[:-1]) for delay in delays if re.fullmatch(r"\d{1,6}(?:\.\d{1,9})?s", delay)]
    return max(found, default=None)


def _advice(provider: RemoteProvider) -> Mapping[FailureKind, str]:
    key = provider.setting
    return {
        FailureKind.BROKEN: "try again later",
        FailureKind.BUSY: "try again later, the trouble is the provider's",
        FailureKind.CLOSED: "the embedder was closed meanwhile; open a new one",
        FailureKind.JOB: "the provider's own pages on the job may tell more",
        FailureKind.KEY: f"check the API key: {provider.key_places}",
        FailureKind.NOT_FOUND: f"check {key('model')} and {key('base_url')}",
        FailureKind.QUOTA: "the quota is used up: look at the plan and the billing of the account",
        FailureKind.RATE: f"wait a little, or lower {key('max_concurrent_requests')}",
        FailureKind.REDIRECTED: f"redirects to other hosts are not followed; correct {key('base_url')}",
        FailureKind.REJECTED: f"check {key('model')} and the settings beside it",
        FailureKind.SLOW: f"raise {key('timeout_ms')}, or lower {key('max_batch_texts')}",
        FailureKind.TOO_LARGE: f"lower {key('max_batch_texts')}",
        FailureKind.UNREACHABLE: f"check the network and {key('base_url')}",
    }
