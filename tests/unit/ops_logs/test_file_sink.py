"""Days are counted in UTC, only our own files are seen, and the memory sink keeps what it hears."""

from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest

from composable_memory_ops_logs import MemorySink, OpsLog, QueryDelivered, SyncFileSkipped
from composable_memory_ops_logs.file_sink import FileSink
from composable_memory_ops_logs.segments import day_of, segments_in
from tests.full_disk import no_file_longer_than


def test_a_day_is_the_day_in_utc() -> None:
    new_year_in_tokyo = datetime(2026, 1, 1, 8, 59, tzinfo=timezone(timedelta(hours=9)))

    assert day_of(new_year_in_tokyo) == "2025-12-31"
    assert day_of(datetime(2026, 1, 1, tzinfo=UTC)) == "2026-01-01"


def test_only_files_of_the_log_are_listed_oldest_first_whatever_state_they_are_in(tmp_path: Path) -> None:
    for name in (
        "ops-2026-02.jsonl",
        "ops-2026-02-01.0002.jsonl",
        "ops-2026-02-01.0001.jsonl",
        "ops-2026-02-01.0001.jsonl.gz",
        "ops-2025-12-31.0001.kept.jsonl.gz",
        "ops-2026-02-01.0001.idx",
        "ops-2026-13.jsonl",
        "notes.md",
        "ops-2026-02.jsonl.bak",
        "ops-2026-02-01.0003.jsonl.gz.tmp",
    ):
        (tmp_path / name).touch()

    assert [one.stem for one in segments_in(tmp_path)] == [
        "ops-2025-12-31.0001",
        "ops-2026-02",
        "ops-2026-02-01.0001",
        "ops-2026-02-01.0002",
    ]


def test_of_lines_that_do_not_fit_on_the_disk_no_half_one_stays(tmp_path: Path) -> None:
    sink, line = FileSink(tmp_path, retention_days=30, max_bytes=10**9), b'{"a":"%s"}\n' % (b"x" * 90)
    sink.append("2026-03-01", [line])
    with no_file_longer_than(350), pytest.raises(OSError, match="fit"):
        sink.append("2026-03-01", [line] * 5)

    (written,) = segments_in(tmp_path)
    assert written.open_path.read_bytes().endswith(line)
    assert 100 < written.open_path.stat().st_size <= 350


def test_a_missing_directory_has_no_files(tmp_path: Path) -> None:
    assert segments_in(tmp_path / "nowhere") == []


def test_the_memory_sink_sorts_details_by_kind() -> None:
    sink = MemorySink()
    log = OpsLog(None)
    log.subscribe(sink)
    skipped = SyncFileSkipped(path="a.md", reason="not UTF-8")

    log.emit(skipped)
    log.emit(QueryDelivered(result_count=0, paths=()))

    assert sink.actions == ["sync.file_skipped", "query.delivered"]
    assert sink.details(SyncFileSkipped) == [skipped]
