"""What the page on recall and reflect shows works on notes like those it speaks of."""

import asyncio
import re
import shlex
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

import pytest
from typer.testing import CliRunner

from composable_memory import open_memory
from composable_memory.cli import app
from composable_memory.reflect.entity_pages import own_lines
from composable_memory.reflect.opinions import Day, evolve_confidence
from composable_memory.runtime.opening import NOW_VARIABLE

PAGE = (Path(__file__).parents[2] / "docs" / "recall.md").read_text(encoding="utf-8")
COMMANDS = [
    shlex.split(line, comments=True)
    for block in re.findall(r"^```sh\n(.*?)^```", PAGE, re.M | re.S)
    for line in block.splitlines()
]
PROGRAMS = re.findall(r"^```python\n(.*?)^```", PAGE, re.M | re.S)
NOTE = (
    "## Retain\n\n- O(c=0.7) @Peter @[[Ellen Smith]]: Prefers short replies. ^m4k29x\n"
    "- W @[[Ellen Smith]]: Lives in Porto. ^aaaa11\n"
)


@pytest.fixture
def place(tmp_path: Path) -> tuple[str, ...]:
    note = tmp_path / "notes" / "memory" / "2026-01-05.md"
    note.parent.mkdir(parents=True)
    note.write_text(NOTE, encoding="utf-8")
    return "--workspace", str(tmp_path / "notes"), "--state-dir", str(tmp_path / "state")


def test_the_commands_run_and_show_what_is_known(place: tuple[str, ...]) -> None:
    shown = []
    for _, *words in COMMANDS:
        done = CliRunner().invoke(app, [*words, *place, "--now", "2026-01-10"])
        assert done.exit_code == 0, (words, done.stderr)
        shown.append(done.stdout)

    assert len(shown) == 7
    assert all("short replies" in text for text in shown[:5])
    assert "bank/opinions.md" in shown[5]


def test_the_programs_run(place: tuple[str, ...]) -> None:
    body = "".join(f"    {line}\n" for program in PROGRAMS for line in program.splitlines())
    names: dict[str, object] = {}
    exec(f"async def main(memory):\n{body}", names)
    main = names["main"]
    assert callable(main)

    async def run() -> None:
        environ = {NOW_VARIABLE: "2026-01-10T12:00:00Z"}
        async with open_memory(place[1], place[3], environ=environ, long_lived=False) as memory:
            await main(memory)

    said = StringIO()
    with redirect_stdout(said):
        asyncio.run(run())

    assert "opinion Prefers short replies. memory/2026-01-05.md#L3" in said.getvalue()
    assert "+++ b/bank/world.md" in said.getvalue()
    assert (Path(place[1]) / "bank" / "world.md").is_file()


def test_the_line_and_the_confidences_on_the_page_are_those_of_the_program() -> None:
    leads_to = re.search(r"one line leads to (\S+) or (\S+)\. ", PAGE)

    assert own_lines(PAGE).keys() == {"aaaa11"}
    assert leads_to
    assert leads_to.groups() == tuple(
        f"{evolve_confidence(0.7, [day]):.2f}" for day in (Day(1, 0), Day(0, 1))
    )
