"""The pages of the site: the generated reference is whole, and what the guides show works."""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest
import yaml

from composable_memory.tools.catalogue import TOOLS
from composable_memory.types import DegradationCode
from docs.site.build import ELSEWHERE, gathered, problems
from docs.site.reference import pages
from tests.cli_process import run_cli
from tests.docs.test_cli_page import commands

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PACKAGES = [str(ROOT), *(str(ROOT / name) for name in ("adapters", "feedback", "ops_logs"))]
SHOWN = {
    "index.md": ("MEMORY.md:47-69", "under the stairs", "memory/2026-06-02.md"),
    "guides/not-found.md": ("tyres", "memory/2026-06-02.md"),
}
"""What the page and the program both show of the sample notes."""


def text_of(page: str) -> str:
    return (DOCS / page).read_text(encoding="utf-8")


def found_in(folder: str, pattern: str) -> Iterator[str]:
    """Yield what fits the pattern in the sources, without importing them."""
    for path in sorted((ROOT / folder).rglob("*.py")):
        yield from re.findall(pattern, path.read_text(encoding="utf-8"), re.M)


def test_the_reference_has_every_event_error_tool_and_public_name() -> None:
    made = pages()
    actions = set(found_in("ops_logs", r'^    action: ClassVar\[str\] = "([^"]+)"'))
    errors = re.findall(
        r"^class (\w+)\(", (ROOT / "composable_memory" / "errors.py").read_text(encoding="utf-8"), re.M
    )
    face = (ROOT / "composable_memory" / "__init__.py").read_text(encoding="utf-8")
    names = re.findall(r'^    "(\w+)",$', face.split("__all__ = [")[1].split("]")[0], re.M)

    headings = {name: set(re.findall(r"^## (.+)$", text, re.M)) for name, text in made.items()}
    assert headings["reference/events.md"] == {*actions, "Every event", "Values in them"}
    assert set(errors) <= set(re.findall(r"^\| `(\w+)`", made["reference/errors.md"], re.M))
    assert headings["reference/tools.md"] == {tool.name for tool in TOOLS}
    assert headings["reference/api.md"] == {*names} - {"__version__"}
    assert len(actions) > 20
    assert len(names) > 30


def test_the_reference_shows_fields_and_arguments_with_what_is_said_of_them() -> None:
    made = pages()

    assert "| `skippedBackends` | `Mapping[str, str]` | Backend id" in made["reference/events.md"]
    assert "| `query` (required) | `string` |" in made["reference/tools.md"]
    assert re.search(r"def open_memory\(\n    workspace: str \| Path = '\.',", made["reference/api.md"])
    assert "    *,\n    backends: Sequence[BackendSpec] = ()," in made["reference/api.md"]


def test_every_code_of_a_degraded_answer_is_explained() -> None:
    rows = re.findall(r"^\| ((?:`[a-z-]+`(?:, )?)+) \| ", text_of("troubleshooting.md"), re.M)

    assert {code for row in rows for code in re.findall(r"`([a-z-]+)`", row)} == {*get_args(DegradationCode)}


def test_the_menu_names_pages_that_there_are() -> None:
    menu = yaml.safe_load(text_of("site/site.yaml"))["nav"]
    named = re.findall(r"[\w/-]+\.md", str(menu))

    assert len(named) == len(set(named))
    assert set(named) <= gathered().keys()


def test_links_lead_to_where_pages_are_on_the_site() -> None:
    text = gathered()["guides/own-backend.md"]

    assert "(../project/adapters.md#an-adapter-on-one-page)" in text
    assert "deploy/compose.yaml](" not in gathered()["graph-service.md"]
    assert all((ROOT / source).is_file() for source in ELSEWHERE)


def test_what_a_page_would_fetch_from_elsewhere_is_reported(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text(
        '<a href="https://example.com">fine</a><script src="https://cdn.example.com/x.js"></script>'
        '<link rel="stylesheet" href="//fonts.example.com/f.css"><img src="own.png">',
        encoding="utf-8",
    )
    (tmp_path / "b.css").write_text("@font-face {src: url(https://fonts.example.com/f)}", encoding="utf-8")

    told = list(problems(tmp_path, {"a.md": "", "b.md": ""}, "['a.md']"))

    assert [one.rpartition("/")[2] for one in told] == ["b.md: in no menu", "x.js", "f.css", "f"]


ANSWERED = {
    "How do I install it and ask my first question?": ("index.md", "pip install", "cmem search"),
    "Does anything I write leave my computer?": ("privacy.md", "telemetry", "embedding.md#remote-providers"),
    "How do I use it with Claude Code?": ("clients.md", "cmem connect claude-code"),
    "Why was my note not found?": ("guides/not-found.md", "--why-not"),
    "Can it read PDF files?": ("indexing.md", "memory.builtin.documents"),
    "How do I delete everything it has stored?": ("privacy.md", "--undo", "state folder"),
    "How do several people share one memory?": ("guides/team.md", "postgres.md"),
    "Does it understand German and Chinese notes?": ("faq.md", "multilingual-e5"),
    "How do I make searches start faster by a server in the background?": (
        "service.md",
        "serve --background",
    ),
    "What does degraded: keyword-only mean?": ("troubleshooting.md", "`keyword-only`"),
}
"""What newcomers ask, where that is answered, and what the answer has to name."""
CLICKS = 2


def test_what_newcomers_ask_is_answered_within_two_clicks_from_the_first_page() -> None:
    reached = {"index.md"}
    for _ in range(CLICKS):
        reached |= {
            os.path.normpath(os.path.join(os.path.dirname(page), link))  # noqa: PTH118, PTH120 - of a site
            for page in reached
            for link in re.findall(r"\]\(([\w/.-]+\.md)", text_of(page))
        }
    for question, (page, *facts) in ANSWERED.items():
        assert page in reached, question
        assert [fact for fact in facts if fact not in text_of(page)] == [], question


def commands_on(page: str) -> Iterator[list[str]]:
    """Yield the words of each `cmem …` of a page, in blocks and within sentences."""
    text = text_of(page)
    blocks = re.findall(r"^```(?:sh|console)\n(.*?)^```", text, re.M | re.S)
    lines = [line for block in blocks for line in block.splitlines()]
    for line in [*lines, *re.findall(r"`(cmem [^`]+)`", text)]:
        words = shlex.split(line.removeprefix("$ "), comments=True) if "cmem " in line else []
        if words and words[0].endswith("cmem"):
            yield words[1:]


def test_the_commands_of_the_guides_are_commands_with_options_that_there_are() -> None:
    known = commands()
    own = [path.relative_to(DOCS).as_posix() for path in (DOCS / "guides").glob("*.md")]
    seen = 0
    for page in ["index.md", "faq.md", "glossary.md", "privacy.md", "troubleshooting.md", *own]:
        for words in commands_on(page):
            name = next((one for one in (" ".join(words[:2]), words[0]) if one in known), None)
            options = {word.partition("=")[0] for word in words if re.match(r"--?[a-z]", word)}
            groups = {one.split()[0] for one in known}
            assert name or words[0] in groups or words[0] == "--version", (page, words)
            assert not name or options <= known[name], (page, words)
            seen += 1
    assert seen > 50


@pytest.mark.parametrize("page", SHOWN)
def test_the_recorded_commands_run_and_show_what_the_page_shows(page: str, tmp_path: Path) -> None:
    (block,) = re.findall(r"^```console\n(.*?)^```", text_of(page), re.M | re.S)
    commands = [shlex.split(line[2:]) for line in block.splitlines() if line.startswith("$ ")]
    notes = ["--workspace", str(ROOT / "examples" / "workspace"), "--state-dir", str(tmp_path / "state")]

    said = ""
    for program, *words in (["cmem", "index"], *commands):
        assert program == "cmem"
        done = run_cli(*words, *notes)
        assert done.returncode == 0, (words, done.stderr)
        said += done.stdout

    for fact in SHOWN[page]:
        assert fact in block, fact
        assert fact in said, said


def test_the_backend_of_the_guide_answers(tmp_path: Path) -> None:
    (program,) = re.findall(r"^```python\n(.*?)^```", text_of("guides/own-backend.md"), re.M | re.S)

    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env={"HOME": str(tmp_path), "PATH": os.environ["PATH"], "PYTHONPATH": ":".join(PACKAGES)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )

    assert (done.returncode, "degraded" in done.stdout) == (0, False), done.stderr
    assert "wiki://pump.md" in done.stdout.splitlines()[0]
