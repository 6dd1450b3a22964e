"""Reading a log: filters, pages, traces by prefix, bad lines, and messages that say what to do."""

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import orjson
import pytest

from composable_memory_ops_logs import EventFilter, OpsEvent, OpsLogError, OpsLogReader
from composable_memory_ops_logs.erasing import erase
from composable_memory_ops_logs.line_format import event_to_wire, sealed, to_line
from composable_memory_ops_logs.reader import MAX_PAGE

NEW_YEAR = datetime(2026, 1, 1, tzinfo=UTC)


def event(number: int, **changes: object) -> OpsEvent:
    """Return event `number`; each is a day later than the one before, so months change on the way."""
    known = {
        "id": f"e{number}",
        "ts": NEW_YEAR + timedelta(days=number),
        "action": "query.start" if number % 2 else "query.merged",
        "status": "success",
        "trace_id": f"trace-{number // 2:04}",
    }
    return OpsEvent(**{**known, **changes}, detail={})  # type: ignore[arg-type]


def write(folder: Path, events: Sequence[OpsEvent]) -> OpsLogReader:
    for one in events:
        with (folder / f"ops-{one.ts:%Y-%m}.jsonl").open("ab") as file:
            file.write(to_line(event_to_wire(one)))
    return OpsLogReader(folder)


def ids(events: Sequence[OpsEvent]) -> list[str]:
    return [one.id for one in events]


def test_a_missing_directory_reads_as_an_empty_log(tmp_path: Path) -> None:
    reader = OpsLogReader(tmp_path / "nowhere")

    assert reader.read().events == ()
    assert reader.trace("abcd") == []
    assert reader.tail(5) == []


def test_pages_are_newest_first_over_the_months(tmp_path: Path) -> None:
    reader = write(tmp_path, [event(number) for number in range(70)])

    page = reader.read(limit=3, offset=38)

    assert ids(page.events) == ["e31", "e30", "e29"]
    assert page.has_more


def test_the_last_page_says_that_there_is_no_more(tmp_path: Path) -> None:
    reader = write(tmp_path, [event(number) for number in range(4)])

    assert reader.read(limit=4).has_more is False
    assert reader.read(limit=3).has_more is True
    assert reader.read(offset=4).events == ()


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (EventFilter(), ["e3", "e2", "e1", "e0"]),
        (EventFilter(action="query.start"), ["e3", "e1"]),
        (EventFilter(backend="qmd"), ["e2"]),
        (EventFilter(trace_id="trace-0000"), ["e1", "e0"]),
        (EventFilter(traces=frozenset({"trace-0000", "else"})), ["e1", "e0"]),
        (EventFilter(traces=frozenset()), []),
        (EventFilter(session_key="agent:main"), ["e3"]),
        (EventFilter(status="failure"), ["e1"]),
        (EventFilter(start=NEW_YEAR + timedelta(days=2)), ["e3", "e2"]),
        (EventFilter(end=NEW_YEAR + timedelta(days=1)), ["e1", "e0"]),
        (EventFilter(start=NEW_YEAR, end=NEW_YEAR), ["e0"]),
        (EventFilter(action="query.start", status="success"), ["e3"]),
    ],
)
def test_filters_restrict_together(tmp_path: Path, wanted: EventFilter, expected: list[str]) -> None:
    events = [
        event(0),
        event(1, status="failure"),
        event(2, backend="qmd"),
        event(3, session_key="agent:main"),
    ]
    reader = write(tmp_path, events)

    assert ids(reader.read(wanted).events) == expected


def test_a_filter_by_time_reads_only_the_months_it_covers(tmp_path: Path) -> None:
    reader = write(tmp_path, [event(0), event(40), event(80)])
    (tmp_path / "ops-2026-01.jsonl").write_text("spoilt\n", encoding="utf-8")

    page = reader.read(EventFilter(start=NEW_YEAR + timedelta(days=35), end=NEW_YEAR + timedelta(days=50)))

    assert (ids(page.events), page.bad_lines) == (["e40"], 0)


def test_a_filter_needs_a_time_zone() -> None:
    with pytest.raises(ValueError, match="start is 2026-01-01 00:00:00, without a time zone"):
        EventFilter(start=NEW_YEAR.replace(tzinfo=None))


@pytest.mark.parametrize("limit", [0, -1, MAX_PAGE + 1])
def test_a_page_has_a_size_within_limits(tmp_path: Path, limit: int) -> None:
    with pytest.raises(ValueError, match=f"limit is {limit}; give 1 to 500"):
        OpsLogReader(tmp_path).read(limit=limit)


def test_an_offset_is_not_negative(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="offset is -1"):
        OpsLogReader(tmp_path).read(offset=-1)


def test_a_changed_bit_of_a_line_is_told_of(tmp_path: Path) -> None:
    """Whatever it changes: a number, the trace, the end of the line or its checksum."""
    line, path = sealed(to_line(event_to_wire(event(1)))), tmp_path / "ops-2026-01.jsonl"
    path.write_bytes(line)
    known, _ = trace_told_of(tmp_path)
    silent = []
    for place in range(len(line)):
        path.write_bytes(line[:place] + bytes([line[place] ^ 1 << place % 8]) + line[place + 1 :])
        found, is_told = trace_told_of(tmp_path)
        if found != known and not is_told:
            silent.append(place)

    assert ids(known) == ["e1"]
    assert silent == []


def test_a_file_that_was_cut_within_a_line_is_told_of(tmp_path: Path) -> None:
    """Also where the trace of the line is cut off, so that nothing says that it is wanted."""
    first, last = (sealed(to_line(event_to_wire(event(number)))) for number in (0, 1))
    silent = []
    for cut in range(1, len(last) - 1):
        (tmp_path / "ops-2026-01.jsonl").write_bytes(first + last[:cut])
        found, is_told = trace_told_of(tmp_path)
        if ids(found) != ["e0"] or not is_told:
            silent.append(cut)

    assert silent == []


def trace_told_of(folder: Path) -> tuple[list[OpsEvent], bool]:
    """Return the events of a trace, and whether the reader told of a bad line."""
    told: list[None] = []
    return OpsLogReader(folder, on_bad_line=lambda: told.append(None)).trace("trace-0000"), bool(told)


def test_lines_that_something_was_erased_from_are_no_damage(tmp_path: Path) -> None:
    (tmp_path / "ops-2026-01.jsonl").write_bytes(sealed(to_line(wire_of("the key lies under the pot"))))
    told: list[None] = []

    count = erase(tmp_path, lambda text: text.replace("the pot", "…"), words=["pot"], is_of=lambda _: True)
    (found,) = OpsLogReader(tmp_path, on_bad_line=lambda: told.append(None)).events()

    assert (count, told) == (1, [])
    assert found.detail == {"query": "the key lies under …"}


def test_of_a_trace_that_was_restored_into_another_memory_only_the_lines_of_one_are_erased(
    tmp_path: Path,
) -> None:
    for month, memory in (("01", "theirs"), ("02", "ours")):
        start = event_to_wire(event(0)) | {"action": "query.start", "detail": {"memory": memory}}
        lines = [start, wire_of("the key lies under the pot")]
        (tmp_path / f"ops-2026-{month}.jsonl").write_bytes(b"".join(map(to_line, lines)))

    count = erase(tmp_path, lambda text: text.replace("pot", "…"), words=["pot"], is_of="ours".__eq__)
    queries = [one.detail.get("query") for one in OpsLogReader(tmp_path).events()]  # type: ignore[union-attr]

    assert count == 1
    assert [one for one in queries if one] == ["the key lies under the …", "the key lies under the pot"]


def test_a_damaged_line_that_holds_what_is_erased_goes_as_a_whole(tmp_path: Path) -> None:
    line = sealed(to_line(wire_of("the key lies under the pot")))
    path = tmp_path / "ops-2026-01.jsonl"
    path.write_bytes(line.replace(b"lies", b"lied") + sealed(to_line(event_to_wire(event(1)))))

    count = erase(tmp_path, str.upper, words=["pot"], is_of=lambda _: True)

    assert (count, ids([*OpsLogReader(tmp_path).events()])) == (1, ["e1"])


def wire_of(query: str) -> dict[str, object]:
    return event_to_wire(event(0)) | {"detail": {"query": query}}


def test_bad_lines_are_passed_over_and_counted(tmp_path: Path) -> None:
    reader = write(tmp_path, [event(0)])
    with (tmp_path / "ops-2026-01.jsonl").open("ab") as file:
        file.write(b'not json\n\n{"half": \n\xff\xfe\n' + orjson.dumps({"json": "but no event"}) + b"\n")
    write(tmp_path, [event(1)])

    page = reader.read()

    assert (ids(page.events), page.bad_lines) == (["e1", "e0"], 4)


def test_a_last_line_without_its_newline_is_read(tmp_path: Path) -> None:
    reader = write(tmp_path, [event(0), event(1)])
    path = tmp_path / "ops-2026-01.jsonl"
    path.write_bytes(path.read_bytes().rstrip(b"\n"))

    assert ids(reader.read().events) == ["e1", "e0"]


@pytest.mark.parametrize("chars", [10, 65_000, 65_536, 200_000])
def test_lines_longer_than_a_block_are_read_whole(tmp_path: Path, chars: int) -> None:
    events = [event(number, session_key="x" * (chars + number)) for number in range(5)]

    read = write(tmp_path, events).read().events

    assert list(read) == events[::-1]


def test_the_tail_is_the_newest_events_oldest_first(tmp_path: Path) -> None:
    reader = write(tmp_path, [event(number) for number in range(40)])

    assert ids(reader.tail(3)) == ["e37", "e38", "e39"]
    assert ids(reader.tail(0)) == []


def test_a_trace_is_read_oldest_first(tmp_path: Path) -> None:
    reader = write(tmp_path, [event(0), event(30, trace_id="other"), event(40, trace_id="trace-0000")])

    assert ids(reader.trace("trace-0000")) == ["e0", "e40"]


def test_a_unique_prefix_names_a_trace(tmp_path: Path) -> None:
    reader = write(
        tmp_path, [event(0, trace_id="abcd-1"), event(1, trace_id="abce-1"), event(2, trace_id="abcd-1")]
    )

    assert ids(reader.trace("abcd")) == ["e0", "e2"]


def test_a_shorter_prefix_names_nothing(tmp_path: Path) -> None:
    reader = write(tmp_path, [event(0, trace_id="abcd-1")])

    assert reader.trace("abc") == []
    assert reader.trace("") == []
    assert reader.trace("\udcff\udcff\udcff\udcff") == []


def test_a_short_id_is_found_when_it_is_whole(tmp_path: Path) -> None:
    reader = write(tmp_path, [event(0, trace_id="t1"), event(1, trace_id="t12")])

    assert ids(reader.trace("t1")) == ["e0"]


def test_a_whole_id_wins_over_longer_ones_that_begin_with_it(tmp_path: Path) -> None:
    reader = write(
        tmp_path, [event(0, trace_id="abcd"), event(1, trace_id="abcde"), event(2, trace_id="abcd")]
    )

    assert ids(reader.trace("abcd")) == ["e0", "e2"]


def test_an_ambiguous_prefix_names_its_candidates(tmp_path: Path) -> None:
    reader = write(tmp_path, [event(number) for number in range(14)])

    with pytest.raises(OpsLogError) as caught:
        reader.trace("trace-")

    told = str(caught.value)
    assert re.findall(r"trace-\d+", told) == [f"trace-000{number}" for number in range(5)]
    assert (told.startswith("7 "), told.endswith(" 2 more")) == (True, True)


def test_a_directory_that_is_a_file_is_told(tmp_path: Path) -> None:
    path = tmp_path / "ops-logs"
    path.touch()

    with pytest.raises(OpsLogError) as caught:
        OpsLogReader(path).read()

    assert "Not a directory" in str(caught.value)
    assert str(path) in str(caught.value)


def test_a_month_that_is_a_directory_is_told(tmp_path: Path) -> None:
    (tmp_path / "ops-2026-01.jsonl").mkdir()

    with pytest.raises(OpsLogError, match=r"Is a directory.*ops-2026-01\.jsonl"):
        OpsLogReader(tmp_path).read()
