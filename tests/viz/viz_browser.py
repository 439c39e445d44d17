"""A headless Chromium driven over its debugging pipe: JSON messages that end with a zero byte, no library
needed."""

import base64
import json
import os
import select
import shutil
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import Any

PROGRAMS = ("chromium", "chromium-browser", "google-chrome", "chrome")


def find_chromium() -> str | None:
    """Path of an installed Chromium, if any."""
    return next((path for name in PROGRAMS if (path := shutil.which(name))), None)


class Page:
    """One page of one browser; use as a context manager."""

    def __init__(self, url: str, folder: Path, width: int = 1400, height: int = 900) -> None:
        program = find_chromium()
        assert program is not None
        to_browser, self._write = os.pipe()
        self._read, from_browser = os.pipe()
        command = [program, "--headless=new", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe"]
        command += [
            f"--user-data-dir={folder}",
            f"--window-size={width},{height}",
            "--no-first-run",
            "about:blank",
        ]

        def wire() -> None:
            # Through high numbers first: 3 and 4 may be taken by the very pipes that are to become 3 and 4.
            reading, writing = os.dup2(to_browser, 100), os.dup2(from_browser, 101)
            os.dup2(reading, 3)
            os.dup2(writing, 4)

        self._process = subprocess.Popen(
            command, preexec_fn=wire, close_fds=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        os.close(to_browser)
        os.close(from_browser)
        self._buffer = b""
        self._number = 0
        self._session: str | None = None
        self.requests: list[str] = []
        self.problems: list[str] = []
        targets = self.call("Target.getTargets")["targetInfos"]
        target = next(t["targetId"] for t in targets if t["type"] == "page")
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )
        self.call("Page.navigate", url=url)
        self.wait("document.readyState === 'complete'")

    def __enter__(self) -> "Page":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.terminate()
        self._process.wait(20)
        os.close(self._read)
        os.close(self._write)

    def call(self, method: str, timeout: float = 60.0, **params: Any) -> Any:
        """Send a command and wait for its answer."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        end = time.monotonic() + timeout
        while True:
            answer = self._next(end)
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                return answer["result"]

    def _next(self, end: float) -> Any:
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._read], [], [], max(0.0, end - time.monotonic()))
            assert ready, "the browser does not answer"
            piece = os.read(self._read, 1 << 20)
            assert piece, "the browser has ended"
            self._buffer += piece
        raw, self._buffer = self._buffer.split(b"\0", 1)
        message = json.loads(raw)
        method, params = message.get("method"), message.get("params", {})
        if method == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])
        elif method == "Runtime.exceptionThrown":
            self.problems.append(json.dumps(params["exceptionDetails"])[:500])
        elif method == "Log.entryAdded" and params["entry"]["level"] == "error":
            self.problems.append(params["entry"]["text"])
        return message

    def value(self, expression: str) -> Any:
        """Value of a JavaScript expression."""
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in result, result["exceptionDetails"]
        return result["result"].get("value")

    def wait(self, condition: str, timeout: float = 60.0) -> None:
        """Wait until a JavaScript condition holds."""
        end = time.monotonic() + timeout
        while not self._holds(condition):
            assert time.monotonic() < end, f"still not: {condition}"
            time.sleep(0.05)

    def _holds(self, condition: str) -> bool:
        """Whether a condition holds; not while the page gives way to another, which the browser says as an error."""
        try:
            return bool(self.value(condition))
        except AssertionError as error:
            if "navigated" not in str(error):
                raise
            return False

    def mouse(self, kind: str, x: float, y: float, **more: Any) -> None:
        """A mouse event: mousePressed, mouseMoved, mouseReleased or mouseWheel."""
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)

    def click(self, x: float, y: float, count: int = 1) -> None:
        """Click (or double-click) at a point."""
        for number in range(1, count + 1):
            self.mouse("mousePressed", x, y, button="left", clickCount=number)
            self.mouse("mouseReleased", x, y, button="left", clickCount=number)

    def screenshot(self, path: Path) -> bytes:
        """Write a PNG picture of the page and return its bytes."""
        data = base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"])
        path.write_bytes(data)
        return data
