"""The files of `deploy/` and the page about services suit the program, and linters find no fault."""

import json
import os
import plistlib
import re
import shlex
import shutil
import socket
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
import typer.main

from composable_memory.cli import app
from composable_memory.cli.serve import DEFAULT_HOST, DEFAULT_PORT
from composable_memory.config.layers import load_settings

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
UNIT = DEPLOY / "cmem-watch@.service"
REFLECT = DEPLOY / "cmem-reflect@.service"
SERVE = DEPLOY / "cmem-serve@.service"
PAGE = (ROOT / "docs" / "service.md").read_text(encoding="utf-8")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
SHELL = [
    shlex.split(line, comments=True)
    for block in re.findall(r"^ *```sh\n(.*?)^ *```", PAGE, re.M | re.S)
    for line in block.replace("\\\n", " ").splitlines()
]
CALLS = [
    shlex.split(words, comments=True)
    for words in re.findall(r"\b(?:cmem|composable-memory) (?!cmem )([a-z][^`\n]*)", PAGE)
]
SHUT_OFF = {"--init", "--read-only", "--cap-drop ALL", "--security-opt no-new-privileges", "--network none"}
MOST_EXPOSED = 10
"""In tenths: systemd calls anything below 2.0 safe, and a unit without any of its options has 9.6."""


def instructions() -> list[tuple[str, str]]:
    """Return the instructions of the Dockerfile with what follows them."""
    text = re.sub(r"^ *#.*\n", "", (DEPLOY / "Dockerfile").read_text(encoding="utf-8"), flags=re.M)
    lines = re.sub(r"\\\n\s*", "", text).splitlines()
    return [(words[0], words[1]) for line in lines if (words := line.split(maxsplit=1))]


def last(name: str) -> str:
    """Return what the image ends up with of an instruction."""
    return [rest for each, rest in instructions() if each == name][-1]


def health_check() -> list[str]:
    return list(json.loads(last("HEALTHCHECK").partition("CMD ")[2]))


def unit_values(text: str, key: str) -> list[str]:
    return re.findall(rf"^{key}=(.*)$", text, re.M)


def user_unit() -> str:
    return SERVE.read_text(encoding="utf-8")


def agent() -> dict[str, object]:
    """Return what launchd is to be told."""
    (text,) = re.findall(r"^```xml\n(.*?)^```", PAGE, re.M | re.S)
    told: dict[str, object] = plistlib.loads(text.encode())
    return told


def started() -> Iterator[tuple[str, list[str]]]:
    """Yield every command line that is started by something, with its place."""
    yield "CMD", json.loads(last("CMD"))
    check = health_check()
    yield "HEALTHCHECK", check[check.index("cmem") + 1 :]
    yield "system unit", unit_values(UNIT.read_text(encoding="utf-8"), "ExecStart")[0].split()[1:]
    yield "reflecting unit", unit_values(REFLECT.read_text(encoding="utf-8"), "ExecStart")[0].split()[1:]
    yield "user unit", unit_values(user_unit(), "ExecStart")[0].split()[1:]
    yield "launchd", agent()["ProgramArguments"][1:]  # type: ignore[index]


def check_usage(words: Sequence[str]) -> None:
    """Read a command line as `cmem` does, without doing what it says."""
    command, name, context, rest = typer.main.get_command(app), "cmem", None, list(words)
    while hasattr(command, "resolve_command"):
        context = command.make_context(name, list(rest), parent=context)
        name, command, rest = command.resolve_command(context, rest)
    command.make_context(name, rest, parent=context)


def tool(name: str) -> str:
    """Return the path of a program, beside this Python or elsewhere."""
    found = shutil.which(name, path=str(Path(sys.executable).parent)) or shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed")
    return found


def said_by(*command: str, folder: Path) -> tuple[int, str]:
    """Return the exit code and the words of a linter; `folder` is where it may keep something."""
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=60, check=False, env={"XDG_RUNTIME_DIR": str(folder)}
    )
    return done.returncode, (done.stdout + done.stderr).strip()


@pytest.fixture
def analyze(tmp_path: Path) -> str:
    """Return the path of a `systemd-analyze` that knows what is asked of it here, as it does since 250."""
    found = tool("systemd-analyze")
    if "--recursive-errors" not in said_by(found, "--help", folder=tmp_path)[1]:
        pytest.skip("systemd is older than 250")
    return found


@pytest.fixture(params=["system", "reflecting", "user"])
def unit(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, Path]:
    """Return whose unit it is, and a copy that starts something which is there."""
    file = {"system": UNIT, "reflecting": REFLECT, "user": SERVE}[request.param]
    text = file.read_text(encoding="utf-8")
    copy = tmp_path / file.name
    copy.write_text(re.sub(r"^ExecStart=\S+", f"ExecStart={sys.executable}", text, flags=re.M), "utf-8")
    if file == REFLECT:
        shutil.copy(REFLECT.with_suffix(".timer"), tmp_path)
    if file == SERVE:
        shutil.copy(SERVE.with_suffix(".socket"), tmp_path)
    return "user" if request.param == "user" else "system", copy


def test_hadolint_finds_no_fault(tmp_path: Path) -> None:
    assert said_by(tool("hadolint"), str(DEPLOY / "Dockerfile"), folder=tmp_path) == (0, "")


def test_systemd_finds_no_fault(analyze: str, unit: tuple[str, Path]) -> None:
    whose, copy = unit

    found = said_by(analyze, f"--{whose}", "--recursive-errors=no", "verify", str(copy), folder=copy.parent)

    assert found == (0, "")


@pytest.mark.parametrize("unit", [UNIT, REFLECT], ids=["watching", "reflecting"])
def test_systemd_calls_the_system_units_safe(analyze: str, tmp_path: Path, unit: Path) -> None:
    options = ("--offline=yes", "--no-pager", f"--threshold={MOST_EXPOSED}")

    code, report = said_by(analyze, "security", *options, str(unit), folder=tmp_path)

    assert code == 0, report


def test_systemd_finds_no_fault_with_the_socket(analyze: str, tmp_path: Path) -> None:
    text = re.sub(r"^ExecStart=\S+", f"ExecStart={sys.executable}", user_unit(), flags=re.M)
    (tmp_path / SERVE.name).write_text(text, "utf-8")
    port = shutil.copy(SERVE.with_suffix(".socket"), tmp_path)

    found = said_by(analyze, "--user", "--recursive-errors=no", "verify", str(port), folder=tmp_path)

    assert found == (0, "")
    (address,) = unit_values(Path(port).read_text("utf-8"), "ListenStream")
    assert address == f"{DEFAULT_HOST}:{DEFAULT_PORT}"


def test_the_timer_starts_the_unit_of_its_name_every_night() -> None:
    timer = REFLECT.with_suffix(".timer").read_text(encoding="utf-8")

    assert not unit_values(timer, "Unit")
    assert unit_values(timer, "OnCalendar") == ["*-*-* 03:30"]
    assert unit_values(timer, "WantedBy") == ["timers.target"]
    (paths,) = unit_values(REFLECT.read_text(encoding="utf-8"), "BindPaths")
    assert paths == "%f/bank"


@pytest.mark.parametrize("words", [pytest.param(words, id=place) for place, words in started()])
def test_what_is_started_is_a_command_that_watches_or_looks(words: list[str]) -> None:
    check_usage(words)


@pytest.mark.parametrize("words", CALLS, ids=" ".join)
def test_a_command_on_the_page_is_one_of_the_program(words: list[str]) -> None:
    check_usage(words)


def test_every_container_on_the_page_is_shut_off() -> None:
    runs = [" ".join(words) for words in SHELL if words[:2] == ["docker", "run"]]

    assert runs
    assert [sorted(flag for flag in SHUT_OFF if flag not in run) for run in runs] == [[]] * len(runs)
    assert all(":/notes:ro" in run and ":/state" in run for run in runs)


def test_the_image_ends_as_a_number_that_is_not_root_and_that_owns_the_state_folder() -> None:
    user, _, group = last("USER").partition(":")
    made = last("RUN")

    assert int(user) > 0
    assert {f"--owner={user}", f"--group={group}", "--mode=0700", "/state"} <= set(made.split())
    assert "COMPOSABLE_MEMORY_STATE_DIR=/state" in last("ENV").split()


def test_the_image_has_a_python_that_the_project_supports_and_no_registry_is_named() -> None:
    images = [rest.split()[0] for name, rest in instructions() if name == "FROM"]
    versions = {re.fullmatch(r"python:(\d\.\d+)(-slim)?", image)[1] for image in images}  # type: ignore[index]

    assert len(versions) == 1
    assert f"Programming Language :: Python :: {versions.pop()}" in PROJECT["project"]["classifiers"]
    assert images[-1].endswith("-slim")


def test_exactly_what_the_wheel_is_made_of_reaches_the_build() -> None:
    wheel = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]
    project = PROJECT["project"]
    needed = {
        "pyproject.toml",
        project["readme"],
        *project["license-files"],
        *(package.split("/")[0] for package in wheel["packages"]),
        *wheel["force-include"],
    }
    lines = (DEPLOY / "Dockerfile.dockerignore").read_text(encoding="utf-8").splitlines()

    assert next(line for line in lines if not line.startswith("#")) == "*"
    assert {line[1:] for line in lines if line.startswith("!")} == needed


@pytest.mark.skipif(sys.platform != "linux", reason="systemd is there on Linux alone")
def test_what_the_units_wait_for_is_said(tmp_path: Path) -> None:
    heard, notes = tmp_path / "notify", tmp_path / "notes"
    notes.mkdir()
    environ = {"NOTIFY_SOCKET": str(heard), "COMPOSABLE_MEMORY_STATE_DIR": str(tmp_path / "state")}
    command = [sys.executable, "-m", "composable_memory.cli", "watch", "--workspace", str(notes)]
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(heard))
        manager.settimeout(60)
        with subprocess.Popen(command, env={**os.environ, **environ}, stdout=subprocess.DEVNULL) as service:
            try:
                said = manager.recv(100)
            finally:
                service.terminate()

    assert [unit_values(text, "Type") for text in (user_unit(), UNIT.read_text("utf-8"))] == [["notify"]] * 2
    assert (said, service.returncode) == (b"READY=1", 0)


def test_the_unit_writes_where_systemd_lets_it() -> None:
    text = UNIT.read_text(encoding="utf-8")
    (folder,) = unit_values(text, "StateDirectory")

    assert f"COMPOSABLE_MEMORY_STATE_DIR=%S/{folder}" in unit_values(text, "Environment")


def test_the_variables_of_the_page_and_of_the_health_check_are_read(tmp_path: Path) -> None:
    (lines,) = re.findall(r"^```properties\n(.*?)^```", PAGE, re.M | re.S)
    shown = [*lines.splitlines(), *re.findall(r"`(COMPOSABLE_MEMORY__[^`]+)`", PAGE), health_check()[1]]
    environ = dict(line.split("=", 1) for line in shown)
    environ["COMPOSABLE_MEMORY_CONFIG"] = str(tmp_path / "config.yaml")
    (tmp_path / "config.yaml").write_text("", encoding="utf-8")

    loaded = load_settings(tmp_path, environ=environ)

    read = {origin.variable for origin in loaded.origins.values()}
    assert read == {name for name in environ if "__" in name}


def test_the_page_installs_files_that_are_there() -> None:
    named = {word for words in SHELL for word in words if word.startswith("deploy/")}

    units = {"deploy/cmem-watch@.service", "deploy/cmem-reflect@.service", "deploy/cmem-reflect@.timer"}
    units |= {"deploy/cmem-serve@.service", "deploy/cmem-serve@.socket"}
    assert named == {"deploy/Dockerfile", *units}
    assert all((ROOT / name).is_file() for name in named)
