"""Laws of the ops log: masking is idempotent and complete, lines lose nothing, pages add up to the whole."""

import string
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

from hypothesis import assume, given
from hypothesis import strategies as st

from composable_memory_ops_logs import (
    BackendResult,
    Candidate,
    MemorySink,
    OpsEvent,
    OpsLog,
    OpsLogReader,
    QueryDelivered,
    TakenFrom,
    redact,
    redact_value,
)
from composable_memory_ops_logs.line_format import event_to_wire, to_line
from composable_memory_ops_logs.redaction import redactor
from composable_memory_ops_logs.redaction.redactor import CleanTexts
from composable_memory_ops_logs.redaction.scanner import Text, WordScanner
from composable_memory_ops_logs.redaction.tokens import SHAPES as TOKEN_SHAPES
from composable_memory_ops_logs.redaction.tokens import Shape, shape_spans
from composable_memory_ops_logs.short_form import events_from_line

PIECES = st.sampled_from(
    [
        *(
            "password",
            "token",
            "api_key",
            "key",
            "Secret",
            "--token",
            "Authorization",
            "Bearer",
            "clientSecret",
        ),
        *(
            "=",
            ":",
            ": ",
            "=>",
            '"',
            "'",
            "`",
            "\\",
            '\\"',
            " ",
            "\n",
            "@",
            "://",
            "*",
            "**",
            "…",
            "***",
            "&",
            ",",
        ),
        *("sk-", "ghp_", "xoxb-", "eyJ", ".", "AKIA", "SG.", ":AA", "123456789", "npm_", "hf_", "-", "_"),
        *("-----BEGIN PRIVATE KEY-----", "-----END PRIVATE KEY-----", "abcdef…wxyz", "null", "${", "true"),
    ]
)
WORDS = st.text(alphabet=string.ascii_letters + string.digits + "-_/+", max_size=40)
SUSPICIOUS = st.lists(PIECES | WORDS | st.text(max_size=5), max_size=14).map("".join)

NAMES = st.sampled_from(["OPENAI_API_KEY=", "password: ", 'accessToken": "', "client-secret=", "--password "])
SHAPES = st.sampled_from(["ghp_{}", "sk-{}", "npm_{}", "gsk_{}", "hf_{}", "glpat-{}", "xoxb-{}", "pplx-{}"])
SECRETS = st.text(alphabet=string.ascii_letters + string.digits, min_size=24, max_size=60)

FLOATS = st.floats(allow_nan=False, allow_infinity=False)
PLACES = st.builds(
    TakenFrom,
    path=st.text(max_size=20),
    start_line=st.integers(0, 10**6),
    end_line=st.integers(0, 10**6),
    start_char=st.none() | st.integers(0, 10**9),
)
CANDIDATES = st.builds(
    Candidate,
    path=st.text(max_size=20),
    start_line=st.integers(0, 10**6),
    end_line=st.integers(0, 10**6),
    score=FLOATS,
    rank=st.integers(1, 100),
    start_char=st.none() | st.integers(0, 10**9),
    source=st.sampled_from(["memory", "sessions"]),
    snippet_preview=st.text(max_size=120),
    content_hash=st.text(alphabet="0123456789abcdef", max_size=16),
    exact=st.booleans(),
    origin=st.none() | PLACES,
    outdated=st.none() | st.lists(PLACES, min_size=1, max_size=2),
)
RESULTS = st.builds(
    BackendResult,
    weight=FLOATS,
    result_count=st.integers(0, 100),
    depth=st.integers(0, 100),
    results=st.lists(CANDIDATES, max_size=4),
)


@given(SUSPICIOUS)
def test_masking_a_text_twice_is_masking_it_once(text: str) -> None:
    once = redact(text)

    assert redact(once) == once


@given(
    st.recursive(SUSPICIOUS, lambda inner: st.lists(inner) | st.dictionaries(SUSPICIOUS, inner), max_leaves=8)
)
def test_masking_data_twice_is_masking_it_once(data: object) -> None:
    once = redact_value(data)  # type: ignore[call-overload]  # the strategy cannot say so

    assert redact_value(once) == once


@given(SUSPICIOUS)
def test_clean_texts_agrees_with_redact(text: str) -> None:
    assert CleanTexts().covers([text, "plain"]) == (redact(text) == text)


RULE_WORDS = sorted({word for rule in redactor.RULES for word in rule.words})
NUMBERS = {word: [number] for number, word in enumerate(RULE_WORDS)}
SCANNER = WordScanner(NUMBERS, one_by_one=0)


@given(
    st.lists(
        st.sampled_from(RULE_WORDS)
        | st.builds(str.__getitem__, st.sampled_from(RULE_WORDS), st.builds(slice, st.integers(-4, 4)))
        | st.text(max_size=3),
        max_size=8,
    ).map("".join)
)
def test_no_word_of_a_rule_is_overlooked(text: str) -> None:
    low = Text.of(text).low
    standing = {
        (place, word) for word in RULE_WORDS for place in range(len(low)) if low.startswith(word, place)
    }

    for scanner in (SCANNER, WordScanner(NUMBERS)):
        found = {
            (place, RULE_WORDS[number])
            for number, places in scanner.places(low, 0, len(low)).items()
            for place in places
        }
        assert found == standing


@given(st.sampled_from(TOKEN_SHAPES), st.text(max_size=30), st.randoms(use_true_random=False))
def test_no_token_is_overlooked(shape: Shape, before: str, draw: Random) -> None:
    """What the few long runs of a text say must not hide a token that its pattern would find."""
    signs = string.ascii_letters + string.digits + "._-"
    head, tail = ("".join(draw.choices(signs, k=size)) for size in (shape.back, 120))
    text = f"{before} {head}{shape.literal}{tail}"
    alone = [span for span in shape_spans(Text.of(text), shape) if span.end > span.start]

    masked = redact(text)

    assert [span for span in alone if text[span.start : span.end] in masked] == []


@given(SUSPICIOUS)
def test_the_simple_form_of_a_text_is_as_long(text: str) -> None:
    assert len(Text.of(text).low) == len(text)


@given(st.text(max_size=30), NAMES, SECRETS, st.sampled_from(["", " ", "\n", '"', "; more"]))
def test_a_named_secret_never_survives(before: str, name: str, secret: str, after: str) -> None:
    assume(secret not in before)

    assert secret not in redact(f"{before} {name}{secret}{after}")


@given(st.text(max_size=30), SHAPES, SECRETS, st.text(max_size=30))
def test_a_secret_of_a_known_shape_never_survives(before: str, shape: str, secret: str, after: str) -> None:
    assume(secret not in before and secret not in after)

    assert secret not in redact(f"{before} {shape.format(secret)} {after}")


@given(st.text(alphabet=string.ascii_lowercase + " .,\n'áé字", max_size=300))
def test_prose_without_signs_is_never_changed(text: str) -> None:
    assert redact(text) == text


@given(RESULTS)
def test_a_line_gives_back_every_value_exactly(detail: BackendResult) -> None:
    sink, log = MemorySink(), OpsLog(None)
    log.subscribe(sink)
    log.emit(detail)

    wire = event_to_wire(sink.events[0])
    (back,) = events_from_line(to_line(wire))

    assert back.detail == wire["detail"]


@given(st.lists(st.integers(1, 150_000), max_size=8), st.integers(1, 7), st.booleans())
def test_pages_add_up_to_the_whole_log(sizes: list[int], limit: int, ended: bool) -> None:
    """Lines are shorter and longer than the blocks the reader takes."""
    sink, log = MemorySink(), OpsLog(None, clock=lambda: datetime(2026, 3, 1, tzinfo=UTC))
    log.subscribe(sink)
    for size in sizes:
        log.emit(QueryDelivered(result_count=0, paths=()), session_key="x" * size)
    with TemporaryDirectory() as folder:
        lines = b"".join(to_line(event_to_wire(event)) for event in sink.events)
        Path(folder, "ops-2026-03.jsonl").write_bytes(lines if ended else lines.rstrip(b"\n"))
        read = read_all(OpsLogReader(Path(folder)), limit)

    assert [event.id for event in read] == [event.id for event in reversed(sink.events)]


def read_all(reader: OpsLogReader, limit: int) -> list[OpsEvent]:
    events: list[OpsEvent] = []
    while (page := reader.read(limit=limit, offset=len(events))).has_more:
        events += page.events
    return [*events, *page.events]
