"""The socket through which workers reach the daemon from another machine."""

from __future__ import annotations

from pathlib import Path

from swell.shim.uplink import Uplink


def test_its_directory_is_made_for_this_user_only(tmp_path: Path) -> None:
    path = tmp_path / "agent" / "uplink"
    uplink = Uplink(str(path), lambda message, data: None)
    uplink._listener.close()
    assert path.is_socket()
    assert path.parent.stat().st_mode & 0o777 == 0o700
