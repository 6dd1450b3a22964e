"""Adds sections of backends to the user's own settings file."""

import os
from collections.abc import Mapping
from pathlib import Path

from pydantic import JsonValue

from composable_memory.config.layers import user_config_path
from composable_memory.config.section_text import UnsafeEdit, with_section
from composable_memory.config.settings_files import read_settings_file
from composable_memory.connect.edits import Edit, write
from composable_memory.errors import ConfigError
from composable_memory.state.folders import make_state_folder


def text_of(file: Path) -> str | None:
    """Return the text of a settings file, None if there is none.

    Raises:
        ConfigError: it cannot be read.
    """
    read_settings_file(file)  # raises what is wrong with it
    return file.read_bytes().decode() if file.exists() else None


def enter_section(backend_id: str, section: Mapping[str, JsonValue], state_dir: Path) -> bool:
    """Add the section of a backend; return False if there is one already, or the edit would not be safe."""
    file = user_config_path(os.environ).resolve()  # it may be a link
    try:
        before = text_of(file)
        after = with_section(before or "", file, backend_id, section)
    except (ConfigError, UnsafeEdit):
        return False
    write(Edit(path=file, before=before, after=after), make_state_folder(state_dir), is_private=True)
    return True
