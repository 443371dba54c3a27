"""Where the daemon is: SWELL_URL and SWELL_TOKEN if set, else what the daemon of the home directory wrote down."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path

from swell.client.errors import DaemonUnreachable
from swell.home import ADDRESS_NAME, TOKEN_NAME, default_home


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    url: str
    token: str
    local: bool  # found through a home directory of this machine
    pid: int = 0
    warning: str = ""  # what whoever started it should know


def find(home: Path | None = None) -> Address:
    """Raises DaemonUnreachable when nothing says where it is."""
    url = os.environ.get("SWELL_URL", "")
    if url and home is None:
        return Address(url=url, token=os.environ.get("SWELL_TOKEN", ""), local=False)
    return _written_down(home or default_home())


def _written_down(home: Path) -> Address:
    try:
        said = json.loads((home / ADDRESS_NAME).read_text(encoding="utf-8"))
        token = (home / TOKEN_NAME).read_text(encoding="utf-8").strip()
        return Address(
            url=str(said["url"]),
            token=token,
            local=True,
            pid=int(said.get("pid", 0)),
            warning=str(said.get("warning", "")),
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DaemonUnreachable(
            f"no daemon is running for {home}; start one with `swell up`, or set SWELL_URL and SWELL_TOKEN"
        ) from error
