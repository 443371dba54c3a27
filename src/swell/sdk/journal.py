"""The run's own record of its progress: one short line per epoch in the run's directory, also without a daemon.

If a report is lost because the daemon is gone, this line remains. The daemon reads the file when it adopts a run and
when the run ends. A line is `DONE TOTAL BOOT_S UNIT`, written in one append; BOOT_S is in seconds of CLOCK_BOOTTIME,
UNIT is epoch, step, token or sample.
"""

from __future__ import annotations

import os
import time


class Journal:
    """Written by rank 0. Never raises and never waits for the disk, so that it cannot disturb the training."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._fd = -1
        self._last = (-1, -1)

    def note(self, done: int, total: int, unit: str = "epoch") -> None:
        if not self._path or (done, total) == self._last:
            return
        self._last = (done, total)
        try:
            if self._fd < 0:
                self._fd = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
            os.write(self._fd, f"{done} {total} {time.clock_gettime(time.CLOCK_BOOTTIME):.3f} {unit}\n".encode())
        except (OSError, AttributeError):  # a full disk, a directory that is gone, a system without that clock
            pass
