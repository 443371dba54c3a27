"""A standby takes over machines over SSH: their runs go on under it, exactly once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from contract.postgres_server import server_or_skip
from harness import eventually
from integration.daemon.failover import Pair, pair
from ssh.fleet import add, job, runs, until, until_contact
from ssh.machines import Machine
from ssh.shell import Shell

EPOCHS = 60
TRAIN = f"""
import swell, time
with swell.training() as run:
    for epoch in run.epochs({EPOCHS}):
        with open("/home/ada/truth", "a") as truth:
            truth.write(f"{{epoch}}\\n")
        time.sleep(0.25)
"""


@pytest.fixture
def two(tmp_path: Path, user_home: Path) -> Iterator[Pair]:
    env = {"HOME": str(user_home), "SSH_AUTH_SOCK": ""}
    with server_or_skip() as server, pair(tmp_path, server.new_database(), gpus=0, env=env) as both:
        yield both


def test_a_run_goes_on_under_the_daemon_that_takes_over(
    new_machine: Callable[..., Machine], two: Pair, tmp_path: Path, user_home: Path
) -> None:
    machine = new_machine("gpu1")
    first = two.active()
    second = two.other(first)
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "train.py").write_text(TRAIN)
    sh = Shell(first.home, tmp_path / "work", {"HOME": str(user_home)})
    add(sh, machine)
    until_contact(first, "gpu1", "here")
    sh("run", "--detach", "--gpus", 1, "--", "python3", "train.py")
    eventually(lambda: job(first, 1)["progress"]["epochs_done"] >= 3, 60, what="it trains")
    eventually(lambda: second.role() == "standby", 60, what="the other one stands by")

    first.kill()
    eventually(lambda: second.role() == "active", 60, what="the standby takes over")
    until_contact(second, "gpu1", "here")
    seen = job(second, 1)["progress"]["epochs_done"]
    eventually(lambda: job(second, 1)["progress"]["epochs_done"] > seen, 60, what="it reports to the new daemon")
    assert until(second, 1, "completed")["progress"]["epochs_done"] == EPOCHS
    assert runs(second, 1) == ["finished"], "the run was adopted, not begun again"
    epochs = [int(line) for line in (machine.home() / "truth").read_text().split()]
    assert epochs == list(range(EPOCHS)), "each epoch once"

    other = Shell(second.home, tmp_path / "work", {"HOME": str(user_home)})
    other("run", "--detach", "--gpus", 1, "--", "python3", "-c", "print('from the second')")
    until(second, 2, "completed")
    assert "from the second" in other("logs", 2)
