"""JSON is found in whatever a language model wraps around it."""

import pytest

from composable_memory_adapters.graphiti.library.chat import object_in


@pytest.mark.parametrize(
    "text",
    [
        '{"edges": [{"fact": "a } in a text"}]}',
        '```json\n{"edges": [{"fact": "a } in a text"}]}\n```',
        'Sure! Here it is:\n{"edges": [{"fact": "a } in a text"}]}\nI hope it helps {really}.',
        'Think {of it}.\n```\n{"edges": [{"fact": "a } in a text"}]}\n``` done',
        '\ufeff  {"edges": [{"fact": "a } in a text"}]}',
        '{not json} {"edges": [{"fact": "a } in a text"}]}',
    ],
)
def test_the_object_is_found(text: str) -> None:
    assert object_in(text) == {"edges": [{"fact": "a } in a text"}]}


@pytest.mark.parametrize(
    "text", ["", "I cannot do that.", "[1, 2]", '{"edges": [', "{" * 5000, '{"a": ' * 3000]
)
def test_where_there_is_none_nothing_is_found(text: str) -> None:
    assert object_in(text) is None


def test_a_line_break_within_a_text_does_no_harm() -> None:
    assert object_in('{"fact": "two\nlines"}') == {"fact": "two\nlines"}
