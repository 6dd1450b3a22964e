"""Two sentences are the same only if nothing is lost when one of them is not written."""

import pytest

from composable_memory.retain.already_known import are_rivals, say_the_same, words_said

SAME = [
    ("Peter prefers short replies.", "peter prefers short replies"),
    ("Peter prefers short replies", "Peter  prefers\nshort replies!"),
    ("The deploy key is in the vault.", "Deploy key is in vault"),
    ("Anna doesn't eat meat.", "Anna does not eat meat"),
    ("Anna can't come on Fridays.", "Anna cannot come on Fridays"),
    ("We're using Redis Streams.", "We are using Redis Streams"),
    ("On Mondays Anna works from home.", "Anna works from home on Mondays."),
    ("The port of dispatch is 7400.", "The port of dispatch is 7400"),
    ("Peter’s birthday is 3 May.", "Peter's birthday is 3 May."),
    ("Der Server steht in Köln.", "Server steht in Köln"),
    ("彼得住在里斯本。", "彼得住在里斯本"),
    ("La reunión es en Madrid.", "Reunión es en Madrid"),
    ('The code name is "Osprey".', "The code name is Osprey."),
    ("Meeting room: Everest", "Meeting room Everest."),
    ("The *code* name is **Osprey**.", "The code name is Osprey."),
    ("The offset is –7 volts.", "The offset is -7 volts."),
    ("The port is ７４００.", "The port is 7400."),
]
DIFFERENT = [
    ("Peter moved to Porto.", "Peter moved to Lisbon."),
    ("The port is 7400.", "The port is 7401."),
    ("The port is 7400.", "The port is not 7400."),
    ("Anna eats meat.", "Anna doesn't eat meat."),
    ("Peter manages Anna.", "Anna manages Peter."),
    ("Peter lives in Porto.", "Peter lived in Porto."),
    ("Peter was in Porto.", "Peter is in Porto."),
    ("It costs €5.", "It costs $5."),
    ("It is -5 degrees outside today here.", "It is 5 degrees outside today here."),
    ("He knows C.", "He knows C++."),
    ("Peter left the company.", "Peter left the company?"),
    ("Peter prefers short replies.", "Peter prefers short replies in chat."),
    ("Prefers tea to coffee in the morning.", "Prefers coffee to tea in the morning."),
    ("Takes vitamin A daily in winter.", "Takes vitamin daily in winter."),
    ("Use version 3.1 of the library for now.", "Use version 3.2 of the library for now."),
    ("The release is on 3 May 2026 at noon.", "The release is on 4 May 2026 at noon."),
    ("Always ask before deleting a branch.", "Never ask before deleting a branch."),
    ("Ellen Smith leads the billing team now.", "Ellen Jones leads the billing team now."),
    ("Backups run every night at two.", "Backups run every week at two."),
    ("The ferry leaves before nine in summer.", "The ferry leaves after nine in summer."),
    ("彼得住在里斯本。", "彼得住在波尔图。"),
    ("彼得喜欢茶。", "彼得不喜欢茶。"),
    ("Der Zug fährt um neun.", "Der Zug fährt um zehn."),
    ("Der Zug fährt heute nicht mehr nach Köln.", "Der Zug fährt heute mehr nach Köln."),
    ("Peter owes Anna 20 euros since the trip.", "Anna owes Peter 20 euros since the trip."),
    ("The office is closed on Friday.", "LA office is closed on Friday."),
    ("The forces left the city today.", "UN forces left the city today."),
    ("The offset is 7 volts.", "The offset is –7 volts."),
    ("The offset is 8 volts.", "The offset is - 8 volts."),
    ("The limit is 103 units.", "The limit is 10³ units."),
    ("The formula is H2.", "The formula is H₂."),
    ("Use *.py files only.", "Use .py files only."),
    ("Not today the shop opens", "The shop opens not today"),
    ("Only Ann may deploy not Ben", "not Ben only Ann may deploy"),
    ("Some of the tests are slow on macOS.", "All of the tests are slow on macOS."),
]


def same(one: str, other: str) -> bool:
    return say_the_same(words_said(one), words_said(other))


def test_what_differs_in_form_alone_is_the_same() -> None:
    assert [pair for pair in SAME if not (same(*pair) and same(*reversed(pair)))] == []


def test_what_says_anything_else_is_not() -> None:
    assert [pair for pair in DIFFERENT if same(*pair) or same(*reversed(pair))] == []


def test_the_entities_of_a_line_belong_to_its_sentence() -> None:
    known = words_said("Prefers short replies.", ["Peter"])

    assert say_the_same(known, words_said("Peter prefers short replies"))
    assert say_the_same(known, words_said("Peter prefers short replies", ["Peter"]))
    assert not say_the_same(known, words_said("Prefers short replies.", ["Anna"]))
    assert not say_the_same(known, words_said("Prefers short replies."))


def test_nothing_is_the_same_as_nothing() -> None:
    assert not same("…", "…")


@pytest.mark.parametrize("pair", [("Peter lives in Porto.", "Peter lives in Lisbon."), DIFFERENT[1]])
def test_what_may_end_the_other_is_its_rival(pair: tuple[str, str]) -> None:
    assert are_rivals(*map(words_said, pair))
    assert not are_rivals(words_said(pair[0]), words_said(pair[0]))
    assert not are_rivals(words_said(pair[0]), words_said("Anna plays chess."))
