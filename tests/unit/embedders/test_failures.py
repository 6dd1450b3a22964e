"""What an answer without success means is decided by its status and by what it says to programs."""

import json

from composable_memory_adapters.http_failures import FailureKind, failure_of_response, message_of

CODES = [
    (400, FailureKind.REJECTED),
    (401, FailureKind.KEY),
    (402, FailureKind.QUOTA),
    (403, FailureKind.KEY),
    (404, FailureKind.NOT_FOUND),
    (408, FailureKind.BUSY),
    (413, FailureKind.REJECTED),
    (422, FailureKind.REJECTED),
    (429, FailureKind.RATE),
    (500, FailureKind.BUSY),
    (503, FailureKind.BUSY),
    (529, FailureKind.BUSY),
]


def test_the_status_decides() -> None:
    for status, kind in CODES:
        assert failure_of_response(status, b"").kind is kind, status


def test_words_for_people_do_not_decide() -> None:
    for text in ("rate limit, 429", "expected 512 dims", "quota exceeded", "cloudflare"):
        body = json.dumps({"error": {"message": text}}).encode()

        assert failure_of_response(400, body).kind is FailureKind.REJECTED
        assert failure_of_response(429, body).kind is FailureKind.RATE


def gemini_error(quota_id: str) -> bytes:
    details = [
        {"@type": "QuotaFailure", "violations": [{"quotaId": quota_id}]},
        {"@type": "RetryInfo", "retryDelay": "31.5s"},
    ]
    message = "You exceeded your current quota, please check your plan and billing details."
    error = {"code": 429, "status": "RESOURCE_EXHAUSTED", "message": message, "details": details}
    return json.dumps({"error": error}).encode()


def test_a_spent_quota_is_told_from_a_rate_limit() -> None:
    spent = b'{"error": {"code": "insufficient_quota", "type": "insufficient_quota"}}'

    assert failure_of_response(429, spent).kind is FailureKind.QUOTA
    assert (
        failure_of_response(429, gemini_error("RequestsPerDayPerProject-FreeTier")).kind is FailureKind.QUOTA
    )
    assert failure_of_response(429, gemini_error("RequestsPerMinutePerProject")).kind is FailureKind.RATE


def test_the_message_is_found_where_providers_put_it() -> None:
    answers: list[object] = [
        [{"error": {"message": "too much"}}],
        {"object": "list", "data": [{"code": "x"}, {"message": "too much"}]},
        {"error": "too much"},
        {"detail": "too much"},
        "too much",
    ]
    for answer in answers:
        assert message_of(answer) == "too much", answer


def test_the_wait_is_taken_from_the_header_or_else_from_the_body() -> None:
    body = gemini_error("RequestsPerMinutePerProject")

    assert failure_of_response(429, body).retry_after_s == 31.5
    assert failure_of_response(429, body, retry_after_s=2.0).retry_after_s == 2.0
    assert failure_of_response(429, b"{}").retry_after_s is None


def test_gemini_says_with_400_that_a_key_is_wrong() -> None:
    body = b'{"error": {"code": 400, "details": [{"reason": "API_KEY_INVALID"}]}}'

    assert failure_of_response(400, body).kind is FailureKind.KEY


def test_an_error_has_the_message_or_else_the_body() -> None:
    cases = [
        (b'{"error": {"message": "no such model", "code": 1}}', "no such model", True),
        (b'{"error": "no such model"}', "no such model", True),
        (b'{"object": "error", "message": "no such model"}', "no such model", True),
        (b'{"detail": "no such model"}', "no such model", True),
        (b'{"oops": 1}', '{"oops": 1}', False),
        (b"<html>no</html>", "<html>no</html>", False),
        (b"\xff\xfe", "\ufffd\ufffd", False),
        (b"[" * 5000, "[" * 5000, False),
        (b"", "", False),
    ]
    for body, detail, is_explained in cases:
        failure = failure_of_response(404, body)
        assert (failure.detail, failure.is_explained) == (detail, is_explained)
