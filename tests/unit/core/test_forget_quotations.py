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
