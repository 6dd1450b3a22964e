"""Forgetting lines that QMD has indexed: they go from its index and from the sessions exported to it."""

from pathlib import Path

import pytest

from tests.integration.test_forgetting import NOTE, SECRET, WORDS, Place, files_with


async def test_documents_and_exported_sessions_go_from_the_index_of_qmd(
    tmp_path: Path, qmd_command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    place = Place(tmp_path)
    place.note.write_text(NOTE)
    transcript = place.transcript("hello", f"Please keep in mind: {SECRET} Thanks!")
    qmd = {
        "enabled": True,
        "command": qmd_command,
        "update": {"interval": 0, "on_boot": False, "embed_interval": 0},
        "limits": {"timeout_ms": 20_000},
        "sessions": {"enabled": True},
    }
    async with place.open(qmd=qmd, embedding={"provider": "none"}) as memory:
        await memory.sync()
        before = await memory.query("where is the spare key", backends=["qmd"])
        assert before.results

        plan = await memory.plan_forgetting("^k1abc")
        report = await memory.forget(plan)

        assert [(one.what, one.count) for one in plan.stores if one.store == "qmd"] == [("documents", 2)]
        assert report.is_done
        after = await memory.query("please keep in mind", backends=["qmd"])
        assert [one.path for one in after.results] != []
    assert files_with(WORDS, place.state, place.workspace, but=[transcript]) == set()


@pytest.mark.thorough
async def test_the_index_of_the_memory_that_stands_in_is_cleaned_too(
    tmp_path: Path, qmd_command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    place = Place(tmp_path)
    place.note.write_text(NOTE)
    async with place.open(embedding={"provider": "none"}) as memory:
        await memory.sync()  # as it did while QMD was down
    assert files_with(WORDS, place.state)
    qmd = {"command": qmd_command, "update": {"on_boot": False}, "limits": {"timeout_ms": 20_000}}
    async with place.open(backend="qmd", qmd=qmd, embedding={"provider": "none"}) as memory:
        await memory.sync()

        report = await memory.forget(await memory.plan_forgetting("^k1abc"))

        assert {"builtin", "qmd"} <= {one.store for one in report.stores}
    assert files_with(WORDS, place.state, place.workspace) == set()
