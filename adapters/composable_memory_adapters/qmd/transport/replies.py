"""Reads what QMD answers: hits out of JSON, however they came, and errors out of what it prints (pure)."""

import json
import re
from collections.abc import Iterable, Iterator
from urllib.parse import unquote

from pydantic import BaseModel, ConfigDict, FiniteFloat, ValidationError

from composable_memory.errors import BackendError, BackendGarbled, BackendRejected, BackendUnavailable
from composable_memory_adapters.qmd.values import BACKEND_ID, Hit

__all__ = ["BUSY", "UNKNOWN_COLLECTION", "hits_in", "hits_of", "refusal"]

UNKNOWN_COLLECTION = "an unknown collection"
"""The `status` of a `BackendRejected` that an update of QMD's index may mend."""

BUSY = "its database is busy, because another QMD process is writing to it"
"""What is `missing` in a `BackendUnavailable` that passes by itself."""

SCHEME = "qmd://"
MOST_ARRAYS = 64
"""More places in noisy output that could be the beginning of an answer are not looked at."""

INSTALL = "`npm install -g @tobilu/qmd@latest` installs the present version"
NEWER_NODE = "run it with Node 22 or newer; `pip install 'composable-memory[qmd]'` brings one"
_SEARCH = "search"

_NO_RESULTS = re.compile(
    r"^(?:\[[^\]\n]*\] *)?(?:warning: *)?no results found\b.*$", re.IGNORECASE | re.MULTILINE
)
_ARRAY = re.compile(r"\[\s*\{|^\[\s*\]\s*$", re.MULTILINE)
_HEADER = re.compile(r"(?:\d+: )?@@ -(\d{1,9}),(\d{1,9}) @@[^\n]*(?:\n|$)")
_LINE_NUMBER = re.compile(r"^\d+: ?", re.MULTILINE)
_BUSY = re.compile(r"database is locked|database table is locked|SQLITE_BUSY|SQLITE_LOCKED", re.IGNORECASE)
_TELLING = re.compile(r"^(?:Uncaught )?(\w*Error(?: \[\w+\])?: .*)$", re.MULTILINE)
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
_SIGNALS = {4: "SIGILL", 6: "SIGABRT", 7: "SIGBUS", 9: "SIGKILL", 11: "SIGSEGV", 15: "SIGTERM"}


class _Item(BaseModel):
    """One hit as QMD writes it; what else it says is not needed."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    file: str
    docid: str | None = None
    title: str | None = None
    score: FiniteFloat | None = None
    line: int | None = None
    snippet: str | None = None


def hits_in(stdout: str, stderr: str) -> list[Hit]:
    """Return the hits that a `qmd` command with `--json` printed, best first, whatever stands around them.

    Raises:
        BackendUnavailable: it found nothing because a model could not be used, though it ended well.
        BackendGarbled: there is no answer in the output, or one that cannot be read.
    """
    items = _array_in(stdout)
    if items:
        return hits_of(items, encoded=False)
    if problem := _model_problem(stderr, operation=_SEARCH):
        raise problem
    if items is None and not _NO_RESULTS.search(stdout if stdout.strip() else stderr):
        raise BackendGarbled(
            BACKEND_ID,
            _SEARCH,
            excerpt=stdout.strip() or f"nothing on stdout; stderr: {stderr.strip() or 'nothing'}",
            expected="a JSON array of results",
        )
    return []


def hits_of(items: object, *, encoded: bool) -> list[Hit]:
    """Return the hits in the decoded items of an answer, in their order.

    `encoded` says that the names of files are percent-encoded, as QMD's REST answers have them.

    Raises:
        BackendGarbled: they are no list of results; the message says where.
    """
    if not isinstance(items, list):
        raise BackendGarbled(BACKEND_ID, _SEARCH, excerpt=repr(items), expected="a list of results")
    return [_hit(item, at, encoded=encoded) for at, item in enumerate(items)]


def refusal(code: int, stdout: str, stderr: str, *, operation: str = _SEARCH) -> BackendError:
    """Return the error that says why a `qmd` command ended with `code`, which is not 0.

    A negative `code` is a signal's number, as is one above 128 less 128.
    """
    said = _ESCAPES.sub("", f"{stderr}\n{stdout}")
    if (signal := -code if code < 0 else code - 128) in _SIGNALS:
        return _ended_by(_SIGNALS[signal], operation)
    if code in (126, 127):
        return _unavailable(operation, f"its command cannot be run (exit {code})", INSTALL)
    if found := re.search(r"Collection not found: ([^\n]*)", said):
        body = f"{found[1].strip()}; `cmem index` brings QMD's collections up to date"
        return BackendRejected(BACKEND_ID, operation, status=UNKNOWN_COLLECTION, body=body)
    if _BUSY.search(said):
        return _unavailable(operation, BUSY, "ask again in a moment")
    known = _model_problem(said, operation=operation) or _installation_problem(said, operation=operation)
    return known or BackendRejected(
        BACKEND_ID, operation, status=f"exit code {code}", body=_telling_line(said) or "it printed nothing"
    )


def _ended_by(signal: str, operation: str) -> BackendUnavailable:
    if signal == "SIGSEGV":
        what = "it crashed without a word (SIGSEGV), as it does under a Node older than 22"
        return _unavailable(operation, what, NEWER_NODE)
    return _unavailable(operation, f"it was ended by {signal}", "ask again; see the memory of this machine")


def _model_problem(said: str, *, operation: str) -> BackendUnavailable | None:
    """Return why QMD's models could not be used, if that is what it tells."""
    words_only = "or set `searchMode: search`, which needs no model"
    if "LLM operations are disabled in CI" in said:
        what = "it uses no models where the variable CI is set"
        return _unavailable(operation, what, f"unset CI {words_only}")
    if found := re.search(r"No model file found at \"?([^\"\n]+)", said):
        what = f"the model file {found[1].strip()} is missing"
        return _unavailable(operation, what, f"give `memory.qmd.models` another file {words_only}")
    if re.search(r"fetch failed|ENOTFOUND|EAI_AGAIN|getaddrinfo", said):
        what = "a model is not on this machine and cannot be downloaded"
        return _unavailable(operation, what, f"run `qmd pull` once with a network {words_only}")
    if re.search(r"NoBinaryFoundError|Failed to load model|failed to create context", said, re.IGNORECASE):
        return _unavailable(
            operation, "its language model cannot be loaded", f"try `qmd doctor` {words_only}"
        )
    return None


def _installation_problem(said: str, *, operation: str) -> BackendUnavailable | None:
    """Return what is wrong with QMD itself or with its database, if that is what it tells."""
    if found := re.search(r"(?:Unknown command|Unknown --format value|[Uu]nknown option)[^\n]*", said):
        return _unavailable(operation, f"this version of it does not fit: {found[0].strip()}", INSTALL)
    if re.search(r"ERR_MODULE_NOT_FOUND|Cannot find (?:module|package)", said):
        return _unavailable(operation, "parts of it are missing", INSTALL)
    if re.search(r"NODE_MODULE_VERSION|ERR_DLOPEN_FAILED|invalid ELF header", said):
        return _unavailable(operation, "its native parts do not fit the Node that runs it", NEWER_NODE)
    if re.search(r"database disk image is malformed|file is not a database|SQLITE_CORRUPT", said):
        return _unavailable(operation, "its database is damaged", "`cmem index --force` builds a new one")
    if re.search(r"ENOSPC|SQLITE_FULL|database or disk is full", said):
        return _unavailable(operation, "the disk is full", "make room")
    if "disk I/O error" in said:
        return _unavailable(operation, "its database cannot be read or written", "make room on the disk")
    return None


def _unavailable(operation: str, what: str, fix: str) -> BackendUnavailable:
    return BackendUnavailable(BACKEND_ID, what, fix=fix, operation=operation)


def _telling_line(said: str) -> str:
    """Return the line that names the error; of a stack trace that is not the first."""
    telling = _TELLING.search(said)
    return (
        telling[1].strip()
        if telling
        else next((line.strip() for line in said.splitlines() if line.strip()), "")
    )


def _array_in(stdout: str) -> list[object] | None:
    """Return the array of objects, or the empty one, that stands in the output; None if there is none."""
    for candidate in _arrays_in(stdout):
        if isinstance(candidate, list) and all(isinstance(item, dict) for item in candidate):
            return candidate
    return None


def _arrays_in(stdout: str) -> Iterator[object]:
    yield from _decoded(stdout, [0])
    starts = (match.start() for match, _ in zip(_ARRAY.finditer(stdout), range(MOST_ARRAYS), strict=False))
    yield from _decoded(stdout, starts)


def _decoded(text: str, starts: Iterable[int]) -> Iterator[object]:
    decoder = json.JSONDecoder()
    for start in starts:
        try:
            yield decoder.raw_decode(text, start)[0]
        except (ValueError, RecursionError):
            continue


def _hit(item: object, at: int, *, encoded: bool) -> Hit:
    try:
        read = _Item.model_validate(item)
    except ValidationError as error:
        problem = error.errors()[0]
        where = ".".join(map(str, (at, *problem["loc"])))
        expected = f"a result with file, line and snippet (at {where}: {problem['msg']})"
        raise BackendGarbled(BACKEND_ID, _SEARCH, excerpt=repr(item), expected=expected) from error
    place = read.file.removeprefix(SCHEME)
    collection, slash, path = (unquote(place) if encoded else place).partition("/")
    if not (collection and slash and path):
        expected = f"a file as qmd://collection/path (at {at}.file)"
        raise BackendGarbled(BACKEND_ID, _SEARCH, excerpt=repr(read.file), expected=expected)
    start_line, line_count, snippet = _snippet(read.snippet or "")
    return Hit(
        collection=collection,
        path=path,
        line=max(0, read.line or 0),
        start_line=start_line,
        line_count=line_count,
        snippet=snippet,
        score=read.score or 0.0,
        title=read.title or "",
        docid=read.docid or "",
    )


def _snippet(text: str) -> tuple[int, int, str]:
    """Return where a snippet begins and how many lines it has, 0 if it does not tell, and its bare text.

    Answers over HTTP have a number in front of every line, the header's among them, and these are off by one.
    """
    header = _HEADER.match(text)
    if header is None:
        return 0, 0, text
    body = text[header.end() :]
    if header[0][0].isdigit():
        body = _LINE_NUMBER.sub("", body)
    return int(header[1]), int(header[2]), body
