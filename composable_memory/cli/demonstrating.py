"""`cmem demo`: a sample workspace is indexed, asked in several languages, and one answer is taken apart."""

import asyncio
import re
import shutil
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib import resources
from itertools import pairwise
from pathlib import Path
from tempfile import mkdtemp
from textwrap import wrap

from composable_memory.cli.documents import IndexDocument, SearchDocument
from composable_memory.cli.drawing import draw
from composable_memory.cli.indexing import show_report, sync
from composable_memory.cli.log_documents import TraceDocument
from composable_memory.cli.log_reading import read_trace
from composable_memory.cli.runner import ExitCode, Place
from composable_memory.cli.screen import say, tell_degraded, write_json
from composable_memory.errors import ConfigError
from composable_memory.query.waterfall import waterfall
from composable_memory.runtime.opening import open_memory
from composable_memory.tools import Document, MemorySearchRequest, query_cited
from composable_memory.types import QueryResponse

__all__ = ["DemoAnswer", "DemoDocument", "demo", "telling_lines"]

QUESTIONS = (
    "Where is the spare battery trolley kept?",
    "What happens to medicine when nobody opens the door?",
    "¿Qué autonomía tiene la Heron mk2 con la caja llena?",
    "镀金触点一副多少钱？",
    "凍結しやすい場所は何か所ありますか？",
    "Why did the dispatch queue go back to Redis Streams?",
)
RESULTS_PER_QUESTION = 2
LINE_CHARS = 90
STEM_CHARS = 5
"""So much of a word is compared: enough for "kept" and "bicycle", and the same for "bicycles"."""


class DemoAnswer(Document):
    """One question to the sample, and its answer."""

    question: str
    answer: SearchDocument


class DemoDocument(Document):
    """`cmem demo`: the sample, its index, the answers, and the trace of the last one."""

    workspace: str
    index: IndexDocument
    answers: tuple[DemoAnswer, ...]
    trace: TraceDocument


async def demo(keep: Path | None, *, as_json: bool) -> ExitCode:
    """Copy the sample, index it, ask, draw the last answer's trace, and clean up unless it is to be kept."""
    async with _folder(keep) as folder:
        place = Place(workspace=folder / "workspace", state_dir=folder / "state")
        report, answers = await _ask_everything(place, folder, quiet=as_json)
        events = await read_trace(place, answers[-1].trace_id)
        if as_json:
            write_json(_document(place, report, answers, TraceDocument.of(events)).as_json())
        else:
            say("How the last answer came about", bold=True)
            draw(waterfall(events))
            if keep:
                say()
                say(f"Try `cmem search --workspace {place.workspace} --state-dir {place.state_dir} …`")
    return ExitCode.FINE


async def _ask_everything(
    place: Place, folder: Path, *, quiet: bool
) -> tuple[IndexDocument, list[QueryResponse]]:
    # The demonstration shows the sample under the defaults, whatever the settings of the user are.
    environ = {"XDG_CONFIG_HOME": str(folder / "config")}
    async with open_memory(place.workspace, place.state_dir, environ=environ, long_lived=False) as memory:
        report = await sync(memory)
        if not quiet:
            show_report(report)
            say()
        answers = []
        for question in QUESTIONS:
            request = MemorySearchRequest(query=question, max_results=RESULTS_PER_QUESTION)
            answers.append(await query_cited(memory, request))
            if not quiet:
                _show(question, answers[-1])
    tell_degraded(dict.fromkeys(one for answer in answers for one in answer.degraded))
    return report, answers


def _show(question: str, answer: QueryResponse) -> None:
    say(question, bold=True, colour="cyan")
    for result in answer.results:
        say(f"  {result.score:.3f} {result.citation} [{result.source_backend}]", bold=True)
        for line in telling_lines(result.snippet, question):
            say(f"    {line}")
    say()


def telling_lines(snippet: str, question: str) -> list[str]:
    """Return the lines around the one that shares most with the question; what few lines say counts more."""
    lines = [piece for line in snippet.splitlines() for piece in wrap(line, LINE_CHARS)]
    asked, said = _parts(question), [_parts(line) for line in lines]
    lines_with = Counter(part for parts in said for part in parts)
    shares = [sum(1 / lines_with[part] for part in parts & asked) for parts in said]
    best = max(range(len(lines)), key=lambda number: shares[number], default=0)
    return lines[max(0, best - 1) : best + 2]


def _parts(text: str) -> set[str]:
    """Return the words of a text by their beginnings, and pairs of characters for scripts without blanks."""
    words = re.findall(r"\w+", text.casefold())
    pairs = {one + other for word in words if not word.isascii() for one, other in pairwise(word)}
    return {word[:STEM_CHARS] for word in words} | pairs


def _document(
    place: Place, report: IndexDocument, answers: list[QueryResponse], trace: TraceDocument
) -> DemoDocument:
    return DemoDocument(
        workspace=str(place.workspace),
        index=report,
        answers=tuple(
            DemoAnswer(question=question, answer=SearchDocument.of(answer))
            for question, answer in zip(QUESTIONS, answers, strict=True)
        ),
        trace=trace,
    )


@asynccontextmanager
async def _folder(keep: Path | None) -> AsyncIterator[Path]:
    """Yield a folder with the sample in it: one that goes afterwards, or the new one that is to be kept."""
    folder = await asyncio.to_thread(_made, keep)
    try:
        await asyncio.to_thread(_copy_sample, folder / "workspace")
        yield folder
    finally:
        if keep is None:
            await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)


def _made(keep: Path | None) -> Path:
    if keep is None:
        return Path(mkdtemp(prefix="cmem-demo-"))
    keep.mkdir(parents=True, exist_ok=True)
    if any(keep.iterdir()):
        raise ConfigError("--keep", f"{keep} is not empty; name a new folder")
    return keep.resolve()


def _copy_sample(target: Path) -> None:
    """Copy the sample workspace: the one inside an installed package, else the one beside the sources."""
    package = Path(str(resources.files("composable_memory")))
    for sample in (package / "_demo", package.parent / "examples" / "workspace"):
        if sample.is_dir():
            shutil.copytree(sample, target)
            return
    raise ConfigError("demo", "this installation came without its sample; install the package again")
