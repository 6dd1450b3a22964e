"""The settings of learning: what they are without a word, and what cannot be."""

import pytest
from pydantic import ValidationError

from composable_memory.config.settings import FeedbackSettings, JudgeSettings
from composable_memory_feedback.advice.proposal import AdviceLimits


def test_nothing_is_learnt_or_changed_unless_somebody_says_so() -> None:
    settings = FeedbackSettings()

    assert (settings.enabled, settings.auto_apply, settings.llm.base_url) == (False, False, None)


def test_the_defaults_are_those_of_the_guardrails() -> None:
    assert FeedbackSettings().limits == AdviceLimits()


def test_every_limit_comes_from_its_setting() -> None:
    settings = FeedbackSettings(
        min_weight=0.3,
        max_step=0.05,
        min_samples=11,
        min_intent_samples=12,
        golden_tolerance=0.01,
    )

    assert settings.limits == AdviceLimits(
        min_weight=0.3,
        max_step=0.05,
        min_samples=11,
        min_intent_samples=12,
        golden_tolerance=0.01,
    )


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("interval_s", 0),
        ("window_days", 0),
        ("retention_days", 0),
        ("evaluations_per_hour", -1),
        ("depth", 0),
        ("min_samples", 9),
        ("min_intent_samples", 9),
        ("min_weight", 0.0),
        ("min_weight", float("nan")),
        ("max_step", 0.0),
        ("max_step", 1.1),
        ("golden_tolerance", 1.0),
        ("cool_down_hours", -1.0),
        ("cool_down_hours", float("nan")),
        ("unheard_of", 1),
    ],
)
def test_what_would_take_the_guard_away_is_refused(key: str, value: object) -> None:
    with pytest.raises(ValidationError) as caught:
        FeedbackSettings.model_validate({key: value})

    assert caught.value.errors()[0]["loc"] == (key,)


@pytest.mark.parametrize("address", ["http://127.0.0.1:8080/v1", "https://models.example/v1/"])
def test_an_endpoint_is_an_address_without_a_last_slash(address: str) -> None:
    assert JudgeSettings(base_url=address).base_url == address.rstrip("/")


@pytest.mark.parametrize(
    "address",
    [
        "",
        "127.0.0.1:8080",
        "ftp://models.example/v1",
        "file:///etc/passwd",
        "http://",
        "http://:8080/v1",
        "http://me:sesame@models.example/v1",
        "https://models.example/v1?key=sesame",
        "http://[::1/v1",
    ],
)
def test_what_is_no_endpoint_or_holds_a_secret_is_refused(address: str) -> None:
    with pytest.raises(ValidationError):
        JudgeSettings(base_url=address)


def test_a_key_is_not_shown() -> None:
    settings = FeedbackSettings.model_validate({"llm": {"api_key": "sesame"}})

    assert "sesame" not in f"{settings!r} {settings.model_dump_json()}"
