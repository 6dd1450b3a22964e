"""Prepare a clone for the package index: `python .github/index_links.py REPOSITORY_URL TAG`.

The index shows the README without the files beside it, so its links are made absolute, and the project's own
links are written into pyproject.toml. The address of the repository is known where a release is built.
"""

import re
import sys
from pathlib import Path

LINK = re.compile(r"\]\((?!https?://|mailto:|#)([^)\s]+)\)")


def main(root: Path, source: str, tag: str) -> None:
    """Rewrite the README and pyproject.toml in `root`."""
    readme, project = root / "README.md", root / "pyproject.toml"
    text = readme.read_text(encoding="utf-8")
    readme.write_text(LINK.sub(rf"]({source}/blob/{tag}/\1)", text), encoding="utf-8")
    urls = {
        "Source": source,
        "Documentation": f"{source}/tree/{tag}/docs",
        "Changelog": f"{source}/blob/{tag}/CHANGELOG.md",
        "Issues": f"{source}/issues",
    }
    table = "\n".join(["[project.urls]", *(f'{name} = "{url}"' for name, url in urls.items())])
    text = project.read_text(encoding="utf-8")
    project.write_text(
        text.replace("[project.optional-dependencies]", f"{table}\n\n[project.optional-dependencies]", 1),
        encoding="utf-8",
    )


if __name__ == "__main__":
    main(Path(), *sys.argv[1:3])
