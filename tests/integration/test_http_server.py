"""`cmem serve --http` as a process: who may come in, what it withstands, and what it answers."""

import asyncio
import json
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import httpx
import jsonschema
import pytest
from hypothesis import HealthCheck, given, settings, strategies

from composable_memory import open_memory
from composable_memory.config.settings import SettingsModel
from composable_memory.http_server.app import SERVED, build_app
from composable_memory.http_server.listening import Access, listening
from composable_memory.interfaces import BackendSpec
from composable_memory.mcp_server.open_memories import Opened, Service
from composable_memory.testing.fakes import HangingBackend
from composable_memory.types import MemorySearchResult, SearchOptions
from tests.cli_process import run_cli
from tests.integration.mcp_calls import document, words_only
from tests.integration.mcp_server_process import JSON as MCP_JSON
from tests.integration.mcp_server_process import RESIDENT, Running, running, running_for_many
from tests.variants import variants

pytestmark = [
    pytest.mark.security,
    pytest.mark.skipif(sys.platform == "win32", reason="there are no Unix sockets"),
]
LIMIT_S = 60
JSON = {"content-type": "application/json"}
BROWSER = {"accept": "text/html", "sec-fetch-site": "none"}


@pytest.fixture(autouse=True)
def _words_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words_only(tmp_path, monkeypatch)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A server for all tests that do not end it, and look for nothing but what they asked or wrote."""
    with running_for_many(tmp_path_factory.mktemp("served"), RESIDENT) as found:
        yield found


@pytest.fixture
def own_server(workspace: Path, state_dir: Path) -> Iterator[Running]:
    index(workspace, state_dir)
    with running(workspace, state_dir, command=RESIDENT) as found:
        yield found


def index(workspace: Path, state_dir: Path) -> None:
    """Index the notes before a server starts, so that no search comes before they are."""
    assert cmem("index", "-w", str(workspace), "--state-dir", str(state_dir))[0] == 0


def cmem(*words: str) -> tuple[int, str, str]:
    done = run_cli(*words)
    return done.returncode, done.stdout, done.stderr


def client_of(server: Running, *, known: bool = True) -> httpx.Client:
    return httpx.Client(base_url=server.url, headers=server.auth if known else {}, timeout=LIMIT_S)


@contextmanager
def browser_of(server: Running) -> Iterator[httpx.Client]:
    """Yield a browser that came in by the address with the token."""
    token = server.token.read_text("ascii")
    with client_of(server, known=False) as browser:
        entered = browser.get("/api/v1/status", params={"token": token}, headers=BROWSER)
        assert (entered.status_code, entered.headers["location"]) == (303, "/api/v1/status")
        yield browser


def raw(server: Running, message: bytes) -> socket.socket:
    url = httpx.URL(server.url)
    client = socket.create_connection((url.host, url.port or 0), timeout=LIMIT_S)
    client.sendall(message)
    return client


def head_of(server: Running, *lines: str, path: str = "/api/v1/search") -> bytes:
    url = httpx.URL(server.url)
    headers = [f"{name}: {one}" for name, one in {**server.auth, **JSON}.items()]
    return "\r\n".join(
        [f"POST {path} HTTP/1.1", f"Host: {url.host}:{url.port}", *headers, *lines, "", ""]
    ).encode()


def until_closed(client: socket.socket) -> bytes:
    with client:
        received = b""
        try:
            while piece := client.recv(65536):
                received += piece
        except ConnectionResetError:
            pass
        return received


def test_every_way_in_asks_for_the_token_and_for_its_own_name(server: Running) -> None:
    port = httpx.URL(server.url).port
    with client_of(server, known=False) as stranger, client_of(server) as known:
        for path in ("/", "/mcp", "/api/v1/search", "/api/v1/status?token=wrong", "/nothing"):
            assert stranger.get(path).status_code == 401, path
            assert known.get(path, headers={"host": f"evil.example:{port}"}).status_code == 421, path
            assert known.get(path, headers={"origin": "http://evil.example"}).status_code == 403, path
        assert 'name="token"' in stranger.get("/", headers=BROWSER).text
        assert known.get("/api/v1/status").status_code == 200
        assert known.get("/api/v1/status", headers={"host": f"localhost:{port}"}).status_code == 200
        twice = head_of(server, "Host: evil.example", path="/api/v1/status")
        assert b" 200 " not in until_closed(raw(server, twice))[:20]


def test_a_browser_comes_in_once_and_no_other_page_can_use_it(server: Running) -> None:
    origin = server.url.rstrip("/")
    with browser_of(server) as browser:
        (cookie,) = browser.cookies.jar
        assert cookie.value
        assert cookie.value not in server.token.read_text("ascii")
        assert browser.get("/api/v1/status").status_code == 200

        sentence = {"text": "The violin lies in the attic."}
        for foreign in (
            {},  # without an origin, nobody knows whose page it is
            {"origin": "http://127.0.0.1:1"},
            {"origin": "null"},
            {"origin": origin, "sec-fetch-site": "same-site"},
            {"sec-fetch-site": "cross-site"},
        ):
            answer = browser.post("/api/v1/remember", json=sentence, headers=foreign)
            assert answer.status_code == 403, foreign
        assert browser.get("/api/v1/status", headers={"sec-fetch-site": "same-site"}).status_code == 403
        # What a form can send is no JSON.
        form = browser.post("/api/v1/remember", data=sentence, headers={"origin": origin})
        assert form.status_code == 415
        nothing = browser.get("/api/v1/recall", params={"query": "violin"}).json()
        assert nothing["items"] == []

        own = {"origin": origin, "sec-fetch-site": "same-origin"}
        assert browser.post("/api/v1/remember", json=sentence, headers=own).status_code == 200


def test_a_browser_is_told_what_no_page_may_do(server: Running) -> None:
    with client_of(server) as known, client_of(server, known=False) as stranger:
        for answer in (known.get("/api/v1/status"), stranger.get("/"), known.get("/nothing")):
            assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]
            assert answer.headers["x-content-type-options"] == "nosniff"
            assert answer.headers["cache-control"] == "no-store"
            assert "access-control-allow-origin" not in answer.headers
            assert answer.headers["date"]


async def test_two_hundred_requests_at_once_are_each_answered_with_their_own(server: Running) -> None:
    limits = httpx.Limits(max_connections=200)
    async with httpx.AsyncClient(
        base_url=server.url, headers=server.auth, timeout=LIMIT_S, limits=limits
    ) as client:
        asked = [f"tomatoes shade cloth {number}" for number in range(200)]
        answers = await asyncio.gather(*(client.post("/api/v1/search", json={"query": one}) for one in asked))
        traces = {one.json()["traceId"] for one in answers}
    with client_of(server) as later:  # the server may be closing connections that have waited
        explained = later.get("/api/v1/explain", params={"traceId": answers[7].json()["traceId"]})

    assert {one.json()["results"][0]["path"] for one in answers} == {"memory/projects/greenhouse.md"}
    assert len(traces) == 200
    assert explained.json()["query"] == asked[7]


def test_who_sends_too_much_is_refused_and_others_are_served(server: Running) -> None:
    large = b'{"query": "' + b"x" * 2_000_000 + b'"}'

    def pieces() -> Iterator[bytes]:
        yield from (large[start : start + 65536] for start in range(0, len(large), 65536))

    with client_of(server) as client:
        for content in (large, pieces()):
            assert client.post("/api/v1/search", content=content, headers=JSON).status_code == 413
        long_head = until_closed(raw(server, head_of(server, f"X-Long: {'x' * 200_000}")))
        assert long_head == b"" or long_head.split()[1].startswith(b"4")
        assert client.post("/api/v1/search", json={"query": "tomatoes"}).json()["results"]


def test_who_sends_nothing_or_never_ends_is_left_and_others_are_served(server: Running) -> None:
    head = head_of(server, "Content-Length: 100")
    before = server.sockets()
    slow = [raw(server, part) for part in (b"", b"POST ", head[:-2], head, head + b'{"query"')]
    slow += [raw(server, b"") for _ in range(100)]

    with client_of(server) as client:
        assert client.post("/api/v1/search", json={"query": "tomatoes"}).json()["results"]
    with ThreadPoolExecutor(len(slow)) as threads:
        assert {answer[:9] for answer in threads.map(until_closed, slow)} <= {b"", b"HTTP/1.1 "}
    with client_of(server) as client:
        assert client.get("/api/v1/status").status_code == 200
    assert server.sockets() < before + 10


def test_a_request_under_way_is_answered_when_a_signal_ends_the_server(own_server: Running) -> None:
    body = b'{"query": "tomatoes"}'
    with raw(
        own_server, head_of(own_server, f"Content-Length: {len(body)}", "Expect: 100-continue")
    ) as client:
        assert b"100 Continue" in client.recv(4096)  # it is read now
        own_server.process.send_signal(signal.SIGTERM)
        client.sendall(body)
        answer = until_closed(client)

    assert answer.startswith(b"HTTP/1.1 200")
    assert b"greenhouse.md" in answer
    assert own_server.process.wait(LIMIT_S) == 0


@pytest.mark.thorough
def test_a_request_that_never_ends_does_not_keep_the_server(own_server: Running) -> None:
    with raw(own_server, head_of(own_server, "Content-Length: 100", "Expect: 100-continue")) as client:
        assert b"100 Continue" in client.recv(4096)
        own_server.process.send_signal(signal.SIGTERM)

        assert own_server.process.wait(LIMIT_S) == 0


class Left(HangingBackend):
    """Tells also when nobody waits any more."""

    def __init__(self) -> None:
        super().__init__()
        self.left = asyncio.Event()

    async def search(self, query: str, options: SearchOptions | None = None) -> Sequence[MemorySearchResult]:
        try:
            return await super().search(query, options)
        finally:
            self.left.set()


async def test_what_a_client_asked_for_that_goes_away_is_cancelled(workspace: Path, tmp_path: Path) -> None:
    hanging = Left()

    @asynccontextmanager
    async def opened(*_: object) -> AsyncIterator[Left]:
        yield hanging

    spec = BackendSpec(id="hanging", summary="never answers", settings=SettingsModel, open=opened)
    config = {"memory": {"backends": {"hanging": {}}, "query": {"timeout_ms": 10 * LIMIT_S * 1000}}}
    at = Access(host="127.0.0.1", port=0, token_file=tmp_path / "token", token="t" * 43)
    call = {"name": "memory_search", "arguments": {"query": "boat"}}
    asked = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call})
    search = json.dumps({"query": "boat"})
    async with (
        open_memory(workspace, tmp_path / "state", config, backends=[spec], long_lived=False) as memory,
        listening(build_app(Service(workspaces={"": Opened(memory=memory)}, session_key=None)), at) as url,
        asyncio.timeout(LIMIT_S),
    ):
        for method, path, body in (
            ("POST", "/mcp", asked),
            ("POST", "/api/v1/search", search),
            ("GET", "/api/v1/search?query=boat", ""),
        ):
            hanging.started.clear()
            hanging.left.clear()
            address = httpx.URL(url)
            headers = {
                "host": f"{address.host}:{address.port}",
                "authorization": f"Bearer {at.token}",
                "content-length": str(len(body)),
                **MCP_JSON,
            }
            head = "".join(f"{name}: {one}\r\n" for name, one in headers.items())
            _, writer = await asyncio.open_connection(address.host, address.port)
            writer.write(f"{method} {path} HTTP/1.1\r\n{head}\r\n{body}".encode())
            await hanging.started.wait()
            writer.close()
            await hanging.left.wait()


async def test_mcp_is_served_by_the_same_process_on_the_same_memory(server: Running) -> None:
    at_mcp = Running(process=server.process, url=f"{server.url}mcp", token=server.token)
    async with at_mcp.client() as client:
        told = document(await client.call_tool("memory_remember", {"text": "Ellen sails on Sundays."}))
    with client_of(server) as known:
        found = known.get("/api/v1/search", params={"query": "Ellen sails Sundays"}).json()

    assert told["citation"].partition("#")[0] in {one["path"] for one in found["results"]}


@pytest.mark.parametrize(
    ("options", "named"),
    variants(
        [
            ("--port {port}", "{port}"),
            ("--host 0.0.0.0 --port 0", "--token-file"),
            ("--host 0.0.0.0 --port 0 --token-file short", "short"),
            ("--host 0.0.0.0 --port 0 --token-file none", "none"),
        ],
        ("--port {port}", "{port}"),
        ("--host 0.0.0.0 --port 0", "--token-file"),
    ),
)
def test_where_it_must_not_or_cannot_listen_is_told_and_ends_it(
    server: Running,
    workspace: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    options: str,
    named: str,
) -> None:
    port = httpx.URL(server.url).port
    place = ["-w", str(workspace), "--state-dir", str(tmp_path / "other")]
    monkeypatch.chdir(tmp_path)
    (tmp_path / "short").write_text("secret", "ascii")
    (tmp_path / "short").chmod(0o600)

    code, _, told = cmem("serve", "--http", *options.format(port=port).split(), *place)

    assert (code, named.format(port=port) in told, told.startswith("Error: ")) == (1, True, True), told


def test_without_the_extra_a_line_says_what_to_install(workspace: Path, tmp_path: Path) -> None:
    place = ["-w", str(workspace), "--state-dir", str(tmp_path / "other")]
    without = "import sys; sys.modules['starlette'] = None; sys.modules['mcp'] = None; "
    program = f"{without}from composable_memory.cli import main; main()"

    done = subprocess.run(
        [sys.executable, "-c", program, "serve", "--http", *place],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )

    assert done.returncode == 1
    assert "pip install 'composable-memory[mcp]'" in done.stderr
    assert "Traceback" not in done.stderr


def test_beyond_this_machine_a_number_is_asked_for_and_no_name_of_a_page(
    workspace: Path, state_dir: Path, tmp_path: Path
) -> None:
    token = tmp_path / "token"
    token.write_text("t" * 40, "ascii")
    token.chmod(0o600)
    options = ("--host", "0.0.0.0", "--token-file", str(token))
    with running(workspace, state_dir, *options, command=RESIDENT) as server:
        port = httpx.URL(server.url).port
        own = Running(process=server.process, url=f"http://127.0.0.1:{port}/", token=token)
        with client_of(own) as client:
            for host, status in (
                (f"127.0.0.1:{port}", 200),
                ("192.0.2.7", 200),  # as behind a port that is forwarded
                (f"{socket.gethostname()}:{port}", 200),
                (f"evil.example:{port}", 421),
                (f"127.0.0.1.evil.example:{port}", 421),
            ):
                assert client.get("/api/v1/status", headers={"host": host}).status_code == status, host


def test_the_server_in_the_background_says_where_it_is(workspace: Path, state_dir: Path) -> None:
    place = ["-w", str(workspace), "--state-dir", str(state_dir)]
    code, told, problem = cmem("serve", "--background", "--http", "--port", "0", "--json", *place)
    try:
        assert code == 0, problem
        url = json.loads(told)["url"]
        token = (state_dir / "mcp-token").read_text("ascii")
        answer = httpx.get(f"{url}api/v1/status", headers={"authorization": f"Bearer {token}"})
        assert answer.status_code == 200
    finally:
        assert cmem("serve", "stop", *place)[0] == 0
    with pytest.raises(httpx.ConnectError):
        httpx.get(url)


async def test_several_workspaces_are_kept_apart_and_one_that_is_broken_leaves_the_others_alone(
    workspace: Path, state_dir: Path, tmp_path: Path
) -> None:
    for name in ("mine", "broken"):
        (tmp_path / name).mkdir()
    (tmp_path / "mine" / "garden.md").write_text("The violin lies in the attic.\n", "utf-8")
    (tmp_path / "broken" / ".composable-memory.yaml").write_text("memory: {no_such_key: 1}", "utf-8")
    for folder in (workspace, tmp_path / "mine"):
        index(folder, state_dir)
    others = [word for name in ("mine", "broken") for word in ("-w", f"{name}={tmp_path / name}")]
    place = ["--state-dir", str(state_dir)]
    with running(f"work={workspace}", state_dir, *others, command=RESIDENT) as server:
        with client_of(server) as client:

            def search(words: str, **given: str) -> httpx.Response:
                return client.post("/api/v1/search", json={"query": words, **given})

            violin = search("violin", workspace="mine").json()
            assert violin["results"][0]["path"] == "garden.md"
            assert search("violin", workspace="work").json()["results"] == []
            assert search("violin", workspace="broken").status_code == 503
            for nobody in ({}, {"workspace": "nobody"}):
                refused = search("violin", **nobody)
                assert (refused.status_code, "mine" in refused.json()["error"]) == (400, True)
            trace = {"traceId": violin["traceId"]}
            for name, status in (("mine", 200), ("work", 400)):
                for path in ("explain", "trace"):
                    asked = client.get(f"/api/v1/{path}", params={**trace, "workspace": name})
                    assert asked.status_code == status, (name, path)
            assert client.get("/w/mine/").status_code == 200
            assert client.get("/w/nobody/").status_code == 404
            described = client.get("/api/v1/openapi.json").json()["paths"]["/search"]["get"]["parameters"]
            assert described[0]["schema"] == {"enum": ["work", "mine", "broken"]}
        at_mcp = Running(process=server.process, url=f"{server.url}mcp", token=server.token)
        async with at_mcp.client() as asking:
            call = {"query": "violin", "workspace": "mine"}
            assert document(await asking.call_tool("memory_search", call))["results"]
        for folder in (workspace, tmp_path / "mine"):
            status = json.loads(cmem("serve", "status", "--json", "-w", str(folder), *place)[1])
            assert status["url"] == server.url
        again = cmem("serve", "-w", str(tmp_path / "mine"), *place)
        assert (again[0], str(server.process.pid) in again[2]) == (1, True)
        assert cmem("serve", "stop", "-w", str(tmp_path / "mine"), *place)[0] == 0
        assert server.process.wait(LIMIT_S) == 0


def test_a_socket_that_systemd_has_opened_is_served_from_the_first_request_on(
    workspace: Path, state_dir: Path
) -> None:
    place = ["-w", str(workspace), "--state-dir", str(state_dir)]
    with socket.create_server(("127.0.0.1", 0)) as waiting:
        port = waiting.getsockname()[1]
        early = socket.create_connection(("127.0.0.1", port), timeout=LIMIT_S)
        early.sendall(f"GET /api/v1/status HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n".encode())
        # As systemd does it: the socket is number 3, and the variables name the process that takes its place.
        program = (
            "import os, sys; os.dup2(int(sys.argv[1]), 3); "
            "os.environ |= {'LISTEN_PID': str(os.getpid()), 'LISTEN_FDS': '1'}; "
            "os.execv(sys.executable, [sys.executable, *sys.argv[2:]])"
        )
        handed = waiting.fileno()
        command = [sys.executable, "-c", program, str(handed), "-m", "composable_memory.cli", "serve", *place]
        with subprocess.Popen(command, pass_fds=[handed], stderr=subprocess.PIPE, text=True) as process:
            waiting.close()
            try:
                with early:
                    assert early.recv(4096).startswith(b"HTTP/1.1 401 ")
                token = (state_dir / "mcp-token").read_text("ascii")
                url, known = f"http://127.0.0.1:{port}", {"authorization": f"Bearer {token}"}
                assert httpx.get(f"{url}/api/v1/status", headers=known, timeout=LIMIT_S).status_code == 200
                told = json.loads(cmem("serve", "status", "--json", *place)[1])
                assert told["url"] == f"{url}/"
                process.terminate()
                assert process.wait(LIMIT_S) == 0
            finally:
                process.kill()


# --- the API ------------------------------------------------------------------------------------------------


def settled(text: str) -> Any:
    """Return a document without what differs in every run, or while a busy machine looks for changes."""
    differs = ("traceId", "tookMs", "totalMs")

    def without(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: without(one) for name, one in value.items() if name not in differs}
        if isinstance(value, list):
            return [without(one) for one in value if not isinstance(one, dict) or one.get("code") != "stale"]
        return value

    return without(json.loads(text))


def test_what_a_command_prints_as_json_is_what_the_api_answers(
    server: Running,
) -> None:
    place = ["-w", str(server.workspace), "--state-dir", str(server.state_dir), "--json"]
    with client_of(server) as client:
        for words, path, given in (
            (["get", "MEMORY.md#L1-L2"], "get", {"path": "MEMORY.md#L1-L2"}),
            (["get", "none.md"], "get", {"path": "none.md"}),
            (["pack", "tomatoes", "--max-chars", "300"], "pack", {"query": "tomatoes", "maxChars": 300}),
            (["pack", "after:2026-01"], "pack", {"query": "after:2026-01"}),
        ):
            printed = settled(cmem(*words, *place)[1])
            for answer in (
                client.post(f"/api/v1/{path}", json=given),
                client.get(f"/api/v1/{path}", params={name: str(one) for name, one in given.items()}),
            ):
                assert settled(answer.text) == printed, words
        trace = client.get("/api/v1/search", params={"query": "tomatoes"}).json()["traceId"]
        explained = client.get("/api/v1/explain", params={"traceId": trace, "path": "MEMORY.md"})
        assert settled(explained.text) == settled(cmem("explain", trace, "--why-not", "MEMORY.md", *place)[1])


def test_searches_are_listed_and_shown_as_the_log_has_them(
    own_server: Running, workspace: Path, state_dir: Path, tmp_path: Path
) -> None:
    place = ["--state-dir", str(state_dir), "--json"]
    other = tmp_path / "other"
    other.mkdir()
    (other / "secret.md").write_text("The tomatoes of somebody else.\n", "utf-8")
    hidden = json.loads(cmem("search", "tomatoes", "-w", str(other), *place)[1])["traceId"]
    with client_of(own_server) as client:
        asked = [client.get("/api/v1/search", params={"query": one}).json() for one in ("tomatoes", "zebra")]
        first, second = (one["traceId"] for one in asked)
        for filters, expected in (
            ({}, [second, first]),
            ({"limit": 1}, [second]),
            ({"empty": "true"}, [second]),
            ({"query": "TOMA"}, [first]),
            ({"slowerThanMs": 60_000}, []),
            ({"backend": "builtin"}, [second, first]),
            ({"backend": "nobody"}, []),
        ):
            told = client.get("/api/v1/traces", params=filters).json()["traces"]
            assert [one["traceId"] for one in told] == expected, filters
        shown = client.get("/api/v1/trace", params={"traceId": first})
        printed = cmem("logs", "show", first, "-w", str(workspace), *place)[1]
        assert shown.json() == json.loads(printed)
        assert client.get("/api/v1/trace", params={"traceId": hidden}).status_code == 400
        assert client.get("/api/v1/explain", params={"traceId": hidden}).status_code == 400


def checks_of(described: dict[str, Any]) -> dict[tuple[str, str, str], jsonschema.Draft202012Validator]:
    """Return what an answer has to be, by path, method and status."""
    found = {}
    for path, operations in described["paths"].items():
        for method, operation in operations.items():
            for status, response in operation["responses"].items():
                schema = response["content"]["application/json"]["schema"]
                whole = {**schema, "components": described["components"]}
                found[path, method, status] = jsonschema.Draft202012Validator(whole)
    return found


VALUES = strategies.recursive(
    strategies.none()
    | strategies.booleans()
    | strategies.integers()
    | strategies.floats()
    | strategies.text(),
    lambda inner: strategies.lists(inner, max_size=3) | strategies.dictionaries(strategies.text(), inner),
    max_leaves=5,
)


def test_whatever_is_asked_the_answer_is_what_the_description_says(server: Running) -> None:
    with client_of(server) as client:
        described = client.get("/api/v1/openapi.json").json()
        checks = checks_of(described)
        properties = {
            path: sorted(one["post"]["requestBody"]["content"]["application/json"]["schema"]["properties"])
            for path, one in described["paths"].items()
        }

        def ask(path: str, method: str, **given: Any) -> httpx.Response:
            answer = client.request(method, f"/api/v1{path}", **given)
            status = str(answer.status_code) if answer.status_code in (200, 503) else "default"
            assert answer.status_code in (200, 400, 415, 503), (path, answer.text)
            checks[path, method.lower(), status].validate(answer.json())
            return answer

        sentence = {"text": "Ellen sails on Sundays.", "entities": ["Ellen"]}
        told = ask("/remember", "POST", json=sentence).json()
        trace = ask("/search", "POST", json={"query": "tomatoes", "tag": [], "maxResults": 3}).json()[
            "traceId"
        ]
        calls: dict[str, dict[str, Any]] = {
            "/pack": {"query": "tomatoes", "since": "2020-01-01"},
            "/get": {"path": "MEMORY.md", "from": 1, "lines": 2},
            "/recall": {"entity": "Ellen", "type": "fact"},
            "/recent": {"days": 3},
            "/explain": {"traceId": trace, "path": "MEMORY.md#L1"},
            "/status": {"deep": True},
            "/traces": {"query": "TOMATOES", "limit": 2, "since": "1d"},
            "/trace": {"traceId": trace[:18]},
        }
        for path, arguments in calls.items():
            assert ask(path, "GET", params={k: str(v) for k, v in arguments.items()}).status_code == 200, path
            assert ask(path, "POST", json=arguments).status_code == 200, path
        assert ask("/feedback", "POST", json={"traceId": trace, "result": 1}).status_code == 200
        plan = ask("/forget", "POST", json={"target": told["citation"]}).json()
        assert ask("/forget", "POST", json={"token": plan["token"]}).json()["forgotten"]
        assert ask("/facts", "GET").status_code == 400  # there is no graph
        assert client.get("/api/v1/remember").status_code == 405

        @settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
        @given(strategies.data())
        def whatever(data: strategies.DataObject) -> None:
            path = data.draw(strategies.sampled_from(sorted(properties)))
            names = strategies.sampled_from([*properties[path], "unknown"])
            arguments = data.draw(strategies.dictionaries(names, VALUES, max_size=4))
            body = data.draw(strategies.just(json.dumps(arguments).encode()) | strategies.binary(max_size=20))
            ask(path, "POST", content=body, headers=JSON)

        whatever()
        for body in (b"[" * 100_000, b'{"query": "\\ud800"}', b'{"query": "' + b"x" * 900_000 + b'"}'):
            assert ask("/search", "POST", content=body, headers=JSON).status_code in (200, 400)


def test_the_description_is_valid_and_names_every_tool(server: Running) -> None:
    with client_of(server) as client:
        described = client.get("/api/v1/openapi.json").json()

    assert len(described["paths"]) == len(SERVED)
    for operations in described["paths"].values():
        for operation in operations.values():
            assert operation["description"]
            for parameter in operation.get("parameters", ()):
                jsonschema.Draft202012Validator.check_schema(parameter["schema"])
    validator = pytest.importorskip("openapi_spec_validator")
    validator.validate(described)
