"""How a status is drawn, whatever a backend puts into it."""

import pytest
from pydantic import JsonValue

from composable_memory.cli.status_drawing import known_rows, show_fields, show_rows
from composable_memory.tools import ProviderStatus
from composable_memory.types import FallbackStatus, SourceCount, VectorStatus

QMD: dict[str, JsonValue] = {
    "version": "2.8.3",
    "way": None,
    "collections": [
        {"name": "memory-root", "path": "/notes", "pattern": "{MEMORY,memory}.md", "files": 2},
        {"name": "wiki", "path": "/wiki", "pattern": "**/*.md", "files": None},
    ],
    "index": {"file": "/state/index.sqlite", "bytes": 3_250_586},
    "daemon": {"state": "running", "address": "/tmp/cmem-x/s", "pid": 17, "problem": None},
    "update": {"last": "2026-05-04T09:00:00Z", "failures": 0},
    "problems": ["the collection `old` is gone: there is no such folder", "no model for embedding"],
}
FALLBACK: dict[str, JsonValue] = {"from": "qmd", "to": "builtin", "nextTry": "2026-05-04T09:00:05Z"}


def status(**fields: object) -> ProviderStatus:
    return ProviderStatus.model_validate({"backend": "qmd", "provider": "qmd", **fields})


def shown(capsys: pytest.CaptureFixture[str], **fields: object) -> list[str]:
    show_fields("memory", status(**fields))
    return capsys.readouterr().out.splitlines()


def test_what_a_backend_adds_is_drawn_in_blocks_rows_and_tables(capsys: pytest.CaptureFixture[str]) -> None:
    lines = shown(capsys, custom={"qmd": QMD, "fallback": FALLBACK, "composable": True})

    assert lines[lines.index("  custom") :] == [
        "  custom",
        "    qmd",
        "      version      2.8.3",
        "      way          -",
        "      collections  name         path    pattern             files",
        "                   memory-root  /notes  {MEMORY,memory}.md  2",
        "                   wiki         /wiki   **/*.md             -",
        "      index        file /state/index.sqlite, bytes 3.1 MiB",
        "      daemon       state running, address /tmp/cmem-x/s, pid 17",
        "      update       last 2026-05-04T09:00:00Z, failures 0",
        "      problems     the collection `old` is gone: there is no such folder",
        "                   no model for embedding",
        "    fallback    from qmd, to builtin, next try 2026-05-04T09:00:05Z",
        "    composable  yes",
    ]


def test_what_is_too_long_for_a_line_becomes_a_block(capsys: pytest.CaptureFixture[str]) -> None:
    lines = shown(capsys, custom={"fallback": {"from": "qmd", "reason": "x" * 100}})

    assert lines[-3:] == ["    fallback", "      from    qmd", f"      reason  {'x' * 100}"]


def test_fields_of_ours_are_named_after_both(capsys: pytest.CaptureFixture[str]) -> None:
    lines = shown(
        capsys,
        fallback=FallbackStatus(from_="qmd", reason="it hangs"),
        vector=VectorStatus(enabled=True, available=False, dims=256),
        source_counts=(SourceCount(source="memory", files=2, chunks=7),),
    )

    words = [line.split() for line in lines]
    assert ["fallback", "from", "qmd"] in words
    assert ["fallback", "reason", "it", "hangs"] in words
    assert ["vector", "available", "no"] in words
    place = words.index(["source", "counts", "source", "files", "chunks"])
    assert words[place + 1] == ["memory", "2", "7"]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ([], "-"),
        ({}, "-"),
        ("", "-"),
        (0, "0"),
        (False, "no"),
        (0.125, "0.125"),
        (["a", "b"], "a, b"),
        ({"bytes": 12}, "bytes 12 bytes"),
        ({"bytes": 5_000_000_000_000}, "bytes 4656.6 GiB"),
        ({"a": None}, "-"),
        ([["a", "b"], ["c"]], "a, b, c"),
    ],
)
def test_a_value_of_any_kind_has_a_line(
    capsys: pytest.CaptureFixture[str], value: JsonValue, text: str
) -> None:
    assert shown(capsys, custom={"aValue": value})[-1] == f"    a value  {text}"


def test_text_of_a_backend_cannot_steer_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    assert "\x1b" not in "".join(shown(capsys, custom={"qmd": {"version": "\x1b[2J"}}))


def test_in_short_what_is_unknown_is_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    show_rows(known_rows(status(files=0, dirty=False, custom={"qmd": QMD["index"]})))

    assert capsys.readouterr().out.splitlines() == [
        "  provider  qmd",
        "  files     0",
        "  dirty     no",
        "  custom",
        "    qmd  file /state/index.sqlite, bytes 3.1 MiB",
    ]
