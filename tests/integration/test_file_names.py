"""Notes are found by the names of their files."""

from pathlib import Path

import pytest

from composable_memory import open_memory

TEXT = "Something else is told here, in a line or two.\n"
NAMES = (
    "q3-roadmap.md", "annegret-boehm.md", "lucia-fernandez.md", "2026-04-14-dentist.md", "读书笔记.md",
    "CHANGELOG_V12.md", "plan.md", "2026-04-15.md",
)  # fmt: skip


@pytest.mark.parametrize("is_renamed", [False, True])
async def test_a_note_is_found_by_the_name_of_its_file(
    tmp_path: Path, state_dir: Path, is_renamed: bool
) -> None:
    folder = tmp_path / "vault" / "memory"
    folder.mkdir(parents=True)
    for number, name in enumerate(NAMES):
        (folder / (f"x{number}.md" if is_renamed else name)).write_text(TEXT + str(number), encoding="utf-8")
    asked = {
        "q3 roadmap": "q3-roadmap.md",
        "where is q3-roadmap.md?": "q3-roadmap.md",
        "Wer ist Annegret Böhm?": "annegret-boehm.md",
        "¿Quién es Lucía Fernández?": "lucia-fernandez.md",
        "appointments with the dentist": "2026-04-14-dentist.md",
        "我的读书笔记": "读书笔记.md",
        "changelog v12": "CHANGELOG_V12.md",
    }
    async with open_memory(tmp_path / "vault", state_dir, long_lived=False) as memory:
        await memory.sync()
        if is_renamed:
            for number, name in enumerate(NAMES):
                (folder / f"x{number}.md").rename(folder / name)
            await memory.sync()
        found = {query: (await memory.query(query)).results[0].path for query in asked}
        damage = await memory.check()

    assert found == {query: f"memory/{name}" for query, name in asked.items()}
    assert not any(damage.values())
