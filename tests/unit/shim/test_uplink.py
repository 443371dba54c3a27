"""The socket through which workers reach the daemon from another machine."""

from __future__ import annotations

import socket
from pathlib import Path

from swell.shim.files import Json
from swell.shim.uplink import Uplink

ENDS_S = 30.0
"""Far more than anything here takes."""


def test_its_directory_is_made_for_this_user_only(tmp_path: Path) -> None:
    path = tmp_path / "agent" / "uplink"
    uplink = Uplink(str(path), lambda message, data: None)
    uplink._listener.close()
    assert path.is_socket()
    assert path.parent.stat().st_mode & 0o777 == 0o700


class Far:
    """A daemon that keeps what it was sent and answers each stream in capitals."""

    def __init__(self, path: Path) -> None:
        self.ended: list[int] = []
        self.uplink = Uplink(str(path), self.take)
        self.uplink.start()

    def take(self, message: Json, data: bytes) -> None:
        if message["end"]:
            self.ended.append(message["stream"])
        else:
            self.uplink.answer({"stream": message["stream"], "end": data == b"bye"}, data.upper())


def training(path: Path) -> socket.socket:
    found = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    found.settimeout(ENDS_S)
    found.connect(str(path))
    return found


def test_one_training_after_the_other_is_answered_until_its_stream_has_ended(tmp_path: Path) -> None:
    path = tmp_path / "uplink"
    far = Far(path)
    for _ in range(3):  # each may get the descriptor of the one before
        with training(path) as own:
            own.sendall(b"hello")
            assert own.recv(10) == b"HELLO"
            own.sendall(b"bye")
            assert own.recv(10) == b"BYE"
            assert own.recv(10) == b"", "the daemon has hung up"
    with training(path) as own:
        own.sendall(b"hello")
        assert own.recv(10) == b"HELLO"
    assert far.ended[:3] == [1, 2, 3]
