"""What quotes a forgotten statement is masked, however short the text is."""

from composable_memory.forget.wording import Quotations, statements_of


def test_a_text_of_fewer_words_than_a_cut_is_masked_whole() -> None:
    said = Quotations(statements_of("- Zanzibar trip\n- W @Ellen: Prefers the window seat.\n"))

    for text, masked in (("Zanzibar trip", "…"), ("window seat.", "…."), ("seat", "seat"), ("", "")):
        assert said.masked(text, "…") == masked
