"""The child process that matches jobs' own patterns against their logs.

No regular expression of a user may be compiled or matched in the daemon: a malicious one (`(a|aa)+b`) takes practically
for ever and blocks everything else. Here the kernel ends the process instead. `daemon.patterns` starts it and sends
requests; requests and answers are JSON, each after its length.
"""

from __future__ import annotations

import json
import os
import re
import resource
import signal
import sys
from typing import Any

from swell.core.progress import groups_of

LENGTH_BYTES = 8
LIMIT_S = 0.5
"""CPU time for the lines of one request."""
MEMORY_BYTES = 1 << 30
NICENESS = 5


def main() -> None:
    os.nice(NICENESS)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGPROF, signal.SIG_DFL)  # the kernel ends the process, also in the middle of a match
    while len(head := sys.stdin.buffer.read(LENGTH_BYTES)) == LENGTH_BYTES:
        request = json.loads(sys.stdin.buffer.read(int.from_bytes(head, "big")))
        signal.setitimer(signal.ITIMER_PROF, LIMIT_S)
        answer = json.dumps(_answer(request["patterns"], request["lines"])).encode()
        signal.setitimer(signal.ITIMER_PROF, 0.0)
        sys.stdout.buffer.write(len(answer).to_bytes(LENGTH_BYTES, "big") + answer)
        sys.stdout.buffer.flush()


def _answer(texts: list[str], lines: list[str]) -> dict[str, Any]:
    try:
        patterns = [re.compile(text) for text in texts]
        return {"found": [groups_of(line, patterns) for line in lines]}
    except (re.error, ValueError, OverflowError, RecursionError, MemoryError) as error:
        return {"error": str(error) or type(error).__name__}


if __name__ == "__main__":
    main()
