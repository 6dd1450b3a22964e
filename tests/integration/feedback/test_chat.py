"""The client of chat completions against a real endpoint on loopback that behaves well, badly, and worse."""

import asyncio
import gzip
import json
import traceback
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import pytest

from composable_memory_feedback.chat import ChatClient, ChatEndpoint
from composable_memory_feedback.errors import FeedbackError
from composable_memory_ops_logs.events import JsonValue
from tests.integration.embedders.loopback import Answerer, Loopback, Received, Reply, in_turn, listening

KEY = "top/secret+key-42"
NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
SCHEMA: dict[str, JsonValue] = {"type": "object", "properties": {"a": {"type": "integer"}}}


def completion(text: str = '{"a": 1}', **more: object) -> Reply:
    choice = {"message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
    usage = {"prompt_tokens": 11, "completion_tokens": 5}
    return Reply.of({"choices": [choice], "usage": usage, **more})


def well(received: Received) -> Reply:
    return completion()


class Naps:
    """Takes no time, and remembers how much it should have taken."""

    def __init__(self) -> None:
        self.taken: list[float] = []

    async def __call__(self, seconds: float) -> None:
        self.taken.append(seconds)


@pytest.fixture
def naps() -> Naps:
    return Naps()


@asynccontextmanager
async def asking(
    answer: Answerer, naps: Naps | None = None, **bounds: object
) -> AsyncIterator[tuple[ChatClient, Loopback]]:
    async with listening(answer) as server:
        endpoint = ChatEndpoint(base_url=f"{server.url}/v1", model="m", api_key=KEY, **bounds)  # type: ignore[arg-type]
        async with ChatClient(endpoint, clock=lambda: NOW, pace=naps or Naps()) as client:
            yield client, server


async def failure_of(client: ChatClient) -> FeedbackError:
    """Return the error of a question, and see that the key is nowhere in all that it tells."""
    with pytest.raises(FeedbackError) as caught:
        await client.complete("s", "u", schema=SCHEMA)
    told = "".join(traceback.format_exception(caught.value))
    assert KEY not in told
    assert KEY.replace("/", "\\/") not in told
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None
    return caught.value


async def test_a_question_is_sent_as_chat_completion_with_a_schema_and_answered() -> None:
    async with asking(well, max_tokens=99) as (client, server):
        reply = await client.complete("the system", "the user", schema=SCHEMA, schema_name="thing")

    asked = server.received[0]
    assert (asked.path, asked.headers["authorization"]) == ("/v1/chat/completions", f"Bearer {KEY}")
    assert asked.json == {
        "model": "m",
        "messages": [{"role": "system", "content": "the system"}, {"role": "user", "content": "the user"}],
        "max_tokens": 99,
        "stream": False,
        "temperature": 0,
        "response_format": {
            "type": "json_schema",
            "json_schema": {"name": "thing", "schema": SCHEMA, "strict": True},
        },
    }
    assert (reply.text, reply.input_tokens, reply.output_tokens, reply.model) == ('{"a": 1}', 11, 5, "m")
    assert reply.is_whole
    assert reply.duration_ms > 0


async def test_without_a_schema_and_a_key_neither_is_sent() -> None:
    async with listening(well) as server:
        endpoint = ChatEndpoint(base_url=server.url, model="m", api_key="")
        async with ChatClient(endpoint) as client:
            await client.complete("s", "u")

    assert "response_format" not in server.received[0].json
    assert "authorization" not in server.received[0].headers


async def test_the_query_of_the_base_url_stays() -> None:
    async with listening(well) as server:
        endpoint = ChatEndpoint(base_url=f"{server.url}/v1/?version=2", model="m")
        async with ChatClient(endpoint) as client:
            await client.complete("s", "u")

    assert server.received[0].path == "/v1/chat/completions?version=2"


def only(*forms: str | None, status: int, says: str) -> Callable[[Received], Reply]:
    """Answer only requests that ask for JSON in one of these forms."""

    def answer(received: Received) -> Reply:
        form = received.json.get("response_format", {}).get("type")
        return completion() if form in forms else Reply.of({"error": says}, status=status)

    return answer


def forms(server: Loopback) -> list[str | None]:
    return [received.json.get("response_format", {}).get("type") for received in server.received]


@pytest.mark.parametrize("status", [400, 422, 500])
async def test_an_endpoint_without_schemas_is_asked_for_an_object_and_remembered(status: int) -> None:
    answer = only("json_object", status=status, says="('body', 'response_format', 'type')")
    async with asking(answer) as (client, server):
        for _ in range(2):
            await client.complete("s", "u", schema=SCHEMA)

    assert forms(server) == ["json_schema", "json_object", "json_object"]
    assert server.received[1].json["response_format"]["schema"] == SCHEMA


async def test_an_endpoint_without_longest_lengths_is_asked_for_the_schema_without_them() -> None:
    bounded: dict[str, Any] = {"type": "object", "properties": {"a": {"type": "string", "maxLength": 300}}}

    def answer(request: Received) -> Reply:
        if "maxLength" in json.dumps(request.json):
            return Reply.of({"error": "response_format: 'maxLength' is not permitted"}, status=400)
        return completion('{"a": "b"}')

    async with asking(answer) as (client, server):
        await client.complete("s", "u", schema=bounded)

    assert forms(server) == ["json_schema", "json_schema"]
    assert server.received[1].json["response_format"]["json_schema"]["schema"] == {
        "type": "object",
        "properties": {"a": {"type": "string"}},
    }


async def test_an_endpoint_without_any_form_is_asked_plainly() -> None:
    async with asking(only(None, status=400, says="unknown field response_format")) as (client, server):
        reply = await client.complete("s", "u", schema=SCHEMA)

    assert (forms(server), reply.text) == (["json_schema", "json_object", None], '{"a": 1}')


async def test_a_refusal_about_something_else_is_not_asked_again() -> None:
    async with asking(only(status=400, says="context too long")) as (client, server):
        error = await failure_of(client)

    assert forms(server) == ["json_schema"]
    assert "refuses with 400" in str(error)
    assert "context too long" in str(error)


async def test_a_refusal_of_every_manner_ends() -> None:
    says = "response_format, temperature and max_completion_tokens, all wrong"
    async with asking(only(status=400, says=says)) as (client, server):
        await failure_of(client)

    assert len(server.received) == 5


async def test_an_endpoint_may_want_other_names_and_no_temperature() -> None:
    def answer(received: Received) -> Reply:
        if "max_tokens" in received.json:
            return Reply.of({"error": "use 'max_completion_tokens' instead"}, status=400)
        if "temperature" in received.json:
            return Reply.of({"error": "'temperature' does not support 0"}, status=400)
        return completion()

    async with asking(answer) as (client, server):
        await client.complete("s", "u", schema=SCHEMA)
        await client.complete("s", "u", schema=SCHEMA)

    assert len(server.received) == 4
    assert forms(server) == ["json_schema"] * 4


@pytest.mark.parametrize(
    ("asked", "waited"),
    [
        ({"retry_after": "3"}, [3.0]),
        ({"retry_after": "Sun, 01 Mar 2026 12:00:07 GMT"}, [7.0]),
        ({"retry_after": "Sun, 01 Mar 2020 12:00:07 GMT"}, [0.0]),
        ({"retry_after": "soon"}, [0.5]),
        ({"retry_after": "Sun, 01 Mar 99999999999999999999 12:00:07 GMT"}, [0.5]),
        ({}, [0.5]),
    ],
)
async def test_a_busy_endpoint_is_asked_again_when_it_wants(
    naps: Naps, asked: dict[str, str], waited: list[float]
) -> None:
    async with asking(in_turn(Reply.of({}, 429, **asked), then=well), naps) as (client, _):
        reply = await client.complete("s", "u")

    assert (reply.text, naps.taken) == ('{"a": 1}', waited)


async def test_an_endpoint_that_stays_busy_is_asked_three_times(naps: Naps) -> None:
    async with asking(lambda _: Reply.of({"error": "later"}, 503), naps) as (client, server):
        error = await failure_of(client)

    assert (len(server.received), naps.taken) == (3, [0.5, 1.0])
    assert "busy (503)" in str(error)


@pytest.mark.parametrize("wants", ["31", "9" * 400])
async def test_who_wants_to_be_left_alone_for_longer_than_there_is_time_is_left_alone(
    naps: Naps, wants: str
) -> None:
    async with asking(lambda _: Reply.of({}, 429, retry_after=wants), naps) as (client, server):
        await failure_of(client)

    assert (len(server.received), naps.taken) == (1, [])


@pytest.mark.parametrize("status", [301, 302, 307, 308])
async def test_a_redirect_is_not_followed(status: int) -> None:
    async with listening(well) as elsewhere:
        moved = Reply.of({}, status, location=f"{elsewhere.url}/v1/chat/completions")
        async with asking(lambda _: moved) as (client, server):
            error = await failure_of(client)

    assert (len(server.received), elsewhere.received) == (1, [])
    assert "redirects are not followed" in str(error)


@pytest.mark.parametrize(
    ("status", "advice"),
    [(401, "use a key"), (403, "use a key"), (404, "check the base URL"), (413, "read its message")],
)
async def test_a_refusal_says_what_to_do_next(status: int, advice: str) -> None:
    async with asking(lambda _: Reply.of({"error": "no"}, status)) as (client, _):
        error = await failure_of(client)

    assert f"refuses with {status}: m at 127.0.0.1" in str(error)
    assert advice in error.advice


def echo(status: int, *, escaped: bool = False) -> Answerer:
    """Answer with the header that holds the key."""

    def answer(received: Received) -> Reply:
        body = json.dumps({"you sent": received.headers["authorization"]})
        return Reply(status=status, body=(body.replace("/", "\\/") if escaped else body).encode())

    return answer


@pytest.mark.parametrize("status", [200, 302, 400, 401, 500])
@pytest.mark.parametrize("escaped", [False, True])
async def test_an_endpoint_that_echoes_the_key_does_not_bring_it_into_the_error(
    status: int, escaped: bool
) -> None:
    async with asking(echo(status, escaped=escaped)) as (client, _):
        error = await failure_of(client)

    assert "***" in str(error)


async def test_what_an_endpoint_says_is_short_and_in_one_line() -> None:
    async with asking(lambda _: Reply(status=500, body=b"\x1b[2J<html>\r\n" * 9000)) as (client, _):
        error = await failure_of(client)

    assert len(error.subject) < 260
    assert error.subject.isprintable()


def nested(depth: int) -> bytes:
    return b'{"choices":' + b"[" * depth + b"]" * depth + b"}"


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html>hello</html>",
        b"null",
        b"{}",
        b'{"choices": []}',
        b'{"choices": [{}]}',
        b'{"choices": [{"message": {"content": 7}}]}',
        b'{"choices": "NaN"}',
        b"\xff\xfe\x00",
        nested(100_000),
    ],
    ids=lambda body: body[:20].decode("latin-1"),
)
async def test_what_is_no_completion_is_refused(body: bytes) -> None:
    async with asking(lambda _: Reply(body=body)) as (client, _):
        error = await failure_of(client)

    assert error.problem == "the answer is not a chat completion"


@pytest.mark.parametrize(
    "usage",
    [
        None,
        "free",
        [],
        {"prompt_tokens": -5},
        {"prompt_tokens": 10**30, "completion_tokens": True},
        {"prompt_tokens": 1.5},
    ],
)
async def test_a_bill_that_makes_no_sense_counts_nothing(usage: object) -> None:
    async with asking(lambda _: completion(usage=usage)) as (client, _):
        reply = await client.complete("s", "u")

    assert (reply.text, reply.input_tokens, reply.output_tokens) == ('{"a": 1}', 0, 0)


async def test_infinite_numbers_in_the_bill_count_nothing() -> None:
    body = b'{"choices": [{"message": {"content": null}}], "usage": {"prompt_tokens": 1e999, "x": NaN}}'
    async with asking(lambda _: Reply(body=body)) as (client, _):
        reply = await client.complete("s", "u")

    assert (reply.text, reply.input_tokens) == ("", 0)


async def test_an_answer_that_was_cut_off_at_the_limit_says_so() -> None:
    choice = {"message": {"content": '{"a'}, "finish_reason": "length"}
    async with asking(lambda _: completion(choices=[choice])) as (client, _):
        assert not (await client.complete("s", "u")).is_whole


async def test_a_body_without_end_is_not_waited_for() -> None:
    endless = Reply(body=b"x" * 20_000, headers={"content-length": "1000000000"})
    async with asking(lambda _: endless, max_bytes=10_000, timeout_s=5) as (client, _):
        error = await failure_of(client)

    assert "longer than 10000 bytes" in str(error)


async def test_a_huge_refusal_is_not_waited_for() -> None:
    endless = Reply(status=400, body=b"x" * 20_000, headers={"content-length": "1000000000"})
    async with asking(lambda _: endless, timeout_s=5) as (client, _):
        error = await failure_of(client)

    assert "refuses with 400" in str(error)


async def test_a_compressed_body_is_refused_unread() -> None:
    bomb = Reply(body=gzip.compress(bytes(5_000_000)), headers={"content-encoding": "gzip"})
    async with asking(lambda _: bomb) as (client, server):
        error = await failure_of(client)

    assert "compressed" in str(error)
    assert server.received[0].headers["accept-encoding"] == "identity"


async def test_an_answer_that_drips_ends_with_the_time() -> None:
    async with asking(lambda _: Reply(body=b"{" * 100, drip=True), timeout_s=0.1) as (client, server):
        error = await failure_of(client)
        await asyncio.wait_for(server.deserted.wait(), 10)

    assert "no complete answer came within 0.1 s" in str(error)


async def test_an_answer_that_breaks_off_is_an_error_and_the_next_one_works() -> None:
    broken = Reply(body=b"{" * 100, cut=True)
    async with asking(in_turn(broken, then=well)) as (client, _):
        error = await failure_of(client)
        reply = await client.complete("s", "u")

    assert "cannot be reached" in str(error)
    assert reply.text == '{"a": 1}'


async def test_nobody_there_is_an_error_that_names_the_host() -> None:
    async with listening(well) as server:
        endpoint = ChatEndpoint(base_url=server.url, model="m", api_key=KEY)
    async with ChatClient(endpoint) as client:
        error = await failure_of(client)

    assert f"m at {endpoint.host}" in error.subject


async def test_a_cancelled_question_leaves_the_connection_and_the_next_one_works() -> None:
    async def never(received: Received) -> Reply:
        await asyncio.Event().wait()
        return completion()

    async with asking(never) as (client, server):
        task = asyncio.create_task(client.complete("s", "u"))
        await asyncio.wait_for(server.arrived.wait(), 10)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.wait_for(server.deserted.wait(), 10)
        server.answer = well

        assert (await client.complete("s", "u")).text == '{"a": 1}'


async def test_questions_go_on_side_by_side() -> None:
    arrived = 0
    both = asyncio.Event()

    async def together(received: Received) -> Reply:
        nonlocal arrived
        arrived += 1
        if arrived == 2:
            both.set()
        await both.wait()
        return completion()

    async with asking(together) as (client, _):
        replies = await asyncio.gather(*(client.complete("s", "u") for _ in range(2)))

    assert len(replies) == 2


async def test_a_proxy_of_the_environment_does_not_stand_before_this_machine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    async with asking(well) as (client, _):
        assert (await client.complete("s", "u")).text == '{"a": 1}'


async def test_a_client_that_is_closed_twice_says_that_it_no_longer_asks() -> None:
    async with asking(well) as (client, server):
        await client.close()
        await client.close()
        error = await failure_of(client)

    assert "is closed" in str(error)
    assert server.received == []


@pytest.mark.parametrize(
    "address",
    [
        "",
        "ftp://h/v1",
        "127.0.0.1:8080",
        "http://",
        "http://user:hidden@h/v1",
        "http://h:99999999/",
        "http://\x00",
        "http://xn--zz",
    ],
)
def test_what_is_no_address_is_refused_unshown(address: str) -> None:
    with pytest.raises(FeedbackError, match="the address cannot be asked") as caught:
        ChatEndpoint(base_url=address, model="m")

    assert "hidden" not in str(caught.value)


@pytest.mark.parametrize("key", ["two words", "naïve", "line\nbreak", "null\x00"])
def test_a_key_that_no_header_holds_is_refused_unshown(key: str) -> None:
    with pytest.raises(FeedbackError, match="the key cannot be one") as caught:
        ChatEndpoint(base_url="http://h", model="m", api_key=key)

    assert key not in "".join(traceback.format_exception(caught.value))


def test_the_line_end_of_a_key_from_a_file_does_no_harm() -> None:
    endpoint = ChatEndpoint(base_url="http://h", model="m", api_key=f"{KEY}\n")

    assert endpoint.key == KEY
    assert KEY not in repr(endpoint)
