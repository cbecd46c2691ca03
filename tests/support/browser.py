"""A real Chromium, controlled by its DevTools protocol over two pipes: no driver, port or library."""

from __future__ import annotations

import base64
import contextlib
import fcntl
import json
import os
import select
import shutil
import signal
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

BROWSER = next(filter(None, map(shutil.which, ("chromium-headless-shell", "chromium", "chromium-browser"))), None)

FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-extensions",
    "--no-first-run", "--no-default-browser-check",
)  # fmt: skip


class BrowserError(Exception):
    """The browser did not answer in time, or a test's script raised an exception."""


class BrowserPage:
    """One tab."""

    def __init__(self, commands: int, answers: int, timeout_s: float = 60) -> None:
        self._commands, self._answers, self._timeout_s = commands, answers, timeout_s
        self._buffer = b""
        self._number = 0
        self._session = ""
        self.events: list[dict[str, Any]] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self.call("Page.bringToFront")  # the first tab would take the frames, and a screenshot would never end
        for domain in ("Page", "Runtime", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: object) -> dict[str, Any]:
        """Send a command and return its result; earlier events are added to ``events``."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._commands, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._read(time.monotonic() + self._timeout_s)
            if answer.get("id") == self._number:
                if "error" in answer:
                    raise BrowserError(f"{method}: {answer['error']}")
                return dict(answer["result"])
            self.events.append(answer)

    def _read(self, deadline: float) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._answers], [], [], max(0.0, deadline - time.monotonic()))
            piece = os.read(self._answers, 1 << 20) if ready else b""
            if not piece:
                raise BrowserError("the browser does not answer")
            self._buffer += piece
        message, _, self._buffer = self._buffer.partition(b"\0")
        return dict(json.loads(message))

    def open(self, page: Path, fragment: str = "") -> None:
        """Open a file and wait until it has loaded."""
        for address in ("about:blank", page.as_uri() + fragment):  # a fragment alone loads nothing
            self.events.clear()
            self.call("Page.navigate", url=address)
            while not any(event.get("method") == "Page.loadEventFired" for event in self.events):
                self.events.append(self._read(time.monotonic() + self._timeout_s))

    def run(self, script: str) -> Any:
        """Return the value of an expression or of its promise."""
        answer = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if details := answer.get("exceptionDetails"):
            raise BrowserError(str(details.get("exception", {}).get("description", details)))
        return answer["result"].get("value")

    def screen(self, width: int, height: int, *, dark: bool = False, media: str = "screen") -> None:
        """Set the size of the window (CSS pixels), the colour scheme and the medium."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1,
                  mobile=False)  # fmt: skip
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", media=media, features=[scheme])

    def press(self, key: str, *, shift: bool = False) -> None:
        """Press a key, named as in DOM: Tab, Enter, Escape, ArrowDown."""
        code = {"Tab": 9, "Enter": 13, "Escape": 27, " ": 32, "ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39,
                "ArrowDown": 40}[key]  # fmt: skip
        more: Mapping[str, Any] = {"text": "\r"} if key == "Enter" else {"text": " "} if key == " " else {}
        common = {"key": key, "code": key, "windowsVirtualKeyCode": code, "modifiers": 8 if shift else 0}
        self.call("Input.dispatchKeyEvent", type="keyDown", **common, **more)
        self.call("Input.dispatchKeyEvent", type="keyUp", **common)

    def type(self, text: str) -> None:
        """Type into the focused element."""
        self.call("Input.insertText", text=text)

    def picture(self, path: Path, *, full: bool = False) -> None:
        """Write a screenshot."""
        answer = self.call("Page.captureScreenshot", captureBeyondViewport=full, **(
            {"clip": {"x": 0, "y": 0, "width": self.run("document.documentElement.clientWidth"),
                      "height": self.run("document.documentElement.scrollHeight"), "scale": 1}} if full else {}
        ))  # fmt: skip
        path.write_bytes(base64.b64decode(answer["data"]))

    def pdf(self) -> bytes:
        """Return the page as printed on A4."""
        self.call("Emulation.setEmulatedMedia", media="print")
        answer = self.call("Page.printToPDF", printBackground=True, paperWidth=8.27, paperHeight=11.69)
        return base64.b64decode(answer["data"])

    def errors(self) -> list[str]:
        """Return the console's errors, including refusals by the content security policy."""
        self.run("0")
        texts = []
        for event in self.events:
            if event.get("method") == "Runtime.exceptionThrown":
                texts.append(json.dumps(event["params"]["exceptionDetails"])[:500])
            elif event.get("method") == "Log.entryAdded" and event["params"]["entry"]["level"] == "error":
                texts.append(str(event["params"]["entry"]["text"]))
        return texts


def _high(descriptor: int) -> int:
    """Move a descriptor away from those that the browser uses."""
    moved = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 10)
    os.close(descriptor)
    return moved


@contextlib.contextmanager
def browser(profile: Path, *flags: str) -> Iterator[BrowserPage]:
    """Yield a tab of a browser that ends with the block."""
    assert BROWSER is not None
    to_read, to_write, from_read, from_write = (_high(end) for _ in range(2) for end in os.pipe())
    command = [BROWSER, *FLAGS, *flags, "--remote-debugging-pipe", f"--user-data-dir={profile}", "about:blank"]
    nowhere = (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0)
    # The browser reads commands from descriptor 3 and writes to 4.
    ends = [(os.POSIX_SPAWN_DUP2, to_read, 3), (os.POSIX_SPAWN_DUP2, from_write, 4)]
    process = os.posix_spawn(BROWSER, command, os.environ, file_actions=[nowhere, *ends])
    os.close(to_read)
    os.close(from_write)
    try:
        yield BrowserPage(to_write, from_read)
    finally:
        os.kill(process, signal.SIGKILL)
        os.waitpid(process, 0)
        os.close(to_write)
        os.close(from_read)
