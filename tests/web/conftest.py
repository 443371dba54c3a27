"""The dashboard in a real Chromium against a real daemon with jobs running. `make test-web` builds it and runs this.

Every page fails its test if the console shows an error, a script throws, or the content security policy is violated."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import pytest

from harness import ROOT, Daemon, daemon, eventually
from swell.web.assets import STATIC

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome") or ""
AXE = ROOT / "web" / "node_modules" / "axe-core" / "axe.min.js"
ARGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
]
IMAGES = Path(os.environ.get("SWELL_IMAGES", ROOT / "out" / "web"))
WIDE, NARROW = {"width": 1440, "height": 860}, {"width": 400, "height": 800}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = [item for item in items if Path(__file__).parent in item.path.parents]
    for item in here:
        item.add_marker(pytest.mark.web)
        if not _has_playwright():
            item.add_marker(pytest.mark.skip(reason="playwright is not installed: `make test-web` installs it"))
        elif not CHROMIUM:
            item.add_marker(pytest.mark.skip(reason="no Chromium here: apt-get install chromium"))
        elif not (STATIC / "index.html").is_file():
            item.add_marker(pytest.mark.skip(reason="the dashboard is not built: make web"))


def _has_playwright() -> bool:
    try:
        return importlib.util.find_spec("playwright") is not None
    except ModuleNotFoundError:
        return False


def training(
    name: str, epochs: int, low: int, high: int, slot_s: float = 2.0, seed: int = 1, **more: Any
) -> dict[str, Any]:
    """A job file of the demo's training, which really trains, reports, stops and resumes."""
    words = ["--width", "8", "--seed", str(seed), "--epochs", str(epochs), "--slot-seconds", str(slot_s)]
    return {
        "name": name,
        "command": [sys.executable, "-m", "swell.demo.trainer", *words],
        "env": {"PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
        "gpus": {"min": low, "max": high},
        "launcher": "per-node",
        "cpus": 0,
        "epochs": epochs,
        "uses_library": True,
        **more,
    }


def printing(script: str, **more: Any) -> dict[str, Any]:
    """A job that runs some Python."""
    return {"name": "printing", "command": [sys.executable, "-u", "-c", script], "gpus": 0, "cpus": 0, **more}


def make_home(path: Path) -> Path:
    path.mkdir(parents=True, exist_ok=True)
    path.chmod(0o700)
    (path / "config.yaml").write_text(
        "options:\n  min_run_s: 1.0\n  quotas: {vision: {gpus: 6}}\n  budgets: {vision: 500}\n"
    )
    return path


@pytest.fixture
def fresh(tmp_path: Path) -> Iterator[Daemon]:
    """A daemon of the test's own, with four slots."""
    with daemon(make_home(tmp_path / "home"), gpus=4, args=("--policy", "elastic-fifo")) as made:
        yield made


@pytest.fixture(scope="session")
def busy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """A daemon with a story: jobs that have grown, shrunk, run, wait, failed and ended. Tests leave its jobs alone."""
    home = make_home(tmp_path_factory.mktemp("busy") / "home")
    with daemon(home, gpus=8, args=("--policy", "elastic-fifo")) as made:
        _add_people(made)
        made.submit(**training("resnet50", 600, 1, 8, 8, user="ada", team="vision"))
        _running(made, 1)
        made.submit(**training("bert-base", 600, 1, 4, 8, 2, user="kim", team="language"))
        _running(made, 2)
        made.submit(**training("whisper-small", 3, 2, 4, 1.5, 3, user="noor", team="speech"))
        made.submit(**training("vit-large", 600, 1, 4, 8, 4, user="ada", team="vision"))
        _running(made, 4)
        made.submit(**training("nightly-eval", 2, 4, 4, 2, 5, priority="high", user="ci"))
        made.submit(name="typo", command="python trian.py", gpus=1, cpus=0, user="kim")
        eventually(lambda: _state(made, 5) == "completed" and _state(made, 6) == "failed", 60, what="two have ended")
        made.submit(**training("gpt-mini", 600, 2, 8, 8, 6, user="noor", team="speech"))
        made.submit(**training("unet-3d", 40, 8, 8, 8, 7, user="kim"))
        made.submit(**training("sweep-lr", 20, 4, 8, 8, 8, user="ada"))
        _running(made, 7)
        yield made


def _add_people(made: Daemon) -> None:
    for name, role, team in (("ada", "admin", "vision"), ("kim", "submitter", "language"), ("noor", "submitter", "")):
        made.request("PUT", f"/v1/users/{name}", {"role": role, "team": team})
    made.post("/v1/tokens", {"user": "ada", "note": "laptop"})
    made.post("/v1/tokens", {"user": "kim", "note": "nightly sweep", "days": 0})


def _state(made: Daemon, job: int) -> str:
    return str(made.get(f"/v1/jobs/{job}")["state"])


def _running(made: Daemon, job: int) -> None:
    eventually(lambda: made.get(f"/v1/jobs/{job}")["progress"]["epochs_done"] > 0 or _state(made, job) == "running", 30)


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGS)
        yield found
        found.close()


class Site(Protocol):
    """What a page needs of a daemon."""

    @property
    def address(self) -> tuple[str, int]: ...
    def post(self, path: str) -> Any: ...


class Visit:
    """A browser with one page, and what its console said."""

    def __init__(self, browser: Any, **options: Any) -> None:
        self.context = browser.new_context(viewport=WIDE, locale="en-GB", timezone_id="UTC", **options)
        self.context.set_default_timeout(15_000)
        self.complaints: list[str] = []
        self.expected: list[str] = []  # patterns: what a test makes happen on purpose
        self.page = self.new_page()

    def new_page(self) -> Any:
        page = self.context.new_page()
        page.on("console", lambda said: self._heard(said.type, said.text))
        page.on("pageerror", lambda error: self._heard("error", str(error)))
        return page

    def _heard(self, kind: str, text: str) -> None:
        if kind in ("error", "warning"):
            self.complaints.append(f"{kind}: {text}")

    def log_in(self, made: Site, path: str = "/") -> Any:
        """As `swell ui` does."""
        code = made.post("/v1/ui/codes")["code"]
        self.page.goto(f"{url(made)}{path}#code={code}")
        self.page.get_by_test_id("status").filter(has_text="live").wait_for()
        return self.page

    def go(self, name: str) -> None:
        self.page.get_by_role("navigation", name="Views").get_by_role("link", name=name, exact=True).click()

    def check(self) -> None:
        wrong = [said for said in self.complaints if not any(re.search(known, said) for known in self.expected)]
        assert wrong == []

    def axe(self) -> list[str]:
        """Serious and critical findings of axe-core."""
        if not AXE.is_file():
            pytest.skip("axe-core is not installed: `npm ci` in web/")
        self.page.evaluate(AXE.read_text())
        found = self.page.evaluate("() => axe.run(document, {resultTypes: ['violations']})")
        return [
            f"{one['id']}: {one['help']}: {[node['html'][:160] for node in one['nodes'][:3]]}"
            for one in found["violations"]
            if one["impact"] in ("serious", "critical")
        ]


def url(made: Site) -> str:
    host, port = made.address
    return f"http://{host}:{port}"


@pytest.fixture
def visit(browser: Any) -> Iterator[Visit]:
    made = Visit(browser)
    yield made
    made.context.close()
    made.check()
