"""The page about a search, in a file that is handed to others."""

import re
from base64 import b64encode
from hashlib import sha256
from html.parser import HTMLParser
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from composable_memory.cli import app
from composable_memory_ops_logs import redact

KEY = "sk-proj-Zq8vN3rT7wLx2JbC5mKd9PfH4sYg6RuA"


def cmem(workspace: Path, state_dir: Path, *arguments: str) -> Result:
    return CliRunner().invoke(app, [*arguments, "-w", str(workspace), "--state-dir", str(state_dir)])


class Page(HTMLParser):
    """What a browser would make of a page."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.marked: list[str] = []
        self.words: list[str] = []
        self._open: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in ("meta", "link", "input"):
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self._open[-1:] != ["style"]:
            self.words.append(data)
        if self._open[-1:] == ["mark"]:
            self.marked.append(data.casefold())

    @property
    def text(self) -> str:
        return " ".join(self.words)


@pytest.fixture
def notes(workspace: Path, state_dir: Path) -> Path:
    (workspace / "memory" / "2026-05-04.md").write_text(
        "# Dock <script>alert(1)</script>\n\nThe dock listens on port 8443 of the harbour.\n\n"
        f"Its api_key = {KEY}\n"
    )
    assert cmem(workspace, state_dir, "index").exit_code == 0
    return workspace


def test_the_report_of_a_search_says_why(notes: Path, state_dir: Path, tmp_path: Path) -> None:
    file = tmp_path / "report.html"
    done = cmem(notes, state_dir, "search", "which port does the dock listen on?", "--report", str(file))
    assert done.exit_code == 0, done.output

    html = file.read_text("utf-8")
    page = Page(html)
    assert {"dock", "port"} <= set(page.marked)
    assert "which port does the dock listen on?" in page.text
    assert "memory/2026-05-04.md:1-6" in page.text
    assert ("time", {"datetime": "2026-05-04"}) in page.tags
    assert re.search(r"by words: .*dock", page.text)
    assert "by meaning" in page.text
    assert "the whole search" in page.text
    assert "keyword" in page.text
    assert file.stat().st_mode & 0o077 == 0


def test_nothing_in_a_report_runs_is_loaded_or_is_secret(
    notes: Path, state_dir: Path, tmp_path: Path
) -> None:
    file = tmp_path / "report.html"
    cmem(notes, state_dir, "search", f"the api key {KEY} of the dock", "--report", str(file))

    html = file.read_text("utf-8")
    page = Page(html)
    tags = [tag for tag, _ in page.tags]
    assert not {"script", "link", "img", "iframe", "form"} & {*tags}
    assert not [
        name for _, given in page.tags for name in given if name in ("style", "src") or name[:2] == "on"
    ]
    style = html.partition("<style>")[2].partition("</style>")[0]
    hashed = b64encode(sha256(style.encode()).digest()).decode()
    policy = next(given["content"] for _, given in page.tags if given.get("http-equiv"))
    assert policy is not None
    assert f"style-src 'sha256-{hashed}'" in policy
    assert "default-src 'none'" in policy
    assert "<script>alert(1)</script>" in page.text
    assert KEY not in html
    assert KEY[8:-4] not in html
    assert redact(page.text) == page.text


def test_a_report_without_texts_has_only_places_and_numbers(
    notes: Path, state_dir: Path, tmp_path: Path
) -> None:
    file = tmp_path / "report.html"
    cmem(notes, state_dir, "search", "which port does the dock listen on?")

    done = cmem(notes, state_dir, "logs", "show", "last", "--html", str(file), "--without-texts")

    assert done.exit_code == 0, done.output
    text = Page(file.read_text("utf-8")).text
    assert not [word for word in ("harbour", "listen", "Dock <script>", "port", KEY[:12]) if word in text]
    assert "memory/2026-05-04.md:1-6" in text
    assert "by meaning" in text


def test_what_a_note_no_longer_says_is_shown_as_the_log_has_it(
    notes: Path, state_dir: Path, tmp_path: Path
) -> None:
    file = tmp_path / "report.html"
    cmem(notes, state_dir, "search", "which port does the dock listen on?")
    (notes / "memory" / "2026-05-04.md").unlink()

    done = cmem(notes, state_dir, "logs", "show", "--html", str(file))

    assert done.exit_code == 0, done.output
    assert "listens on port 8443" in Page(file.read_text("utf-8")).text


def test_the_trace_of_a_sync_is_shown_by_its_steps(notes: Path, state_dir: Path, tmp_path: Path) -> None:
    events = cmem(notes, state_dir, "logs", "query", "--action", "sync.complete", "--json").stdout
    trace = re.findall(r'"traceId": "([^"]+)"', events)[0]

    done = cmem(notes, state_dir, "logs", "show", trace, "--html", str(tmp_path / "sync.html"))

    assert done.exit_code == 0, done.output
    assert "sync.complete" in Page((tmp_path / "sync.html").read_text("utf-8")).text


def test_a_report_that_cannot_be_written_is_named(notes: Path, state_dir: Path, tmp_path: Path) -> None:
    file = tmp_path / "no" / "report.html"

    done = cmem(notes, state_dir, "search", "dock", "--report", str(file))

    assert done.exit_code == 1
    assert str(file) in done.output
