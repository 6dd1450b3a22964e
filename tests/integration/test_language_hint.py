"""Notes in a language that the embedding provider cannot read: the status says so, and which one can."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from composable_memory.cli import app
from composable_memory.runtime.opening import open_memory
from composable_memory_adapters.builtin.sync import synchroniser
from composable_memory_adapters.text.stop_words import language_of, language_shares

_TEXTS = {
    "en": "We moved the release to Friday because the tests of the parser were not ready.",
    "de": "Die Freigabe ist auf Freitag verschoben, weil die Tests für den Parser noch nicht fertig sind.",
    "es": "Hemos pasado la entrega al viernes porque las pruebas del analizador no estaban listas todavía.",
    "fr": "La livraison est reportée à vendredi parce que les tests de l'analyseur ne sont pas encore prêts.",
    "nl": "De oplevering is naar vrijdag verplaatst omdat de tests van de parser nog niet klaar zijn.",
    "ru": "Выпуск перенесли на пятницу, потому что тесты парсера ещё не готовы.",
    "zh": "发布推迟到星期五，因为解析器的测试还没有准备好。",
    "ja": "パーサーのテストがまだ終わっていないので、リリースは金曜日に延期された。",
    "ko": "파서 테스트가 아직 준비되지 않아 출시가 금요일로 미뤄졌다.",
    "ar": "تأجل الإصدار إلى يوم الجمعة لأن اختبارات المحلل ليست جاهزة بعد.",
}


def test_a_language_is_told_by_its_script_or_its_commonest_words() -> None:
    assert {code: language_of(text) for code, text in _TEXTS.items()} == {code: code for code in _TEXTS}
    assert language_of("port: 18789\nhost = db-3\n```\nfoo(bar)\n```") is None
    assert language_shares([_TEXTS["de"], _TEXTS["de"], _TEXTS["en"], "x"]) == {"de": 0.67, "en": 0.33}


def _write(workspace: Path, *codes: str, provider: str = "wordllama") -> None:
    (workspace / "memory").mkdir(parents=True)
    settings = f"memory: {{embedding: {{provider: {provider}}}}}\n"
    (workspace / ".composable-memory.yaml").write_text(settings, encoding="utf-8")
    for number, code in enumerate(codes):
        (workspace / "memory" / f"note-{number}-{code}.md").write_text(_TEXTS[code], encoding="utf-8")


async def _hint(workspace: Path, state_dir: Path) -> str | None:
    async with open_memory(workspace, state_dir, long_lived=False) as memory:
        await memory.sync()
        return await memory.language_hint()


async def test_the_hint_names_the_language_and_who_reads_it(tmp_path: Path) -> None:
    workspace = tmp_path / "notes"
    _write(workspace, *["en"] * 8, "de", "zh", "zh")
    hint = await _hint(workspace, tmp_path / "state")
    assert hint is not None
    assert "Chinese (18% of the notes)" in hint
    assert "German" not in hint  # a tenth, at most, is not worth a hint
    assert "memory.embedding.provider to multilingual-e5" in hint


async def test_notes_that_are_read_need_no_hint(tmp_path: Path) -> None:
    workspace = tmp_path / "notes"
    _write(workspace, "en", "en")
    assert await _hint(workspace, tmp_path / "state") is None


async def test_the_languages_follow_the_notes(tmp_path: Path) -> None:
    workspace = tmp_path / "notes"
    _write(workspace, "en", "zh")
    assert await _hint(workspace, tmp_path / "state") is not None
    (workspace / "memory" / "note-1-zh.md").write_text(_TEXTS["en"] * 2, encoding="utf-8")
    async with open_memory(workspace, tmp_path / "state", long_lived=False) as memory:
        await memory.sync(force=True)
        assert await memory.language_hint() is None


async def test_notes_of_no_known_language_are_looked_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[object] = []

    def look(texts: object) -> dict[str, float]:
        looks.append(texts)
        return {}

    monkeypatch.setattr(synchroniser, "language_shares", look)
    _write(tmp_path, provider="none")
    for number in range(synchroniser.SAMPLE):
        (tmp_path / "memory" / f"{number}.md").write_text(f"port: {number}", encoding="utf-8")
    async with open_memory(tmp_path, tmp_path / "state", long_lived=False) as memory:
        await memory.sync()
        (tmp_path / "memory" / "new.md").write_text("host = db-3", encoding="utf-8")
        await memory.sync()

    assert len(looks) == 1


async def test_without_an_embedder_nothing_is_hinted(tmp_path: Path) -> None:
    workspace = tmp_path / "notes"
    _write(workspace, "zh", provider="none")
    assert await _hint(workspace, tmp_path / "state") is None


def test_the_hint_comes_with_a_change_and_not_with_every_run(tmp_path: Path) -> None:
    workspace = tmp_path / "notes"
    _write(workspace, "en", "zh")
    command = ["index", "--workspace", str(workspace), "--state-dir", str(tmp_path / "state")]
    first, second = (CliRunner().invoke(app, command).stderr for _ in range(2))
    (workspace / "memory" / "note-0-en.md").write_text(_TEXTS["en"] * 2, encoding="utf-8")
    third = CliRunner().invoke(app, command).stderr

    assert [("multilingual-e5" in one) for one in (first, second, third)] == [True, False, True]
