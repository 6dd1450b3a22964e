"""What quotes a forgotten statement is masked, however short the text is."""

from composable_memory.forget.statement_matching import Quotations, statements_of
from composable_memory.forget.tombstones import INSTEAD


def test_a_text_of_fewer_words_than_a_cut_is_masked_whole() -> None:
    said = Quotations(statements_of("- Zanzibar trip\n- W @Ellen: Prefers the window seat.\n"))

    for text, masked in (("Zanzibar trip", "…"), ("window seat.", "…."), ("seat", "seat"), ("", "")):
        assert said.masked(text, "…") == masked


def test_what_another_forgetting_left_of_a_quotation_is_masked_too() -> None:
    text = 'Zemu borrowed the old kettle of Ida in Riga. Was it "the kettle of Ida in Riga"?'
    first = Quotations(statements_of("- Bako borrowed the old kettle of Max in Oslo.\n"))
    then = Quotations(statements_of("- Zemu borrowed the old kettle of Ida in Riga.\n"))

    left = first.masked(text, INSTEAD)
    assert left == f'Zemu {INSTEAD} Ida in Riga. Was it "the kettle of Ida in Riga"?'
    masked = then.masked(left, INSTEAD)
    assert "Riga" not in masked
    assert "Ida" not in masked
    assert "Was it" in masked


def test_the_year_of_a_day_or_a_month_is_no_number_that_tells_a_quotation() -> None:
    note = """- The rent is 1,120 euros since January 2026, door code 4711.
- Paula prefers oat milk. 0.80. [2025-11-29](../memory/2025-11-29.md#^1y4ygpn) ^1y4ygpn-a6c2
- The key of the shed has the number 2024.
"""
    said = Quotations(statements_of(note))

    for text in ("what happened on 2026-06-15?", "the outage of 2025-04-29", "in July 2026", "[2025-11-27]"):
        assert said.masked(text, "…") == text
    assert said.masked("is it 4711?", "…") == "is it …?"
    assert said.masked("which key has 2024 on it?", "…") == "which key has … on it?"
    assert said.masked("since January 2026, door code", "…") == "…"


def test_a_number_that_stands_beside_the_same_year_tells_a_quotation() -> None:
    note = """- The safe opens with 2019 since 4 March 2019.
- The code of the shed is 2024.
- The roof was mended in May 2024.
"""
    said = Quotations(statements_of(note))

    assert said.masked("is it 2019?", "…") == "is it …?"
    assert said.masked("is it 2024?", "…") == "is it …?"
