"""`swell` as people run it: a process, with a home of its own, against a real daemon."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from harness import ROOT, Daemon, daemon


@dataclass
class Shell:
    """A terminal: its directory and its environment."""

    home: Path
    work: Path
    env: dict[str, str] = field(default_factory=dict)

    def environment(self) -> dict[str, str]:
        kept = {
            key: value for key, value in os.environ.items() if not key.startswith(("SWELL_", "VIRTUAL_ENV", "CONDA_"))
        }
        return {**kept, "PYTHONPATH": str(ROOT / "src"), "SWELL_HOME": str(self.home), **self.env}

    def start(self, *args: object, **options: Any) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "swell", *map(str, args)]
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        return subprocess.Popen(
            command, cwd=self.work, env=self.environment(), preexec_fn=_hear_ctrl_c, **{**pipes, **options}
        )

    def __call__(self, *args: object, code: int | None = 0, stdin: bytes = b"", timeout: float = 60) -> "Done":
        process = self.start(*args)
        out, err = process.communicate(stdin, timeout=timeout)
        found = Done(process.returncode, out.decode(errors="replace"), err.decode(errors="replace"))
        assert code is None or found.code == code, found
        return found

    def as_program(self) -> str:
        """`swell` under its own name, as shells call it to complete: what it prints."""
        command = [sys.executable, "-c", "import sys; sys.argv[0] = 'swell'; from swell.cli.main import main; main()"]
        done = subprocess.run(command, cwd=self.work, env=self.environment(), capture_output=True, check=False)
        assert not done.stderr, done
        return done.stdout.decode()


def _hear_ctrl_c() -> None:
    """Tests that were started in the background of a shell ignore it, and so would what they start."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@dataclass
class Done:
    code: int
    out: str
    err: str


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    with daemon(tmp_path_factory.mktemp("cli") / "home", gpus=4) as running:
        yield running


@pytest.fixture
def sh(served: Daemon, tmp_path: Path) -> Shell:
    (tmp_path / "work").mkdir()
    return Shell(served.home, tmp_path / "work")


@pytest.fixture
def alone(tmp_path: Path) -> Iterator[Shell]:
    """A shell without a daemon; whatever it starts is ended."""
    (tmp_path / "work").mkdir()
    shell = Shell(tmp_path / "home", tmp_path / "work")
    yield shell
    shell("down", "--cancel", code=None)
