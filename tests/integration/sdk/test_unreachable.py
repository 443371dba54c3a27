"""A daemon that is stopped, hung or slow: training ends the same, and hardly later."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path

from integration.sdk.fake_daemon import Faults, fake_daemon
from swell.sdk import ship

SCRIPT = """
import sys, time, swell
began = time.perf_counter()
with swell.training(epochs=int(sys.argv[1])) as run:
    total = 0.0
    for epoch in run.epochs():
        for step in run.steps(range(20)):
            time.sleep(0.005)
            total += epoch * step
            run.log(loss=total)
        run.should_stop()
print(total, time.perf_counter() - began)
"""


@contextmanager
def stopped() -> Iterator[str]:
    """An address where nobody listens."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    yield f"http://127.0.0.1:{port}"


@contextmanager
def daemon_with(faults: Faults) -> Iterator[str]:
    with fake_daemon(faults) as daemon:
        yield daemon.url


DAEMONS: dict[str, Callable[[], AbstractContextManager[str]]] = {
    "none": lambda: daemon_with(Faults()),  # replaced by no address at all
    "well": lambda: daemon_with(Faults()),
    "stopped": stopped,
    "hung": lambda: daemon_with(Faults(hang=True)),
    "slow": lambda: daemon_with(Faults(delay_s=4.0)),
}


def train(sdk: Path, home: Path, url: str, epochs: int) -> tuple[float, float, float]:
    """(result, seconds in the script, seconds of the process)."""
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(sdk)}
    if url:
        env |= {"SWELL_URL": url, "SWELL_RUN": "1.1", "SWELL_RANK": "0", "SWELL_CHECKPOINT_DIR": str(home)}
    began_s = time.perf_counter()
    argv = [sys.executable, "-c", SCRIPT, str(epochs)]
    done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    result, script_s = map(float, done.stdout.split())
    return result, script_s, time.perf_counter() - began_s


def all_kinds(tmp_path: Path, epochs: int) -> dict[str, tuple[float, float, float]]:
    """Side by side, so that what the machine does meanwhile is the same for all."""
    sdk = ship.ship(tmp_path / "sdk")
    with ExitStack() as stack, ThreadPoolExecutor(len(DAEMONS)) as pool:
        urls = {kind: stack.enter_context(daemon()) for kind, daemon in DAEMONS.items()}
        urls["none"] = ""
        found = {kind: pool.submit(train, sdk, tmp_path / kind, url, epochs) for kind, url in urls.items()}
        return {kind: future.result() for kind, future in found.items()}


def test_whatever_the_daemon_does_training_ends_with_the_same_result(tmp_path: Path) -> None:
    found = all_kinds(tmp_path, epochs=20)
    assert {result for result, _, _ in found.values()} == {found["none"][0]}
