"""What an agent answered after a search is found in its transcript, whoever wrote it."""

import json
import os
from datetime import UTC, datetime
from pathlib import Path

import pytest

from composable_memory.learning.transcript_answers import answers_in, quotes_in_transcripts
from composable_memory_ops_logs import TakenFrom

REPLY = {
    "traceId": "trace-1",
    "results": [
        {
            "path": "memory/garden.md",
            "startLine": 3,
            "endLine": 5,
            "score": 0.9,
            "snippet": "The spare key hangs behind the blue watering can in the shed.",
        }
    ],
}
ANSWER = "It says: the spare key hangs behind the blue watering can in the shed, so look there."

OPENCLAW = {
    "type": "message",
    "message": {"role": "toolResult", "content": [{"type": "text", "text": json.dumps(REPLY)}]},
}
ANTHROPIC = {
    "type": "user",
    "message": {
        "role": "user",
        "content": [{"type": "tool_result", "content": [{"type": "text", "text": json.dumps(REPLY)}]}],
    },
}
CODEX = {"type": "response_item", "payload": {"type": "function_call_output", "output": json.dumps(REPLY)}}
STRUCTURED = {"type": "message", "message": {"role": "tool", "structuredContent": REPLY}}


def said(role: str, text: str, at: str = "2026-03-01T12:00:00Z") -> dict[str, object]:
    content = [{"type": "text", "text": text}]
    return {"type": "message", "timestamp": at, "message": {"role": role, "content": content}}


def transcript(*records: object) -> str:
    return "\n".join(map(json.dumps, records))


@pytest.mark.parametrize("result", [OPENCLAW, ANTHROPIC, CODEX, STRUCTURED])
def test_an_answer_is_joined_with_the_search_before_it(result: object) -> None:
    text = transcript(said("user", "Where is the key?"), result, said("assistant", ANSWER))

    found = list(answers_in(text))

    assert [(one.trace_id, one.text) for one in found] == [("trace-1", ANSWER)]
    assert found[0].shown[0].place.path == "memory/garden.md"


def test_what_is_said_after_another_question_is_no_answer_to_the_first() -> None:
    text = transcript(OPENCLAW, said("user", "Never mind. What is for lunch?"), said("assistant", ANSWER))

    assert list(answers_in(text)) == []


def test_an_answer_in_several_messages_is_one() -> None:
    text = transcript(OPENCLAW, said("assistant", "Let me see."), said("assistant", ANSWER))

    assert [one.text for one in answers_in(text)] == [f"Let me see.\n{ANSWER}"]


@pytest.mark.parametrize(
    "line",
    [
        "{",
        '{"traceId": 1, "results": []}',
        '{"traceId": "x", "results": "none"}',
        '{"traceId": "x", "results": [1, {"path": 2}]}',
        "[" * 5000 + '"traceId"',
    ],
)
def test_rubbish_shows_nothing(line: str) -> None:
    found = list(answers_in(f"{line}\n{transcript(said('assistant', ANSWER))}"))

    assert all(one.shown == () for one in found)


def test_quotes_are_told_with_the_trace_and_the_time(tmp_path: Path) -> None:
    (tmp_path / "s1.jsonl").write_text(transcript(OPENCLAW, said("assistant", ANSWER)), encoding="utf-8")

    found = quotes_in_transcripts(tmp_path, since=datetime(2026, 1, 1, tzinfo=UTC))

    assert [(one.query_trace_id, one.quoted, one.at) for one in found] == [
        ("trace-1", (TakenFrom("memory/garden.md", 3, 5),), datetime(2026, 3, 1, 12, tzinfo=UTC))
    ]


def test_transcripts_that_did_not_change_are_not_read(tmp_path: Path) -> None:
    old = tmp_path / "s1.jsonl"
    old.write_text(transcript(OPENCLAW, said("assistant", ANSWER)), encoding="utf-8")
    os.utime(old, (1_000_000_000, 1_000_000_000))

    assert quotes_in_transcripts(tmp_path, since=datetime(2026, 1, 1, tzinfo=UTC)) == []


def test_a_folder_that_is_missing_has_no_transcripts(tmp_path: Path) -> None:
    assert quotes_in_transcripts(tmp_path / "none", since=datetime(2026, 1, 1, tzinfo=UTC)) == []
