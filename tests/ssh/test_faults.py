"""Machines, links, servers, agents, shims and daemons that fail, for real: nothing is lost, nothing runs twice at once.

Jobs write their own truth into one file that every machine appends to: when each attempt began, that it lives, and
that it finished. Two attempts of one job may never overlap in it.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from harness import Daemon, daemon, eventually
from ssh.fleet import ENDED, add, job, runs, until, until_contact
from ssh.machines import Machine
from ssh.shell import Shell

New = Callable[..., Machine]
LEASE_S = 6.0
SECONDS = float(os.environ.get("SWELL_SSH_FAULTS_S", "60"))
"""How long the mixed campaign goes on."""

WITNESS = """
import os, sys, time
truth, seconds = sys.argv[1], float(sys.argv[2])
run = os.environ["SWELL_RUN"]
def note(word):
    fd = os.open(truth, os.O_WRONLY | os.O_APPEND)
    os.write(fd, ("%s %s %.3f\\n" % (run, word, time.time())).encode())
    os.close(fd)
note("began")
end = time.monotonic() + seconds
while time.monotonic() < end:
    note("lives")
    time.sleep(0.1)
note("finished")
"""


TRAINING = """
import os, sys, time
import swell
truth, epochs = sys.argv[1], int(sys.argv[2])
run_id = os.environ["SWELL_RUN"]
def note(word):
    fd = os.open(truth, os.O_WRONLY | os.O_APPEND)
    os.write(fd, ("%s %s %.3f\\n" % (run_id, word, time.time())).encode())
    os.close(fd)
note("began")
with swell.training(epochs=epochs) as run:
    weights = run.load(default=[])
    note("resumed:%d:told:%s" % (len(weights), os.environ["EPOCHS_DONE"]))
    for epoch in run.epochs():
        assert weights == list(range(epoch)), "these are no weights of this epoch"
        time.sleep(0.3)
        weights.append(epoch)
        run.save(weights)
        note("saved:%d" % len(weights))
assert weights == list(range(epochs))
note("finished")
"""


@dataclass
class Truth:
    """What the jobs themselves wrote."""

    path: Path
    fault_log: list[str] = field(default_factory=list)

    def notes(self) -> Iterator[tuple[int, int, str, float]]:
        for line in self.path.read_text().splitlines():
            run, word, at_s = line.split()
            number, attempt = run.split(".")
            yield int(number), int(attempt), word, float(at_s)

    def check(self, jobs: list[int], given_up: Collection[tuple[int, int]] = ()) -> int:
        """0 lost, 0 double, 0 overlapping. `given_up`: attempts whose machine was silent until they had to be over:
        only such a one may have finished without anybody knowing. How many did."""
        finished: dict[int, int] = defaultdict(int)
        unknown: dict[int, int] = defaultdict(int)
        began: dict[tuple[int, int], int] = defaultdict(int)
        spans: dict[int, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
        for number, attempt, word, at_s in self.notes():
            finished[number] += word == "finished" and (number, attempt) not in given_up
            unknown[number] += word == "finished" and (number, attempt) in given_up
            began[number, attempt] += word == "began"
            spans[number][attempt].append(at_s)
        stood = {number: finished[number] or min(1, unknown[number]) for number in jobs}
        assert stood == dict.fromkeys(jobs, 1), self.fault_log
        assert [run for run, times in began.items() if times != 1] == [], self.fault_log
        for number, attempts in spans.items():
            ordered = [attempts[attempt] for attempt in sorted(attempts)]
            for old, new in pairwise(ordered):
                assert max(old) <= min(new), (number, attempts, self.fault_log)
        return sum(finished[number] and unknown[number] for number in jobs)

    def check_trainings(self, trainings: list[int]) -> int:
        """Each attempt begins with the weights that it is told to have. How many began again with some."""
        resumed = 0
        for number, _, word, _ in self.notes():
            if number in trainings and word.startswith("resumed:"):
                _, weights, _, told = word.split(":")
                assert weights == told, (number, word, self.fault_log)
                resumed += int(weights) > 0
        return resumed


@pytest.fixture
def truth(tmp_path: Path) -> Truth:
    shared = tmp_path / "shared"
    shared.mkdir(mode=0o777)
    shared.chmod(0o777)
    path = shared / "truth"
    path.touch()
    path.chmod(0o666)
    return Truth(path)


def submit(served: Daemon, truth: Truth, seconds: float) -> int:
    command = ["python3", "-c", WITNESS, str(truth.path), str(seconds)]
    [number] = served.submit(name="witness", command=command, gpus=1, grace="1s", retries=0)
    return number


def submit_training(served: Daemon, truth: Truth, epochs: int) -> int:
    """Saves where only its machine sees it."""
    command = ["python3", "-c", TRAINING, str(truth.path), str(epochs)]
    [number] = served.submit(name="training", command=command, gpus=1, grace="1s", retries=0, uses_library=True)
    return number


def lives(truth: Truth, number: int, attempt: int) -> bool:
    return any(note[:3] == (number, attempt, "lives") for note in truth.notes())


def witness_of(machine: Machine) -> list[int]:
    """Pids of jobs that run there."""
    found = []
    for pid in machine.processes():
        try:
            environ = Path(f"/proc/{pid}/environ").read_bytes()
            named = Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            continue
        if b"SWELL_MARK=" in environ and b"note(" in named:
            found.append(pid)
    return found


def named(machine: Machine, name: str) -> list[int]:
    """Processes that call themselves so (`ps -o comm`)."""
    found = []
    for pid in machine.processes():
        try:
            if Path(f"/proc/{pid}/comm").read_text().strip().startswith(name):
                found.append(pid)
        except OSError:
            continue
    return found


def agents(machine: Machine) -> list[int]:
    found = []
    for pid in machine.processes():
        try:
            line = Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            continue
        if b"stdin.buffer" in line and not line.startswith(b"sh"):
            found.append(pid)
    return found


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


def attempts(served: Daemon, number: int) -> list[dict[str, Any]]:
    return list(served.get(f"/v1/jobs/{number}/runs")["runs"])


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


def restart(served: Daemon) -> None:
    """This machine may be so busy that it takes long."""
    try:
        served.start()
    except AssertionError:
        eventually(served._answers, 120, what="the daemon answers")


class Campaign:
    """Faults at random from a fixed seed, on machines that are busy all the time."""

    def __init__(self, served: Daemon, truth: Truth, machines: tuple[Machine, ...], seed: int) -> None:
        self.served, self.truth, self.machines = served, truth, machines
        self.rng = random.Random(seed)
        self.jobs: list[int] = []
        self.trainings: list[int] = []
        self.faults: Counter[str] = Counter()

    def run(self, seconds: float) -> None:
        end_s = time.monotonic() + seconds
        faults = [self.short_cut, self.short_cut, self.long_cut, self.sshd, self.agent, self.shim, self.power]
        faults += [self.daemon, self.asleep]
        while time.monotonic() < end_s:
            active = self.served.get("/v1/health")["jobs"]
            for _ in range(6 - sum(count for state, count in active.items() if state not in ENDED)):
                self.submit()
            fault, machine = self.rng.choice(faults), self.rng.choice(self.machines)
            self.faults[fault.__name__] += 1
            self.truth.fault_log.append(f"{time.time():.3f} {fault.__name__} {machine.name}")
            fault(machine)
            time.sleep(self.rng.uniform(0.2, 2.0))
        for number in self.jobs:
            until(self.served, number, *ENDED, timeout_s=180)

    def submit(self) -> None:
        """Every second one is a training with checkpoints."""
        if self.rng.random() < 0.5:
            self.jobs.append(submit(self.served, self.truth, self.rng.uniform(2.0, 6.0)))
        else:
            self.jobs.append(submit_training(self.served, self.truth, self.rng.randint(5, 20)))
            self.trainings.append(self.jobs[-1])

    def short_cut(self, machine: Machine) -> None:
        machine.cut()
        time.sleep(self.rng.uniform(0.1, LEASE_S / 2))
        machine.mend()

    def long_cut(self, machine: Machine) -> None:
        machine.cut()
        time.sleep(self.rng.uniform(1.5, 4.0) * LEASE_S)
        machine.mend()

    def sshd(self, machine: Machine) -> None:
        machine.kill_sshd()
        machine.start_sshd()

    def agent(self, machine: Machine) -> None:
        for pid in agents(machine):
            os.kill(pid, signal.SIGKILL)

    def shim(self, machine: Machine) -> None:
        for pid in named(machine, "swell ")[:1]:
            os.kill(pid, signal.SIGKILL)

    def power(self, machine: Machine) -> None:
        machine.power_off()
        time.sleep(self.rng.uniform(0.0, 3.0))
        machine.power_on()

    def daemon(self, machine: Machine) -> None:
        self.served.kill()
        restart(self.served)

    def asleep(self, machine: Machine) -> None:
        """The daemon's machine is suspended for longer than a lease."""
        assert self.served.process is not None
        os.kill(self.served.process.pid, signal.SIGSTOP)
        time.sleep(1.5 * LEASE_S)
        os.kill(self.served.process.pid, signal.SIGCONT)
        eventually(self.served._answers, 120, what="the daemon answers")


def test_mixed_faults_lose_nothing_and_run_nothing_twice(
    three: tuple[Machine, ...], served: Daemon, truth: Truth
) -> None:
    campaign = Campaign(served, truth, three, seed=15)
    campaign.run(SECONDS)
    given_up = [
        (n, r["attempt"]) for n in campaign.jobs for r in attempts(served, n) if r["exit_reason"] == "node-lost"
    ]
    twice = truth.check(campaign.jobs, given_up)
    resumed = truth.check_trainings(campaign.trainings)
    ends = Counter(reason for number in campaign.trainings for reason in runs(served, number))
    print(f"\n{len(campaign.jobs)} jobs, {len(campaign.trainings)} of them trainings; {dict(campaign.faults)}")
    print(f"{twice} finished unknown to anybody and ran again; {len(given_up)} attempts given up with their machine")
    print(f"trainings: {resumed} attempts continued from a checkpoint; attempts ended {dict(ends)}")
    for machine in three:
        until_contact(served, machine.name, "here", 90)
    eventually(lambda: not any(map(witness_of, three)), 30, what="no machine runs anything any more")
