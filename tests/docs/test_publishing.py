"""What is published: links that work on the index, a release that is checked before, forms for issues."""

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import yaml

from tests.cli_page import sections

ROOT = Path(__file__).parents[2]
SOURCE, TAG = "https://git.example.com/team/composable-memory", "v0.1.0"


def test_links_of_a_release_are_absolute_and_lead_to_files_of_its_tag(tmp_path: Path) -> None:
    for name in ("README.md", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path / name)

    script = ROOT / ".github" / "index_links.py"
    subprocess.run([sys.executable, script, SOURCE, TAG], cwd=tmp_path, check=True, timeout=60)

    text = (tmp_path / "README.md").read_text(encoding="utf-8")
    links = re.findall(r"\]\(([^)]+)\)", text)
    places = [one.removeprefix(f"{SOURCE}/blob/{TAG}/").partition("#")[0] for one in links if SOURCE in one]
    assert all(re.match("https?://|#", one) for one in links)
    assert len(places) > 20
    assert [one for one in places if not (ROOT / one).exists()] == []
    before = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    after = tomllib.loads((tmp_path / "pyproject.toml").read_text(encoding="utf-8"))
    urls = after["project"].pop("urls")
    assert urls.keys() == {"Source", "Documentation", "Changelog", "Issues"}
    assert all(one.startswith(SOURCE) for one in urls.values())
    assert after == before


def test_a_release_is_uploaded_only_after_the_checks_of_every_change() -> None:
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "release.yml").read_text(encoding="utf-8"))
    jobs = workflow["jobs"]

    assert {"run": ".ci/run"} in jobs["check"]["steps"]
    assert (ROOT / ".ci" / "run").is_file()
    assert set(jobs["publish"]["needs"]) == {"check", "build"}
    assert workflow["permissions"] == {"contents": "read"}
    assert [name for name, job in jobs.items() if "id-token" in job.get("permissions", {})] == ["publish"]
    assert all(job["timeout-minutes"] for job in jobs.values())


def test_the_forms_for_issues_ask_for_commands_that_there_are() -> None:
    forms = [path.read_text(encoding="utf-8") for path in (ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml")]
    page = "\n".join(sections().values())

    assert len(forms) == 2
    for form in forms:
        assert yaml.safe_load(form)["body"]
        for command in re.findall(r"`cmem ([^`]+)`", form):
            assert all(option in page for option in re.findall(r"--[a-z-]+", command)), command
        for place in re.findall(r"(?:docs/\S+|[A-Z]+)\.md", form):
            assert (ROOT / place).is_file()
