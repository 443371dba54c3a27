"""Turns SIGTERM into a clean stop: the handler only notes the signal, and the training reads the note at its next
boundary."""

from __future__ import annotations

import os
import signal
import threading
import time
from typing import Any


class Termination:
    """Watches from the first epoch on. A handler that the script had before is called as well."""

    def __init__(self) -> None:
        self.asked = False
        self._asked_s = 0.0
        self._before: Any = None
        self._owner = 0

    @property
    def for_s(self) -> float:
        """Seconds since SIGTERM came."""
        return time.monotonic() - self._asked_s if self.asked else 0.0

    def watch(self) -> None:
        if threading.current_thread() is not threading.main_thread():
            return  # Python allows handlers in the main thread only
        self._owner = os.getpid()
        self._before = signal.signal(signal.SIGTERM, self._note)

    def restore(self) -> None:
        if self._owner == os.getpid() and self._before is not None:
            signal.signal(signal.SIGTERM, self._before)
            self._before = None

    def _note(self, number: int, frame: Any) -> None:
        if os.getpid() != self._owner:
            # A forked child (such as a data loader's worker) has no boundary: it dies by the signal as without Swell.
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGTERM)
            return
        self.asked, self._asked_s = True, time.monotonic()
        if callable(self._before):
            self._before(number, frame)
