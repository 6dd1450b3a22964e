"""What an answer without success means is decided by its status and by what it says to programs."""

import json

import pytest

from composable_memory_adapters.embedders.remote.refusals import Trouble, message_of, read_refusal

CODES = [
    (400, Trouble.REJECTED),
    (401, Trouble.KEY),
    (402, Trouble.QUOTA),
    (403, Trouble.KEY),
    (404, Trouble.NOT_FOUND),
    (408, Trouble.REJECTED),
    (413, Trouble.REJECTED),
    (422, Trouble.REJECTED),
    (429, Trouble.RATE),
    (500, Trouble.BUSY),
    (503, Trouble.BUSY),
    (529, Trouble.BUSY),
]


@pytest.mark.parametrize(("status", "trouble"), CODES)
def test_the_status_decides(status: int, trouble: Trouble) -> None:
    assert read_refusal(status, b"").trouble is trouble


@pytest.mark.parametrize("text", ["rate limit, 429", "expected 512 dims", "quota exceeded", "cloudflare"])
def test_words_for_people_do_not_decide(text: str) -> None:
    body = json.dumps({"error": {"message": text}}).encode()

    assert read_refusal(400, body).trouble is Trouble.REJECTED
    assert read_refusal(429, body).trouble is Trouble.RATE


def gemini_refusal(quota_id: str) -> bytes:
    details = [
        {"@type": "QuotaFailure", "violations": [{"quotaId": quota_id}]},
        {"@type": "RetryInfo", "retryDelay": "31.5s"},
    ]
    message = "You exceeded your current quota, please check your plan and billing details."
    error = {"code": 429, "status": "RESOURCE_EXHAUSTED", "message": message, "details": details}
    return json.dumps({"error": error}).encode()


def test_a_spent_quota_is_told_from_a_rate_limit() -> None:
    spent = b'{"error": {"code": "insufficient_quota", "type": "insufficient_quota"}}'

    assert read_refusal(429, spent).trouble is Trouble.QUOTA
    assert read_refusal(429, gemini_refusal("RequestsPerDayPerProject-FreeTier")).trouble is Trouble.QUOTA
    assert read_refusal(429, gemini_refusal("RequestsPerMinutePerProject")).trouble is Trouble.RATE


@pytest.mark.parametrize(
    "answer",
    [
        [{"error": {"message": "too much"}}],
        {"object": "list", "data": [{"code": "x"}, {"message": "too much"}]},
        {"error": "too much"},
        {"detail": "too much"},
        "too much",
    ],
)
def test_the_sentence_for_people_is_found_where_providers_put_it(answer: object) -> None:
    assert message_of(answer) == "too much"


def test_the_wait_is_taken_from_the_header_or_else_from_the_body() -> None:
    body = gemini_refusal("RequestsPerMinutePerProject")

    assert read_refusal(429, body).asked_s == 31.5
    assert read_refusal(429, body, asked_s=2.0).asked_s == 2.0
    assert read_refusal(429, b"{}").asked_s is None


def test_gemini_says_with_400_that_a_key_is_wrong() -> None:
    body = b'{"error": {"code": 400, "details": [{"reason": "API_KEY_INVALID"}]}}'

    assert read_refusal(400, body).trouble is Trouble.KEY


@pytest.mark.parametrize(
    ("body", "said", "is_explained"),
    [
        (b'{"error": {"message": "no such model", "code": 1}}', "no such model", True),
        (b'{"error": "no such model"}', "no such model", True),
        (b'{"object": "error", "message": "no such model"}', "no such model", True),
        (b'{"detail": "no such model"}', "no such model", True),
        (b'{"oops": 1}', '{"oops": 1}', False),
        (b"<html>no</html>", "<html>no</html>", False),
        (b"\xff\xfe", "\ufffd\ufffd", False),
        (b"[" * 5000, "[" * 5000, False),
        (b"", "", False),
    ],
)
def test_the_sentence_for_people_is_found(body: bytes, said: str, is_explained: bool) -> None:
    failure = read_refusal(404, body)

    assert (failure.said, failure.is_explained) == (said, is_explained)
