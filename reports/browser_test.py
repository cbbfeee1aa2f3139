"""The page in a browser, as MLflow shows it: a blob in a sandboxed frame (K3). Needs Debian's chromium."""

import json
import os
import pathlib
import re
import shutil
import subprocess
from typing import Any

import pytest
from matplotlib import image

from reports.page import render
from reports.sample_run import write_sample_run

_FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--virtual-time-budget=4000",
)
_PROBE = """<script>
const box = (element) => element.getBoundingClientRect();
parent.postMessage({
  heading: document.querySelector("h1").innerText,
  banner: getComputedStyle(document.querySelector(".banner .word")).color,
  pictures: [...document.querySelectorAll("figure svg")].map((svg) => box(svg).width > 100 && box(svg).height > 20),
  images: [...document.querySelectorAll("svg image")].length,
  rows: document.querySelectorAll("tbody tr").length,
  overflow: document.documentElement.scrollWidth - document.documentElement.clientWidth,
  sticky: getComputedStyle(document.querySelector("nav")).position,
}, "*");
</script>"""


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> str:
    return render(write_sample_run(tmp_path_factory.mktemp("runs") / "tiny")).read_text()


def _chromium(folder: pathlib.Path, html: str, *flags: str) -> str:
    """Opens a page and returns the document that came of it; fails where there is no browser."""
    browser = shutil.which("chromium") or "/usr/bin/chromium"
    assert os.access(browser, os.X_OK), "this test needs Debian's chromium: apt-get install chromium"
    (folder / "outer.html").write_text(html)
    command = [browser, *_FLAGS, f"--user-data-dir={folder / 'profile'}", *flags, (folder / "outer.html").as_uri()]
    done = subprocess.run(
        command, env={**os.environ, "HOME": str(folder)}, capture_output=True, text=True, timeout=120, check=True
    )
    return done.stdout


def _framed(page: str, *, width: int) -> str:
    """What MLflow does with an HTML artifact: a frame that may run scripts and is otherwise locked in."""
    text = json.dumps(page).replace("</", "<\\/")
    return f"""<!doctype html><meta charset="utf-8"><style>body {{ margin: 0 }}</style>
<iframe sandbox="allow-scripts" style="border:0;width:{width}px;height:900px"></iframe>
<output>nothing came</output><script>
addEventListener("message", (event) => document.querySelector("output").textContent = JSON.stringify(event.data));
document.querySelector("iframe").src = URL.createObjectURL(new Blob([{text}], {{type: "text/html"}}));
</script>"""


@pytest.mark.parametrize("width", [1280, 400])
def test_the_page_shows_inside_the_sandboxed_frame_at_any_width(page: str, tmp_path: pathlib.Path, width: int) -> None:
    """K3: headless Chromium inside the sandboxed iframe; nothing sticks out at the width of a telephone."""
    # Only the probe may run: the page itself forbids every script.
    opened = page.replace("default-src 'none'", "default-src 'none'; script-src 'unsafe-inline'")
    probed = opened.replace("</body>", f"{_PROBE}</body>")
    dumped = _chromium(tmp_path, _framed(probed, width=width), "--dump-dom", f"--window-size={width},900")
    found: dict[str, Any] = json.loads(re.findall(r"<output>(.*?)</output>", dumped, re.DOTALL)[0])
    assert found["heading"] == "tiny" and found["banner"] == "rgb(11, 107, 79)"
    assert len(found["pictures"]) > 20 and all(found["pictures"]) and found["images"] == 10
    assert found["rows"] > 50 and found["overflow"] <= 0 and found["sticky"] == "sticky"


def test_the_untouched_page_paints_without_script(page: str, tmp_path: pathlib.Path) -> None:
    """K3: readable without JavaScript: the banner's green is on the screen, and so is text."""
    shot = tmp_path / "shot.png"
    _chromium(tmp_path, _framed(page, width=1000), f"--screenshot={shot}", "--window-size=1000,900")
    pixels = image.imread(shot)[..., :3]
    green = (abs(pixels - [11 / 255, 107 / 255, 79 / 255]) < 0.02).all(axis=-1)
    dark = (pixels < 0.3).all(axis=-1)
    assert green.sum() > 1000 and dark.sum() > 1000
