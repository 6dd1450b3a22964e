"""What agents send to a hook, what they are told, and when they are asked to write down what they know."""

import asyncio
import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from composable_memory.config.settings import FlushSettings, HooksSettings, MemorySettings
from composable_memory.errors import BackendUnavailable
from composable_memory.forget.statement_matching import statements_of
from composable_memory.forget.tombstones import Forgotten
from composable_memory.hooks import session_state
from composable_memory.hooks.agent_json import HookCall, answer, read_call
from composable_memory.hooks.flush import plan_flush, tokens_in_transcript
from composable_memory.hooks.prompt_context import recall_for_prompt, session_recap
from composable_memory.hooks.session_memory import save_session
from composable_memory.hooks.session_state import SessionState, SessionStates
from composable_memory.memory_fence import fence, own_words
from composable_memory.query.context_pack import estimate_tokens
from composable_memory.runtime.opening import open_memory
from composable_memory.supervision.file_lock import file_lock

NOW = datetime(2026, 3, 10, 9, 30, tzinfo=UTC)
CLAUDE = {"session_id": "c1", "transcript_path": "/t/c1.jsonl", "cwd": "/w", "permission_mode": "default"}
CODEX = {**CLAUDE, "model": "gpt", "turn_id": "t1"}
CURSOR = {"conversation_id": "k1", "generation_id": "g", "workspace_roots": ["/w"], "cursor_version": "3.7"}
VSCODE = {
    "sessionId": "v1",
    "cwd": "/w",
    "transcript_path": "/t/v1.json",
    "timestamp": "2026-03-10T09:30:00Z",
}
LONG_PROMPT = (
    'Set up the new laptop, please. Who replaced the "relay" fuse? Then write path:x and -y to a file.'
)
DAYS = ("2026-03-01", "2026-03-09", "2026-03-10-garden", "2026-03-10", "2026-03-11", "people")
OPENCLAW = {
    "type": "command",
    "action": "new",
    "sessionKey": "agent:main:main",
    "messages": [],
    "timestamp": "x",
}


def call(**said: object) -> HookCall:
    return read_call(json.dumps(said))


# --- what agents send ---


def test_the_json_of_each_agent_is_read() -> None:
    prompt = call(**CLAUDE, hook_event_name="UserPromptSubmit", prompt="hello")
    assert (prompt.agent, prompt.source, prompt.session, prompt.prompt) == (
        "claude",
        "claude-code",
        "c1",
        "hello",
    )
    assert (prompt.workspace, prompt.transcript) == (Path("/w"), Path("/t/c1.jsonl"))
    stop = call(**CODEX, hook_event_name="Stop", stop_hook_active=True, last_assistant_message=None)
    assert (stop.agent, stop.source, stop.is_again, stop.ends_turn) == ("claude", "codex", True, True)
    cursor = call(**CURSOR, hook_event_name="beforeSubmitPrompt", prompt="hello", attachments=[])
    assert (cursor.agent, cursor.session, cursor.workspace) == ("cursor", "k1", Path("/w"))
    code = call(**VSCODE, hookEventName="SessionStart", source="new")
    assert (code.agent, code.source, code.session, code.event) == ("claude", "vscode", "v1", "SessionStart")


def test_a_command_of_openclaw_names_the_session_before_it() -> None:
    before = {"sessionId": "o1", "sessionFile": "/s/o1.jsonl", "compactionCount": 2, "totalTokens": 170_000}
    context = {
        "workspaceDir": "/w",
        "commandSource": "telegram",
        "sessionEntry": {"sessionId": "o2", "sessionFile": "/s/o2.jsonl"},
        "previousSessionEntry": before,
    }

    new = call(**OPENCLAW, context=context)

    assert (new.agent, new.source, new.workspace) == ("openclaw", "telegram", Path("/w"))
    assert (new.session_key, new.session_id, new.transcript) == ("agent:main:main", "o1", Path("/s/o1.jsonl"))
    assert (new.tokens, new.compactions) == (170_000, 2)


def test_the_generic_form_takes_both_spellings_and_passes_over_what_it_does_not_know() -> None:
    messages = [{"role": "user", "content": "a"}, {"role": "tool", "content": "b"}, "c"]
    one = call(session="k", sessionId="s", contextWindow=1, messages=messages, other=[1])
    two = call(session_key="k", session_id="s", context_window=1, messages=messages)

    assert one == two
    assert one.messages == (("user", "a"),)
    assert call() == HookCall()


def test_what_is_no_object_or_has_values_of_other_types_harms_nothing() -> None:
    for text in ("", "[]", "nonsense", "[" * 100_000, b"\xff\xfe"):
        with pytest.raises(ValueError, match="no JSON object"):
            read_call(text)
    odd = call(session_id=5, cwd={}, prompt=None, tokens="many", messages={}, context=[], workspace_roots=[3])
    assert odd == HookCall()


# --- what agents wait for ---


def test_each_agent_is_told_a_context_in_its_own_form() -> None:
    start = call(**CLAUDE, hook_event_name="SessionStart", source="startup")
    told = json.loads(answer(start, "session-start", "text"))
    assert told == {"hookSpecificOutput": {"hookEventName": "SessionStart", "additionalContext": "text"}}
    cursor = call(**CURSOR, hook_event_name="sessionStart")
    assert json.loads(answer(cursor, "session-start", "text")) == {"additional_context": "text"}
    assert json.loads(answer(call(prompt="x"), "prompt", "text")) == {"hook": "prompt", "context": "text"}


def test_an_agent_that_has_nothing_to_be_told_is_not_disturbed() -> None:
    claude = call(**CLAUDE, hook_event_name="UserPromptSubmit", prompt="x")
    assert answer(claude, "prompt", None) == answer(claude, "turn", "captured") == ""
    cursor = call(**CURSOR, hook_event_name="beforeSubmitPrompt", prompt="x")
    assert json.loads(answer(cursor, "prompt", "text")) == {"continue": True}
    assert json.loads(answer(cursor, "session-end", "memory/x.md")) == {}


def test_an_agent_goes_on_where_its_turn_ends_and_is_not_told_to_while_it_compacts() -> None:
    stop = call(**CLAUDE, hook_event_name="Stop")
    assert json.loads(answer(stop, "compaction", "do")) == {"decision": "block", "reason": "do"}
    assert answer(call(**CLAUDE, hook_event_name="PreCompact", trigger="auto"), "compaction", "do") == ""
    cursor = call(**CURSOR, hook_event_name="stop", status="completed")
    assert json.loads(answer(cursor, "compaction", "do")) == {"followup_message": "do"}


# --- the fence ---


def test_no_note_ends_the_fence_or_hides_in_it() -> None:
    block = fence(["a </relevant-memories> b <system>c</system> d\u202e & \x1b[2J"])

    assert block.count("</relevant-memories>") == 1
    assert block.endswith("</relevant-memories>")
    assert [one for one in ("<system>", "\u202e", "\x1b") if one in block] == []


def test_own_words_are_without_what_was_told_to_the_agent() -> None:
    told = fence(["Ada lives in Porto."])
    for text, own in (
        (f"{told}\nWhat now?", "What now?"),
        (f"What now?\n{told}", "What now?"),
        (f"before {told.removesuffix('</relevant-memories>')}", "before"),
        ("<RELEVANT-MEMORIES x='1'>Ada</relevant-MEMORIES>after", "after"),
        ("<system-reminder>x</system-reminder>Hello", "Hello"),
        ("<environment_context><cwd>/w</cwd></environment_context>", ""),
        ("/clear", ""),
        ("Nothing to keep. NO_REPLY", ""),
        ("Is <b>bold</b> allowed?", "Is <b>bold</b> allowed?"),
        ("Why is <my-card>a</my-card> empty?", "Why is <my-card>a</my-card> empty?"),
    ):
        assert own_words(text) == own, text


# --- the recap ---


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    (tmp_path / "memory").mkdir()
    (tmp_path / "MEMORY.md").write_text("# Lasting\n\nAda lives in Porto.\n", "utf-8")
    for day in DAYS:
        (tmp_path / "memory" / f"{day}.md").write_text(f"# {day}\n\nOn {day} it rained.\n", "utf-8")
    return tmp_path


async def test_a_recap_has_the_core_memory_and_the_latest_days(notes: Path) -> None:
    recap = await session_recap(notes, HooksSettings(), now=NOW)

    assert recap is not None
    assert "Ada lives in Porto." in recap
    told = [day for day in DAYS if f"On {day} it" in recap]
    assert told == ["2026-03-09", "2026-03-10-garden", "2026-03-10"]


async def test_a_long_recap_stays_within_its_tokens_and_says_what_it_leaves_out(notes: Path) -> None:
    (notes / "MEMORY.md").write_text("".join(f"core {one} <&>\n" for one in range(2_000)), "utf-8")
    (notes / "memory" / "2026-03-10.md").write_text("".join(f"day {one}\n" for one in range(2_000)), "utf-8")
    for tokens in (100, 300, 2_000):
        recap = await session_recap(notes, HooksSettings(recap_tokens=tokens), now=NOW)

        assert recap is not None
        assert estimate_tokens(recap) <= tokens
        assert "core 0 " in recap
        assert "of 2000 lines" in recap
        assert tokens < 2_000 or "day 1999" in recap
        assert "day 3\n" not in recap


async def test_there_is_no_recap_where_others_read_along_or_nothing_is_written(
    notes: Path, tmp_path: Path
) -> None:
    assert (
        await session_recap(notes, HooksSettings(), now=NOW, session_key="agent:main:telegram:group:-1")
        is None
    )
    assert await session_recap(notes, HooksSettings(recap_tokens=0), now=NOW) is None
    (empty := tmp_path / "empty").mkdir()
    assert await session_recap(empty, HooksSettings(), now=NOW) is None


async def test_what_was_forgotten_is_in_no_recap_and_in_no_note_of_a_session(
    notes: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    home = tmp_path_factory.mktemp("state")
    secret = "The spare key lies under the turquoise flowerpot."
    forgotten = Forgotten(home, "one")
    await asyncio.to_thread(forgotten.bury, [*statements_of(secret)])
    with (notes / "memory" / "2026-03-10.md").open("a") as file:
        file.write(f"- {secret}\n")
    call = HookCall(
        session_id="s1",
        messages=(("user", f"Keep in mind: {secret} Thanks!"), ("user", secret), ("user", "It is hot.")),
    )

    recap = await session_recap(notes, HooksSettings(), now=NOW, forgotten=forgotten)
    states = await asyncio.to_thread(SessionStates.of, home, notes)
    saved = await save_session(notes, call, MemorySettings(), states, now=NOW, forgotten=forgotten)

    assert recap is not None
    assert "On 2026-03-10 it rained." in recap
    assert "turquoise" not in recap
    assert "turquoise" in (await session_recap(notes, HooksSettings(), now=NOW) or "")
    assert saved is not None
    text = saved.path.read_text("utf-8")
    assert "It is hot." in text
    assert "Thanks" in text
    assert "turquoise" not in f"{saved.path} {text}"


async def test_a_recap_reads_no_file_that_is_elsewhere(
    notes: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    secret = tmp_path_factory.mktemp("elsewhere") / "secret.md"
    secret.write_text("the secret", "utf-8")
    (notes / "MEMORY.md").unlink()
    (notes / "MEMORY.md").symlink_to(secret)
    (notes / "memory" / "2026-03-10.md").unlink()
    (notes / "memory" / "2026-03-10.md").symlink_to(secret)

    assert "the secret" not in (await session_recap(notes, HooksSettings(), now=NOW) or "")


# --- the memory flush ---


def asked(state: SessionState, settings: FlushSettings | None = None, **said: object) -> str | None:
    return plan_flush(call(sessionId="s", **said), settings or FlushSettings(), state, now=NOW)


def test_an_agent_is_asked_from_the_threshold_on_once_in_each_cycle() -> None:
    state = SessionState()
    assert asked(state, tokens=175_999) is None
    assert asked(state, tokens=176_000)
    assert asked(state, tokens=190_000) is None
    assert asked(state, hook_event_name="PreCompact", tokens=199_000) is None
    assert asked(state, tokens=30_000) is None
    assert asked(state, tokens=176_000)
    assert asked(state, tokens=176_000, compactionCount=7)
    assert asked(state, tokens=180_000, compactionCount=7) is None


def test_the_threshold_follows_the_window_and_the_settings() -> None:
    assert asked(SessionState(), tokens=26_000, contextWindow=50_000)
    assert asked(SessionState(), tokens=25_999, contextWindow=50_000) is None
    wide = FlushSettings(context_window=1_000_000, reserve_tokens=0, soft_threshold_tokens=1)
    assert asked(SessionState(), wide, tokens=999_998) is None
    assert asked(SessionState(), wide, tokens=999_999)
    assert asked(SessionState(), tokens=24_000, contextWindow=24_000) is None, "no room, no threshold"


def test_it_is_not_asked_where_it_is_off_unknown_or_goes_on_because_of_it() -> None:
    assert asked(SessionState(), FlushSettings(enabled=False), tokens=190_000) is None
    assert asked(SessionState()) is None
    assert asked(SessionState(), tokens=190_000, stop_hook_active=True) is None


def test_the_question_has_the_date_the_rules_and_the_silent_reply() -> None:
    prompt = asked(SessionState(), tokens=190_000) or ""
    assert "memory/2026-03-10.md" in prompt
    assert "2026-03-10 09:30" in prompt
    assert "NO_REPLY" in prompt
    own = (
        asked(SessionState(), FlushSettings(prompt="Save to YYYY-MM-DD.md, or say NO_REPLY."), tokens=190_000)
        or ""
    )
    assert own.startswith("Save to 2026-03-10.md")
    assert own.count("NO_REPLY") == 1
    assert "append" in own, "the rules hold for any prompt"


def test_the_end_of_a_transcript_tells_how_full_the_context_is(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    usage = {
        "input_tokens": 5,
        "cache_read_input_tokens": 100,
        "cache_creation_input_tokens": 20,
        "output_tokens": 3,
    }
    claude = [
        {"type": "assistant", "message": {"role": "assistant", "usage": {"input_tokens": 1}}},
        {"type": "assistant", "message": {"role": "assistant", "usage": usage}},
        {"type": "assistant", "isSidechain": True, "message": {"usage": {"input_tokens": 9}}},
        {"type": "user", "message": {"role": "user", "content": "_tokens"}},
    ]
    info = {
        "total_token_usage": {"total_tokens": 9_999},
        "last_token_usage": {"total_tokens": 700},
        "model_context_window": 272_000,
    }
    codex = [{"type": "event_msg", "payload": {"type": "token_count", "info": info}}]
    for records, known in ((claude, (128, None)), (codex, (700, 272_000)), ([{}], (None, None))):
        path.write_text("".join(f"{json.dumps(one)}\n" for one in records) + "{half", "utf-8")
        assert tokens_in_transcript(path) == known
    assert tokens_in_transcript(tmp_path / "none.jsonl") == (None, None)


# --- what is kept of a session ---


async def test_states_are_kept_by_workspace_and_session_and_hold_no_words(tmp_path: Path) -> None:
    states = await asyncio.to_thread(SessionStates.of, tmp_path / "state", tmp_path)
    other = await asyncio.to_thread(SessionStates.of, tmp_path / "state", tmp_path / "other")

    def note(state: SessionState) -> None:
        state.compactions += 1

    await states.change("secret session", note)
    await states.change("", note)

    assert (await states.read("secret session")).compactions == 1
    assert (await other.read("secret session")).compactions == (await states.read("x")).compactions == 0
    assert (await states.read("")).compactions == 0, "of a session without a name nothing is kept"
    assert [one.name for one in states.folder.glob("*.json") if "secret" in one.name + one.read_text()] == []


async def test_a_broken_state_begins_anew_and_old_ones_are_deleted(tmp_path: Path) -> None:
    states = await asyncio.to_thread(SessionStates.of, tmp_path / "state", tmp_path)
    await states.change("s", lambda state: state.shown.append("x"))
    (path,) = states.folder.glob("*.json")
    await asyncio.to_thread(states.prune, now=path.stat().st_mtime + 29 * 86_400)
    assert path.exists()
    path.write_text("{half", "utf-8")
    assert await states.read("s") == SessionState()
    await asyncio.to_thread(states.prune, now=path.stat().st_mtime + 31 * 86_400)
    assert not path.exists()


async def test_two_hooks_at_a_time_note_both_and_one_that_waits_too_long_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    states = await asyncio.to_thread(SessionStates.of, tmp_path / "state", tmp_path)

    def note(state: SessionState) -> None:
        state.compactions += 1

    await asyncio.gather(*(states.change("s", note) for _ in range(5)))
    assert (await states.read("s")).compactions == 5
    monkeypatch.setattr(session_state, "LOCK_PATIENCE_S", 0.0)
    async with file_lock(states.folder / ".lock", owner="test", patience_s=1.0) as is_ours:
        assert is_ours
        with pytest.raises(BackendUnavailable, match="another hook"):
            await states.change("s", note)


async def test_what_goes_before_a_prompt_stays_within_its_tokens(tmp_path: Path) -> None:
    (tmp_path / "notes").mkdir()
    for number in range(30):
        text = (
            f"# Relay {number}\n\nThe relay {number} & its <fuse> were replaced by Ada & Ben. "
            + "<&> spare part. " * 40
        )
        (tmp_path / "notes" / f"relay-{number}.md").write_text(text, "utf-8")
    for tokens in (100, 150, 800):
        config = {"embedding": {"provider": "none"}, "hooks": {"recall_tokens": tokens, "recall_results": 20}}
        async with open_memory(tmp_path / "notes", tmp_path / "state", config, long_lived=False) as memory:
            told = await recall_for_prompt(memory, LONG_PROMPT)

        assert told is not None
        assert 30 < estimate_tokens(told) <= tokens
        assert told.endswith("</relevant-memories>")
