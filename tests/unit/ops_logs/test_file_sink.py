"""Days are counted in UTC, only our own files are seen, and the memory sink keeps what it hears."""

from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

from composable_memory_ops_logs import MemorySink, OpsLog, QueryDelivered, SyncFileSkipped
from composable_memory_ops_logs.segments import day_of, segments_in


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
