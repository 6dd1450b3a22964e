"""Files that are replaced in one step."""

from pathlib import Path

import pytest

from composable_memory_ops_logs.private_files import replace_file, replacing


def test_a_file_is_replaced_whole_and_is_its_owners_alone(tmp_path: Path) -> None:
    target = tmp_path / "state.json"
    target.write_text("a longer text than the new one")
    target.chmod(0o644)

    replace_file(target, b"{}", survives="kill")
    assert target.read_bytes() == b"{}"
    assert target.stat().st_mode & 0o777 == 0o600

    replace_file(target, b"[]", survives="power cut")
    assert target.read_bytes() == b"[]"
    assert _files(tmp_path) == {"state.json": "[]"}


def test_a_block_that_fails_leaves_what_was_there_and_nothing_beside_it(tmp_path: Path) -> None:
    target = tmp_path / "state.json"
    target.write_text("old")

    def fail_halfway() -> None:
        with replacing(target, survives="power cut") as scratch:
            scratch.write_text("ne")
            raise ValueError("half written")

    with pytest.raises(ValueError, match="half"):
        fail_halfway()

    assert _files(tmp_path) == {"state.json": "old"}


def test_two_at_once_do_not_mix_what_they_write(tmp_path: Path) -> None:
    target = tmp_path / "state.json"

    with replacing(target, survives="kill") as one, replacing(target, survives="kill") as other:
        one.write_text("one, the longer text")
        other.write_text("other")

    assert target.read_text() == "one, the longer text"


def _files(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in folder.iterdir() if path.is_file()}
