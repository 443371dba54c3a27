"""Ports of a run: free ones, and the same at every launch."""

from __future__ import annotations

import socket
from pathlib import Path

from swell.shim.ports import is_free, ports_of


def listening() -> socket.socket:
    """On a port that the system has given, with free ones behind it as far as anybody knows."""
    found = socket.socket()
    found.bind(("127.0.0.1", 0))
    found.listen()
    return found


def test_a_port_that_somebody_listens_on_is_not_free() -> None:
    with listening() as taken:
        port = taken.getsockname()[1]
        assert not is_free(port)
    assert is_free(port)


def test_a_row_with_a_port_in_use_is_passed_over(tmp_path: Path) -> None:
    with listening() as taken:
        port = taken.getsockname()[1]
        found = ports_of(str(tmp_path / "1.1"), port, 1, port, 50)
        assert port < found < port + 50
        assert is_free(found)


def test_the_last_row_is_followed_by_the_first(tmp_path: Path) -> None:
    with listening() as taken:
        port = taken.getsockname()[1]
        low = port - 1 if is_free(port - 1) else port
        assert ports_of(str(tmp_path / "1.1"), port, 1, low, port - low + 1) == low


def test_a_later_launch_of_the_run_has_the_same_ports_though_they_are_in_use_by_then(tmp_path: Path) -> None:
    with listening() as spare:
        first = spare.getsockname()[1]
    found = ports_of(str(tmp_path / "1.1"), first, 1, first, 50)
    with socket.socket() as ours:
        ours.bind(("", found))
        ours.listen()
        assert ports_of(str(tmp_path / "1.1"), first, 1, first, 50) == found
        assert ports_of(str(tmp_path / "1.2"), first, 1, first, 50) != found
