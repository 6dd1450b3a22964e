"""Whose graph a content goes to, and whose graphs are asked."""

from typing import Any

import pytest

from composable_memory.content import MemoryProvenance
from composable_memory_adapters.graphiti.groups import (
    GroupScope,
    default_group,
    group_of,
    is_of,
    safe_group_id,
)
from composable_memory_adapters.graphiti.settings import GraphitiSettings

DIRECT = "agent:main:telegram:direct:+49 170"


def by(kind: str, **more: object) -> GraphitiSettings:
    return GraphitiSettings.model_validate({"ingest": {"group_by": kind}, **more})


def said(**fields: Any) -> MemoryProvenance:
    return MemoryProvenance(**{"source": "chat", **fields})


def scope(settings: GraphitiSettings, own: str) -> GroupScope:
    claimed = frozenset({safe_group_id(own)})
    return GroupScope(settings=settings, agent_id=own, workspace_id="w", claimed=claimed)


def groups_to_search(settings: GraphitiSettings, own: str, session_key: str | None = None) -> tuple[str, ...]:
    return scope(settings, own).searched_by(session_key)


def is_readable(settings: GraphitiSettings, own: str, group_id: str) -> bool:
    return scope(settings, own).may_read(group_id)


@pytest.mark.parametrize("key", ["main", "Anna-Lena_2", "a" * 64])
def test_a_safe_name_stays_as_it_is(key: str) -> None:
    assert safe_group_id(key) == key


def test_an_unsafe_key_stays_readable() -> None:
    assert safe_group_id(DIRECT).startswith("agent-main-telegram-direct-49-170-")


@pytest.mark.parametrize("key", ["", "_", "default_db", "日本", "a" * 65, "a:b", "a b\n", "\ud800"])
def test_whatever_the_key_the_name_is_one_that_databases_take(key: str) -> None:
    name = safe_group_id(key)

    assert set(name) <= set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_")
    assert 0 < len(name) <= 64
    assert name not in ("_", "default_db")


def test_the_agent_has_a_graph_unless_another_is_named() -> None:
    assert group_of(by("agent"), "main", said(session_key=DIRECT)) == "main"
    assert group_of(by("agent", group="shared"), "main", None) == "shared"


def test_users_have_graphs_of_their_own() -> None:
    anna, bert = (group_of(by("user"), "main", said(actor_id=name)) for name in ("anna", "bert"))

    assert len({anna, bert, "main"}) == 3


def test_users_of_two_channels_are_two() -> None:
    groups = {group_of(by("user"), "main", said(actor_id="7", channel=channel)) for channel in ("irc", "sms")}

    assert len(groups) == 2


def test_a_question_in_a_conversation_finds_what_its_partner_said_there() -> None:
    stored = group_of(by("user"), "main", said(session_key=DIRECT, actor_id="+49 170", channel="telegram"))

    assert groups_to_search(by("user"), "main", DIRECT) == (stored, "main")


def test_what_somebody_said_in_a_group_is_found_in_a_conversation_with_him() -> None:
    stored = group_of(
        by("user"),
        "main",
        said(session_key="agent:main:telegram:group:9", actor_id="+49 170", channel="telegram"),
    )

    assert stored in groups_to_search(by("user"), "main", DIRECT)


def test_what_the_agent_itself_says_does_not_go_to_another_graph_than_the_answer() -> None:
    groups = {group_of(by("user"), "main", said(session_key=DIRECT, actor_id=who)) for who in ("bot", "+49")}

    assert len(groups) == 1


def test_sessions_have_graphs_of_their_own() -> None:
    stored = group_of(by("session"), "main", said(session_key="s1"))

    assert groups_to_search(by("session"), "main", "s1") == (stored, "main")
    assert stored not in groups_to_search(by("session"), "main", "s2")


def test_what_belongs_to_nobody_goes_to_the_agent_and_is_found_by_all() -> None:
    for kind in ("user", "session"):
        assert group_of(by(kind), "main", said()) == "main"
        assert "main" in groups_to_search(by(kind), "main", DIRECT)


def test_further_groups_are_searched_once_each() -> None:
    settings = by("agent", also_search=["team", "main", "other team"])

    assert groups_to_search(settings, "main") == ("main", "team", safe_group_id("other team"))


def test_a_path_may_name_what_is_searched_and_nothing_of_another_agent() -> None:
    also = by("agent", also_search=["team"])

    assert is_readable(also, "anna", "anna")
    assert is_readable(also, "anna", "team")
    assert not is_readable(also, "anna", "bob")


def test_two_workspaces_of_an_agent_read_nothing_of_each_other() -> None:
    for agent in ("main", "a" * 64):
        for kind in ("user", "session"):
            one, two = (default_group(agent, workspace) for workspace in ("1a2b3c4d5e6f", "1a2b3c4d5e60"))
            theirs = group_of(by(kind), two, said(session_key=DIRECT))

            assert is_readable(by(kind), two, theirs)
            assert not is_readable(by(kind), one, theirs)
            assert not is_of(one, theirs)


@pytest.mark.parametrize("kind", ["user", "session"])
@pytest.mark.parametrize("agent", ["anna", "team:red", "a" * 80])
def test_a_path_may_name_every_conversation_of_the_agent_and_none_of_another(kind: str, agent: str) -> None:
    settings = by(kind)
    own = group_of(settings, agent, said(session_key=DIRECT))

    assert is_readable(settings, agent, own)
    assert not is_readable(settings, "another", own)
    assert not is_readable(by("agent"), agent, own), "such groups are not kept there"
    assert not is_readable(settings, agent, f"{agent}-{kind}s"), "that is another agent's name"
