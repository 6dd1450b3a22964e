"""What QMD answers is read whichever way it came; what it says of its troubles becomes the right error."""

import json

import pytest

from composable_memory.errors import BackendError, BackendGarbled, BackendRejected, BackendUnavailable
from composable_memory_adapters.qmd.transport.replies import (
    BUSY,
    UNKNOWN_COLLECTION,
    hits_in,
    hits_of,
    refusal,
)
from composable_memory_adapters.qmd.types import Hit

ITEM = {
    "docid": "#d2bbd4",
    "score": 0.5,
    "file": "qmd://notes/a b.md",
    "line": 4,
    "title": "Gateway",
    "snippet": "@@ -3,2 @@ (2 before, 9 after)\nFirst.\nSecond.",
}
HIT = Hit(
    collection="notes",
    path="a b.md",
    line=4,
    start_line=3,
    line_count=2,
    snippet="First.\nSecond.",
    score=0.5,
    title="Gateway",
    docid="#d2bbd4",
)
PRINTED = json.dumps([ITEM], indent=2)


def test_what_the_command_prints_is_read() -> None:
    assert hits_in(PRINTED, "├─ lex: gateway") == [HIT]


@pytest.mark.parametrize(
    "stdout",
    [
        f"ggml_cuda_init: found no device [1/3]\n[x] warning: slow\n{PRINTED}\n",
        f"{PRINTED}\nBye [done]",
        f"loading [ ] [1, 2] {PRINTED}",
    ],
)
def test_an_answer_is_found_among_noise(stdout: str) -> None:
    assert hits_in(stdout, "") == [HIT]


@pytest.mark.parametrize(
    ("stdout", "stderr"),
    [
        ("[]\n", ""),
        ("CUDA: no device\n[]\n", ""),
        ("No results found.\n", ""),
        ("[x] warning: No results found above minimum score threshold.\n", ""),
        ("", "No results found."),
    ],
)
def test_nothing_found_is_no_error(stdout: str, stderr: str) -> None:
    assert hits_in(stdout, stderr) == []


@pytest.mark.parametrize(
    "stdout",
    [
        "",
        "   \n",
        "Segmentation fault",
        PRINTED[:60],
        # The answer ends in the midst of a snippet with an empty box in it: nothing was not found.
        json.dumps([ITEM | {"snippet": "- [ ] buy milk\n[]\n"}])[:-30],
        '{"results": 3}',
        "[1, 2, 3]",
        "[" * 100_000,
    ],
)
def test_an_answer_that_is_none_is_garbled(stdout: str) -> None:
    with pytest.raises(BackendGarbled):
        hits_in(stdout, "something went wrong")


def test_an_empty_answer_tells_what_was_said_instead() -> None:
    with pytest.raises(BackendGarbled, match=r"nothing on stdout; stderr: out of luck"):
        hits_in("", "out of luck")


def test_nothing_found_for_want_of_a_model_is_an_error() -> None:
    said = 'Batch embedding error: Error: No model file found at "/models/x.gguf"'

    with pytest.raises(BackendUnavailable, match=r"the model file /models/x\.gguf is missing"):
        hits_in("[]", said)


def test_an_answer_over_http_is_decoded_and_loses_its_line_numbers() -> None:
    items = [
        ITEM
        | {
            "file": "qmd://notes/a%20b.md",
            "snippet": "4: @@ -3,2 @@ (2 before, 9 after)\n5: First.\n6: Second.",
        }
    ]

    assert hits_of(items, encoded=True) == [HIT]


def test_numbers_that_are_text_stay() -> None:
    item = ITEM | {"snippet": "@@ -3,2 @@ (2 before, 9 after)\n12: noon.\nSecond."}

    assert hits_of([item], encoded=False)[0].snippet == "12: noon.\nSecond."


def test_an_answer_of_the_mcp_tool_names_files_without_a_scheme() -> None:
    assert hits_of([ITEM | {"file": "notes/100%25.md"}], encoded=False)[0].path == "100%25.md"


def test_what_qmd_may_leave_out_is_not_needed() -> None:
    bare = hits_of([{"file": "qmd://notes/a.md", "score": None}], encoded=False)

    assert bare == [
        Hit(collection="notes", path="a.md", line=0, start_line=0, line_count=0, snippet="", score=0.0)
    ]


@pytest.mark.parametrize(
    ("items", "where"),
    [
        (None, "a list of results"),
        ({"results": []}, "a list of results"),
        ([ITEM, "text"], "at 1: "),
        ([ITEM | {"file": 3}], r"at 0\.file: "),
        ([ITEM | {"score": "high"}], r"at 0\.score: "),
        ([ITEM | {"score": float("nan")}], r"at 0\.score: "),
        ([ITEM | {"file": "/abs/a.md"}], r"at 0\.file"),
        ([ITEM | {"file": "qmd://notes/"}], r"at 0\.file"),
    ],
)
def test_a_wrong_shape_is_named(items: object, where: str) -> None:
    with pytest.raises(BackendGarbled, match=where):
        hits_of(items, encoded=False)


STACK = """file:///opt/qmd/dist/store.js:4683
                throw new Error(`${location} (lex): ${error}`);
                      ^

Error: Line 1 (lex): Lex query has an unmatched double quote ("). Add the closing quote or remove it.
    at structuredSearch (file:///opt/qmd/dist/store.js:4683:23)

Node.js v24.19.0
"""


@pytest.mark.parametrize(
    ("code", "stderr", "kind", "said"),
    [
        (1, "Collection not found: notes", BackendRejected, UNKNOWN_COLLECTION),
        (1, "SqliteError: database is locked\n    at Database", BackendUnavailable, BUSY),
        (1, "LLM operations are disabled in CI (set CI=true)", BackendUnavailable, "the variable CI"),
        (1, "No model file found at /m/x.gguf", BackendUnavailable, "/m/x.gguf is missing"),
        (1, "TypeError: fetch failed\n [cause]: ENOTFOUND huggingface.co", BackendUnavailable, "qmd pull"),
        (1, "Unknown command: query\nRun qmd --help", BackendUnavailable, "incompatible: Unknown command"),
        (1, "Error [ERR_MODULE_NOT_FOUND]: Cannot find package 'yaml'", BackendUnavailable, "npm install"),
        (1, "was compiled against NODE_MODULE_VERSION 115", BackendUnavailable, "Node 22"),
        (1, "SqliteError: database disk image is malformed", BackendUnavailable, "index --force"),
        (1, "SqliteError: database or disk is full", BackendUnavailable, "the disk is full"),
        (1, "SqliteError: disk I/O error", BackendUnavailable, "free some disk space"),
        (139, "", BackendUnavailable, "Node 22"),
        (-11, "", BackendUnavailable, "SIGSEGV"),
        (-9, "", BackendUnavailable, "SIGKILL"),
        (127, "sh: qmd: not found", BackendUnavailable, "npm install"),
        (1, STACK, BackendRejected, "Error: Line 1 (lex): Lex query has an unmatched double quote"),
        (3, "", BackendRejected, "exit code 3: it printed nothing"),
        (2, "\x1b[31mboom\x1b[0m", BackendRejected, "exit code 2: boom"),
    ],
)
def test_a_failure_says_what_it_was_and_what_to_do(
    code: int, stderr: str, kind: type[BackendError], said: str
) -> None:
    error = refusal(code, "", stderr)

    assert type(error) is kind
    assert said in str(error)


def test_a_failure_names_what_was_being_done() -> None:
    assert "failed to update" in str(refusal(1, "", "boom", operation="update"))
