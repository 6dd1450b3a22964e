"""The scope of the QMD memory: who may search, and what those hear who may not."""

import pytest

from composable_memory_adapters.qmd.settings import (
    QmdSettings,
    ScopeMatch,
    ScopeRule,
    ScopeSettings,
    denial_of,
)

GROUP = "agent:main:telegram:group:-100"
OURS = QmdSettings().scope
"""The scope of who has set none."""


def scope(*rules: ScopeRule, default: str = "deny") -> ScopeSettings:
    return ScopeSettings.model_validate({"default": default, "rules": rules})


def allow(**match: str) -> ScopeRule:
    return ScopeRule(action="allow", match=ScopeMatch.model_validate(match))


def deny(**match: str) -> ScopeRule:
    return ScopeRule(action="deny", match=ScopeMatch.model_validate(match))


@pytest.mark.parametrize("key", [None, "", "   "])
def test_who_asks_without_a_session_may_always_search(key: str | None) -> None:
    assert denial_of(scope(deny()), key) is None


@pytest.mark.parametrize("key", ["main", "agent:main:main", "agent:main:telegram:dm:42"])
def test_by_default_a_session_with_one_person_may_search(key: str) -> None:
    assert denial_of(OURS, key) is None


@pytest.mark.parametrize("key", [GROUP, "slack:channel:general", "agent:main:subagent:7"])
def test_by_default_no_other_session_may_search(key: str) -> None:
    assert denial_of(OURS, key) is not None


def test_the_first_rule_that_matches_decides() -> None:
    rules = (deny(channel="telegram"), allow(chat_type="group"))

    assert denial_of(scope(*rules), GROUP) is not None
    assert denial_of(scope(*reversed(rules)), GROUP) is None


def test_where_no_rule_matches_the_default_decides() -> None:
    elsewhere = deny(channel="slack")

    assert denial_of(scope(elsewhere, default="allow"), GROUP) is None
    assert denial_of(scope(elsewhere, default="deny"), GROUP) is not None


def test_all_that_a_rule_names_must_be_so() -> None:
    assert denial_of(scope(allow(channel="telegram", chat_type="group")), GROUP) is None
    assert denial_of(scope(allow(channel="telegram", chat_type="channel")), GROUP) is not None


def test_a_rule_that_names_nothing_matches_every_session() -> None:
    assert denial_of(scope(allow()), "agent:main:subagent:7") is None


@pytest.mark.parametrize("blank", ["channel", "key_prefix", "raw_key_prefix"])
def test_a_blank_text_in_a_rule_is_not_looked_at(blank: str) -> None:
    assert denial_of(scope(allow(**{blank: " "})), GROUP) is None


@pytest.mark.parametrize("prefix", ["telegram:", "Telegram:Group:", "agent:main:telegram:"])
def test_a_prefix_is_that_of_the_key_without_its_agent_unless_it_names_one(prefix: str) -> None:
    assert denial_of(scope(allow(key_prefix=prefix)), GROUP) is None


@pytest.mark.parametrize("prefix", ["main:telegram", "agent:other:", "group"])
def test_what_the_key_does_not_begin_with_does_not_match(prefix: str) -> None:
    assert denial_of(scope(allow(key_prefix=prefix)), GROUP) is not None


def test_a_raw_prefix_is_that_of_the_whole_key() -> None:
    assert denial_of(scope(allow(raw_key_prefix="AGENT:main:telegram")), GROUP) is None
    assert denial_of(scope(allow(raw_key_prefix="telegram:")), GROUP) is not None


def test_a_denial_by_default_tells_the_rule_that_would_let_the_session_in() -> None:
    denial = denial_of(OURS, GROUP)

    assert denial is not None
    assert "memory.qmd.scope" in denial
    assert "`{action: allow, match: {chatType: group}}`" in denial


def test_a_denial_by_a_rule_names_the_rule() -> None:
    denial = denial_of(scope(allow(channel="slack"), deny()), "agent:main:main")

    assert denial is not None
    assert "rule 2 of memory.qmd.scope" in denial


def test_a_denial_of_a_session_of_unknown_kind_does_not_speak_of_a_kind() -> None:
    denial = denial_of(OURS, "subagent:7")

    assert denial is not None
    assert denial.endswith("; a rule that allows its `keyPrefix` admits it")
