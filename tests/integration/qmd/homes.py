"""Small homes for the parts of the QMD memory: one note, one collection, and an index if it is wanted."""

import asyncio
import os
from pathlib import Path

from composable_memory_adapters.qmd.types import Home, Installation, SearchRequest, SubSearch

NOTE = "# Gateway\n\nThe rate limit of the gateway is 100 requests a minute.\n"
QUESTION = SearchRequest(
    text="gateway", collections=("notes",), limit=5, searches=(SubSearch(kind="lex", text="gateway"),)
)
PATIENCE_S = 60.0


def home_in(folder: Path) -> Home:
    """Return a home in a folder, without its files."""
    config, cache = folder / "config", folder / "cache"
    return Home(
        root=folder,
        config_file=config / "index.yml",
        index_file=cache / "index.sqlite",
        models_dir=cache / "qmd" / "models",
        environ={
            "PATH": os.environ["PATH"],
            "HOME": str(folder),
            "CI": "true",
            "NO_COLOR": "1",
            "QMD_CONFIG_DIR": str(config),
            "XDG_CONFIG_HOME": str(config),
            "XDG_CACHE_HOME": str(cache),
            "INDEX_PATH": str(cache / "index.sqlite"),
        },
    )


def furnish(folder: Path) -> Home:
    """Return a home in a folder, with one note in a collection that is not indexed yet."""
    home, notes = home_in(folder), folder / "notes"
    for needed in (notes, home.config_file.parent, home.index_file.parent):
        needed.mkdir(parents=True)
    (notes / "gateway.md").write_text(NOTE, encoding="utf-8")
    home.config_file.write_text(f"collections:\n  notes: {{path: {notes}, pattern: '**/*.md'}}\n")
    return home


async def update(installation: Installation, home: Home) -> None:
    """Have QMD index the notes."""
    process = await asyncio.create_subprocess_exec(
        *installation.command,
        *("--index", "index", "update"),
        env=dict(home.environ),
        cwd=home.root,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    assert await asyncio.wait_for(process.wait(), PATIENCE_S) == 0
