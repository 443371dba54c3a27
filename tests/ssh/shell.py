"""`swell` as people run it, against a real daemon, for the tests of machines over SSH."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

from harness import ROOT


@dataclass
class Shell:
    home: Path
    work: Path
    env: dict[str, str] = field(default_factory=dict)

    def __call__(self, *args: object, code: int | None = 0, stdin: str = "", timeout: float = 60) -> str:
        """What it printed, on both streams."""
        env = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "SWELL_HOME": str(self.home), **self.env}
        done = subprocess.run(
            [sys.executable, "-m", "swell", *map(str, args)],
            cwd=self.work,
            env=env,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=timeout,
        )
        said = done.stdout + done.stderr
        assert code is None or done.returncode == code, f"{args}: {done.returncode}: {said}"
        return said
