"""The client of the fork-server that makes shims. Runs on the machine of the shims."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import subprocess
import sys
import threading

NURSERY = (sys.executable, "-ISs", os.path.join(os.path.dirname(os.path.abspath(__file__)), "shim.py"), "nursery")
ANSWER_S = 10.0
"""The nursery answers within milliseconds; one that has not by then is replaced."""


class Nursery:
    """The fork-server that makes shims; started when needed, again when it died. It ends when we are gone.

    It answers each request. One that does not (stopped, or stuck) is killed and replaced: the shims that it made live
    on, and a request that it may still have begun does no harm, since a worker can be claimed only once."""

    def __init__(self, answer_s: float = ANSWER_S) -> None:
        self._answer_s = answer_s
        self._lock = threading.Lock()
        self._link: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None

    def ask(self, directory: str) -> None:
        """Raises OSError if no shim can be made: never the fault of the job."""
        with self._lock:
            for _ in range(2):
                link = self._link or self._begin()
                try:
                    link.send(os.fsencode(directory))
                    code = int(link.recv(64) or errno.EPIPE)
                except (OSError, ValueError):
                    self._end(kill=True)
                    continue
                if code == errno.EPIPE:
                    self._end(kill=True)
                elif code:
                    raise OSError(code, os.strerror(code))
                else:
                    return
            raise OSError("the process that starts jobs does not answer; see whether the machine has memory left")

    def warm(self) -> None:
        with self._lock:
            if self._link is None:
                self._begin()

    def close(self) -> None:
        with self._lock:
            self._end()

    def _begin(self) -> socket.socket:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.settimeout(self._answer_s)
        with theirs:
            # Of our own environment it gets nothing but the PATH: jobs have theirs in their requests.
            self._process = subprocess.Popen(
                NURSERY,
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
                env={"PATH": os.defpath},
            )
        self._link = ours
        return ours

    def _end(self, *, kill: bool = False) -> None:
        if self._link is not None:
            self._link.close()
            self._link = None
        if self._process is not None:
            if kill:
                self._process.kill()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(5.0)
            if self._process.poll() is None:  # at our own end: a stopped one would never end
                self._process.kill()
            self._process = None
