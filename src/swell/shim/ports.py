"""A run's ports, where its first process listens: free ones of this machine, the same at every launch of the run."""

from __future__ import annotations

import contextlib
import errno
import os
import socket

from swell.shim.files import write_whole


def ports_of(folder: str, first: int, each: int, low: int, blocks: int) -> int:
    """The first of `each` ports in a row that nobody uses: of `blocks` such rows from `low` on, the next one that is
    free, beginning with the run's own (`first`). Kept in the run's directory, since some of its processes may be there
    already when others are launched again. If none is free, its own: what fails then says so."""
    path = os.path.join(folder, "port")
    with contextlib.suppress(OSError, ValueError), open(path, encoding="ascii") as file:
        return int(file.read())
    begin = (first - low) // each
    rows = (low + each * ((begin + n) % blocks) for n in range(blocks))
    found = next((row for row in rows if all(map(is_free, range(row, row + each)))), first)
    os.makedirs(folder, mode=0o700, exist_ok=True)
    write_whole(folder, "port", str(found).encode())
    return found


def is_free(port: int) -> bool:
    """On every address of this machine."""
    family = socket.AF_INET6 if socket.has_ipv6 else socket.AF_INET
    for kind in (family, socket.AF_INET):
        try:
            with socket.socket(kind, socket.SOCK_STREAM) as tried:
                tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                tried.bind(("", port))
        except OSError as error:
            if error.errno not in (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL):
                return False
    return True
