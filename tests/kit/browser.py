"""Chromium for the tests, driven through its DevTools pipe; needs nothing but the browser."""

from __future__ import annotations

import base64
import fcntl
import json
import os
import select
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

BINARY = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
FLAGS = [
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update", "--disable-dev-shm-usage", "--hide-scrollbars"),
    *("--no-default-browser-check", "--disable-extensions", "--remote-debugging-pipe"),
]
# Chromium reads commands from descriptor 3 and answers on 4.
TRAMPOLINE = (
    "import os, sys; os.dup2(int(sys.argv[1]), 3); os.dup2(int(sys.argv[2]), 4); os.execv(sys.argv[3], sys.argv[3:])"
)
KEYS = {
    "Enter": (13, "\r"),
    "Escape": (27, ""),
    "Tab": (9, ""),
    "ArrowDown": (40, ""),
    "ArrowUp": (38, ""),
    "ArrowLeft": (37, ""),
    "ArrowRight": (39, ""),
    "Home": (36, ""),
    "End": (35, ""),
    " ": (32, " "),
}


class NoBrowserError(Exception):
    """The program exists but does not start as a browser here (a stub, a container without rights)."""


class Browser:
    """One browser with one tab; `errors`, `requests` and `alerts` collect what the page did."""

    def __init__(self, profile: Path) -> None:
        assert BINARY
        ours = [self._high(descriptor) for descriptor in (*os.pipe(), *os.pipe())]
        theirs_in, self._write, self._read, theirs_out = ours
        command = [sys.executable, "-c", TRAMPOLINE, str(theirs_in), str(theirs_out), BINARY, *FLAGS]
        self.process = subprocess.Popen(
            [*command, f"--user-data-dir={profile}", "about:blank"],
            pass_fds=(theirs_in, theirs_out),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(theirs_in)
        os.close(theirs_out)
        self._buffer, self._count, self._session = b"", 0, None
        self.errors: list[str] = []
        self.requests: list[str] = []
        self.alerts: list[str] = []
        try:
            self._attach()
        except (OSError, TimeoutError, EOFError) as error:
            self.close()
            raise NoBrowserError(f"{BINARY} does not start here ({error})") from error

    def _attach(self) -> None:
        pages = self.call("Target.getTargets")["targetInfos"]
        page = next(target["targetId"] for target in pages if target["type"] == "page")
        self._session = self.call("Target.attachToTarget", targetId=page, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")

    @staticmethod
    def _high(descriptor: int) -> int:
        """The same descriptor with a number other than 3 or 4."""
        high = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 10)
        os.close(descriptor)
        return high

    def close(self) -> None:
        try:
            self._session = None
            self.call("Browser.close", timeout=10)
            self.process.wait(20)
        except (OSError, TimeoutError, EOFError, subprocess.TimeoutExpired):
            self.process.kill()
            self.process.wait()
        os.close(self._write)
        os.close(self._read)

    # --- the protocol

    def call(self, method: str, timeout: float = 60, **parameters: Any) -> dict[str, Any]:
        """Send one command and return its answer; events that arrive before it are noted."""
        self._count += 1
        message: dict[str, Any] = {"id": self._count, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + timeout
        while True:
            answer = self._next(deadline)
            if answer.get("id") == self._count:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']['message']}")
                return answer["result"]
            self._note(answer)

    def _next(self, deadline: float) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            if not select.select([self._read], [], [], max(0, deadline - time.monotonic()))[0]:
                raise TimeoutError("the browser does not answer")
            if not (chunk := os.read(self._read, 1 << 20)):
                raise EOFError("the browser has gone")
            self._buffer += chunk
        message, _, self._buffer = self._buffer.partition(b"\0")
        return json.loads(message)

    def _note(self, event: dict[str, Any]) -> None:
        found = event.get("params", {})
        match event.get("method"):
            case "Runtime.exceptionThrown":
                self.errors.append(json.dumps(found["exceptionDetails"]))
            case "Runtime.consoleAPICalled" if found["type"] in ("error", "warning", "assert"):
                self.errors.append(json.dumps(found["args"]))
            case "Log.entryAdded" if found["entry"]["level"] in ("error", "warning"):
                self.errors.append(found["entry"]["text"])
            case "Network.requestWillBeSent":
                self.requests.append(found["request"]["url"])
            case "Page.javascriptDialogOpening":
                self.alerts.append(found["message"])

    # --- reader actions

    def open(self, page: Path, chosen: str = "") -> None:
        """Load a page afresh, with what comes after # in its address."""
        self.call("Page.navigate", url="about:blank")  # another # alone would not load it again
        self.until("location.protocol === 'about:'")
        self.errors, self.requests, self.alerts = [], [], []
        self.call("Page.navigate", url=page.as_uri() + (f"#{chosen}" if chosen else ""))
        self.until("document.readyState === 'complete' && location.protocol === 'file:'")

    def run(self, expression: str) -> Any:
        """The value of a JavaScript expression in the page."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(json.dumps(answer["exceptionDetails"]))
        return answer["result"].get("value")

    def until(self, condition: str, seconds: float = 20) -> None:
        deadline = time.monotonic() + seconds
        while not self.run(condition):
            if time.monotonic() > deadline:
                raise TimeoutError(condition)
            time.sleep(0.05)

    def click(self, selector: str) -> None:
        """A real click into the middle of an element."""
        x, y = self._middle(selector)
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def hover(self, selector: str) -> None:
        """Move the mouse to the middle of an element."""
        x, y = self._middle(selector)
        self.run("new Promise(done => requestAnimationFrame(() => setTimeout(done)))")  # events of the scrolling
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def choose(self, selector: str, value: str) -> None:
        """Choose an option of a select element by its value."""
        self.run(
            f"(() => {{ const e = document.querySelector({json.dumps(selector)}); e.value = {json.dumps(value)};"
            "e.dispatchEvent(new Event('change', {bubbles: true})); })()"
        )

    def _middle(self, selector: str) -> list[float]:
        return self.run(
            f"(() => {{ const e = document.querySelector({json.dumps(selector)});"
            "e.scrollIntoView({block: 'center', behavior: 'instant'}); const r = e.getBoundingClientRect();"
            "return [r.x + r.width / 2, r.y + r.height / 2]; })()"
        )

    def press(self, key: str, *, shift: bool = False) -> None:
        """One key, as the keyboard sends it to whatever has the focus."""
        code, text = KEYS[key]
        about: dict[str, Any] = {"key": key, "code": key, "windowsVirtualKeyCode": code, "modifiers": 8 if shift else 0}
        self.call(
            "Input.dispatchKeyEvent",
            type="keyDown" if text else "rawKeyDown",
            **about,
            **({"text": text} if text else {}),
        )
        self.call("Input.dispatchKeyEvent", type="keyUp", **about)

    def type(self, text: str) -> None:
        self.call("Input.insertText", text=text)

    def size(self, width: int, height: int, *, phone: bool = False) -> None:
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=phone)

    def scheme(self, name: str) -> None:
        """The colour scheme that the system prefers: light or dark."""
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": name}])

    def picture(self, *, whole: bool = False) -> bytes:
        answer = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        return base64.b64decode(answer["data"])

    def pdf(self) -> bytes:
        return base64.b64decode(self.call("Page.printToPDF", timeout=300, printBackground=True)["data"])
