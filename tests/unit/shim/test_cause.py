"""Which line of a log is shown as the reason of a failure."""

from __future__ import annotations

from pathlib import Path

import pytest

from swell.shim.cause import MAX_CAUSE, cause_of

LOGS = Path(__file__).resolve().parents[2] / "logs"
CHAINED = """Traceback (most recent call last):
  File "a.py", line 1, in <module>
KeyError: 'x'

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "a.py", line 3, in <module>
RuntimeError: Error(s) in loading state_dict for GPT:
	Missing key(s) in state_dict: "lm_head.weight".
Exception ignored in: <module 'threading'>
"""
CAUGHT = "Traceback (most recent call last):\n  File x\nValueError: caught\n" + "step\n" * 50 + "error: no data left\n"
UNPREFIXED = """Traceback (most recent call last):
  File "train.py", line 3, in <module>
ZeroDivisionError: division by zero
Traceback (most recent call last):
  File "/venv/bin/torchrun", line 8, in <module>
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
============
Root Cause (first observed failure):
[0]:
  rank      : 3 (local_rank: 1)
============
"""
KILLED = """Traceback (most recent call last):
  File "train.py", line 3, in <module>
RuntimeError: Connection reset by peer
============
Root Cause (first observed failure):
[0]:
  time      : 2026-11-18_20:51:32
  rank      : 1 (local_rank: 1)
  exitcode  : {code}
============
"""
MPIRUN = """--------------------------------------------------------------------------
mpirun has detected an attempt to run as root.

We reiterate our advice against doing so - please proceed at your own risk.
--------------------------------------------------------------------------
"""


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("", ""),
        ("one\ntwo\n\n", "two"),
        ("Traceback (most recent call last):\n  File x\n", "File x"),
        (CHAINED, "RuntimeError: Error(s) in loading state_dict for GPT:"),
        (CAUGHT, "error: no data left"),
        (UNPREFIXED, "rank 3: ZeroDivisionError: division by zero"),
        ("[rank1]: Traceback (most recent call last):\n[rank1]:   File x\n[rank1]: OSError: y\nbye\n", "OSError: y"),
        (
            "=====\nRoot Cause (first observed failure):\n[0]:\n  rank      : 2 (local_rank: 0)\n=====\n",
            "rank 2 failed",
        ),
        (KILLED.format(code="137 (pid: 7) "), "rank 1 was killed (SIGKILL)"),
        (KILLED.format(code="-9 (pid: 7)  (SIGKILL)"), "rank 1 was killed (SIGKILL)"),
        (KILLED.format(code="1 (pid: 7)"), "rank 1: RuntimeError: Connection reset by peer"),
        (MPIRUN, "mpirun has detected an attempt to run as root."),
        ("step 1\nno data\n==========\n", "no data"),
        (" 94%| 351/375\r 94%| 352/375\r 95%| 353/375", "95%| 353/375"),
    ],
)
def test_the_line_that_says_why(text: str, cause: str) -> None:
    assert cause_of(text).startswith(cause) if cause else cause_of(text) == ""


def test_torchruns_failure_shows_the_exception_of_the_rank_that_failed_first() -> None:
    """A real log: rank 1 raised, then rank 0 lost its connection, then torchrun wrote its summary."""
    text = (LOGS / "torchrun-failure.txt").read_text()
    assert cause_of(text) == "rank 1: ValueError: the loss is not finite at step 3"


def test_a_long_line_is_cut() -> None:
    assert len(cause_of("x" * 10_000)) == MAX_CAUSE
