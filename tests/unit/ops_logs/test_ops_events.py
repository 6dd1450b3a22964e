"""The actions, and that every field is named so that its line can be masked and read."""

from dataclasses import FrozenInstanceError, fields, is_dataclass

import pytest

import composable_memory_ops_logs
from composable_memory_ops_logs import ErrorInfo, EventDetail, QueryDelivered
from composable_memory_ops_logs.redaction.secret_names import is_secret_name

VALUES: list[type] = [
    value
    for name in composable_memory_ops_logs.__all__
    if isinstance(value := getattr(composable_memory_ops_logs, name), type) and is_dataclass(value)
]


def test_the_actions_are_those_that_readers_know() -> None:
    details = [value for value in VALUES if issubclass(value, EventDetail) and value is not EventDetail]

    assert {detail.action for detail in details} == {
        "query.start",
        "query.backend_result",
        "query.merged",
        "query.delivered",
        "memory.read",
        "memory.forgotten",
        "memory.remembered",
        "answer.given",
        "context_pack.build",
        "ingest.start",
        "ingest.stage_complete",
        "ingest.complete",
        "graphiti.ingest",
        "graphiti.query",
        "graphiti.health",
        "sync.start",
        "sync.file_indexed",
        "sync.file_skipped",
        "sync.complete",
        "sync.failed",
        "backend.opened",
        "backend.degraded",
        "backend.recovered",
        "feedback.evaluated",
        "weights.advised",
        "weights.changed",
        "experiment.changed",
        "learning.failed",
    }
    assert len(details) == 28


@pytest.mark.parametrize("value", VALUES, ids=lambda value: value.__name__)
def test_no_field_of_a_detail_is_named_like_a_secret(value: type) -> None:
    """Such a field would be masked whole; the session key of the event itself is treated apart."""
    names = {field.name for field in fields(value)} - {"session_key"}

    assert not [name for name in names if is_secret_name(name)]


def test_details_cannot_be_changed() -> None:
    detail = QueryDelivered(result_count=0, paths=())

    with pytest.raises(FrozenInstanceError):
        detail.result_count = 1  # type: ignore[misc]  # it is what the test is about


def test_an_error_is_told_by_class_and_message() -> None:
    assert ErrorInfo.of(ValueError("too big")) == ErrorInfo(type="ValueError", message="too big")


def test_an_error_without_a_message_is_told_by_its_representation() -> None:
    assert ErrorInfo.of(TimeoutError()) == ErrorInfo(type="TimeoutError", message="TimeoutError()")
