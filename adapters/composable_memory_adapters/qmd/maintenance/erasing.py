"""What QMD's own index holds of lines that are forgotten, and writing its file anew without them."""

from contextlib import suppress
from pathlib import Path

from composable_memory.errors import BackendUnavailable, IndexProblem
from composable_memory.forget.values import Forgetting
from composable_memory.forget.wording import contains, statements_of, words_of
from composable_memory_adapters.qmd.maintenance.index_commands import DAMAGED_SUFFIX, INDEX_PARTS
from composable_memory_adapters.qmd.types import BACKEND_ID
from composable_memory_adapters.sqlite_file import Connection, SqliteFile

WITH_WORD = """
SELECT DISTINCT path, doc FROM documents JOIN content USING (hash) WHERE active = 1 AND doc LIKE ? ESCAPE '!'
"""


async def documents_saying(index_file: Path, wanted: Forgetting) -> tuple[str, ...]:
    """Return the documents of an index that say some lines, by their paths; none where it cannot be read."""
    said = {one.said for text in wanted.texts for one in statements_of(text) if one.is_telling}

    def find(connection: Connection) -> set[str]:
        found = set[str]()
        for words in said:
            like = max(words, key=len).replace("!", "!!").replace("%", "!%").replace("_", "!_")
            rows = connection.execute(WITH_WORD, (f"%{like}%",))
            found |= {path for path, doc in rows if contains(words_of(doc), words)}
        return found

    with suppress(IndexProblem):
        async with SqliteFile.open(index_file, readers=1) as file:
            return tuple(sorted(await file.read(find)))
    return ()


async def scrub(index_file: Path) -> None:
    """Leave nothing in an index of what QMD has deleted; a damaged copy that was set aside goes.

    Raises:
        BackendUnavailable: another process keeps that from being done.
    """
    try:
        async with SqliteFile.open(index_file, readers=1) as file:
            is_whole = await file.scrub()
    except IndexProblem as error:
        fix = "end what else uses it, then try again"
        raise BackendUnavailable(BACKEND_ID, str(error), fix=fix, operation="forget") from error
    if not is_whole:
        problem = f"another process reads {index_file} all the time"
        raise BackendUnavailable(BACKEND_ID, problem, fix="end it, then try again", operation="forget")


def remove_set_aside(index_file: Path) -> None:
    """Remove a damaged index that was set aside."""
    for part in INDEX_PARTS:
        index_file.with_name(index_file.name + DAMAGED_SUFFIX + part).unlink(missing_ok=True)
