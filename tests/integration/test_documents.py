"""PDF, DOCX, HTML and EPUB files are notes where the settings name them."""

import os
import sys
from dataclasses import replace
from importlib import metadata
from io import BytesIO
from pathlib import Path

import pytest
from pypdf import PdfWriter

from composable_memory import open_memory
from composable_memory.citations import cite
from composable_memory.errors import MemoryPathError
from composable_memory.interfaces import BackendServices
from composable_memory.tools.read import MemoryGetRequest, memory_get
from composable_memory_adapters.builtin.backend import BuiltinMemory, open_builtin
from composable_memory_adapters.builtin.notes import documents
from composable_memory_adapters.builtin.settings import BuiltinSettings
from composable_memory_adapters.builtin.sync.document_texts import read_documents
from tests.documents import WORD, archive, docx, epub, paragraph, pdf

pytestmark = pytest.mark.security

NO_SYNC = {"on_search": False, "watch": False}


def settings(*kinds: str) -> BuiltinSettings:
    return BuiltinSettings.model_validate({"scope": "folder", "documents": kinds, "sync": NO_SYNC})


ALL = settings("pdf", "docx", "html", "epub")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path.resolve() / "documents"
    folder.mkdir()
    return folder


@pytest.fixture
def services(services: BackendServices, folder: Path) -> BackendServices:
    return replace(services, workspace_dir=folder)


def put(folder: Path, files: dict[str, bytes]) -> None:
    for name, data in files.items():
        (folder / name).write_bytes(data)


def locked_pdf() -> bytes:
    data, writer = BytesIO(), PdfWriter()
    writer.add_blank_page(100, 100)
    writer.encrypt("the password", algorithm="RC4-128")
    writer.write(data)
    return data.getvalue()


async def paths(memory: BuiltinMemory, query: str) -> set[str]:
    return {one.path for one in await memory.search(query)}


async def test_documents_are_found_and_read_by_page_chapter_line_or_paragraph(
    services: BackendServices, folder: Path
) -> None:
    gate = paragraph("Dock", style="berschrift1") + paragraph("The gate is steel.")
    row = f"<w:tbl><w:tr><w:tc>{paragraph('Port')}</w:tc><w:tc>{paragraph('7400')}</w:tc></w:tr></w:tbl>"
    put(
        folder,
        {
            "report.pdf": pdf("The harbour has cranes.", "The con-\ntract names the ladder."),
            "book.EPUB": epub("<h1>One</h1><p>The mast is high.</p>", "<p>The keel is deep.</p>"),
            "plan.docx": docx(gate + row + "<w:p><w:r><w:delText>gone</w:delText></w:r></w:p>"),
            "page.html": b"<title>Quay</title>\n<script>no</script><p>The l\xe4dder\nis new.<li>One<li>Two",
        },
    )
    async with open_builtin(ALL, services) as memory:
        report = await memory.sync()
        assert (report.files_indexed, report.problems) == (4, ())
        for query, path, first, last in (
            ("contract", "report.pdf", 1, 2),
            ("keel", "book.EPUB", 1, 2),
            ("port 7400", "plan.docx", 1, 4),
            ("lädder", "page.html", 1, 3),
        ):
            hit = (await memory.search(query))[0]
            assert (hit.path, hit.start_line, hit.end_line) == (path, first, last)
        for path, line, expected in (
            ("report.pdf", 2, "The contract names the ladder."),
            ("book.EPUB", 1, "# T0\n\n# One\n\nThe mast is high."),
            ("plan.docx", 1, "# Dock"),
            ("plan.docx", 3, "Port | 7400"),
            ("page.html", 2, "The lädder is new."),
        ):
            assert (await memory.read_file(path, from_line=line, lines=1)).text == expected
        assert (await memory.read_file("page.html")).text.endswith("- One\n- Two")
        assert await paths(memory, "no gone") == set()


async def test_a_page_is_cited_and_the_citation_can_be_read(
    folder: Path, state_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = [f"word{number} stands here in this line of a long page" for number in range(90)]
    put(folder, {"Report.PDF": pdf("A first page.", "\n".join(words))})
    monkeypatch.setenv("COMPOSABLE_MEMORY__BUILTIN__SCOPE", "folder")
    monkeypatch.setenv("COMPOSABLE_MEMORY__BUILTIN__DOCUMENTS", '["pdf"]')
    async with open_memory(folder, state_dir, long_lived=False) as memory:
        await memory.sync()
        (found, *_) = cite((await memory.query("word70")).results, "on")
        assert found.citation is not None
        assert found.citation.startswith("Report.PDF#p2:")
        assert "word70" in found.snippet
        page = await memory_get(memory, MemoryGetRequest(path=found.citation))
        assert page.text.split("\n") == words
        pages = await memory_get(memory, MemoryGetRequest(path="Report.PDF#p1-p2"))
        assert pages.text.startswith("A first page.\n\nword0 ")
        beyond = await memory_get(memory, MemoryGetRequest(path="Report.PDF#p7"))
        assert beyond.warning == "there is no page 7; the last with text is page 2"
        assert beyond.is_past_end
        assert beyond.as_json().keys() == {"text", "path", "warning"}


async def test_documents_follow_their_files_and_the_settings(services: BackendServices, folder: Path) -> None:
    put(folder, {"a.md": b"The hull is green.", "b.html": b"<p>The mast", "c.pdf": pdf("The rope.")})
    async with open_builtin(settings(), services) as memory:
        report = await memory.sync()
        assert report.passed_over == {".html": 1, ".pdf": 1}
        assert "pdf, html" in str(memory.status().custom["documents"])
        with pytest.raises(MemoryPathError):
            await memory.read_file("b.html")
    async with open_builtin(settings("html"), services) as memory:
        report = await memory.sync()
        assert (report.files_indexed, report.passed_over) == (1, {".pdf": 1})
        put(folder, {"b.html": b"<p>The keel is new"})
        assert (await memory.read_file("b.html")).text == "The keel is new"
        assert (await memory.sync()).files_indexed == 1
        assert (await paths(memory, "keel"), await paths(memory, "mast")) == ({"b.html"}, set())
        (folder / "b.html").unlink()
        assert (await memory.sync()).files_removed == 1
    put(folder, {"b.html": b"<p>The mast"})
    for one, removed in ((ALL, 0), (settings(), 2)):
        async with open_builtin(one, services) as memory:
            assert (await memory.sync()).files_removed == removed


async def test_a_folder_of_nothing_but_documents_is_all_notes(
    services: BackendServices, folder: Path
) -> None:
    put(folder, {"a.html": b"<p>The hull", "b.pdf": pdf("The mast")})
    automatic = ALL.model_copy(update={"scope": "auto"})
    for one, files in ((settings().model_copy(update={"scope": "auto"}), 0), (automatic, 2)):
        async with open_builtin(one, services) as memory:
            assert (await memory.sync()).files_indexed == files
    async with open_builtin(automatic, services) as memory:
        assert await paths(memory, "hull") == {"a.html"}


async def test_a_file_that_is_renamed_to_another_kind_is_read_anew(
    services: BackendServices, folder: Path
) -> None:
    put(folder, {"a.html": b"<p>The hull"})
    async with open_builtin(ALL, services) as memory:
        assert (await memory.sync()).problems == ()
        (folder / "a.html").rename(folder / "a.docx")
        assert [one.split(":")[0] for one in (await memory.sync()).problems] == ["a.docx"]
        assert await paths(memory, "hull") == set()
        (folder / "a.docx").rename(folder / "a.html")
        assert (await memory.sync()).problems == ()
        assert await paths(memory, "hull") == {"a.html"}


async def test_what_cannot_be_read_is_named_once_read_and_stops_no_other(
    services: BackendServices, folder: Path
) -> None:
    entities = (
        '<!DOCTYPE x [<!ENTITY a "aaaa">]><w:document {}><w:p><w:r><w:t>&a;</w:t></w:r></w:p></w:document>'
    )
    hostile = {
        "bomb.docx": archive({"word/document.xml": b" " * 110_000_000}),
        "empty.html": b"<p>",
        "empty.pdf": pdf(""),
        "entities.docx": archive({"word/document.xml": entities.format(WORD)}),
        "locked.pdf": locked_pdf(),
        "no.epub": b"PK",
        "no.pdf": b"no pdf",
        "part.pdf": pdf("The first page."),
    }
    put(folder, hostile | {"good.html": b"<p>The hull", "good.pdf": pdf("The mast")})
    (folder / "link.pdf").symlink_to(folder / "good.pdf")
    for indexed in (10, 0):
        async with open_builtin(ALL, services) as memory:
            report = await memory.sync()
            assert report.files_indexed == indexed
            told = dict(one.split(": ", 1) for one in report.problems)
            assert [*told] == sorted({*hostile} - {"part.pdf"})
            assert not any("Error" in one or "BadZip" in one for one in report.problems)
            assert ("100 MB" in told["bomb.docx"], "entities" in told["entities.docx"]) == (True, True)
            assert "encrypted" in told["locked.pdf"]
            assert ("EPUB" in told["no.epub"], "PDF" in told["no.pdf"]) == (True, True)
            assert ("scanned" in told["empty.pdf"], "scanned" in told["empty.html"]) == (True, False)
            assert (await paths(memory, "hull"), await paths(memory, "mast")) == ({"good.html"}, {"good.pdf"})
            with pytest.raises(MemoryPathError, match="cannot be read"):
                await memory.read_file("no.pdf")
    put(folder, {"no.pdf": pdf("The rope.")})
    (folder / "bomb.docx").unlink()  # it takes longest to read again
    async with open_builtin(ALL, services) as memory:
        report = await memory.sync(force=True)
        assert (report.files_indexed, len(report.problems)) == (9, 5)
        assert await paths(memory, "rope") == {"no.pdf"}


@pytest.mark.thorough
async def test_who_takes_too_long_is_stopped_alone(folder: Path) -> None:
    put(folder, {"slow.html": b"<b>" * 8_000_000, "good.html": b"<p>The hull"})
    found = await read_documents(
        None, {name: str(folder / name) for name in ("good.html", "slow.html")}, time_limit_s=4
    )
    good, slow = found["good.html"], found["slow.html"]
    assert not isinstance(good, OSError)
    assert not isinstance(slow, OSError)
    assert (good.text.strip(), good.problem) == ("The hull", None)
    assert (slow.text, "4 s" in str(slow.problem)) == ("", True)


@pytest.mark.thorough
@pytest.mark.skipif(sys.platform != "linux", reason="the memory of a process is limited there alone")
async def test_a_document_that_fills_the_memory_is_said_to_do_so(folder: Path) -> None:
    styles = "<a>" + '<a b=""/>' * 9_500_000 + "</a>"
    put(folder, {"full.docx": archive({"word/styles.xml": styles, "word/document.xml": "<a/>"})})
    full = (await read_documents(None, {"full.docx": str(folder / "full.docx")}, time_limit_s=120))[
        "full.docx"
    ]
    assert not isinstance(full, OSError)
    assert "2 GB" in str(full.problem)


async def test_what_failed_is_kept_for_reading_and_tried_again_when_it_is_indexed(
    services: BackendServices, folder: Path
) -> None:
    put(folder, {"slow.html": b"<p>The hull"})
    paths = {"slow.html": str(folder / "slow.html")}
    async with open_builtin(settings(), services) as memory:
        await memory.sync()
        file = memory._index.current("test").file
        slow = (await read_documents(file, paths, keep=True, time_limit_s=0))["slow.html"]
        again = (await read_documents(file, paths))["slow.html"]
        whole = (await read_documents(file, paths, keep=True))["slow.html"]
    assert not isinstance(slow, OSError)
    assert not isinstance(again, OSError)
    assert not isinstance(whole, OSError)
    assert (slow.text, again.problem == slow.problem, whole.problem) == ("", True, None)
    assert whole.text.strip() == "The hull"


async def test_a_document_that_is_gone_or_replaced_by_a_link_is_not_read(folder: Path) -> None:
    put(folder, {"a.html": b"<p>The hull"})
    os.mkfifo(folder / "pipe.html")
    (folder / "link.html").symlink_to(folder / "a.html")
    names = ("gone.html", "link.html", "pipe.html")
    found = await read_documents(None, {name: str(folder / name) for name in names})
    assert all(isinstance(one, OSError) for one in found.values())


async def test_without_the_extra_pdf_files_are_passed_over_and_it_is_said_what_reads_them(
    services: BackendServices, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def not_installed(name: str) -> metadata.Distribution:
        raise metadata.PackageNotFoundError(name)

    put(folder, {"a.pdf": pdf("The hull."), "b.html": b"<p>The mast"})
    with monkeypatch.context() as patch:
        patch.setattr(metadata.Distribution, "from_name", not_installed)
        documents.pypdf_version.cache_clear()
        async with open_builtin(ALL, services) as memory:
            report = await memory.sync()
            assert (report.files_indexed, report.passed_over) == (1, {".pdf": 1})
            assert "composable-memory[documents]" in str(memory.status().custom["documents"])
    documents.pypdf_version.cache_clear()
    async with open_builtin(ALL, services) as memory:
        assert (await memory.sync()).files_indexed == 1
        assert "hint" not in str(memory.status().custom["documents"])
