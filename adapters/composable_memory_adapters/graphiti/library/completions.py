"""Asks an endpoint that speaks OpenAI's chat completions, within bounds, or says what is wrong with it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from urllib.parse import urlsplit

import httpx
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from composable_memory.errors import (
    BackendError,
    BackendGarbled,
    BackendRejected,
    BackendTimeout,
    BackendUnavailable,
)
from composable_memory.interfaces import Clock
from composable_memory.supervision.backoff import Pace, RetryPolicy, Verdict, retry
from composable_memory_adapters.graphiti.settings import LlmSettings
from composable_memory_adapters.graphiti.stores import BACKEND_ID
from composable_memory_feedback.retry_after import retry_after_s

__all__ = ["Completion", "Completions", "EndpointRefused"]

ASKING = "ask the language model"
CONNECT_TIMEOUT_S = 10.0
POLICY = RetryPolicy(tries=3, max_asked_s=30.0)
BUSY = frozenset({429, 502, 503, 504})
UNFIT = frozenset({400, 422, 500})
"""With these an endpoint answers that does not understand how JSON is asked for."""
DIRECTLY = {f"all://{host}": None for host in ("localhost", "127.0.0.1", "[::1]")}
"""This machine is never asked through a proxy, whatever the environment says of proxies."""

Message = Mapping[str, str]


class EndpointRefused(Exception):
    """The endpoint answered with an error; `asked_s` is how long it wants to be left alone."""

    def __init__(self, status: int, message: str, asked_s: float | None) -> None:
        super().__init__(f"{status}: {message[:200]}")
        self.status = status
        self.message = message
        self.asked_s = asked_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """What the model answered and what it cost in tokens; `is_whole` is false where it was cut off."""

    text: str
    is_whole: bool = True
    prompt_tokens: int = 0
    completion_tokens: int = 0


class Completions:
    """One endpoint. Construct it in a thread: reading the trusted certificates takes its time."""

    def __init__(self, settings: LlmSettings, *, clock: Clock, pace: Pace | None = None) -> None:
        if settings.base_url is None:
            raise BackendUnavailable(BACKEND_ID, "no language model is named", fix="set llm.base_url")
        self._settings = settings
        self._url = f"{settings.base_url}/chat/completions"
        self._headers = _authorisation(settings)
        self._clock = clock
        self._pace = pace
        self._client = httpx.AsyncClient(timeout=None, mounts=DIRECTLY)  # noqa: S113 - `_post` has a limit
        self.calls = 0

    async def complete(
        self, messages: Sequence[Message], response_format: Mapping[str, object] | None
    ) -> Completion:
        """Return the model's answer; a busy endpoint is asked again a few times.

        Raises:
            EndpointRefused: the endpoint does not take the request as it is: 400, 422 or 500.
            BackendUnavailable: it cannot be reached, does not know the key or the model, or stays busy.
            BackendTimeout: it gave no answer in time.
            BackendGarbled: what it answered is no completion.
        """
        body: dict[str, object] = {
            "model": self._settings.model,
            "messages": list(messages),
            "temperature": 0,
            "max_tokens": self._settings.max_tokens,
        }
        if response_format is not None:
            body["response_format"] = response_format
        try:
            content = await retry(partial(self._post, body), judge=_judge, policy=POLICY, pace=self._pace)
        except EndpointRefused as refused:
            if refused.status in UNFIT:
                raise
            raise self.problem(refused) from None
        return _completion(content)

    def problem(self, refused: EndpointRefused) -> BackendError:
        """Return what a refusal means for the user."""
        fix = "try again later"
        if refused.status in {401, 403}:
            fix = "set llm.apiKey to a key that it knows"
        elif refused.status in {404, 405}:
            fix = "check llm.base_url and llm.model"
        elif refused.status in {400, 413, 422}:
            return BackendRejected(BACKEND_ID, ASKING, status=str(refused.status), body=refused.message)
        missing = f"the language model at {self._place} refuses with {refused.status}"
        return BackendUnavailable(BACKEND_ID, missing, fix=fix, operation=ASKING)

    async def close(self) -> None:
        """Close all connections; calling it again does nothing."""
        await self._client.aclose()

    async def _post(self, body: Mapping[str, object]) -> bytes:
        self.calls += 1
        limit_s = self._settings.timeout_ms / 1000
        # What httpx raises refers to the request and so to its key: it must not be in the chain of ours.
        try:
            return await self._within(limit_s, body)
        except httpx.TimeoutException:
            problem: BackendError = BackendTimeout(BACKEND_ID, ASKING, limit_s=limit_s, elapsed_s=limit_s)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            message = str(error) or type(error).__name__
            missing = f"the language model at {self._place} cannot be reached ({message})"
            problem = BackendUnavailable(
                BACKEND_ID, missing, fix="start it, or check llm.base_url", operation=ASKING
            )
        raise problem

    async def _within(self, limit_s: float, body: Mapping[str, object]) -> bytes:
        timeout = httpx.Timeout(limit_s, connect=min(limit_s, CONNECT_TIMEOUT_S))
        response = await self._client.post(self._url, json=body, headers=self._headers, timeout=timeout)
        if response.is_success:
            return response.content
        asked_s = retry_after_s(response.headers.get("retry-after"), self._clock())
        raise EndpointRefused(response.status_code, response.text[:2000], asked_s)

    @property
    def _place(self) -> str:
        parts = urlsplit(self._url)
        return parts.hostname + (f":{parts.port}" if parts.port else "") if parts.hostname else self._url


class _Message(BaseModel):
    content: str | None = None


class _Choice(BaseModel):
    message: _Message
    finish_reason: str | None = None


class _Usage(BaseModel):
    prompt_tokens: int = 0
    completion_tokens: int = 0


class _Answer(BaseModel):
    model_config = ConfigDict(extra="ignore")

    choices: list[_Choice] = Field(min_length=1)
    usage: _Usage | None = None


def _completion(content: bytes) -> Completion:
    try:
        answer = _Answer.model_validate_json(content)
    except ValidationError as error:
        excerpt = content[:200].decode(errors="replace")
        raise BackendGarbled(BACKEND_ID, ASKING, excerpt=excerpt, expected="a chat completion") from error
    usage = answer.usage or _Usage()
    return Completion(
        text=answer.choices[0].message.content or "",
        is_whole=answer.choices[0].finish_reason != "length",
        prompt_tokens=usage.prompt_tokens,
        completion_tokens=usage.completion_tokens,
    )


def _authorisation(settings: LlmSettings) -> dict[str, str]:
    key = settings.api_key.get_secret_value() if settings.api_key else ""
    return {"authorization": f"Bearer {key}"} if key else {}


def _judge(error: Exception) -> Verdict:
    if isinstance(error, EndpointRefused):
        return Verdict(may_pass=error.status in BUSY, asked_s=error.asked_s)
    return Verdict(may_pass=False)
