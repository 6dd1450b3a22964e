"""Documents that QMD found become passages with exact lines of the files as they are now."""

import asyncio
import os
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import pytest

from composable_memory.query.intent import parse_query_intent
from composable_memory.time.windows import DaySpan
from composable_memory.types import MAX_SNIPPET_CHARS, MemorySearchResult, SearchOptions
from composable_memory_adapters.chunking import chunk_markdown
from composable_memory_adapters.qmd import passages
from composable_memory_adapters.qmd.installation import find_command, probe
from composable_memory_adapters.qmd.passages import FOUND_SCORE, days_asked, passages_of
from composable_memory_adapters.qmd.settings import LimitSettings, SearchMode
from composable_memory_adapters.qmd.transport.qmd_client import ProcessTransport, request_of
from composable_memory_adapters.qmd.types import Collection, Hit, Home
from composable_memory_adapters.text.relevance import StemCache
from tests.integration.qmd.homes import furnish, update
from tests.variants import variants

GATEWAY = "# Gateway\n\nThe rate limit of the gateway is 100 requests a minute.\n"
GARDEN = "# Garden\n\nTomatoes want water.\n\nRoses want sun.\n"


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    root = Path(os.path.realpath(tmp_path)) / "workspace"
    (root / "memory").mkdir(parents=True)
    (root / "memory" / "gateway.md").write_text(GATEWAY, encoding="utf-8")
    (root / "memory" / "garden.md").write_text(GARDEN, encoding="utf-8")
    return root


def hit(
    path: str = "gateway.md",
    *,
    snippet: str = GATEWAY[10:],
    collection: str = "memory-dir",
    line: int = 3,
    start_line: int = 2,
) -> Hit:
    return Hit(
        collection=collection,
        path=path,
        line=line,
        start_line=start_line,
        line_count=3,
        snippet=snippet,
        score=1.0,
        docid="#d2bbd4",
    )


async def passages_in(
    workspace: Path,
    hits: Sequence[Hit],
    query: str = "rate limit",
    *,
    mode: SearchMode = "search",
    more: Sequence[Collection] = (),
    options: SearchOptions | None = None,
    cache: StemCache | None = None,
    asked_days: DaySpan | None = None,
    **limits: int,
) -> list[MemorySearchResult]:
    memory = Collection(name="memory-dir", path=workspace / "memory", pattern="**/*.md")
    return await passages_of(
        hits,
        query=query,
        mode=mode,
        collections=[memory, *more],
        workspace=workspace,
        limits=LimitSettings.model_validate(limits),
        options=options,
        cache=cache,
        asked_days=asked_days,
    )


async def test_a_passage_has_the_lines_and_the_text_of_the_file(workspace: Path) -> None:
    (found,) = await passages_in(workspace, [hit()])

    assert (found.path, found.start_line, found.end_line) == ("memory/gateway.md", 1, 4)
    assert found.snippet == GATEWAY
    assert found.exact
    assert 0.6 < found.score < 0.8
    assert found.metadata == {"collection": "memory-dir", "docid": "#d2bbd4", "title": "", "qmd_score": 1}


async def test_passages_are_those_of_the_builtin_index(workspace: Path) -> None:
    text = "\n".join(f"{at}: the pump has number {at}" for at in range(300)) + "\nthe rate limit\n"
    (workspace / "memory" / "long.md").write_text(text, encoding="utf-8")
    last = chunk_markdown(text)[-1]

    found, *_ = await passages_in(workspace, [hit("long.md", snippet="the rate limit", line=301)])

    assert (found.start_line, found.end_line) == (last.start_line, last.end_line)
    assert "the rate limit" in found.snippet
    assert len(found.snippet) <= MAX_SNIPPET_CHARS


async def test_the_passage_that_answers_best_comes_first_whatever_qmd_thinks(workspace: Path) -> None:
    found = await passages_in(workspace, [hit("garden.md", snippet=GARDEN), hit()], "water rate limit")

    assert [one.path for one in found] == ["memory/gateway.md", "memory/garden.md"]
    assert found[0].score > found[1].score


async def test_a_note_of_the_time_that_is_asked_for_gains(workspace: Path) -> None:
    hits = [hit("gateway.md"), hit("2026-05-03.md"), hit("2026-05-20.md")]
    for one in hits[1:]:
        (workspace / "memory" / one.path).write_text(GATEWAY, encoding="utf-8")
    asked = {}
    for query in ("rate limit on 2026-05-03", "rate limit in May 2026", "rate limit", "rate limit in 2019"):
        asked[query] = days_asked(parse_query_intent(query), datetime(2026, 6, 1, tzinfo=UTC))

    gains = {}
    for query, days in asked.items():
        plain, dated = [
            await passages_in(workspace, hits, "rate limit", asked_days=one) for one in (None, days)
        ]
        scores = {one.path: one.score for one in plain}
        gains[query] = {one.path[7:]: one.score - scores[one.path] for one in dated}

    day, month, none, other = gains.values()
    assert day["2026-05-03.md"] > day["2026-05-20.md"] > day["gateway.md"] == 0.0
    assert month["2026-05-03.md"] == month["2026-05-20.md"] > month["gateway.md"] == 0.0
    assert {*none.values(), *other.values()} == {0.0}


async def test_equal_passages_keep_the_order_of_qmd(workspace: Path) -> None:
    for name in ("b.md", "a.md"):
        (workspace / "memory" / name).write_text(GATEWAY, encoding="utf-8")

    found = await passages_in(workspace, [hit("b.md"), hit("a.md"), hit()])

    assert [one.path for one in found] == ["memory/b.md", "memory/a.md", "memory/gateway.md"]


async def test_by_likeness_the_place_that_qmd_gave_counts(workspace: Path) -> None:
    hits = [hit("garden.md", snippet=GARDEN, line=1, start_line=1), hit()]

    found = await passages_in(workspace, hits, "nutrition of Solanum", mode="vsearch")

    assert [one.path for one in found] == ["memory/garden.md", "memory/gateway.md"]
    assert found[0].score > found[1].score > FOUND_SCORE


async def test_what_is_found_by_the_name_of_its_file_is_the_passage_that_qmd_names(workspace: Path) -> None:
    (found,) = await passages_in(workspace, [hit("garden.md", snippet=GARDEN, start_line=1)], "garden")

    assert found.score > 0.5


async def test_what_is_found_for_unknown_reasons_has_a_low_score(workspace: Path) -> None:
    (found,) = await passages_in(workspace, [hit()], "zyzzyva")

    assert (found.path, found.score) == ("memory/gateway.md", FOUND_SCORE)


async def test_a_file_that_grew_at_its_beginning_has_its_new_lines(workspace: Path) -> None:
    grown = "# New\n\n" + "\n".join(f"padding {at} " * 20 for at in range(20)) + "\n" + GATEWAY
    (workspace / "memory" / "gateway.md").write_text(grown, encoding="utf-8")

    found, *_ = await passages_in(workspace, [hit()])

    assert found.start_line > 4
    assert "rate limit" in found.snippet
    assert "stale" not in found.metadata


async def test_what_a_file_no_longer_holds_is_marked_stale(workspace: Path) -> None:
    (workspace / "memory" / "gateway.md").write_text("# Nothing of it\n", encoding="utf-8")

    (found,) = await passages_in(workspace, [hit()])

    assert found.metadata["stale"] is True
    assert (found.start_line, found.end_line, found.snippet) == (2, 4, GATEWAY[10:])


@pytest.mark.parametrize(
    "snippet",
    [
        "rate limit of the gateway is 100 requ...",
        "The rate limit of the gateway is 100 requests a minute.\r\n",
        "rate limit of the \ufffd",
    ],
)
async def test_a_snippet_that_qmd_has_cut_is_found_in_its_file(workspace: Path, snippet: str) -> None:
    (found,) = await passages_in(workspace, [hit(snippet=snippet, start_line=3)], "zyzzyva")

    assert "stale" not in found.metadata


async def test_a_file_that_is_gone_has_no_passages(workspace: Path) -> None:
    (workspace / "memory" / "gateway.md").unlink()

    assert await passages_in(workspace, [hit()]) == []


async def test_files_that_may_not_be_read_have_no_passages(workspace: Path) -> None:
    (workspace / "secret.md").write_text(GATEWAY, encoding="utf-8")
    (workspace / "memory" / "link.md").symlink_to(workspace / "secret.md")
    (workspace / "memory" / "notes.txt").write_text(GATEWAY, encoding="utf-8")
    hits = [hit("../secret.md"), hit("link.md"), hit("notes.txt"), hit("a.md", collection="unknown")]

    assert await passages_in(workspace, hits) == []


async def test_a_file_outside_the_workspace_is_named_by_its_collection(workspace: Path) -> None:
    wiki = workspace.parent / "wiki"
    (wiki / "deep").mkdir(parents=True)
    (wiki / "deep" / "a b.md").write_text(GATEWAY, encoding="utf-8")
    more = [Collection(name="wiki", path=wiki, pattern="**/*.md", source="sessions")]

    (found,) = await passages_in(workspace, [hit("deep/a b.md", collection="wiki")], more=more)

    assert (found.path, found.source) == ("qmd/wiki/deep/a b.md", "sessions")


async def test_a_file_that_two_collections_hold_is_one_document(workspace: Path) -> None:
    more = [Collection(name="all", path=workspace, pattern="**/*.md")]
    hits = [hit("memory/gateway.md", collection="all"), hit()]

    found = await passages_in(workspace, hits, more=more)

    assert [one.metadata["collection"] for one in found] == ["all"]


async def test_pieces_of_one_long_line_are_told_apart_by_where_in_it_they_begin(workspace: Path) -> None:
    (workspace / "memory" / "line.md").write_text("the rate limit " * 400, encoding="utf-8")

    found = await passages_in(workspace, [hit("line.md", snippet="the rate limit", line=1, start_line=1)])

    assert {(one.start_line, one.end_line) for one in found} == {(1, 1)}
    assert len({one.start_char for one in found}) == len(found) > 1


async def test_of_what_is_too_much_to_read_the_passage_is_scored_that_qmd_names(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(passages, "MAX_BYTES_SCORED", 0)
    text = "the rate limit\n" + "padding of the note\n" * 200 + "the rate limit again\n"
    (workspace / "memory" / "long.md").write_text(text, encoding="utf-8")

    (found,) = await passages_in(workspace, [hit("long.md", snippet="the rate limit", line=1, start_line=1)])

    assert found.start_line == 1


async def test_of_a_file_too_large_to_read_only_what_qmd_tells_is_known(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(passages, "MAX_BYTES_READ", 10)

    (found,) = await passages_in(workspace, [hit()])

    assert (found.start_line, found.end_line, found.snippet) == (2, 4, GATEWAY[10:])
    assert "stale" not in found.metadata


async def test_snippets_are_as_long_as_is_allowed(workspace: Path) -> None:
    hits = [hit(), hit("garden.md", snippet=GARDEN)]

    (cut,) = await passages_in(workspace, hits, "rate roses", max_snippet_chars=50, max_injected_chars=45)

    assert len(cut.snippet) == 45


async def test_a_file_that_changed_is_scored_as_it_is_now_though_its_size_and_date_are_the_same(
    workspace: Path,
) -> None:
    file, cache = workspace / "memory" / "gateway.md", StemCache()
    (before,) = await passages_in(workspace, [hit()], "tariff", cache=cache)
    dated = file.stat().st_mtime_ns
    file.write_text(GATEWAY.replace("minute", "tariff"), encoding="utf-8")
    os.utime(file, ns=(dated, dated))

    (after,) = await passages_in(workspace, [hit()], "tariff", cache=cache)

    assert (before.score, before.exact) == (FOUND_SCORE, False)
    assert after.score > 0.5
    assert "a tariff" in after.snippet


async def test_fewer_results_are_the_beginning_of_more(workspace: Path) -> None:
    hits = [hit(), hit("garden.md", snippet=GARDEN)]
    cache = StemCache()

    many = await passages_in(workspace, hits, "rate limit water", cache=cache)
    few = await passages_in(
        workspace, hits, "rate limit water", options=SearchOptions(max_results=1), cache=cache
    )
    good = await passages_in(workspace, hits, "rate limit water", options=SearchOptions(min_score=0.5))

    assert len(many) == 2
    assert few == good == many[:1]


HOSTILE = [
    '"',
    '""',
    '"unbalanced',
    "-foo",
    "-",
    "--version",
    "--json -h",
    "gateway -gateway",
    '-"rate limit" gateway',
    "lex: gateway",
    "vec: -x",
    "intent: gateway",
    "expand: gateway",
    "a\nb\r\nc",
    "gate\x00way",
    "\ufeff-gateway",
    "gateway\u2028gateway",
    "NEAR(gateway limit) AND (NOT OR",
    "gateway* ^rate {title}: x",
    "'; DROP TABLE documents; --",
    "$(touch /x) `id` %s %d \\",
    "foo_bar-baz 3.14.0 a/b.py C++ @x #y",
    "¿qué es el límite? ñ é",
    "网关的速率限制是多少？",
    "ゲートウェイの制限",
    "게이트웨이의 한도는?",
    "أين بوابة العبور؟",
    "हिन्दी में सीमा",
    "e\u0301 \u0301 \u200d 👩\u200d💻 gateway",
    "gateway " * 500,
    "x" * 5_000,
    "1 2 3 4 5 6 7 8 9 10 11 12 13 14",
]


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return furnish(tmp_path)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("mode", "queries"), variants([("search", HOSTILE), ("query", HOSTILE[::4])], ("query", HOSTILE[::4]))
)
async def test_qmd_refuses_no_question(
    qmd_command: str, home: Home, mode: SearchMode, queries: Sequence[str]
) -> None:
    command = await asyncio.to_thread(find_command, qmd_command, home.environ)
    installation = await probe(command, home)
    await update(installation, home)
    searcher = ProcessTransport(installation, home)

    for query in queries:
        asked = request_of(query, mode=mode, rerank=False, collections=["notes"], limit=5)
        if asked is not None:
            hits = await searcher.ask(asked, timeout_s=20.0)
            assert ("gateway" in asked.text.lower()) <= bool(hits), query
