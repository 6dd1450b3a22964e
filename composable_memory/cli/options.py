"""The options that several commands share."""

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["AsJson", "Here", "Limit", "Session", "StateDir", "Strict", "Workspace"]

Here = Path()
"""The current folder."""

Workspace = Annotated[
    Path,
    typer.Option(
        "--workspace", "-w", metavar="DIR", file_okay=False, show_default="the current folder",
        help="The folder whose notes are the memory.",
    ),
]  # fmt: skip

StateDir = Annotated[
    Path | None,
    typer.Option(
        "--state-dir", metavar="DIR", file_okay=False, envvar="COMPOSABLE_MEMORY_STATE_DIR",
        help="Where indexes and logs are kept; without it, the user's state folder.",
    ),
]  # fmt: skip

Session = Annotated[
    str | None,
    typer.Option(
        "--session", metavar="KEY", help="The conversation that asks; groups and channels get no citations."
    ),
]

AsJson = Annotated[bool, typer.Option("--json", help="Write one JSON document to stdout and nothing else.")]

Strict = Annotated[bool, typer.Option("--strict", help="Exit with 3 if anything is degraded.")]

Limit = Annotated[
    int,
    typer.Option("--limit", "-n", metavar="N", min=1, max=500, help="How many events at most."),
]
