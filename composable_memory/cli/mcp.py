"""`cmem mcp`: serves the memory to agents."""

import os
import signal
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from composable_memory.cli.command import ExitCode, require_home, run
from composable_memory.cli.options import Port, Session, StateDir
from composable_memory.cli.output import error, warn
from composable_memory.cli.watch import end_signals
from composable_memory.config.layers import default_state_dir

if TYPE_CHECKING:
    from mcp.server import Server

DEFAULT_PORT = 8377
INSTALL = "pip install 'composable-memory[mcp]'"

Workspaces = Annotated[
    list[str] | None,
    typer.Option(
        "--workspace",
        "-w",
        metavar="[NAME=]DIR",
        show_default="the current folder",
        help="The folder with your notes; repeatable as NAME=DIR, and requests then name one.",
    ),
]

app = typer.Typer()


@app.command("mcp", epilog="Example: cmem mcp --http --workspace work=~/work --workspace home=~/notes")
def mcp(
    workspace: Workspaces = None,
    http: Annotated[
        bool, typer.Option("--http", help="Serve over HTTP on this machine, for clients that send the token.")
    ] = False,
    port: Port = DEFAULT_PORT,
    read_only: Annotated[
        bool, typer.Option("--read-only", help="Leave out the tools that change anything.")
    ] = False,
    state_dir: StateDir = None,
    session: Session = None,
) -> None:
    """Serve the memory to agents as an MCP server, on stdin and stdout or over HTTP."""
    workspaces = named_workspaces(workspace or ["."])
    try:
        from composable_memory.mcp_server.server import build_server
        from composable_memory.mcp_server.stdio import serve_stdio
    except ImportError as missing:
        error(not_installed(missing))
        raise typer.Exit(ExitCode.FAILED) from missing
    server = build_server(workspaces, state_dir, session_key=session, read_only=read_only)
    if http:
        run(_serve_http(server, port, state_dir or default_state_dir(os.environ)))
    else:
        # The SDK waits in a thread that nothing can interrupt: Python's own handler would hang there.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        run(serve_stdio(server))


def named_workspaces(given: list[str]) -> Mapping[str, Path]:
    """Return the folders by name; a single one without a name has an empty name."""
    named: dict[str, Path] = {}
    for one in given:
        name, mark, folder = one.partition("=")
        if not mark or "/" in name or Path(one).is_dir():
            name, folder = "", one
        if name in named or (not name and len(given) > 1):
            problem = "give each of several workspaces its own name: --workspace work=DIR"
            raise typer.BadParameter(problem, param_hint="--workspace")
        require_home(Path(folder))
        named[name] = Path(folder).expanduser()
    return named


def not_installed(missing: ImportError, what: str = "MCP") -> str:
    """Return what to install for a server that cannot be imported."""
    try:
        found = metadata.version("mcp")
    except metadata.PackageNotFoundError:
        return f"the {what} server is not installed; run: {INSTALL}"
    return (
        f"the {what} server needs mcp 2.3 or newer, not {found} ({missing}); in a new environment: {INSTALL}"
    )


async def _serve_http(server: "Server[Any]", port: int, state_dir: Path) -> None:
    """Serve until a signal comes; print to stderr how clients connect. The token itself stays in its file."""
    from composable_memory.http_server import access, listening
    from composable_memory.http_server.mcp_app import mcp_app

    way_in = await access("127.0.0.1", port, state_dir)
    async with end_signals(state_dir) as end, listening(mcp_app(server), way_in) as url:
        header = f"`Authorization: Bearer $(cat {way_in.token_file})`"
        warn(f"serving at {url}mcp; clients send the header {header}")
        await end.wait()
