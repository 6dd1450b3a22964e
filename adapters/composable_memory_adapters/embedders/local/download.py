"""Downloads a model's file from a hub, in a process of its own that ends when nobody waits any more."""

import asyncio
import json
import sys
from collections.abc import Mapping
from pathlib import Path

from composable_memory.errors import EmbedderUnavailable
from composable_memory_adapters.embedders.local.models import HubFile
from composable_memory_adapters.embedders.local.settings import PROVIDER

PROGRAM = Path(__file__).with_name("download_process.py")
QUIET = {"HF_HUB_DISABLE_PROGRESS_BARS": "1", "HF_HUB_DISABLE_TELEMETRY": "1"}


async def download(hub: HubFile, *, model: str, endpoint: str | None, environ: Mapping[str, str]) -> Path:
    """Return the path of the model's file, downloaded. Cancelling keeps what has arrived for the next time.

    Raises:
        EmbedderUnavailable: it could not be downloaded, and why.
    """
    request = {
        "repository": hub.repository,
        "file": hub.file,
        "folder": str(hub.folder),
        "endpoint": endpoint and endpoint.rstrip("/"),
    }
    problem = await _run(json.dumps(request).encode(), {**environ, **QUIET})
    path = await asyncio.to_thread(hub.on_disk)
    if path is None:
        raise EmbedderUnavailable(
            PROVIDER,
            model,
            f"the model could not be downloaded: {problem or 'it is not where it should be'}",
            "check the network and the model's name, or download it yourself and set"
            " memory.embedding.providers.local.model_path",
        )
    return path


async def _run(request: bytes, environ: Mapping[str, str]) -> str:
    """Run the program to its end and return the last line of its errors; empty if it succeeded."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-P",  # the program's folder is no place to import from
        str(PROGRAM),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
        env=environ,
    )
    try:
        _, errors = await process.communicate(request)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    lines = errors.decode("utf-8", "replace").strip().splitlines()
    if process.returncode == 0:
        return ""
    return lines[-1].strip()[:300] if lines else f"the download ended with status {process.returncode}"
