"""Faults at random on machines over SSH, and jobs that write their own truth about it.

They append to one file that every machine sees: when each attempt began, that it lives, and that it finished. Two
attempts of one job may never overlap in it.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from harness import Daemon, eventually
from ssh.fleet import ENDED, until
from ssh.machines import Machine

LEASE_S = 6.0
ACTIVE = 8
"""Jobs that are queued or run at any time."""

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

    def findings(
        self, jobs: Collection[int], trainings: Collection[int] = (), given_up: Collection[tuple[int, int]] = ()
    ) -> Findings:
        """`given_up`: attempts whose machine was silent until they had to be over: only such a one may have finished
        without anybody knowing."""
        finished: dict[int, int] = defaultdict(int)
        unknown: dict[int, int] = defaultdict(int)
        began: dict[tuple[int, int], int] = defaultdict(int)
        spans: dict[int, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
        resumed: list[tuple[int, int, str]] = []
        for number, attempt, word, at_s in self.notes():
            finished[number] += word == "finished" and (number, attempt) not in given_up
            unknown[number] += word == "finished" and (number, attempt) in given_up
            began[number, attempt] += word == "began"
            spans[number][attempt].append(at_s)
            if number in trainings and word.startswith("resumed:"):
                resumed.append((number, attempt, word))
        return Findings(
            attempts=len(began),
            lost=[number for number in jobs if not finished[number] and not unknown[number]],
            finished_twice=[number for number in jobs if finished[number] > 1],
            started_twice=[run for run, times in began.items() if times != 1],
            overlapping=[(number, *pair) for number in spans for pair in _overlaps(spans[number])],
            wrong_epochs=[found for found in resumed if not _agrees(found[2])],
            unknown=sum(bool(finished[number] and unknown[number]) for number in jobs),
            given_up=len(given_up),
            continued=sum(not word.startswith("resumed:0:") for _, _, word in resumed),
        )

    def check(self, jobs: Collection[int]) -> None:
        assert self.findings(jobs).broken == [], self.path.read_text()


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """What the truth says. `unknown`: jobs that finished unknown to anybody, on a machine that was given up, and ran
    again; `continued`: attempts that began with weights."""

    attempts: int
    lost: list[int]
    finished_twice: list[int]
    started_twice: list[tuple[int, int]]
    overlapping: list[tuple[int, int, float]]  # job, later attempt, for how long (s)
    wrong_epochs: list[tuple[int, int, str]]
    unknown: int
    given_up: int
    continued: int

    @property
    def broken(self) -> list[object]:
        """Promises that did not hold."""
        found = (self.lost, self.finished_twice, self.started_twice, self.overlapping, self.wrong_epochs)
        return [item for items in found for item in items]


def _overlaps(attempts: Mapping[int, list[float]]) -> Iterator[tuple[int, float]]:
    for old, new in pairwise(sorted(attempts)):
        if (both_s := max(attempts[old]) - min(attempts[new])) > 0:
            yield new, both_s


def _agrees(word: str) -> bool:
    """The weights that an attempt found are those that it was told to have."""
    _, weights, _, told = word.split(":")
    return weights == told


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


def restart(served: Daemon) -> None:
    """This machine may be so busy that it takes long."""
    try:
        served.start()
    except AssertionError:
        eventually(served._answers, 120, what="the daemon answers")


class Campaign:
    """Faults at random from a fixed seed, on machines that are busy all the time. They are dealt from a deck, so that
    each kind has its share: ten decks have 60 short cuts and 20 long ones."""

    def __init__(self, served: Daemon, truth: Truth, machines: tuple[Machine, ...], seed: int) -> None:
        self.served, self.truth, self.machines = served, truth, machines
        self.rng = random.Random(seed)
        self.jobs: list[int] = []
        self.trainings: list[int] = []
        self.faults: Counter[str] = Counter()

    def run(self, seconds: float) -> None:
        end_s, faults = time.monotonic() + seconds, self._dealt()
        while time.monotonic() < end_s:
            active = self.served.get("/v1/health")["jobs"]
            for _ in range(ACTIVE - sum(count for state, count in active.items() if state not in ENDED)):
                self.submit()
            fault, machine = next(faults), self.rng.choice(self.machines)
            self.faults[fault.__name__] += 1
            self.truth.fault_log.append(f"{time.time():.3f} {fault.__name__} {machine.name}")
            fault(machine)
            time.sleep(self.rng.uniform(0.2, 2.0))
        for number in self.jobs:
            until(self.served, number, *ENDED, timeout_s=180)

    def _dealt(self) -> Iterator[Callable[[Machine], None]]:
        single = [self.sshd, self.agent, self.shim, self.power, self.daemon, self.asleep]
        deck = [*[self.short_cut] * 6, *[self.long_cut] * 2, *single]
        while True:
            yield from self.rng.sample(deck, len(deck))

    def given_up(self) -> list[tuple[int, int]]:
        """Attempts that ended with their machine."""
        runs = {number: self.served.get(f"/v1/jobs/{number}/runs")["runs"] for number in self.jobs}
        return [(n, int(run["attempt"])) for n in runs for run in runs[n] if run["exit_reason"] == "node-lost"]

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
