"""`cmem connect`: the files of agents, changed and taken back; and agents that read them, where installed."""

import json
import os
import shutil
import subprocess
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import ClassVar

import pytest
from typer.testing import CliRunner, Result

from composable_memory.cli import app
from composable_memory.connect.clients import CLIENTS, SERVER, Places
from composable_memory.connect.edits import running_command
from tests.cli_page import assert_documented

AGENTS = os.environ.get("COMPOSABLE_MEMORY_TEST_AGENTS")
"""A folder with the programs `claude` and `codex`, as npm installs them."""
SECRET = "a-token-of-somebody-else"
CLAUDE = (
    f'{{\n  "numStartups": 3, // so many\n  "mcpServers": {{"x": {{"env": {{"TOKEN": "{SECRET}"}}}}}}\n}}\n'
)


class Desk:
    """A home folder, a project in it, and the command line in the project."""

    def __init__(self, folder: Path) -> None:
        self.home, self.project, self.state = folder / "home", folder / "home" / "project", folder / "state"
        self.project.mkdir(parents=True)
        self.environ = {
            "HOME": str(self.home),
            "APPDATA": "",
            "XDG_CONFIG_HOME": "",
            "CLAUDE_CONFIG_DIR": "",
            "CODEX_HOME": "",
            "OPENCLAW_STATE_DIR": "",
            "OPENCLAW_CONFIG_PATH": "",
            "COMPOSABLE_MEMORY_STATE_DIR": str(self.state),
        }

    def __call__(self, *args: str, answer: str | None = None) -> Result:
        return CliRunner().invoke(app, ["connect", *args], input=answer, env=self.environ)

    def document(self, *args: str) -> dict[str, object]:
        result = self(*args, "--json")
        assert result.exit_code == 0, result.output
        document: dict[str, object] = json.loads(result.stdout)
        assert_documented(["connect"], document)
        return document

    def write(self, path: str, text: str) -> Path:
        file = self.home / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(text.encode())
        return file

    def files(self) -> dict[str, bytes]:
        paths = (path for path in self.home.rglob("*") if path.is_file())
        return {str(path.relative_to(self.home)): path.read_bytes() for path in paths}


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    made = Desk(tmp_path)
    monkeypatch.chdir(made.project)
    return made


FILES = {
    ("claude-code", "user"): {".claude.json", ".claude/settings.json"},
    ("claude-code", "project"): {"project/.mcp.json", "project/.claude/settings.json"},
    ("codex", "user"): {".codex/config.toml", ".codex/hooks.json"},
    ("codex", "project"): {"project/.codex/config.toml", "project/.codex/hooks.json"},
    ("cursor", "user"): {".cursor/mcp.json", ".cursor/hooks.json"},
    ("cursor", "project"): {"project/.cursor/mcp.json", "project/.cursor/hooks.json"},
    ("vscode", "user"): {".config/Code/User/mcp.json"},
    ("vscode", "project"): {"project/.vscode/mcp.json", f"project/.github/hooks/{SERVER}.json"},
    ("openclaw", "user"): {".openclaw/openclaw.json"},
}


@pytest.mark.skipif(sys.platform != "linux", reason="the paths of Linux")
@pytest.mark.parametrize(("client", "scope"), FILES)
def test_each_client_has_its_files_and_undo_leaves_nothing(desk: Desk, client: str, scope: str) -> None:
    at = (client, "--scope", scope)
    assert desk.document(*at, "--dry-run")["written"] is False
    assert desk.files() == {}

    assert desk.document(*at, "--yes")["written"] is True
    entered = desk.files()
    assert entered.keys() == FILES[client, scope]
    assert all(str(desk.project).encode() in content for content in entered.values())
    assert desk.document(*at, "--yes")["written"] is False
    assert desk.files() == entered

    desk.document(*at, "--workspace", str(desk.home), "--yes")
    assert desk.files().keys() == entered.keys()
    assert desk.files() != entered
    desk.document(*at, "--undo", "--yes")
    assert desk.files() == {}


def test_without_hooks_only_the_server_is_entered(desk: Desk) -> None:
    desk.document("claude-code", "--no-hooks", "--yes")

    assert desk.files().keys() == {".claude.json"}


def test_a_file_with_others_in_it_becomes_what_it_was_byte_for_byte(desk: Desk) -> None:
    file = desk.write(".claude.json", CLAUDE)
    settings = desk.write(".claude/settings.json", '{"hooks":{"Stop":[ ]},"model":"x"}')
    file.chmod(0o640)
    before = desk.files()
    done = desk("claude-code", "--yes")

    assert done.exit_code == 0
    assert SECRET not in done.output
    assert b"// so many" in file.read_bytes()
    assert file.stat().st_mode & 0o777 == 0o640
    copies = [*(desk.state / "connect").iterdir()]
    assert {copy.read_bytes() for copy in copies} == {*before.values()}
    assert {copy.stat().st_mode & 0o077 for copy in copies} == {0}
    undone = desk("claude-code", "--undo", "--yes")
    assert desk.files() == before
    assert SECRET not in undone.output
    assert settings.exists()
    assert not any((desk.state / "connect").iterdir())


def test_what_others_entered_after_us_stays_when_we_go(desk: Desk) -> None:
    file = desk.write(".cursor/mcp.json", '{"mcpServers": {"x": {"command": "y"}}}')
    desk.document("cursor", "--yes")
    value = json.loads(file.read_text("utf-8"))
    value["mcpServers"]["later"] = {"command": "z"}
    file.write_text(json.dumps(value), encoding="utf-8")
    desk.document("cursor", "--undo", "--yes")

    assert json.loads(file.read_text("utf-8")) == {
        "mcpServers": {"x": {"command": "y"}, "later": {"command": "z"}}
    }


@pytest.mark.parametrize(
    ("client", "path", "text", "later"),
    [
        ("codex", ".codex/config.toml", "# mine\n", "# mine as well\n"),
        ("claude-code", ".claude/settings.json", "// mine\n{\n}\n", "// mine as well\n"),
        ("claude-code", ".claude/settings.json", '{"permissions": {}}', "\n"),
    ],
)
def test_comments_and_empty_sections_stay_when_we_go(
    desk: Desk, client: str, path: str, text: str, later: str
) -> None:
    file = desk.write(path, text)
    desk.document(client, "--yes")
    with file.open("a", encoding="utf-8") as edited:
        edited.write(later)
    desk.document(client, "--undo", "--yes")

    left = file.read_text("utf-8")
    assert SERVER not in left
    assert "".join(left.split()) == "".join((text + later).split())


def test_a_command_of_the_user_that_calls_us_as_well_stays(desk: Desk) -> None:
    own = "~/bin/lint.sh && cmem hook turn; notify-send done"
    hooks = {"Stop": [{"hooks": [{"type": "command", "command": own}]}]}
    file = desk.write(".claude/settings.json", json.dumps({"hooks": hooks}))
    desk.document("claude-code", "--yes")
    assert own in file.read_text("utf-8")
    desk.document("claude-code", "--workspace", str(desk.home), "--yes")
    assert own in file.read_text("utf-8")
    desk.document("claude-code", "--undo", "--yes")

    assert json.loads(file.read_text("utf-8")) == {"hooks": hooks}


@pytest.mark.parametrize(
    "own",
    [
        "cmem hook compaction || true",
        "cmem hook compaction 2>/dev/null",
        "timeout 10 cmem hook compaction -w '/a & b > c' >> ~/hook.log 2>&1; true",
        "A=1 B='x y' exec /opt/bin/cmem hook turn &",
        "sh -c 'cmem hook turn || exit 0'",
    ],
)
def test_our_command_is_known_however_it_is_wrapped(desk: Desk, own: str) -> None:
    hooks = {"Stop": [{"hooks": [{"type": "command", "command": own}]}], "Other": [{"hooks": []}]}
    file = desk.write(".claude/settings.json", json.dumps({"hooks": hooks}))
    desk.document("claude-code", "--yes")
    entered = json.loads(file.read_text("utf-8"))["hooks"]
    (stop,) = entered["Stop"]
    assert own not in file.read_text("utf-8")
    assert " hook compaction --workspace" in stop["hooks"][0]["command"]


def test_what_a_command_of_the_user_calls_already_is_not_called_twice(desk: Desk) -> None:
    own = "cmem hook compaction | tee -a ~/hooks.log"
    hooks = {"Stop": [{"hooks": [{"type": "command", "command": own}]}]}
    file = desk.write(".claude/settings.json", json.dumps({"hooks": hooks}))
    desk.document("claude-code", "--yes")
    entered = json.loads(file.read_text("utf-8"))["hooks"]
    assert entered["Stop"] == hooks["Stop"]
    assert entered["PreCompact"]
    desk.document("claude-code", "--undo", "--yes")

    assert json.loads(file.read_text("utf-8")) == {"hooks": hooks}


def test_a_file_that_others_changed_after_us_is_kept_as_it_was_before_we_go(desk: Desk) -> None:
    file = desk.write(".cursor/mcp.json", '{"mcpServers": {"x": {"command": "y"}}}')
    desk.document("cursor", "--yes")
    file.write_bytes(later := file.read_bytes().replace(b'"y"', b'"z"'))
    copies = desk.document("cursor", "--undo", "--yes")["copies"]
    assert isinstance(copies, list)
    (copy,) = map(Path, copies)

    assert copy.read_bytes() == later
    assert copy.stat().st_mode & 0o077 == 0
    assert SERVER not in file.read_text("utf-8")
    desk.document("cursor", "--yes")
    desk.document("cursor", "--undo", "--yes")
    assert SERVER not in file.read_text("utf-8"), "it is no copy to go back to"


def test_what_an_agent_saves_while_its_file_is_being_changed_stays(desk: Desk) -> None:
    file = desk.write(".claude.json", '{"tips": 6}')
    desk.document("claude-code", "--no-hooks", "--yes")
    (copy,) = (desk.state / "connect").iterdir()
    kept, saved = copy.read_bytes(), b'{"tips": 7}'
    copy.unlink()
    os.mkfifo(copy)

    def agent() -> None:
        with copy.open("wb") as held_up:  # waits for the command to read it, and then lets it wait
            file.write_bytes(saved)
            held_up.write(kept)

    agents = Thread(target=agent)
    agents.start()
    refused = desk("claude-code", "--no-hooks", "--workspace", str(desk.home), "--yes")
    agents.join()

    assert refused.exit_code == 1
    assert "run the command again" in refused.stderr
    assert file.read_bytes() == saved


def test_of_a_file_in_one_line_the_changed_parts_are_shown(desk: Desk) -> None:
    projects = {f"/p/{one}": {"token": f'{SECRET}, {{"{one}', "list": [one, {}]} for one in range(500)}
    hooks = {"Stop": [{"hooks": [{"type": "command", "command": "mine"}]}]}
    desk.write(".claude/settings.json", json.dumps({"version": 1, "hooks": hooks, "projects": projects}))
    shown = desk("claude-code", "--dry-run")

    assert shown.exit_code == 0
    assert max(map(len, shown.stdout.splitlines())) < 400
    assert "hook compaction" in shown.stdout
    assert not [one for one in (SECRET, "mine", "/p/") if one in shown.stdout]


@pytest.mark.thorough
def test_the_difference_of_a_huge_file_is_found(desk: Desk) -> None:
    lines = "".join(f'    "{one:05}": [\n    ],\n' for one in range(5_000))
    begin = '{\n  "hooks": {\n    "UserPromptSubmit": [],\n' + lines
    desk.write(".claude/settings.json", f'{begin}    "Stop": [\n      {{}}\n    ]\n  }}\n}}\n')
    shown = desk("claude-code", "--dry-run")

    assert shown.exit_code == 0
    assert "hook prompt" in shown.stdout
    assert "hook compaction" in shown.stdout
    assert len(shown.stdout) < 20_000


def test_a_folder_without_notes_is_connected_with_a_note(desk: Desk) -> None:
    assert str(desk.project) in desk("codex", "--dry-run").stderr
    (desk.project / "memory").mkdir()
    (desk.project / "memory" / "a.md").write_text("a\n", encoding="utf-8")
    assert str(desk.project) not in desk("codex", "--dry-run").stderr


def test_nothing_is_written_without_a_yes(desk: Desk) -> None:
    assert desk("codex", answer="n\n").exit_code == 1
    assert desk.files() == {}
    assert desk("codex", answer="y\n").exit_code == 0
    assert ".codex/config.toml" in desk.files()


def test_a_linked_file_stays_a_link(desk: Desk) -> None:
    target = desk.write("dotfiles/claude.json", "{}\n")
    (desk.home / ".claude.json").symlink_to(target)
    desk.document("claude-code", "--yes")

    assert (desk.home / ".claude.json").is_symlink()
    assert SERVER in json.loads(target.read_text("utf-8"))["mcpServers"]


@pytest.mark.parametrize(
    ("path", "text", "client"),
    [
        (".claude.json", '{"a": ', "claude-code"),
        (".claude/settings.json", '{"hooks": []}', "claude-code"),
        (".codex/config.toml", "a = [", "codex"),
        (".codex/config.toml", 'mcp_servers = {x = {command = "y"}}', "codex"),
        (".cursor/mcp.json", "\udcff", "cursor"),
    ],
)
def test_a_file_that_cannot_be_changed_safely_is_not_and_the_lines_are_shown(
    desk: Desk, path: str, text: str, client: str
) -> None:
    file = desk.home / path
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(text.encode("utf-8", "surrogateescape"))
    before = desk.files()
    refused = desk(client, "--yes")

    assert refused.exit_code == 1
    assert str(file) in refused.stderr
    assert SERVER in refused.stderr
    assert desk.files() == before


def test_unknown_clients_and_scopes_are_refused(desk: Desk) -> None:
    assert desk("emacs").exit_code == 2
    assert desk("openclaw", "--scope", "project", "--yes").exit_code == 1
    assert desk("generic", "--workspace", "/no/such/folder").exit_code != 0


def test_any_other_client_is_told_what_it_needs(desk: Desk) -> None:
    told = desk.document("generic")

    assert isinstance(told["server"], dict)
    assert isinstance(told["hooks"], dict)
    entry = told["server"]["mcpServers"][SERVER]
    listed = subprocess.run(
        [entry["command"], *entry["args"], "--help"], capture_output=True, text=True, check=True, timeout=60
    )
    assert "mcp" in listed.stdout
    environ = {**os.environ, **desk.environ}
    command = told["hooks"]["session-start"]
    hook = subprocess.run(command, shell=True, input=b"{}", capture_output=True, timeout=60, env=environ)
    assert json.loads(hook.stdout)["hook"] == "session-start"


@pytest.mark.parametrize(
    ("prefix", "environ", "words"),
    [
        (
            "/home/a/.cache/uv/archive-v0/x",
            {"UV": "/opt/uv"},
            ("/opt/uvx", "--from", "composable-memory[mcp]", "cmem"),
        ),
        ("/home/a/.cache/uv/environments-v2/x", {}, ("uvx", "--from", "composable-memory[mcp]", "cmem")),
    ],
)
def test_what_uvx_made_for_one_run_is_asked_for_again(
    prefix: str, environ: dict[str, str], words: tuple[str, ...]
) -> None:
    assert running_command("/x/bin/cmem", Path(prefix), environ) == words


def test_the_command_is_the_one_that_runs_with_its_absolute_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "cmem"
    program.write_text("#!/bin/sh\n", encoding="utf-8")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))

    assert running_command("cmem", Path("/usr"), {}) == (str(program),)
    assert running_command("/some/__main__.py", Path("/usr"), {}) == (
        sys.executable,
        "-m",
        "composable_memory.cli",
    )


@pytest.mark.parametrize(
    ("platform", "environ", "file"),
    [
        ("linux", {}, ".config/Code/User/mcp.json"),
        ("darwin", {}, "Library/Application Support/Code/User/mcp.json"),
        ("win32", {}, "AppData/Roaming/Code/User/mcp.json"),
    ],
)
def test_the_settings_of_vs_code_are_where_the_system_has_them(
    platform: str, environ: dict[str, str], file: str
) -> None:
    places = Places(home=Path("/home/a"), project=Path("/p"), environ=environ, platform=platform)

    assert places.find(CLIENTS["vscode"].servers["user"]) == Path("/home/a") / file


# --- agents themselves --------------------------------------------------------------------------------------


def agent(program: str) -> str:
    """Return the path of an agent."""
    found = shutil.which(program, path=AGENTS)
    assert found is not None, f"COMPOSABLE_MEMORY_TEST_AGENTS names no folder with {program}"
    return found


@pytest.mark.needs("agents")
@pytest.mark.parametrize("scope", ["user", "project"])
def test_claude_code_lists_the_server_and_reaches_it(desk: Desk, scope: str) -> None:
    claude = agent("claude")
    desk.document("claude-code", "--scope", scope, "--yes")
    listed = run(desk, claude, "mcp", "list")

    (line,) = [line for line in listed.splitlines() if line.startswith(SERVER)]
    assert "Connected" in line if scope == "user" else "pproval" in line
    desk.document("claude-code", "--scope", scope, "--undo", "--yes")
    assert SERVER not in run(desk, claude, "mcp", "list")


@pytest.mark.needs("agents")
def test_codex_lists_the_server(desk: Desk) -> None:
    codex = agent("codex")
    desk.document("codex", "--yes")
    (server,) = json.loads(run(desk, codex, "mcp", "list", "--json"))

    assert (server["name"], server["transport"]["type"], server["enabled"]) == (SERVER, "stdio", True)
    assert str(desk.project) in server["transport"]["args"]
    desk.document("codex", "--undo", "--yes")
    assert json.loads(run(desk, codex, "mcp", "list", "--json")) == []


ANSWER = (
    {"type": "message_start", "message": {"id": "m", "type": "message", "role": "assistant", "content": [],
     "model": "x", "stop_reason": None, "usage": {"input_tokens": 1, "output_tokens": 1}}},
    {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Port 7400."}},
    {"type": "content_block_stop", "index": 0},
    {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 2}},
    {"type": "message_stop"},
)  # fmt: skip


class Model(BaseHTTPRequestHandler):
    """A language model that always says the same."""

    asked: ClassVar[list[str]] = []

    def do_POST(self) -> None:
        self.asked.append(self.rfile.read(int(self.headers["content-length"])).decode())
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.end_headers()
        for event in ANSWER:
            self.wfile.write(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode())

    def log_message(self, *_: object) -> None:
        pass


@pytest.mark.needs("agents")
def test_claude_code_runs_the_hooks(desk: Desk) -> None:
    claude = agent("claude")
    (desk.project / "MEMORY.md").write_text("The dock controller uses port 7400.\n", encoding="utf-8")
    desk.document("claude-code", "--yes")
    with ThreadingHTTPServer(("127.0.0.1", 0), Model) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_port}"
        run(desk, claude, "-p", "which port has the dock?", ANTHROPIC_BASE_URL=address, ANTHROPIC_API_KEY="x")
        server.shutdown()

    assert any("The dock controller uses port 7400." in one for one in Model.asked)
    (session,) = (desk.project / "memory").iterdir()
    assert "which port has the dock?" in session.read_text("utf-8")


def run(desk: Desk, *words: str, **variables: str) -> str:
    environ = {
        **variables,
        "PATH": os.environ["PATH"],
        "HOME": str(desk.home),
        "COMPOSABLE_MEMORY_STATE_DIR": str(desk.state),
    }
    done = subprocess.run(
        words, env=environ, cwd=desk.project, capture_output=True, text=True, check=True, timeout=120
    )
    return done.stdout
