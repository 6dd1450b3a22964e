"""Failed requests over HTTP, and what an error response means."""

import re
from collections.abc import Iterator, Mapping
from enum import StrEnum
from http.client import responses

from pydantic_core import from_json


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


class HttpFailure(Exception):
    """A failed request. `detail` is what the other side or the network said, with every secret still in it.

    `is_explained` says that the other side gave its reason in JSON, as an API does and other servers do not.
    It stays among the adapters: each turns it into an error of its own.
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
    """Return the message for people, such as `error.message`, `error.reason`, `message` or `detail.msg`."""
    if isinstance(answer, str):
        return answer
    if isinstance(answer, list):
        return next(filter(None, map(message_of, answer)), "")
    if not isinstance(answer, Mapping):
        return ""
    parts = (message_of(answer.get(name)) for name in ("error", "message", "detail", "msg", "reason", "data"))
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
        case _ if status >= 500 or status in {408, 425}:
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
