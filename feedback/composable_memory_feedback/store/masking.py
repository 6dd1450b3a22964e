"""Takes texts out of rows whose keys, places and numbers stay."""

import json
from collections.abc import Callable, Mapping, Sequence
from sqlite3 import Connection

from composable_memory_ops_logs.erasing import masked_value

TEXT_COLUMNS: Mapping[str, Sequence[str]] = {
    "judgements": ("rationale",),
    "golden": ("question", "query"),
    "evaluations": ("detail",),
}
"""The columns, by table, in which somebody's words are kept. What weights say is never changed."""


def mask_rows(connection: Connection, mask: Callable[[str], str], *, is_rehearsal: bool) -> int:
    """Mask the texts in these columns, also within JSON; return how many rows change."""
    return sum(
        _mask_table(connection, table, columns, mask, is_rehearsal) for table, columns in TEXT_COLUMNS.items()
    )


def _mask_table(
    connection: Connection, table: str, columns: Sequence[str], mask: Callable[[str], str], is_rehearsal: bool
) -> int:
    found = 0
    for row in connection.execute(f"SELECT id, {', '.join(columns)} FROM {table}").fetchall():  # noqa: S608
        before = [row[name] for name in columns]
        after = [text and _masked(text, mask) for text in before]
        found += after != before
        if after != before and not is_rehearsal:
            values = ", ".join(f"{name} = ?" for name in columns)
            connection.execute(f"UPDATE {table} SET {values} WHERE id = ?", (*after, row["id"]))  # noqa: S608
    return found


def _masked(text: str, mask: Callable[[str], str]) -> str:
    try:
        value = json.loads(text)
    except ValueError:
        return mask(text)
    masked = masked_value(value, mask)
    return text if masked == value else json.dumps(masked, ensure_ascii=False, separators=(",", ":"))
