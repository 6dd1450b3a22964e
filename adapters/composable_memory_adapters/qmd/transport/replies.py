"""Parses QMD's answers: hits from JSON, errors from the command's output (pure)."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from urllib.parse import unquote

from pydantic import BaseModel, ConfigDict, FiniteFloat, ValidationError

from composable_memory.errors import BackendError, BackendGarbled, BackendRejected, BackendUnavailable
from composable_memory.types import JsonValue
from composable_memory_adapters.qmd.types import BACKEND_ID, Hit, SearchRequest

UNKNOWN_COLLECTION = "an unknown collection"
"""The `status` of a `BackendRejected` that an update of QMD's index may fix."""

BUSY = "its database is busy, because another QMD process is writing to it"
"""The `missing` of a `BackendUnavailable` that passes by itself."""

SCHEME = "qmd://"
MAX_ARRAYS = 64
"""Limit of places in noisy output that are tried as the beginning of an answer."""

INSTALL = "`npm install -g @tobilu/qmd@latest` installs the current version"
NEWER_NODE = "run it with Node 22 or newer; `pip install 'composable-memory[qmd]'` installs one"
SEARCH = "search"

_NO_RESULTS = re.compile(
    r"^(?:\[[^\]\n]*\] *)?(?:warning: *)?no results found\b.*$", re.IGNORECASE | re.MULTILINE
)
_ARRAY = re.compile(r"\[\s*\{|^\[\s*\]\s*$", re.MULTILINE)
_HEADER = re.compile(r"(?:\d+: )?@@ -(\d{1,9}),(\d{1,9}) @@[^\n]*(?:\n|$)")
_LINE_NUMBER = re.compile(r"^\d+: ?", re.MULTILINE)
_BUSY = re.compile(r"database is locked|database table is locked|SQLITE_BUSY|SQLITE_LOCKED", re.IGNORECASE)
_ERROR_LINE = re.compile(r"^(?:Uncaught )?(\w*Error(?: \[\w+\])?: .*)$", re.MULTILINE)
ESCAPES = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
"""Escape sequences for colours and cursor movements."""
_KEYWORDS_ONLY = "or set `searchMode: search`, which needs no model"
_MODEL_PROBLEMS = (
    (
        re.compile("LLM operations are disabled in CI"),
        "it uses no models while the variable CI is set",
        f"unset CI {_KEYWORDS_ONLY}",
    ),
    (
        re.compile(r"No model file found at \"?([^\"\n]*[^\"\n\s])"),
        "the model file {} is missing",
        f"give `memory.qmd.models` another file {_KEYWORDS_ONLY}",
    ),
    (
        re.compile(r"fetch failed|ENOTFOUND|EAI_AGAIN|getaddrinfo"),
        "a model is not on this machine and cannot be downloaded",
        f"run `qmd pull` once with a network {_KEYWORDS_ONLY}",
    ),
    (
        re.compile(r"NoBinaryFoundError|Failed to load model|failed to create context", re.IGNORECASE),
        "its language model cannot be loaded",
        f"try `qmd doctor` {_KEYWORDS_ONLY}",
    ),
)
_INSTALLATION_PROBLEMS = (
    (
        re.compile(r"((?:Unknown command|Unknown --format value|[Uu]nknown option)[^\n]*)"),
        "this version of it is incompatible: {}",
        INSTALL,
    ),
    (
        re.compile(r"ERR_MODULE_NOT_FOUND|Cannot find (?:module|package)"),
        "parts of it are missing",
        INSTALL,
    ),
    (
        re.compile(r"NODE_MODULE_VERSION|ERR_DLOPEN_FAILED|invalid ELF header"),
        "its native modules do not match the Node version that runs it",
        NEWER_NODE,
    ),
    (
        re.compile(r"database disk image is malformed|file is not a database|SQLITE_CORRUPT"),
        "its database is damaged",
        "`cmem index --force` builds a new one",
    ),
    (re.compile(r"ENOSPC|SQLITE_FULL|database or disk is full"), "the disk is full", "make room"),
    (re.compile("disk I/O error"), "its database cannot be read or written", "free some disk space"),
)
_SIGNALS = {4: "SIGILL", 6: "SIGABRT", 7: "SIGBUS", 9: "SIGKILL", 11: "SIGSEGV", 15: "SIGTERM"}


class _Item(BaseModel):
    """One hit as QMD writes it; other fields are ignored."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    file: str
    docid: str | None = None
    title: str | None = None
    score: FiniteFloat | None = None
    line: int | None = None
    snippet: str | None = None


def hits_in(stdout: str, stderr: str) -> list[Hit]:
    """Return the hits printed by a `qmd` command with `--json`, whatever is printed around them.

    Raises:
        BackendUnavailable: it found nothing because a model could not be used, although it exited with 0.
        BackendGarbled: there is no answer in the output, or one that cannot be parsed.
    """
    items = _array_in(stdout)
    if items:
        return hits_of(items, encoded=False)
    if problem := _known_problem(stderr, _MODEL_PROBLEMS, SEARCH):
        raise problem
    if items is None and not _NO_RESULTS.search(stdout if stdout.strip() else stderr):
        raise BackendGarbled(
            BACKEND_ID,
            SEARCH,
            excerpt=stdout.strip() or f"nothing on stdout; stderr: {stderr.strip() or 'nothing'}",
            expected="a JSON array of results",
        )
    return []


def hits_of(items: object, *, encoded: bool) -> list[Hit]:
    """Return the hits in the decoded items of an answer, in the same order.

    `encoded` means that file names are percent-encoded, as they are in QMD's REST answers.

    Raises:
        BackendGarbled: this is not a list of results; the message says where.
    """
    if not isinstance(items, list):
        raise BackendGarbled(BACKEND_ID, SEARCH, excerpt=repr(items), expected="a list of results")
    return [_hit(item, at, encoded=encoded) for at, item in enumerate(items)]


def refusal(code: int, stdout: str, stderr: str, *, operation: str = SEARCH) -> BackendError:
    """Return the error for a `qmd` command that exited with `code`, which is not 0.

    A signal is a negative `code`, or 128 plus its number.
    """
    output = ESCAPES.sub("", f"{stderr}\n{stdout}")
    if (signal := -code if code < 0 else code - 128) in _SIGNALS:
        return _ended_by(_SIGNALS[signal], operation)
    if code in (126, 127):
        return _unavailable(operation, f"its command cannot be run (exit {code})", INSTALL)
    if found := re.search(r"Collection not found: ([^\n]*)", output):
        body = f"{found[1].strip()}; `cmem index` brings QMD's collections up to date"
        return BackendRejected(BACKEND_ID, operation, status=UNKNOWN_COLLECTION, body=body)
    if _BUSY.search(output):
        return _unavailable(operation, BUSY, "try again in a moment")
    known = _known_problem(output, (*_MODEL_PROBLEMS, *_INSTALLATION_PROBLEMS), operation)
    return known or BackendRejected(
        BACKEND_ID, operation, status=f"exit code {code}", body=_error_line(output) or "it printed nothing"
    )


def _ended_by(signal: str, operation: str) -> BackendUnavailable:
    if signal == "SIGSEGV":
        what = "it crashed (SIGSEGV), as it does under a Node older than 22"
        return _unavailable(operation, what, NEWER_NODE)
    return _unavailable(operation, f"it was ended by {signal}", "try again; check this machine's memory")


def _known_problem(
    output: str, problems: Sequence[tuple[re.Pattern[str], str, str]], operation: str
) -> BackendUnavailable | None:
    """Return the error for the first of the `problems` reported in the output."""
    for pattern, what, fix in problems:
        if found := pattern.search(output):
            return _unavailable(operation, what.format(*found.groups()), fix)
    return None


def _unavailable(operation: str, what: str, fix: str) -> BackendUnavailable:
    return BackendUnavailable(BACKEND_ID, what, fix=fix, operation=operation)


def _error_line(output: str) -> str:
    """Return the line that names the error, which is not the first one of a stack trace."""
    found = _ERROR_LINE.search(output)
    return (
        found[1].strip()
        if found
        else next((line.strip() for line in output.splitlines() if line.strip()), "")
    )


def _array_in(stdout: str) -> list[object] | None:
    """Return the first array of objects, or empty array, in the output; None if there is none."""
    for candidate in _arrays_in(stdout):
        if isinstance(candidate, list) and all(isinstance(item, dict) for item in candidate):
            return candidate
    return None


def _arrays_in(stdout: str) -> Iterator[object]:
    yield from decoded(stdout, [0])
    starts = (match.start() for match, _ in zip(_ARRAY.finditer(stdout), range(MAX_ARRAYS), strict=False))
    yield from decoded(stdout, starts)


def decoded(text: str, starts: Iterable[int]) -> Iterator[object]:
    """Yield the JSON values that begin at these places of a text, if there are any."""
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
        raise BackendGarbled(BACKEND_ID, SEARCH, excerpt=repr(item), expected=expected) from error
    place = read.file.removeprefix(SCHEME)
    collection, slash, path = (unquote(place) if encoded else place).partition("/")
    if not (collection and slash and path):
        expected = f"a file as qmd://collection/path (at {at}.file)"
        raise BackendGarbled(BACKEND_ID, SEARCH, excerpt=repr(read.file), expected=expected)
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
    """Return where a snippet begins, its number of lines (0 if unknown), and its bare text.

    Answers over HTTP number every line, even the header, so that their line numbers are off by one.
    """
    header = _HEADER.match(text)
    if header is None:
        return 0, 0, text
    body = text[header.end() :]
    if header[0][0].isdigit():
        body = _LINE_NUMBER.sub("", body)
    return int(header[1]), int(header[2]), body


TOOL = "query"


def arguments_of(request: SearchRequest) -> dict[str, JsonValue]:
    """Return the arguments of the tool call; QMD's REST interface takes the same for given searches."""
    what: dict[str, JsonValue] = {"query": request.text}
    if not request.expand:
        searches: list[JsonValue] = [{"type": one.kind, "query": one.text} for one in request.searches]
        what = {"searches": searches, "rerank": False}
    return {
        **what,
        "collections": list(request.collections),
        "limit": request.limit,
        "candidateLimit": request.candidates,
    }


def has_failed(result: object) -> bool:
    """Return whether the tool or its call has failed."""
    return isinstance(result, dict) and bool(result.get("isError") or result.get("error"))


def results_in(result: object) -> object:
    """Return the hits in a result: `structuredContent.results`, `results`, or a bare list of objects."""
    if isinstance(result, dict):
        inner = result.get("structuredContent")
        return (inner if isinstance(inner, dict) else result).get("results")
    return result if isinstance(result, list) and all(isinstance(item, dict) for item in result) else None


def error_text(result: Mapping[str, object]) -> str:
    """Return the message of a failed tool, or of a failed call; empty if there is none."""
    content, error = result.get("content"), result.get("error")
    parts = content if isinstance(content, list) else []
    if isinstance(error, dict):
        parts = [*parts, {"text": error.get("message")}]
    texts = [part.get("text") for part in parts if isinstance(part, dict)]
    text = "\n".join(text for text in texts if isinstance(text, str)).strip()
    return text or (error.strip() if isinstance(error, str) else "")
