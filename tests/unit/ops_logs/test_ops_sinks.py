"""Months are counted in UTC, only our own files are seen, and the memory sink keeps what it hears."""

from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

from composable_memory_ops_logs import MemorySink, OpsLog, QueryDelivered, SyncFileSkipped
from composable_memory_ops_logs.sinks import month_files, month_of


def test_a_month_is_the_month_in_utc() -> None:
    new_year_in_tokyo = datetime(2026, 1, 1, 8, 59, tzinfo=timezone(timedelta(hours=9)))

    assert month_of(new_year_in_tokyo) == "2025-12"
    assert month_of(datetime(2026, 1, 1, tzinfo=UTC)) == "2026-01"


def test_only_monthly_files_are_listed_oldest_first(tmp_path: Path) -> None:
    for name in (
        "ops-2026-02.jsonl",
        "ops-2025-12.jsonl",
        "ops-2026-13.jsonl",
        "notes.md",
        "ops-2026-02.jsonl.bak",
    ):
        (tmp_path / name).touch()

    assert [month for month, _ in month_files(tmp_path)] == ["2025-12", "2026-02"]


def test_a_missing_directory_has_no_files(tmp_path: Path) -> None:
    assert month_files(tmp_path / "nowhere") == []


def test_the_memory_sink_sorts_details_by_kind() -> None:
    sink = MemorySink()
    log = OpsLog(None)
    log.subscribe(sink)
    skipped = SyncFileSkipped(path="a.md", reason="not UTF-8")

    log.emit(skipped)
    log.emit(QueryDelivered(result_count=0, paths=()))

    assert sink.actions == ["sync.file_skipped", "query.delivered"]
    assert sink.details(SyncFileSkipped) == [skipped]
