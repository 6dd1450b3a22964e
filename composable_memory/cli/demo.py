"""`cmem demo`: indexes a sample workspace, asks it questions in several languages, explains one answer."""

import asyncio
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib import resources
from pathlib import Path
from tempfile import mkdtemp
from typing import Annotated

import typer
from pydantic import JsonValue

from composable_memory.cli.command import Target, command
from composable_memory.cli.index import index_document, print_report, sync
from composable_memory.cli.logs import print_trace, read_trace
from composable_memory.cli.options import AsJson
from composable_memory.cli.output import print_json, print_line, warn_degraded
from composable_memory.cli.search import print_line_of, search_document
from composable_memory.errors import ConfigError
from composable_memory.highlights import best_lines
from composable_memory.json_documents import document
from composable_memory.query.waterfall import trace_document
from composable_memory.runtime.opening import open_memory
from composable_memory.tools.search import MemorySearchRequest, query_cited
from composable_memory.types import QueryResponse

QUESTIONS = (
    "Where is the spare battery trolley kept?",
    "What happens to medicine when nobody opens the door?",
    "¿Qué autonomía tiene la Heron mk2 con la caja llena?",
    "镀金触点一副多少钱？",
    "凍結しやすい場所は何か所ありますか？",
    "Why did the dispatch queue go back to Redis Streams?",
)
RESULTS_PER_QUESTION = 2
LINES_PER_RESULT = 3
LINE_CHARS = 90

app = typer.Typer()


@command(app, "demo")
async def demo(
    *,
    keep: Annotated[
        Path | None,
        typer.Option(
            "--keep", metavar="DIR", file_okay=False, help="Keep the sample and its index in this folder."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Index a sample workspace, ask it a few questions, and trace one answer."""
    async with _sample_folder(keep) as folder:
        target = Target(workspace=folder / "workspace", state_dir=folder / "state")
        index, answers = await _ask_everything(target, folder, quiet=as_json)
        events = await read_trace(target, answers[-1].trace_id)
        if as_json:
            asked = zip(QUESTIONS, answers, strict=True)
            found = [document(question=one, answer=search_document(answer)) for one, answer in asked]
            about = document(workspace=target.workspace, index=index, answers=found)
            print_json(about | document(trace=trace_document(events)))
        else:
            print_line("How the last answer was made", bold=True)
            print_trace(events)
            if keep:
                place = f"--workspace {target.workspace} --state-dir {target.state_dir}"
                print_line()
                print_line(f"Try `cmem search {place} …`")


async def _ask_everything(
    target: Target, folder: Path, *, quiet: bool
) -> tuple[dict[str, JsonValue], list[QueryResponse]]:
    """Index the sample and ask it all questions; return what the index did, as JSON, and the answers."""
    # Demonstrate the sample under the defaults, whatever the user's settings.
    environ = {"XDG_CONFIG_HOME": str(folder / "config")}
    async with open_memory(target.workspace, target.state_dir, environ=environ, long_lived=False) as memory:
        report, took_ms, _ = await sync(memory)
        if not quiet:
            print_report(report, took_ms)
            print_line()
        answers = []
        for question in QUESTIONS:
            request = MemorySearchRequest(query=question, max_results=RESULTS_PER_QUESTION)
            answers.append(await query_cited(memory, request))
            if not quiet:
                _print_answer(question, answers[-1])
    warn_degraded(dict.fromkeys(one for answer in answers for one in answer.degraded))
    return index_document(report, took_ms), answers


def _print_answer(question: str, answer: QueryResponse) -> None:
    print_line(question, bold=True, colour="cyan")
    for result in answer.results:
        print_line(f"  {result.score:.0%} {result.citation} [{result.source_backend}]", bold=True)
        for line in best_lines(result, LINES_PER_RESULT, width=LINE_CHARS, marks_cuts=True):
            print_line_of(line, indent=4)
    print_line()


@asynccontextmanager
async def _sample_folder(keep: Path | None) -> AsyncIterator[Path]:
    """Yield a folder with the sample in it: a temporary one, or the new one to keep."""
    folder = await asyncio.to_thread(_new_folder, keep)
    try:
        await asyncio.to_thread(_copy_sample, folder / "workspace")
        yield folder
    finally:
        if keep is None:
            await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)


def _new_folder(keep: Path | None) -> Path:
    if keep is None:
        return Path(mkdtemp(prefix="cmem-demo-"))
    keep.mkdir(parents=True, exist_ok=True)
    if any(keep.iterdir()):
        raise ConfigError("--keep", f"{keep} is not empty; choose a new folder")
    return keep.resolve()


def _copy_sample(target: Path) -> None:
    """Copy the sample workspace: the one in an installed package, or else the one beside the sources."""
    package = Path(str(resources.files("composable_memory")))
    for sample in (package / "_demo", package.parent / "examples" / "workspace"):
        if sample.is_dir():
            shutil.copytree(sample, target)
            return
    raise ConfigError("demo", "this installation lacks the sample; reinstall the package")
