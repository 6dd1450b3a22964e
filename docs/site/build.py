"""Build the site: `python -m docs.site.build FOLDER BUILDER`, as `make docs` does; fails on a dead link.

The pages are those of docs/, some READMEs, and what `reference.py` makes out of the code. A link to a file of
the project that is no page becomes plain text.
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath

import yaml

from docs.site.reference import pages as reference_pages

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
FILES = "ARCHITECTURE CHANGELOG CONTRIBUTING SECURITY"
FOLDERS = "adapters benchmarks deploy examples feedback ops_logs"
ELSEWHERE = {f"{name}.md": f"project/{name.lower()}.md" for name in FILES.split()}
ELSEWHERE |= {f"{name}/README.md": f"project/{name.replace('_', '-')}.md" for name in FOLDERS.split()}
"""Pages outside docs/ by their place on the site."""
FENCE = re.compile(r"(^ *```.*?^ *```)", re.M | re.S)
LINK = re.compile(r"\[((?:[^\[\]]|\[[^\]]*\])*)\]\((?!https?://|mailto:|#)([^)#\s]+)((?:#[^)\s]*)?)\)")
FETCHED = re.compile(
    r"(?:<(?!a\b)[a-z]+\b[^>]*\b(?:src|srcset|href|data|action)=[\"']?|url\([\"']?|@import\s*[\"'])((?:https?:)?//[^\"'\s>)]+)"
)


def gathered() -> dict[str, str]:
    """Return the text of each page by its place on the site."""
    files = (path.relative_to(ROOT).as_posix() for path in DOCS.rglob("*.md"))
    places = {file: file.removeprefix("docs/") for file in files} | ELSEWHERE
    return {
        place: _on_the_site(source, place, places) for source, place in places.items()
    } | reference_pages()


def _on_the_site(source: str, place: str, places: Mapping[str, str]) -> str:
    def link(match: re.Match[str]) -> str:
        aim = os.path.normpath(PurePosixPath(source).parent / match[2])
        aim = {"README.md": "docs/index.md"}.get(aim, aim)
        if aim.startswith("docs/") and aim.endswith(".png"):
            return f"[{match[1]}]({os.path.relpath(aim, PurePosixPath('docs', place).parent)})"
        if aim not in places and (ROOT / aim).exists():
            return match[1]
        return f"[{match[1]}]({os.path.relpath(places.get(aim, aim), PurePosixPath(place).parent)}{match[3]})"

    parts = FENCE.split((ROOT / source).read_text(encoding="utf-8"))
    parts[::2] = [LINK.sub(link, part) for part in parts[::2]]
    return "\n".join(_indented("".join(parts).splitlines())) + "\n"


def _indented(lines: list[str]) -> Iterator[str]:
    """Indent what belongs to an item of a list by four, as the builder wants it."""
    in_list = False
    for line in lines:
        if line and not line.startswith(" "):
            in_list = bool(re.match(r"(?:[-*]|\d+\.) ", line))
        yield f"  {line}" if in_list and line.startswith("  ") else line


def problems(site: Path, pages: Mapping[str, str], menu: str) -> Iterator[str]:
    """Yield each page that is in no menu, and whatever the site would fetch from another host."""
    yield from (f"{page}: in no menu" for page in pages if page not in re.findall(r"[\w/-]+\.md", menu))
    for path in sorted([*site.rglob("*.html"), *site.rglob("*.css")]):
        yield from (f"{path}: fetches {one}" for one in FETCHED.findall(path.read_text(encoding="utf-8")))


def main(folder: Path, builder: str) -> int:
    """Write the pages below `folder`, build the site there, and report what is wrong with it."""
    pages = gathered()
    for place, text in pages.items():
        (folder / "docs" / place).parent.mkdir(parents=True, exist_ok=True)
        (folder / "docs" / place).write_text(text, encoding="utf-8")
    for picture in DOCS.rglob("*.png"):
        target = folder / "docs" / picture.relative_to(DOCS)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(picture, target)
    config = yaml.safe_load((DOCS / "site" / "site.yaml").read_text(encoding="utf-8"))
    (folder / "mkdocs.yml").write_text(yaml.safe_dump(config, sort_keys=False), encoding="utf-8")
    call = [builder, "build", "--strict", "--clean", "-f", folder / "mkdocs.yml"]
    if subprocess.run(call, check=False).returncode:
        return 1
    wrong = list(problems(folder / "site", pages, str(config["nav"])))
    print(*wrong, f"{len(pages)} pages: {folder / 'site' / 'index.html'}", sep="\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2]))
