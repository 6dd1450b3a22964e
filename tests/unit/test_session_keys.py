"""Session keys: what they tell of the place where a session takes place."""

import pytest

from composable_memory.session_keys import SessionPlace, is_shared, place_of, without_agent


@pytest.mark.parametrize("key", [None, "", "  ", "agent:main:", "subagent:7", "agent:main:subagent:group:7"])
def test_of_no_session_and_of_one_within_an_agent_nothing_is_known(key: str | None) -> None:
    assert place_of(key) == SessionPlace()


@pytest.mark.parametrize(
    ("key", "channel"),
    [
        ("agent:main:main", None),
        ("agent:main:telegram:dm:42", "telegram"),
        ("signal:direct:42", "signal"),
        ("cron:nightly", None),
    ],
)
def test_a_key_that_names_nobody_else_is_a_session_with_one_person(key: str, channel: str | None) -> None:
    assert place_of(key) == SessionPlace(channel=channel, chat_type="direct")


@pytest.mark.parametrize(
    ("key", "place"),
    [
        ("agent:main:telegram:group:-100", SessionPlace(channel="telegram", chat_type="group")),
        ("slack:channel:general", SessionPlace(channel="slack", chat_type="channel")),
        ("discord:channel:9:group:3", SessionPlace(channel="discord", chat_type="group")),
        ("agent:main:matrix:work:group:3", SessionPlace(chat_type="group")),
        ("group", SessionPlace(chat_type="group")),
    ],
)
def test_a_key_tells_groups_and_channels(key: str, place: SessionPlace) -> None:
    assert place_of(key) == place


def test_a_direct_key_that_names_a_group_is_a_group() -> None:
    assert place_of("telegram:dm:42:group:7").chat_type == "group"


def test_upper_and_lower_case_are_the_same() -> None:
    assert place_of("Agent:Main:Telegram:GROUP:-100") == place_of("agent:main:telegram:group:-100")


def test_a_channel_without_a_name_is_unknown() -> None:
    assert place_of(":group:7") == SessionPlace(chat_type="group")


def test_the_agent_is_not_part_of_the_place() -> None:
    assert without_agent(" agent:group:Main ") == "main"
    assert place_of("agent:group:main").chat_type == "direct"


@pytest.mark.parametrize("key", ["slack:channel:general", "subagent:telegram:group:7", "group"])
def test_others_read_along_in_groups_and_channels_whoever_opened_them(key: str) -> None:
    assert is_shared(key)


@pytest.mark.parametrize("key", [None, "", "main", "telegram:dm:42", "agent:channel:main", "grouping:x"])
def test_nobody_reads_along_elsewhere(key: str | None) -> None:
    assert not is_shared(key)
