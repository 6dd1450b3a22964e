"""Packages of the tests' own, as `importlib.metadata` finds them in a folder."""

from pathlib import Path

__all__ = ["install"]


def install(site: Path, package: str, entry_points: str, **modules: str) -> None:
    """Install version 1.0 of a package in a folder that is on the path, with its modules by name."""
    info = site / f"{package.replace('-', '_')}-1.0.dist-info"
    info.mkdir(parents=True)
    metadata = f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n"
    (info / "METADATA").write_text(metadata, encoding="utf-8")
    (info / "entry_points.txt").write_text(entry_points, encoding="utf-8")
    for name, text in modules.items():
        (site / f"{name}.py").write_text(text, encoding="utf-8")
