"""The child process for forecasts and simulations: `python -m swell.daemon.lookahead_process NICENESS POLICY_FILE…`.

Requests come on stdin, answers go to stdout, each after its length. It exits when stdin ends, also in the middle of its
work, because the daemon is gone then. `daemon.helper` starts it.
"""

from __future__ import annotations

import os
import queue
import sys
import threading
from collections.abc import Callable, Sequence
from typing import BinaryIO

from swell.daemon.lookahead import Desk
from swell.policy.custom import load_policy_files

LENGTH_BYTES = 8


def main(arguments: Sequence[str]) -> None:
    niceness, *policy_files = arguments
    os.nice(int(niceness))
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a policy prints must not mix with the answers
    requests: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    threading.Thread(target=_read_all, args=(sys.stdin.buffer, requests.put), daemon=True).start()
    load_policy_files(policy_files)
    desk = Desk()
    while True:
        done = desk.handle(requests.get())
        answers.write(len(done).to_bytes(LENGTH_BYTES, "big") + done)
        answers.flush()


def _read_all(stdin: BinaryIO, put: Callable[[bytes], None]) -> None:
    while len(head := stdin.read(LENGTH_BYTES)) == LENGTH_BYTES:
        put(stdin.read(int.from_bytes(head, "big")))
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1:])
