"""Machines, links, servers, agents, shims and daemons that fail, for real: nothing is lost, nothing runs twice at once.

`campaign` mixes all of them at random; `SWELL_SSH_FAULTS_S=1800` makes it as long as docs/figures/ssh.md has it.
"""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from harness import Daemon, daemon, eventually
from ssh.campaign import LEASE_S, Campaign, Truth, agents, lives, named, submit, witness_of
from ssh.fleet import ENDED, add, job, runs, until, until_contact
from ssh.machines import Machine
from ssh.shell import Shell

New = Callable[..., Machine]
SECONDS = float(os.environ.get("SWELL_SSH_FAULTS_S", "60"))
"""How long the mixed campaign goes on."""


@pytest.fixture
def truth(tmp_path: Path) -> Truth:
    shared = tmp_path / "shared"
    shared.mkdir(mode=0o777)
    shared.chmod(0o777)
    path = shared / "truth"
    path.touch()
    path.chmod(0o666)
    return Truth(path)


@pytest.fixture
def served(tmp_path: Path, user_home: Path) -> Iterator[Daemon]:
    (tmp_path / "swell").mkdir()
    (tmp_path / "swell" / "config.yaml").write_text("checkpoint_copy_every_s: 1.0\n")
    with daemon(tmp_path / "swell", gpus=0, env={"HOME": str(user_home), "SSH_AUTH_SOCK": ""}) as running:
        yield running


@pytest.fixture
def pair(new_machine: New, served: Daemon, sh: Shell, truth: Truth) -> tuple[Machine, Machine]:
    """Two machines with one slot each and short leases."""
    made = tuple(new_machine(f"gpu{n}", shared=truth.path.parent) for n in (1, 2))
    for machine in made:
        add(sh, machine, gpus=1, lease=f"{LEASE_S:.0f}s")
        until_contact(served, machine.name, "here")
    return made[0], made[1]


@pytest.fixture
def three(new_machine: New, served: Daemon, sh: Shell, truth: Truth) -> tuple[Machine, ...]:
    """Of different size, with short leases."""
    made = tuple(new_machine(f"gpu{n}", shared=truth.path.parent) for n in (1, 2, 3))
    for machine, slots in zip(made, (3, 2, 1), strict=True):
        add(sh, machine, gpus=slots, lease=f"{LEASE_S:.0f}s")
    for machine in made:
        until_contact(served, machine.name, "here")
    return made


def where(served: Daemon, number: int, machines: tuple[Machine, ...]) -> Machine:
    placed = str(job(served, number)["where"])
    return next(machine for machine in machines if machine.name in placed)


def test_a_cut_shorter_than_the_lease_disturbs_nothing(
    pair: tuple[Machine, Machine], served: Daemon, truth: Truth
) -> None:
    number = submit(served, truth, 12.0)
    eventually(lambda: lives(truth, number, 1), 60, what="it runs")
    machine = where(served, number, pair)
    machine.cut()
    time.sleep(LEASE_S / 3)
    machine.mend()
    until(served, number, *ENDED)
    truth.check([number])
    assert not any(attempt > 1 for _, attempt, _, _ in truth.notes())


def test_a_cut_longer_than_the_lease_moves_the_job_and_it_never_runs_twice_at_once(
    pair: tuple[Machine, Machine], served: Daemon, truth: Truth
) -> None:
    number = submit(served, truth, 30.0)
    eventually(lambda: lives(truth, number, 1), 60, what="it runs")
    machine = where(served, number, pair)
    machine.cut()
    until_contact(served, machine.name, "lost", 90)
    assert not witness_of(machine), "it ended itself when its lease was over"
    eventually(lambda: lives(truth, number, 2), 60, what="it continues elsewhere")
    machine.mend()
    until_contact(served, machine.name, "here", 60)
    until(served, number, *ENDED, timeout_s=90)
    truth.check([number])


@pytest.mark.parametrize("what", ["sshd", "agent"])
def test_sshd_or_the_agent_is_killed_and_the_run_goes_on(
    pair: tuple[Machine, Machine], served: Daemon, truth: Truth, what: str
) -> None:
    number = submit(served, truth, 8.0)
    eventually(lambda: lives(truth, number, 1), 60, what="it runs")
    machine = where(served, number, pair)
    if what == "sshd":
        machine.kill_sshd()
        machine.start_sshd()
    else:
        for pid in agents(machine):
            os.kill(pid, signal.SIGKILL)
    until(served, number, *ENDED)
    truth.check([number])
    assert not any(attempt > 1 for _, attempt, _, _ in truth.notes())


def test_a_killed_shim_takes_its_worker_along_and_the_job_runs_again(
    pair: tuple[Machine, Machine], served: Daemon, truth: Truth
) -> None:
    number = submit(served, truth, 6.0)
    eventually(lambda: lives(truth, number, 1), 60, what="it runs")
    for pid in named(where(served, number, pair), f"swell {number}."):
        os.kill(pid, signal.SIGKILL)
    until(served, number, *ENDED)
    truth.check([number])


def test_a_machine_that_was_off_comes_back_with_another_boot_and_its_job_runs_again(
    pair: tuple[Machine, Machine], served: Daemon, truth: Truth
) -> None:
    number = submit(served, truth, 6.0)
    eventually(lambda: lives(truth, number, 1), 60, what="it runs")
    machine = where(served, number, pair)
    machine.power_off()
    machine.power_on()
    until(served, number, *ENDED)
    truth.check([number])
    until_contact(served, machine.name, "here", 60)


def test_a_daemon_that_is_killed_finds_its_runs_again(
    pair: tuple[Machine, Machine], served: Daemon, truth: Truth
) -> None:
    number = submit(served, truth, 8.0)
    eventually(lambda: lives(truth, number, 1), 60, what="it runs")
    served.kill()
    served.start()
    until(served, number, *ENDED)
    truth.check([number])


def test_a_daemon_that_slept_past_the_leases_starts_nothing_twice(
    pair: tuple[Machine, Machine], served: Daemon, truth: Truth
) -> None:
    number = submit(served, truth, 8.0)
    eventually(lambda: lives(truth, number, 1), 60, what="it runs")
    assert served.process is not None
    os.kill(served.process.pid, signal.SIGSTOP)
    eventually(lambda: not witness_of(pair[0]) and not witness_of(pair[1]), 60, what="its lease ended it")
    os.kill(served.process.pid, signal.SIGCONT)
    until(served, number, *ENDED, timeout_s=90)
    truth.check([number])


@pytest.mark.chaos
def test_mixed_faults_lose_nothing_and_run_nothing_twice(
    three: tuple[Machine, ...], served: Daemon, truth: Truth
) -> None:
    campaign = Campaign(served, truth, three, seed=15)
    campaign.run(SECONDS)
    findings = truth.findings(campaign.jobs, campaign.trainings, given_up=campaign.given_up())
    ends = Counter(reason for number in campaign.trainings for reason in runs(served, number))
    print(f"\n{len(campaign.jobs)} jobs, {len(campaign.trainings)} of them trainings; {dict(campaign.faults)}")
    print(f"{findings}; trainings ended {dict(ends)}")
    for machine in three:
        until_contact(served, machine.name, "here", 90)
    eventually(lambda: not any(map(witness_of, three)), 30, what="no machine runs anything any more")
    assert findings.broken == [], truth.fault_log
    assert {job(served, number)["state"] for number in campaign.jobs} == {"completed"}
