"""Blanking messages in a transcript: what an agent reads beside them stays as it is."""

import json
from pathlib import Path
from typing import Any

import pytest

from composable_memory.errors import NoteNotWritten
from composable_memory.forget.transcript_messages import blank_messages
from tests.full_disk import no_file_longer_than

SAID = "the spare key lies under the pot"


def record(content: object, **fields: object) -> dict[str, Any]:
    return {"type": "user", "message": {"role": "user", "content": content}, **fields}


def blanked(folder: Path, *records: dict[str, Any]) -> list[dict[str, Any]]:
    """Return records as they are when the message of the first is blanked, written with raw letters."""
    file = folder / "a.jsonl"
    file.write_text("\r\n".join(json.dumps(one, ensure_ascii=False) for one in records), encoding="utf-8")
    size = file.stat().st_size
    blank_messages("sessions/a.jsonl", file, {1})
    assert file.stat().st_size == size
    return [json.loads(line) for line in file.read_bytes().split(b"\r\n")]


def test_what_stands_around_a_quoted_message_stays_in_any_language(tmp_path: Path) -> None:
    around = "Réponse à été répétée\n« {} »\n北京市 où était-il déjà passé à côté ‍🧑‍🌾"
    _, quoting = blanked(tmp_path, record(SAID), record(around.format(SAID)))
    assert quoting == record(around.format("[forgotten]"))


def test_a_short_part_of_a_message_goes_from_this_message_alone(tmp_path: Path) -> None:
    parts = [{"type": "text", "text": text} for text in ("ok", "text", "user", SAID)]
    others = [record("ok", status="ok"), record("user")]
    meant, *left = blanked(tmp_path, record(parts), *others)
    assert left == others
    assert (meant["type"], meant["message"]["role"]) == ("user", "user")
    assert [one["type"] for one in meant["message"]["content"]] == ["text"] * 4
    assert {one["text"] for one in meant["message"]["content"]} == {"*", "[forgotten]"}


@pytest.mark.parametrize("said", ["/home/ann/work/notes", "3f0c1c52-9b1e-4a8b-8d0e-5f2f6f1f0a11"])
def test_a_message_that_is_a_folder_or_an_id_leaves_these_to_the_agent(tmp_path: Path, said: str) -> None:
    fields = {"cwd": said, "transcript": f"{said}/a.jsonl", "uuid": said}
    assert blanked(tmp_path, record(said, **fields)) == [record("[forgotten]", **fields)]


def test_words_that_end_within_a_word_of_another_message_are_no_quotation(tmp_path: Path) -> None:
    other = record("Today I am in an office")
    assert blanked(tmp_path, record("I am in a"), other)[1] == other


def test_copies_that_could_not_be_overwritten_go_when_it_is_tried_again(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    lines = [json.dumps(record(text)) for text in (SAID, "bye " * 5000, SAID)]
    file.write_text("\n".join(lines))
    with no_file_longer_than(10_000), pytest.raises(NoteNotWritten):
        blank_messages("sessions/a.jsonl", file, {1})
    blank_messages("sessions/a.jsonl", file, {1})
    assert SAID not in file.read_text()
