"""Schemathesis, all checks, over the real application: never an error of the daemon, no status that the OpenAPI page
does not declare, nothing accepted that it rules out. `make test-api` sends 20,000 requests."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from harness import ROOT

HERE = Path(__file__).parent
CASES = int(os.environ.get("SWELL_EXAMPLES", "0"))
MOST_ROUNDS = 8
"""Each with a seed of its own; one makes 3,000 to 10,000 requests."""
TOKEN = "t" * 40

pytestmark = pytest.mark.skipif(find_spec("schemathesis") is None, reason="schemathesis is not installed (dev extra)")


def fuzzed(home: Path, *options: str) -> str:
    """What Schemathesis printed about the application in a process of its own."""
    env = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{HERE}", "SCHEMATHESIS_HOOKS": "schemathesis_hooks"}
    served = subprocess.Popen([sys.executable, HERE / "real_app.py", home], env=env, stdout=subprocess.PIPE, text=True)
    try:
        assert served.stdout is not None
        url = f"http://127.0.0.1:{int(served.stdout.readline())}/v1/openapi.json"
        command: list[str | Path] = [
            *(Path(sys.executable).with_name("schemathesis"), "--config-file", HERE / "schemathesis.toml", "run", url),
            *("--header", f"Authorization: Bearer {TOKEN}", "--exclude-path", "/v1/live", "--checks", "all"),
            *("--request-timeout", "30", "--continue-on-failure", "--no-color", *options),
        ]
        done = subprocess.run(command, env=env, cwd=home, capture_output=True, text=True, timeout=7200)
        assert done.returncode == 0, done.stdout[-200_000:] + done.stderr[-2000:]
        assert served.poll() is None
        return done.stdout
    finally:
        served.kill()
        served.communicate()


def test_the_api_is_as_its_page_declares(tmp_path: Path) -> None:
    sent = 0
    for seed in range(MOST_ROUNDS):
        home = tmp_path / f"home-{seed}"
        home.mkdir(mode=0o700)
        long = ("--max-examples", "340")  # one worker: ast.parse of CPython 3.11 is not for several threads
        short = ("--max-examples", "6", "--phases", "examples,fuzzing", "--no-shrink")
        said = fuzzed(home, "--seed", str(seed), *(long if CASES else short))
        generated = re.search(r"(\d+) generated", said)
        assert generated is not None, said
        assert "Traceback" not in (home / "daemon.log").read_text(errors="replace")
        sent += int(generated[1])
        if sent >= CASES:
            break
    print(f"{sent} requests by Schemathesis")
    assert sent >= max(CASES, 100)
