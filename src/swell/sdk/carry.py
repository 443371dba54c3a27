"""`python -m swell.sdk.carry COMMAND…`: runs a framework's launcher and keeps the exit code's meaning.

torchrun, horovodrun and mpirun exit with 0 or 1, whatever exit codes their processes had. Under them, a process that
stops as asked exits with 0 and leaves a mark (SWELL_LEFT_MARK); this program turns "0 and marked" into the exit code of
a stop. It forwards SIGTERM to the launcher.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

EXIT_STOPPED = 85  # not imported from `leaving`: this process should start fast
MISSING = 127


def main(argv: list[str]) -> int:
    mark = Path(os.environ.get("SWELL_LEFT_MARK") or os.devnull)
    if mark.name != "null":
        mark.parent.mkdir(parents=True, exist_ok=True)
        mark.unlink(missing_ok=True)
    try:
        child = subprocess.Popen(argv)
    except OSError as error:
        print(
            f"swell: cannot start {argv[0]}: {error.strerror}. Is it installed in the job's environment?",
            file=sys.stderr,
        )
        return MISSING
    signal.signal(signal.SIGTERM, lambda number, _: child.send_signal(number))
    code = child.wait()
    if mark.name != "null" and mark.exists():
        mark.unlink()
        return EXIT_STOPPED
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
