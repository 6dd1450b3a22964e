"""Whose graph a content goes to, and whose graphs are asked."""

from typing import Any

import pytest

from composable_memory.content import MemoryProvenance
from composable_memory_adapters.graphiti.groups import GroupScope, default_group, safe_group_id
from composable_memory_adapters.graphiti.settings import GraphitiSettings

DIRECT = "agent:main:telegram:direct:+49 170"


def by(kind: str, **more: object) -> GraphitiSettings:
    return GraphitiSettings.model_validate({"ingest": {"group_by": kind}, **more})


def scope(settings: GraphitiSettings, default: str = "main") -> GroupScope:
    return GroupScope(settings=settings, default=default, workspace_id="1a2b3c4d5e6f")


def said(**fields: Any) -> MemoryProvenance:
    return MemoryProvenance(**{"source": "chat", **fields})


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
    assert scope(by("agent")).group_of(said(session_key=DIRECT)) == "main"
    assert scope(by("agent", group="shared")).group_of(None) == "shared"


def test_users_have_graphs_of_their_own() -> None:
    anna, bert = (scope(by("user")).group_of(said(actor_id=name)) for name in ("anna", "bert"))

    assert len({anna, bert, "main"}) == 3


def test_users_of_two_channels_are_two() -> None:
    groups = {scope(by("user")).group_of(said(actor_id="7", channel=channel)) for channel in ("irc", "sms")}

    assert len(groups) == 2


def test_a_question_in_a_conversation_finds_what_its_partner_said_there() -> None:
    stored = scope(by("user")).group_of(said(session_key=DIRECT, actor_id="+49 170", channel="telegram"))

    assert scope(by("user")).searched_by(DIRECT) == (stored, "main")


def test_what_somebody_said_in_a_group_is_found_in_a_conversation_with_him() -> None:
    stored = scope(by("user")).group_of(
        said(session_key="agent:main:telegram:group:9", actor_id="+49 170", channel="telegram")
    )

    assert stored in scope(by("user")).searched_by(DIRECT)


def test_what_the_agent_itself_says_does_not_go_to_another_graph_than_the_answer() -> None:
    groups = {scope(by("user")).group_of(said(session_key=DIRECT, actor_id=who)) for who in ("bot", "+49")}

    assert len(groups) == 1


def test_sessions_have_graphs_of_their_own() -> None:
    stored = scope(by("session")).group_of(said(session_key="s1"))

    assert scope(by("session")).searched_by("s1") == (stored, "main")
    assert stored not in scope(by("session")).searched_by("s2")


def test_what_belongs_to_nobody_goes_to_the_agent_and_is_found_by_all() -> None:
    for kind in ("user", "session"):
        assert scope(by(kind)).group_of(said()) == "main"
        assert "main" in scope(by(kind)).searched_by(DIRECT)


def test_further_groups_are_searched_once_each() -> None:
    settings = by("agent", also_search=["team", "main", "other team"])

    assert scope(settings).searched == ("main", "team", safe_group_id("other team"))


def test_a_path_may_name_what_is_searched_and_nothing_of_another_agent() -> None:
    also = by("agent", also_search=["team"])

    assert scope(also, "anna").may_read("anna")
    assert scope(also, "anna").may_read("team")
    assert not scope(also, "anna").may_read("bob")


def test_two_workspaces_of_an_agent_read_nothing_of_each_other() -> None:
    for agent in ("main", "a" * 64):
        for kind in ("user", "session"):
            one, two = (default_group(agent, workspace) for workspace in ("1a2b3c4d5e6f", "1a2b3c4d5e60"))
            theirs = scope(by(kind), two).group_of(said(session_key=DIRECT))

            assert scope(by(kind), two).may_read(theirs)
            assert not scope(by(kind), one).may_read(theirs)
            assert not scope(by("agent"), one).is_private(theirs)


@pytest.mark.parametrize("kind", ["user", "session"])
@pytest.mark.parametrize("agent", ["anna", "team:red", "a" * 80])
def test_a_path_may_name_every_conversation_of_the_agent_and_none_of_another(kind: str, agent: str) -> None:
    settings = by(kind)
    own = scope(settings, agent).group_of(said(session_key=DIRECT))

    assert scope(settings, agent).may_read(own)
    assert not scope(settings, "another").may_read(own)
    assert not scope(by("agent"), agent).may_read(own), "such groups are not kept there"
    assert not scope(settings, agent).may_read(f"{agent}-{kind}s"), "that is another agent's name"
