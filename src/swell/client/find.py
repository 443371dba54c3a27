"""Where the daemon is: SWELL_URL and SWELL_TOKEN if set, else what the daemon of the home directory wrote down, else
where `swell login` was last."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path

from swell.client.errors import DaemonUnreachable
from swell.home import ADDRESS_NAME, LOGIN_NAME, TOKEN_NAME, default_home


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    url: str
    token: str
    local: bool  # found through a home directory of this machine
    pid: int = 0
    warning: str = ""  # what whoever started it should know
    fingerprint: str = ""  # of its certificate; empty: any that this machine trusts
    public_url: str = ""  # for other machines
    others: tuple[str, ...] = ()  # where else it may be: daemons of the same database, one of which is active
    active_file: str = ""  # says which of them is


def find(home: Path | None = None) -> Address:
    """Raises DaemonUnreachable when nothing says where it is."""
    url = os.environ.get("SWELL_URL", "")
    if url and home is None:
        first, *others = _several(url)
        return Address(url=first, others=tuple(others), token=os.environ.get("SWELL_TOKEN", ""), local=False)
    where = home or default_home()
    found = _written_down(where) or _logged_in(where)
    if found is None:
        raise DaemonUnreachable(
            f"no daemon is running for {where}; start one with `swell up`, or use one elsewhere with `swell login URL` "
            "(or SWELL_URL and SWELL_TOKEN)"
        )
    return found


def _written_down(home: Path) -> Address | None:
    try:
        said = json.loads((home / ADDRESS_NAME).read_text(encoding="utf-8"))
        token = (home / TOKEN_NAME).read_text(encoding="utf-8").strip()
        return Address(
            url=str(said["url"]),
            token=token,
            local=True,
            pid=int(said.get("pid", 0)),
            warning=str(said.get("warning", "")),
            public_url=str(said.get("public_url", "")),
            fingerprint=str(said.get("fingerprint", "")),
            active_file=str(said.get("active_file", "")),
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _several(urls: str) -> list[str]:
    """SWELL_URL may name several daemons of one database: https://a:7000,https://b:7000."""
    return [url.strip().rstrip("/") for url in urls.split(",") if url.strip()] or [urls]


def url_in(active_file: str) -> str:
    """Where the active daemon answers, as it wrote down; empty if nobody did."""
    try:
        return str(json.loads(Path(active_file).read_text(encoding="utf-8"))["url"])
    except (OSError, ValueError, KeyError, TypeError):
        return ""


def _logged_in(home: Path) -> Address | None:
    try:
        said = json.loads((home / LOGIN_NAME).read_text(encoding="utf-8"))
        return Address(
            url=str(said["url"]),
            token=str(said.get("token", "")),
            local=False,
            fingerprint=str(said.get("fingerprint", "")),
            others=tuple(map(str, said.get("others", ()))),
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None
