"""The rank's side of the stop agreement: what it has begun, what it has promised, whether it must leave.

Two threads use it: the training's, when it arrives at a boundary, and the link's, when it receives an answer of the
daemon. Each change is made under one lock, so that a promise ("I have not begun P and will wait there") is true when it
is given. A rank waits only at a promised position, and at most `patience_s`: a daemon that is gone does not hold the
training up.
"""

from __future__ import annotations

import threading
import time
from typing import Callable  # noqa: UP035  see settings.py

PATIENCE_S = 30.0
_LOOK_S = 0.2


class Gate:
    """Positions are (epoch, step). `begun` is the last boundary that training went through."""

    def __init__(self, patience_s: float = PATIENCE_S, give_up: Callable[[], bool] = lambda: False) -> None:
        self.patience_s = patience_s
        self._give_up = give_up  # asked while waiting: True ends the wait (SIGTERM came; handlers cannot take locks)
        self.begun: tuple[int, int] = (-1, 0)
        self.promised: tuple[int, int] | None = None
        self.agreed: tuple[int, int] | None = None
        self._changed = threading.Condition(threading.Lock())

    def hear(self, at: tuple[int, int] | None, agreed: bool) -> None:
        """Take the daemon's latest answer. Answers must come in the order of their questions."""
        with self._changed:
            if at is not None and agreed:
                self.agreed = at
            elif at is None or at != self.promised:
                self.promised = at if at is not None and self.begun < at else None
            self._changed.notify_all()

    def arrive(self, at: tuple[int, int]) -> bool:
        """Training is about to begin `at`. False: it must not, but leave."""
        with self._changed:
            if self.would_wait(at):
                self._wait(at)
            if self.agreed is not None and at >= self.agreed:
                return False
            self.promised = None if self.would_wait(at) else self.promised
            self.begun = at
            return True

    def word(self) -> tuple[tuple[int, int], tuple[int, int] | None]:
        """What to report to the daemon: the position begun, and the promise."""
        with self._changed:
            return self.begun, self.promised

    @property
    def pending(self) -> bool:
        """A stop is on its way."""
        return self.promised is not None or self.agreed is not None

    def would_wait(self, at: tuple[int, int]) -> bool:
        """`at` is promised and the daemon has not decided yet."""
        return self.promised is not None and at >= self.promised and self.agreed is None

    def _wait(self, at: tuple[int, int]) -> None:
        until_s = time.monotonic() + self.patience_s
        while self.would_wait(at) and not self._give_up():
            left_s = until_s - time.monotonic()
            if left_s <= 0:
                return
            self._changed.wait(min(left_s, _LOOK_S))
