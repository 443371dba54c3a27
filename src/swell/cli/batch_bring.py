"""Results of ended jobs are brought several at a time, while the rest of their batch is followed."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from typing import Any

from swell.client.http import Client

AT_ONCE = 4
View = dict[str, Any]
Bring = Callable[[Client, View], None]


class Bringing:
    """`bring` is called in threads, each with a connection of its own. They keep nobody: a second Ctrl-C leaves at
    once, whatever is under way."""

    def __init__(self, client: Client, bring: Bring) -> None:
        self._address = client.address
        self._bring = bring
        self._todo: queue.SimpleQueue[tuple[str, View]] = queue.SimpleQueue()
        self._arrived: queue.SimpleQueue[tuple[str, BaseException | None]] = queue.SimpleQueue()
        self._threads = self._pending = 0

    def begin(self, line: str, view: View) -> None:
        """`line` is printed for the job once its results have arrived."""
        if self._threads < AT_ONCE:
            self._threads += 1
            threading.Thread(target=self._work, name="results", daemon=True).start()
        self._pending += 1
        self._todo.put((line, view))

    def arrived(self, *, last: bool = False) -> Iterator[str]:
        """Lines of those whose results are here by now; `last`: of all, as they come."""
        while self._pending:
            try:
                line, error = self._arrived.get(block=last)
            except queue.Empty:
                return
            self._pending -= 1
            if error is not None:
                raise error
            yield line

    def _work(self) -> None:
        client = Client(self._address)
        while True:
            line, view = self._todo.get()
            try:
                self._bring(client, view)
                self._arrived.put((line, None))
            except BaseException as error:  # shown by whoever waits for it
                self._arrived.put((line, error))
