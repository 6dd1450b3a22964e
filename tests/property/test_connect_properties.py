"""Whatever a configuration file says, entering our server and hooks and taking them out changes nothing."""

import json

from hypothesis import given
from hypothesis import strategies as st

from composable_memory.connect import json_text
from composable_memory.connect.clients import CLIENTS, SERVER
from composable_memory.connect.file_text import others, with_hooks, with_server, without_us

ENTRY = {"command": "/bin/cmem", "args": ["mcp", "--workspace", "a b"]}
HOOKS = [("Stop", "turn", "cmem hook turn"), ("SessionStart", "session-start", "cmem hook session-start")]
CLIENT = CLIENTS["claude-code"]

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=12,
)
names = st.sampled_from(["mcpServers", "hooks", "version"]) | st.text()
documents = st.dictionaries(names, values, max_size=4)


@given(documents, st.sampled_from([None, 2, "\t"]), st.booleans())
def test_what_is_entered_can_be_taken_out(document: dict[str, object], indent: int | str, crlf: bool) -> None:
    text = json.dumps(document, indent=indent, ensure_ascii=crlf)
    text = text.replace("\n", "\r\n") if crlf else text
    assert json_text.parse(text).value == document
    try:
        entered = with_hooks(with_server(text, CLIENT, ENTRY, is_toml=False), CLIENT, HOOKS)
    except ValueError:
        assert not all(isinstance(document.get(name, {}), dict) for name in ("mcpServers", "hooks"))
        return

    assert json.loads(entered)["mcpServers"][SERVER] == ENTRY
    taken_out = without_us(entered, CLIENT, is_toml=False)
    assert others(taken_out, is_toml=False) == others(text, is_toml=False)
    if {} not in (document.get("mcpServers"), document.get("hooks")):  # else the empty section goes as well
        assert taken_out == text


@given(st.text(alphabet="{}[]\",:/*\n 'ab\\", max_size=30))
def test_any_text_is_changed_so_that_it_can_be_read_or_refused(text: str) -> None:
    try:
        entered = with_server(text, CLIENTS["openclaw"], ENTRY, is_toml=False)
    except ValueError:
        return
    found = json_text.parse(entered).find(("mcp", "servers", SERVER))

    assert found is not None
    assert found.value == ENTRY
    assert others(entered, is_toml=False) == others(text, is_toml=False)
