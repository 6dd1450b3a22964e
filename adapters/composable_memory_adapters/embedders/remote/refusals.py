"""What went wrong with a request, and what an answer that is no success says about it (pure)."""

import re
from collections.abc import Iterator, Mapping
from enum import StrEnum
from http.client import responses

from pydantic_core import from_json

__all__ = ["HttpFailure", "Trouble", "message_of", "read_refusal"]


class Trouble(StrEnum):
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


_PASSING = {Trouble.UNREACHABLE, Trouble.BROKEN, Trouble.RATE, Trouble.BUSY}


class HttpFailure(Exception):
    """A request failed. `said` is what the other side or the network said, with every secret still in it.

    `is_explained` says that the other side gave its reason in JSON, as an API does and other servers do not.
    It never leaves the room of the embedders: `Complaints` makes an `EmbeddingError` of it.
    """

    def __init__(
        self,
        trouble: Trouble,
        problem: str,
        *,
        said: str = "",
        is_explained: bool = False,
        asked_s: float | None = None,
    ) -> None:
        super().__init__(problem)
        self.trouble = trouble
        self.problem = problem
        self.said = said
        self.is_explained = is_explained
        self.asked_s = asked_s

    @property
    def may_pass(self) -> bool:
        """Say whether the same request may succeed a little later."""
        return self.trouble in _PASSING


def read_refusal(status: int, body: bytes, *, asked_s: float | None = None) -> HttpFailure:
    """Return the failure behind an answer with a status that is no success.

    `asked_s` is what the header `Retry-After` asks for; some providers ask in the body instead.

    The status decides. Only what is written for programs (codes, types, reasons) tells a spent quota from a
    rate limit, never the words for people: some providers speak of a quota whenever calls come too fast.
    """
    answer = _parsed(body)
    codes = set(_values(answer, {"code", "type", "status", "reason", "quotaId"}))
    delays = list(_values(answer, {"retryDelay"}))
    return HttpFailure(
        _trouble(status, codes),
        f"answered {status} {responses.get(status, '')}".rstrip(),
        said=message_of(answer) or body.decode("utf-8", "replace"),
        is_explained=bool(message_of(answer)),
        asked_s=asked_s or _seconds(delays),
    )


def message_of(answer: object) -> str:
    """Return the sentence for people: `error.message`, `error`, `message` or `detail`, as is the custom."""
    if isinstance(answer, str):
        return answer
    if isinstance(answer, list):
        return next(filter(None, map(message_of, answer)), "")
    if not isinstance(answer, Mapping):
        return ""
    parts = (message_of(answer.get(name)) for name in ("error", "message", "detail", "data"))
    return next(filter(None, parts), "")


def _trouble(status: int, codes: set[str]) -> Trouble:
    match status:
        case 401 | 403:
            return Trouble.KEY
        case 400 if "API_KEY_INVALID" in codes:
            return Trouble.KEY
        case 402:
            return Trouble.QUOTA
        case 404:
            return Trouble.NOT_FOUND
        case 429:
            return Trouble.QUOTA if any(map(_names_a_spent_quota, codes)) else Trouble.RATE
        case _ if status >= 500:
            return Trouble.BUSY
    return Trouble.REJECTED


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
