"""A browser for tests: Debian's Chromium over the pipe of DevTools, with an end to every wait."""

import base64
import json
import os
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

AXE = Path(sys.prefix, "axe/node_modules/axe-core/axe.min.js")
"""`make axe` puts it there."""
ANSWER_S = 100.0
"""No command takes so long, even on a slow machine."""
KEYS = {"Enter": ("Enter", 13, "\r"), "Tab": ("Tab", 9, ""), "ArrowRight": ("ArrowRight", 39, "")}


def executable() -> str | None:
    """Return the browser of this machine, if it has one that starts."""
    program = shutil.which("chromium")
    asked = [program or "false", "--version"]
    ends = subprocess.run(asked, capture_output=True, check=False, timeout=ANSWER_S).returncode
    return program if ends == 0 else None


@contextmanager
def browser(profile: Path) -> Iterator["Page"]:
    """Yield a page of a browser that ends with the block."""
    program = executable()
    assert program is not None
    to_child, ours = os.pipe()
    theirs, from_child = os.pipe()
    flags = [
        "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
        "--disable-extensions", "--disable-background-networking", "--remote-debugging-pipe",
        "--hide-scrollbars", f"--user-data-dir={profile}", "about:blank",
    ]  # fmt: skip
    # The browser reads its commands from 3 and writes to 4.
    moved = f'exec 8<&{to_child} 9>&{from_child} 3<&8 4>&9 8<&- 9>&-; exec "$@"'
    child = subprocess.Popen(
        ["/bin/bash", "-c", moved, "chromium", program, *flags],
        pass_fds=(to_child, from_child),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={"PATH": os.environ["PATH"], "HOME": str(profile), "LANG": "C.UTF-8", "TZ": "UTC"},
        start_new_session=True,
    )
    os.close(to_child)
    os.close(from_child)
    try:
        yield Page(ours, theirs)
    finally:
        os.close(ours)
        os.close(theirs)
        with_children = os.getpgid(child.pid) if child.poll() is None else None
        if with_children is not None:
            os.killpg(with_children, 9)
        child.wait(ANSWER_S)


class Page:
    """One tab, what it asked for on the network, and what its console said."""

    def __init__(self, to_browser: int, from_browser: int) -> None:
        self._out, self._in = to_browser, from_browser
        self._rest, self._number, self._session = b"", 0, ""
        self._loaded = 0
        self.requests: list[str] = []
        self.problems: list[str] = []
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Network", "Runtime", "Log"):
            self.send(f"{domain}.enable")

    def send(self, method: str, **params: object) -> Any:
        """Send a command and return what comes of it."""
        self._number += 1
        message: dict[str, object] = {"id": self._number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        end = time.monotonic() + ANSWER_S
        while True:
            answer = self._next(end)
            if answer.get("id") == self._number:
                assert "error" not in answer, f"{method}: {answer['error']}"
                return answer["result"]

    def open(self, url: str) -> None:
        """Go to an address, and wait until all of it is there."""
        seen = self._loaded
        self.send("Page.navigate", url=url)
        self.wait_loaded(seen)
        self.wait("location.href !== 'about:blank' && document.readyState === 'complete'")

    def wait_loaded(self, seen: int) -> None:
        """Wait until another page than the `seen`-th is there."""
        end = time.monotonic() + ANSWER_S
        while self._loaded <= seen:
            self._next(end)

    @property
    def loaded(self) -> int:
        """Return how many pages were loaded."""
        return self._loaded

    def run(self, script: str) -> Any:
        """Return the value of an expression in the page; a promise is awaited."""
        done = self.send("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in done, done["exceptionDetails"]
        return done["result"].get("value")

    def wait(self, script: str) -> Any:
        """Wait until an expression is true in the page; return its value."""
        end = time.monotonic() + ANSWER_S
        while not (value := self.run(script)):
            assert time.monotonic() < end, f"never true: {script}"
            select.select([], [], [], 0.05)
        return value

    def write(self, text: str) -> None:
        """Write into the field that has the focus."""
        self.send("Input.insertText", text=text)

    def press(self, *keys: str) -> None:
        """Press keys, one after the other."""
        for key in keys:
            name, code, text = KEYS.get(key, (key, ord(key.upper()[0]), key))
            known = {"key": name, "windowsVirtualKeyCode": code, "text": text}
            self.send("Input.dispatchKeyEvent", type="keyDown" if text else "rawKeyDown", **known)
            self.send("Input.dispatchKeyEvent", type="keyUp", key=name, windowsVirtualKeyCode=code)

    def look(self, *, width: int = 1100, dark: bool = False) -> None:
        """Look as on a screen so wide, by day or by night."""
        self.send(
            "Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False
        )
        feature = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.send("Emulation.setEmulatedMedia", features=[feature])

    def picture(self, file: Path) -> None:
        """Write what is to be seen, all the way down, into a file."""
        drawn = self.send("Page.captureScreenshot", format="png", captureBeyondViewport=True)
        file.write_bytes(base64.b64decode(drawn["data"]))

    def hosts(self) -> set[str]:
        """Return whom the page asked for anything."""
        return {urlsplit(one).netloc for one in self.requests if urlsplit(one).scheme not in ("data", "file")}

    def _next(self, end: float) -> dict[str, Any]:
        while b"\0" not in self._rest:
            left = end - time.monotonic()
            assert select.select([self._in], [], [], max(left, 0.0))[0], "the browser does not answer"
            part = os.read(self._in, 1 << 20)
            assert part, "the browser has ended"
            self._rest += part
        line, _, self._rest = self._rest.partition(b"\0")
        message: dict[str, Any] = json.loads(line)
        self._hear(message.get("method", ""), message.get("params", {}))
        return message

    def _hear(self, event: str, told: dict[str, Any]) -> None:
        if event == "Page.loadEventFired":
            self._loaded += 1
        elif event == "Network.requestWillBeSent":
            self.requests.append(told["request"]["url"])
        elif event == "Runtime.exceptionThrown":
            self.problems.append(str(told["exceptionDetails"]))
        elif event == "Runtime.consoleAPICalled" and told["type"] in ("error", "warning"):
            self.problems.append(str(told["args"]))
        elif event == "Log.entryAdded" and told["entry"]["level"] in ("error", "warning"):
            self.problems.append(f"{told['entry']['text']} {told['entry'].get('url', '')}")
