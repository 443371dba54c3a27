"""`python -m swell.sdk.given SCRIPT COMMAND…`: what horovodrun starts for each of its workers, so that COMMAND sees the
GPUs that the run has on this machine.

horovodrun hands on its own environment, which names the GPUs of its own machine as they were when the run started.
Which ones the run has where is noted in its host discovery SCRIPT, which a resize rewrites, and for machines that do
not have that file, in SWELL_HOST_GPUS. Workers choose theirs by their local rank; mpirun's go through `sdk.ranked`.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
from pathlib import Path

NOTE = "# gpus "
MISSING = 127


def noted(script: str) -> str:
    """GPUs by host, as the script notes them: `localhost=0,2`; empty if it does not."""
    return next((line[len(NOTE) :] for line in script.splitlines() if line.startswith(NOTE)), "")


def show_gpus(script: str = "") -> None:
    """Make the run's GPUs on this machine visible, if it is known which ones they are."""
    noted_here = ""
    with contextlib.suppress(OSError):
        noted_here = noted(Path(script).read_text(encoding="utf-8"))
    pairs = (entry.rpartition("=") for entry in (noted_here or os.environ.get("SWELL_HOST_GPUS", "")).split())
    gpus = next((gpus for host, _, gpus in pairs if is_here(host)), "")
    if gpus:
        os.environ["CUDA_VISIBLE_DEVICES"] = gpus


def is_here(host: str) -> bool:
    """Whether an address is one of this machine's: only then a socket can have it."""
    if host == "localhost":
        return True
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        with socket.socket(family) as found:
            found.bind((host, 0))
    except OSError:
        return False
    return True


def become(argv: list[str]) -> int:
    """Does not return if it succeeds."""
    try:
        os.execvp(argv[0], argv)  # noqa: S606  no shell: it is the job's own command
    except OSError as error:
        print(f"swell: cannot start {argv[0]}: {error.strerror}. Is it on each of the machines?", file=sys.stderr)
    return MISSING


def main(argv: list[str]) -> int:
    show_gpus(argv[0])
    return become(argv[1:])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
