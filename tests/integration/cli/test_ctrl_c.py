"""Ctrl-C ends any verb with 130, or by the signal itself, and never with a traceback."""

import os
import signal
import subprocess
import sys
import time

import pytest

from harness import ROOT
from integration.cli.conftest import Shell
from integration.cli.test_first_hour import Terminal, read_all


@pytest.mark.parametrize(
    ("verb", "shows"), [(("top",), "policy"), (("events", "-f"), "node"), (("ls", "--watch"), "ls --all")]
)
def test_a_verb_that_goes_on_until_ctrl_c_exits_with_130(sh: Shell, verb: tuple[str, ...], shows: str) -> None:
    process, here = Terminal(sh).start(*verb)
    read_all(here, until=shows)
    process.send_signal(signal.SIGINT)
    said = read_all(here)
    os.close(here)
    assert process.wait(timeout=30) == 130, said
    assert "Traceback" not in said


SLOW_TO_LOAD = """
import sys, time
class Slow:
    def find_spec(self, name, path=None, target=None):
        if name == "swell.cli.main":
            print("loading", flush=True)
            time.sleep(30)
sys.meta_path.insert(0, Slow())
from swell.cli.entry import main
main()
"""


@pytest.mark.parametrize("heard", [True, False], ids=["heard", "ignored"])
def test_ctrl_c_while_modules_load_prints_nothing(heard: bool) -> None:
    """Where it was ignored from the beginning, as behind `&` of a script, it stays so."""
    process = subprocess.Popen(
        [sys.executable, "-c", SLOW_TO_LOAD],
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL if heard else signal.SIG_IGN),
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"loading\n"
    process.send_signal(signal.SIGINT)
    if not heard:
        time.sleep(0.5)
        assert process.poll() is None
        process.kill()
    _, err = process.communicate(timeout=60)
    assert err == b""
    assert process.returncode == (-signal.SIGINT if heard else -signal.SIGKILL)
