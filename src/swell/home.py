"""Where Swell keeps its things on this machine. Stdlib only: the command line finds its daemon through this file."""

from __future__ import annotations

import os
from pathlib import Path

ADDRESS_NAME = "daemon.json"
TOKEN_NAME = "token"  # noqa: S105 - the name of a file


def default_home() -> Path:
    return Path(os.environ.get("SWELL_HOME") or Path.home() / ".swell")
