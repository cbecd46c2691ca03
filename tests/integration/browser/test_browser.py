"""The HTML page in a real browser: it sends no request, and fits a desktop and a phone, light and dark."""

from __future__ import annotations

import contextlib
import html
import json
import re
import socketserver
import struct
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from preflight.reports.html_page import render
from tests.support import report_samples as samples
from tests.support.browser import BROWSER, FLAGS

pytestmark = pytest.mark.skipif(BROWSER is None, reason="chromium-headless-shell or chromium is not installed")

DARK, LIGHT = 0, 1  # blink's preferredColorScheme
MEASURE = """<script>
const colour = getComputedStyle(document.body).backgroundColor.match(/[0-9]+/g).map(Number);
const wide = [...document.querySelectorAll('main *')].filter(e => !e.closest('.scroll, pre, svg')
  && e.getBoundingClientRect().right > document.documentElement.clientWidth + 0.5).map(e => e.outerHTML.slice(0, 80));
document.title = JSON.stringify({scroll: document.documentElement.scrollWidth,
  client: document.documentElement.clientWidth, bright: (colour[0] + colour[1] + colour[2]) / 3, wide: wide});
</script>"""


def browse(page: Path, profile: Path, *flags: str) -> str:
    """Open a page, and return what the browser printed."""
    assert BROWSER is not None
    done = subprocess.run(
        [BROWSER, *FLAGS, "--virtual-time-budget=1000", f"--user-data-dir={profile}", *flags, page.as_uri()],
        capture_output=True,
        timeout=90,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode(errors="replace")
    return done.stdout.decode("utf-8")


def measurable(page: str) -> str:
    """Return a copy of the page that may run one script, which writes its measurements into the title."""
    copy = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", page)
    assert copy != page
    opened = copy.replace("<details class", "<details open class")
    return opened.replace("</body>", f"{MEASURE}</body>")


class RequestTrap(socketserver.StreamRequestHandler):
    """Proxy that receives, records and rejects every request."""

    seen: list[str]

    def handle(self) -> None:
        self.seen.append(self.rfile.readline(2000).decode(errors="replace").strip())
        self.wfile.write(b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")


@contextlib.contextmanager
def trap() -> Iterator[tuple[str, list[str]]]:
    """Yield the address of a trap and the list of received request lines."""
    seen: list[str] = []
    handler = type("Handler", (RequestTrap,), {"seen": seen})
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}", seen
        finally:
            server.shutdown()
            thread.join()


def test_makes_no_request(tmp_path: Path) -> None:
    page, leaky = tmp_path / "report.html", tmp_path / "leaky.html"
    text = render(samples.hostile())
    page.write_text(text, "utf-8")
    leaky.write_text('<img src="http://leak.invalid/pixel.png">', "utf-8")
    with trap() as (proxy, seen):
        browse(leaky, tmp_path / "one", f"--proxy-server={proxy}", "--dump-dom")
        assert any("leak.invalid" in line for line in seen)  # the trap catches
        seen.clear()
        dom = browse(page, tmp_path / "two", f"--proxy-server={proxy}", "--dump-dom")
        assert seen == []
    assert dom.count("<script") == 2  # the data, and the page's own
    assert "alert(1)" in dom


@pytest.mark.parametrize(
    ("name", "width", "scheme"),
    [
        pytest.param("sick", 1280, LIGHT, id="sick-desktop-light"),
        pytest.param("sick", 1280, DARK, id="sick-desktop-dark"),
        pytest.param("sick", 375, LIGHT, id="sick-phone-light"),
        pytest.param("sick", 375, DARK, id="sick-phone-dark"),
        pytest.param("hostile", 375, LIGHT, id="hostile-phone-light"),
    ],
)
def test_fits_the_screen(name: str, width: int, scheme: int, tmp_path: Path) -> None:
    page, picture = tmp_path / "report.html", tmp_path / "report.png"
    page.write_text(measurable(render(getattr(samples, name)())), "utf-8")
    dom = browse(
        page,
        tmp_path / "profile",
        f"--window-size={width},1400",
        f"--blink-settings=preferredColorScheme={scheme}",
        f"--screenshot={picture}",
        "--dump-dom",
    )
    title = re.search(r"<title>(\{.*?\})</title>", dom)
    assert title is not None
    found: dict[str, Any] = json.loads(html.unescape(title[1]))
    assert found["client"] == width
    assert found["scroll"] <= width
    assert found["wide"] == []
    assert found["bright"] < 60 if scheme == DARK else found["bright"] > 200
    png = picture.read_bytes()
    assert png.startswith(b"\x89PNG\r\n\x1a\n")
    assert struct.unpack(">II", png[16:24]) == (width, 1400)
    assert len(png) > 20_000  # not a blank sheet
