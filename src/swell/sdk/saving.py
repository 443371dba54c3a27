"""Writes a checkpoint in the background of the training: at most one at a time; it counts once it is on disk.

The training waits only if it saves again, stops or ends before the write is over. An error of the write is raised
there, in the training's own thread.
"""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Callable  # noqa: UP035  see settings.py


class Saving:
    """`count(done)` is called once for each checkpoint that is on disk, with what it covers."""

    def __init__(self, count: Callable[[int], None]) -> None:
        self._count = count
        self._lock = threading.Lock()
        self._write: Any = None  # a future: has `done`, `exception` and `result`
        self._covers = 0
        self._writer: ThreadPoolExecutor | None = None

    @property
    def under_way(self) -> bool:
        return self._write is not None

    def begin(self, write: Any, covers: int) -> None:
        """`write` is a future of the checkpoint. Call `wait` first: there is one at a time."""
        with self._lock:
            self._write, self._covers = write, covers

    def submit(self, work: Callable[..., Any], *arguments: Any) -> Any:
        """Do it in a thread; its future."""
        if self._writer is None:
            self._writer = ThreadPoolExecutor(1, thread_name_prefix="swell-save")
        return self._writer.submit(work, *arguments)

    def look(self) -> None:
        """Count it if it is on disk by now. Never waits and never raises: a failure is for `wait`."""
        with self._lock:
            if self._write is None or not self._write.done() or self._write.exception() is not None:
                return
            self._write = None
        self._count(self._covers)

    def wait(self) -> None:
        """Until nothing is being written. Raises what the write failed with."""
        write = self._write
        if write is None:
            return
        try:
            write.result()
        except BaseException:
            self._write = None  # a failure is raised once
            raise
        self.look()
