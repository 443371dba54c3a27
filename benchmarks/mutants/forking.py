"""Runs pytest in a fork of this process, which has imported the libraries already: that saves most of a start.

The package under test is never imported here, so that each fork imports the copy of the tree that it is given."""

from __future__ import annotations

import contextlib
import importlib
import os
import resource
import signal
import sys
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

import pytest

LIBRARIES = (
    *("hypothesis", "hypothesis.strategies", "anyio", "httpx", "numpy", "scipy.optimize", "psutil", "yaml", "click"),
    *("fastapi", "pydantic", "starlette.testclient", "uvicorn", "msgspec", "prometheus_client", "asyncssh", "psycopg"),
)
BROKEN = 99
"""Exit code of a fork in which pytest itself could not run."""
FILE_BYTES = 1 << 30
"""A mutant may write a file without end; it must not fill the disk before its time is up."""
QUIET = ("-q", "-p", "no:cacheprovider", "--tb=no", "-W", "ignore::pytest.PytestAssertRewriteWarning")


def import_libraries() -> None:
    for name in LIBRARIES:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)


def run(tree: Path, arguments: Sequence[str], output: Path, limit_s: float) -> int | None:
    """The exit code of pytest in that tree; None: it did not end in time."""
    child = os.fork()
    if child == 0:
        os._exit(_pytest(tree, arguments, output))
    end_s = time.monotonic() + limit_s
    while time.monotonic() < end_s:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.02)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    return None


def _pytest(tree: Path, arguments: Sequence[str], output: Path) -> int:
    try:
        os.setsid()
        resource.setrlimit(resource.RLIMIT_FSIZE, (FILE_BYTES, FILE_BYTES))
        descriptor = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(descriptor, 1)
        os.dup2(descriptor, 2)
        sys.stdout = sys.stderr = os.fdopen(descriptor, "w")
        os.chdir(tree)
        os.environ["PYTHONPATH"] = str(tree / "src")
        sys.path[:0] = [str(tree), str(tree / "src")]
        for name in [name for name in sys.modules if name.partition(".")[0] == "benchmarks"]:
            del sys.modules[name]
        sys.modules["__main__"] = ModuleType("__main__")  # processes that tests spawn import it again
        code = int(pytest.main([*QUIET, *arguments]))
        sys.stdout.flush()
        return code
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
        return BROKEN
