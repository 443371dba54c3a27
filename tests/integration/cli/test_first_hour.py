"""A newcomer's first hour, typed into a terminal of 100 columns: what they do, and that each answer helps."""

from __future__ import annotations

import fcntl
import os
import pty
import signal
import struct
import subprocess
import termios
import time

from harness import eventually
from integration.cli.conftest import Shell


class Terminal:
    """A shell with a real terminal before it."""

    def __init__(self, shell: Shell) -> None:
        self._shell = shell

    def start(self, *args: object) -> tuple[subprocess.Popen[bytes], int]:
        here, there = pty.openpty()
        fcntl.ioctl(there, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 100, 0, 0))
        process = self._shell.start(*args, stdin=there, stdout=there, stderr=there)
        os.close(there)
        return process, here

    def __call__(self, *args: object, code: int = 0, typed: bytes = b"") -> str:
        process, here = self.start(*args)
        if typed:
            os.write(here, typed)
        said = read_all(here)
        os.close(here)
        assert process.wait(timeout=60) == code, said
        assert "Traceback" not in said
        return said


def read_all(terminal: int, until: str = "") -> str:
    """What was printed, until it says this or nobody has the terminal any more."""
    said, deadline = b"", time.monotonic() + 60
    while time.monotonic() < deadline and not (until and until in said.decode(errors="replace")):
        try:
            data = os.read(terminal, 4096)
        except OSError:
            break
        if not data:
            break
        said += data
    return said.decode(errors="replace").replace("\r\n", "\n")


def test_the_first_hour(alone: Shell) -> None:
    terminal = Terminal(alone)
    assert "no daemon is running" in terminal("ls", code=3)
    assert "Verbs:" in terminal("help")

    # The first job, on a machine without GPUs and without a daemon.
    (alone.work / "train.py").write_text("open('model.pt', 'w').write('m'); print('trained')")
    (alone.work / "env").mkdir()
    (alone.work / "env" / "pyvenv.cfg").write_text("")
    said = terminal("run", "--", "python3", "train.py")
    assert "one per core" in said
    assert "1 file" in said
    assert "left out: env" in said
    assert "\ntrained\n" in said
    assert "COMPLETED" in said
    assert "swell fetch 1" in said

    # Where is what it wrote?
    assert "on disk" in terminal("info", 1)
    assert "copied into train-1" in terminal("fetch", 1)
    assert (alone.work / "train-1" / "model.pt").read_text() == "m"

    # README's first two jobs on one slot: the second waits, and is told why.
    assert ": 1 slot" in terminal("up", "--gpus", 1)
    assert "keeps 1 GPU until it ends" in terminal("run", "--gpus", "1-4", "-d", "--", "sleep 100")
    terminal("run", "--gpus", 1, "--priority", "high", "-d", "--", "sleep 100")
    listed = terminal("status")
    assert max(len(line) for line in listed.splitlines() if "\x1b" not in line) <= 100
    assert "job 2 (sleep) keeps 1 GPU until it ends" in terminal("explain", 3)
    assert "hello" in terminal("run", "--gpus", 0, "--", "echo hello"), "a job without a GPU runs at once"

    # Mistakes.
    assert "there is no verb 'sumbit'" in terminal("sumbit", code=2)
    (alone.work / "job.yaml").write_text("command: x\ngpu: 2\n")
    assert "write gpus: 2" in terminal("submit", "job.yaml", code=2)
    assert "there is no job 99" in terminal("show", 99, code=2)

    # Ctrl-C leaves a job running, and ends a verb that waits.
    for verb, expected in ((("logs", "-f", 2), "RUNNING"), (("ls", "--watch"), "ID"), (("wait", 2), "")):
        process, here = terminal.start(*verb)
        if expected:
            read_all(here, until=expected)
        else:
            time.sleep(1.0)  # it prints nothing by which one could tell that it waits
        process.send_signal(signal.SIGINT)
        said = read_all(here)
        os.close(here)
        assert process.wait(timeout=30) == 130, (verb, said)
        assert "Traceback" not in said

    # Tidying up.
    assert "cancelled 2 jobs" in terminal("stop", 2, 3)
    terminal("wait", 2, 3, code=1)
    assert "nothing was removed" in terminal("delete", 1, code=1, typed=b"n\n")
    assert "removed" in terminal("delete", "--ended", typed=b"y\n")
    eventually(lambda: not (alone.home / "work" / "1").exists(), 20, what="its files are deleted")
