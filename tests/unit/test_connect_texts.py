"""Entering our server and hooks in texts of JSON, JSON5 and TOML, and taking them out again."""

import json
import tomllib

import pytest

from composable_memory.connect import json_text
from composable_memory.connect.clients import CLIENTS, SERVER
from composable_memory.connect.file_text import others, with_hooks, with_server, without_us

ENTRY = {"command": "/opt/ünï/cmem", "args": ["mcp", "--workspace", 'C:\\n "x"']}
HOOKS = [("Stop", "compaction", "cmem hook compaction"), ("Stop", "turn", "'/a b/cmem' hook turn -w x")]
JSON = [
    "",
    "{}",
    "{}\n",
    '{"a": 1}',
    '{"mcpServers": {"x": {"env": {"TOKEN": "t"}}}}',
    '{\n  "a": 1\n}\n',
    '{\n\t"mcpServers": {\n\t\t"x": {"command": "y"} // mine\n\t}\n}',
    "{ // nothing yet\n}",
    '{\r\n    "mcpServers": {\r\n        "x": {}\r\n    }\r\n}\r\n',
    '\ufeff/* first */ {"hooks": {"Stop": [{"hooks": [{"command": "say cmem hook"}]}]}}',
    '{\n  "hooks": {"Stop": []},\n  "mcpServers": {}\n}\n',
]
JSON5 = ["{\n  a: 'b: {', // c\n  mcpServers: {\n    x: {y: +1,},\n  },\n}\n", "{a: [1, 2,], /* } */}"]


@pytest.mark.parametrize("text", [*JSON, *JSON5])
def test_everything_else_stays_as_it_is_written(text: str) -> None:
    client = CLIENTS["claude-code"]
    entered = with_hooks(with_server(text, client, ENTRY, is_toml=False), client, HOOKS)
    value = json_text.parse(entered).value

    assert isinstance(value, dict)
    assert value["mcpServers"][SERVER] == ENTRY
    ours = [hook for group in value["hooks"]["Stop"] for hook in group["hooks"] if "timeout" in hook]
    assert [one["command"] for one in ours] == [command for _, _, command in HOOKS]
    written = iter(entered)
    assert all(char in written for char in text if not char.isspace())  # in this order
    assert with_hooks(with_server(entered, client, ENTRY, is_toml=False), client, HOOKS) == entered
    taken_out = without_us(entered, client, is_toml=False)
    assert others(taken_out, is_toml=False) == others(text, is_toml=False)
    assert json_text.parse(without_us(taken_out, client, is_toml=False)) == json_text.parse(taken_out)


@pytest.mark.parametrize("text", [one for one in JSON if one and '"Stop": []' not in one])
def test_what_was_taken_out_left_no_trace(text: str) -> None:
    client = CLIENTS["claude-code"]
    entered = with_hooks(with_server(text, client, ENTRY, is_toml=False), client, HOOKS)

    assert without_us(entered, client, is_toml=False) == text


@pytest.mark.parametrize("text", [one for one in JSON if one])
def test_what_is_entered_in_json_is_json(text: str) -> None:
    entered = with_server(text, CLIENTS["openclaw"], ENTRY, is_toml=False)

    if "/" not in text:  # which has comments
        assert json.loads(entered)["mcp"]["servers"][SERVER] == ENTRY
    assert entered.count("\r\n") in (0, entered.count("\n"))


@pytest.mark.parametrize(
    "text",
    [
        "[",
        '{"a"',
        '{"a" 1}',
        "{'a': 'b}",
        '{"mcpServers": 3}',
        '{"a": 1} {}',
        "nonsense here",
        "[" * 100 + "]" * 100,
    ],
)
def test_what_cannot_be_read_or_is_no_section_is_not_changed(text: str) -> None:
    with pytest.raises(ValueError, match=r"line 1|something else|JSON"):
        with_server(text, CLIENTS["cursor"], ENTRY, is_toml=False)


def test_what_a_user_added_to_our_entry_stays() -> None:
    client = CLIENTS["cursor"]
    text = json.dumps({"mcpServers": {SERVER: {"command": "old", "env": {"A": "b"}}}}, indent=4)
    value = json_text.parse(with_server(text, client, ENTRY, is_toml=False)).value

    assert value == {"mcpServers": {SERVER: {**ENTRY, "env": {"A": "b"}}}}


TOML = [
    "",
    'model = "x"\n',
    '# mine\n[mcp_servers.other]\ncommand = "y"\nargs = [\n  "a",\n]\n',
    "[a]\r\nb = 1\r\n",
]
BELOW = "\n# the next one\n[next]\nkey = [\n[1],\n]\n"


@pytest.mark.parametrize("text", TOML)
def test_a_table_in_toml_is_entered_changed_and_taken_out(text: str) -> None:
    client = CLIENTS["codex"]
    entered = with_server(text, client, ENTRY, is_toml=True)

    assert tomllib.loads(entered)["mcp_servers"][SERVER] == ENTRY
    assert entered.startswith(text)
    assert with_server(entered, client, ENTRY, is_toml=True) == entered
    assert without_us(entered, client, is_toml=True) == text

    kept = f'{entered}startup_timeout_sec = 20\n[mcp_servers.{SERVER}.env]\nA = "b"\n{BELOW}'
    changed = with_server(kept, client, {**ENTRY, "command": "\\new"}, is_toml=True)
    assert tomllib.loads(changed)["mcp_servers"][SERVER] == {
        **ENTRY, "command": "\\new", "startup_timeout_sec": 20, "env": {"A": "b"},
    }  # fmt: skip
    rest = without_us(changed, client, is_toml=True)
    assert (rest.startswith(text), rest.endswith(BELOW)) == (True, True)
    assert others(rest, is_toml=True) == others(changed, is_toml=True)


@pytest.mark.parametrize(
    "text",
    [
        f"[mcp_servers.{SERVER}.tools.search]\napproval = 1\n",
        f"[mcp_servers.{SERVER}]\ncommand = 'old'\n",
        f"[mcp_servers.{SERVER}]\ncommand = 'old'\nargs = [\n  'mcp',\n]\n",
        f"mcp_servers.{SERVER}.command = 'old'\n",
        f"[mcp_servers]\n{SERVER} = {{ command = 'old', args = ['mcp'] }}\n",
    ],
)
def test_a_table_that_cannot_be_brought_up_to_date_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=SERVER):
        with_server(text, CLIENTS["codex"], ENTRY, is_toml=True)


def test_a_server_in_toml_that_is_not_taken_out_is_told() -> None:
    text = f"[mcp_servers]\n{SERVER} = {{ command = 'cmem' }}\n"

    with pytest.raises(ValueError, match=SERVER):
        without_us(text, CLIENTS["codex"], is_toml=True)


@pytest.mark.parametrize("quote", ['"', "'"])
def test_a_table_whose_names_are_quoted_is_changed_and_taken_out(quote: str) -> None:
    head = f"[{quote}mcp_servers{quote}.{quote}{SERVER}{quote}]\n"
    changed = with_server(f"{head}command = 'old'\nargs = []\n", CLIENTS["codex"], ENTRY, is_toml=True)

    assert tomllib.loads(changed)["mcp_servers"][SERVER] == ENTRY
    assert without_us(changed, CLIENTS["codex"], is_toml=True) == ""
