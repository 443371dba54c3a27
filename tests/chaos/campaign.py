"""An independent harness for kill campaigns: it trusts nothing that Swell says about itself.

Its truth is of the kernel and of plain files: every process of an attempt holds locks (flock, inherited by all its
descendants) on its job and on its slot; the start of an attempt is a file made with O_EXCL; starts, ends and the code
after a training's epochs are appended lines; a training's own state lists the epochs that made it. Descendants that
left their session and wiped their environment are known by a number in their command line.

Meanwhile daemons, shims and (on PostgreSQL) the database are killed at random moments, helpers are stopped, trainings
are paused and resumed. `Campaign.run` returns counts; all of those named in `MUST_BE_ZERO` are to be 0.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from contract.postgres_server import Server
from harness import ROOT, Daemon, end_runs, eventually
from swell.shim import processes as proc

MUST_BE_ZERO = ("lost", "double", "overlapping", "orphans", "repeated_tails", "epochs_wrong", "epochs_shown_wrong")
SLOTS = 6
EPOCHS = 4
SLOW_START_S = 120.0

SCRIPT = """
cd "$TRUTH" || exit 1
exec 8>>locks/job-$SWELL_JOB 9>>locks/slot-$CUDA_VISIBLE_DEVICES
flock -n 8 || echo "job $SWELL_RUN" >> overlapping
flock -n 9 || echo "slot $CUDA_VISIBLE_DEVICES $SWELL_RUN" >> overlapping
(set -C; : > starts/$SWELL_RUN) 2>/dev/null || echo $SWELL_RUN >> double
setsid env -i sleep $TOKEN & (env -i setsid sleep $TOKEN &)
sleep $SECONDS_
echo $SWELL_RUN >> ends/$SWELL_JOB
"""

TRAINING = """
import fcntl, os, sys, time, swell
truth, run_id, job = os.environ["TRUTH"], os.environ["SWELL_RUN"], os.environ["SWELL_JOB"]
os.chdir(truth)
def note(path, text):
    fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(fd, (text + chr(10)).encode())
    os.close(fd)
for name in ("job-" + job, "slot-" + os.environ["CUDA_VISIBLE_DEVICES"]):
    fd = os.open("locks/" + name, os.O_RDWR | os.O_CREAT)
    os.set_inheritable(fd, True)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        note("overlapping", name + " " + run_id)
try:
    os.close(os.open("starts/" + run_id, os.O_CREAT | os.O_EXCL))
except FileExistsError:
    note("double", run_id)
with swell.training(epochs=int(os.environ["EPOCHS"])) as run:
    done = run.load([])
    for epoch in run.epochs():
        time.sleep(float(os.environ["SECONDS_"]))
        done = [*done, epoch]
        run.save(done)
note("tails/" + job, run_id)
time.sleep(0.5)
note("trained/" + job, ",".join(map(str, done)))
note("ends/" + job, run_id)
"""


@dataclass(kw_only=True)
class Campaign:
    directory: Path
    jobs: int
    daemon_kills: int
    shim_kills: int
    seed: int = 7
    server: Server | None = None  # else SQLite
    outages: int = 0
    limit_s: float = 600.0
    submitted: dict[int, bool] = field(default_factory=dict)  # job -> is it a training
    shims_killed: set[str] = field(default_factory=set)  # runs
    counts: dict[str, int] = field(default_factory=dict)
    outage: threading.Thread | None = None
    over: set[Path] = field(default_factory=set)  # workers that were swept: nothing of them is left to kill

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)
        self.home, self.truth = self.directory / "home", self.directory / "truth"
        for name in ("locks", "starts", "ends", "tails", "trained"):
            (self.truth / name).mkdir(parents=True)
        (self.truth / "train.py").write_text(TRAINING)
        self.token = f"{90_000 + os.getpid() % 10_000}.{self.rng.randrange(10**9):09d}"
        args = ("--database", self.server.new_database()) if self.server else ()
        self.served = Daemon(self.home, gpus=SLOTS, args=args)
        self.counts = dict.fromkeys(
            ("daemon_kills", "shim_kills", "helpers_stopped", "pauses", "outages", "slow_starts"), 0
        )

    # ---- the ordeal ----

    def run(self) -> dict[str, Any]:
        began = time.monotonic()
        try:
            self.served.start()
            for number in range(self.daemon_kills):
                self._round(number)
            self._await_all(began + self.limit_s)
            found = self._verdict()
        finally:
            if self.served.process is not None and self.served.process.poll() is None:
                self.served.kill()
            end_runs(self.home)
        return {**self.counts, "seconds": round(time.monotonic() - began), **found}

    def _round(self, number: int) -> None:
        """Jobs come, helpers die, and then the daemon does, at a moment that nobody chose."""
        process = self.served.process
        assert process is not None
        killer = threading.Timer(self.rng.uniform(0.0, 1.2), process.kill)
        if self._share(self.outages, number):
            killer.interval += 1.0  # the daemon lives to see some of it
            self.outage = threading.Thread(target=self._outage, args=(self.rng.uniform(0.0, 3.0),))
            self.outage.start()
        killer.start()
        share = self.jobs * (number + 1) // self.daemon_kills - self.jobs * number // self.daemon_kills
        for _ in range(share):
            self._submit(len(self.submitted))
        kills = self.shim_kills * (number + 1) // self.daemon_kills - self.shim_kills * number // self.daemon_kills
        for _ in range(kills):
            self._strike_a_shim()
        self._meddle()
        killer.join()
        self.counts["daemon_kills"] += 1
        process.wait()
        if self.served.process is process:  # else somebody has needed it, and revived it, before
            self._revive()

    def _share(self, of: int, number: int) -> bool:
        return of * (number + 1) // self.daemon_kills > of * number // self.daemon_kills

    def _revive(self) -> None:
        """Start the dead daemon again; whoever submits meets it wherever it was killed."""
        if self.outage is not None:
            self.outage.join()  # a start waits for its database, or says that there is none
        self.served.kill()
        try:
            self.served.start()
        except AssertionError:  # a busy machine: one that never answers is not waited for much longer
            self.counts["slow_starts"] += 1
            eventually(self.served._answers, SLOW_START_S, what=f"a daemon that answers; it said {self.served.said()}")

    def _outage(self, lasts_s: float) -> None:
        assert self.server is not None
        self.server.stop("immediate" if lasts_s < 1.5 else "fast")
        time.sleep(lasts_s)
        self.server.start()
        self.counts["outages"] += 1

    def _submit(self, number: int) -> None:
        """With a key: an answer that was lost in a kill is asked for again, by the next daemon if need be."""
        training = number % 4 == 0
        env = {"TRUTH": str(self.truth), "TOKEN": self.token, "SECONDS_": f"{self.rng.uniform(0.02, 0.5):.2f}"}
        job: dict[str, Any] = {"name": "short", "gpus": 1, "cpus": 0, "grace": 1, "env": env}
        if training:
            env |= {"EPOCHS": str(EPOCHS), "PYTHONPATH": str(ROOT / "src")}
            job |= {"command": [sys.executable, str(self.truth / "train.py")], "epochs": EPOCHS, "uses_library": True}
        else:
            job |= {"command": ["/bin/sh", "-c", SCRIPT], "preemptible": "never"}
        job["priority"] = self.rng.choice([0, 0, 0, 5])
        made = self._ask("POST", "/v1/jobs", job, {"Idempotency-Key": f"k{number}"})
        self.submitted[int(made["jobs"][0]["id"])] = training

    def _ask(self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None) -> Any:
        give_up = time.monotonic() + 120
        while True:
            with contextlib.suppress(Exception):
                status, answer = self.served.request(method, path, body, headers)
                if 200 <= status < 300:
                    return answer
                if status in (400, 404, 409, 422):
                    return answer | {"refused": status}
            assert time.monotonic() < give_up, f"no answer to {method} {path}"
            if self.served.process is not None and self.served.process.poll() is not None:
                self._revive()
            time.sleep(0.05)

    def _strike_a_shim(self) -> None:
        """SIGKILL one that holds a run now, at some moment of its run: at its start, within, or at its end."""
        for tries in range(500):
            claims = self._alive("claim")
            if claims and self._strike(self.rng.choice(claims)):
                return
            if self.served.process is not None and self.served.process.poll() is not None:
                self._revive()  # nothing can start without it
            elif not claims and tries % 50 == 49:
                self._submit(len(self.submitted))  # all jobs have ended: one more, so that there is something to kill
            time.sleep(0.02)

    def _alive(self, name: str) -> list[Path]:
        """Such files of workers that were not swept. Thousands were: they are not looked at again."""
        workers = [Path(entry.path, "0") for entry in os.scandir(self.home / "runs")]
        self.over.update(worker for worker in workers if worker not in self.over and (worker / "swept").exists())
        return [path for worker in workers if worker not in self.over and (path := worker / name).exists()]

    def _strike(self, claim: Path) -> bool:
        time.sleep(self.rng.choice((0.0, self.rng.uniform(0.0, 0.5))))
        with contextlib.suppress(OSError, ValueError, KeyError):
            claimed = json.loads(claim.read_text())
            if proc.send(claimed["pid"], claimed["start"], signal.SIGKILL):
                self.shims_killed.add(claim.parent.parent.name)
                self.counts["shim_kills"] += 1
                return True
        return False

    def _meddle(self) -> None:
        """Stop a helper, or pause a training and let it go on."""
        if self.rng.random() < 0.1:
            self._stop_a_helper()
        trainings = [job for job, training in self.submitted.items() if training]
        if trainings and self.rng.random() < 0.5:
            job = self.rng.choice(trainings[-8:])
            if "refused" not in self._ask("POST", f"/v1/jobs/{job}/pause"):
                self.counts["pauses"] += 1
                self._ask("POST", f"/v1/jobs/{job}/resume")

    def _stop_a_helper(self) -> None:
        live = self._alive(self.rng.choice(["claim", "lock"]))
        for path in self.rng.sample(live, min(1, len(live))):
            with contextlib.suppress(OSError, ValueError, KeyError):
                named = json.loads(path.read_text())
                self.counts["helpers_stopped"] += proc.send(named["pid"], named["start"], signal.SIGSTOP)

    def _await_all(self, until_s: float) -> None:
        while True:
            jobs = self._ask("GET", "/v1/health")["jobs"]
            if not any(jobs.get(state) for state in ("queued", "starting", "running", "stopping")):
                return
            assert time.monotonic() < until_s, f"not all jobs ended: {jobs}"
            time.sleep(0.3)

    # ---- the truth ----

    def _verdict(self) -> dict[str, Any]:
        shown = {job: self._ask("GET", f"/v1/jobs/{job}") for job in self.submitted}
        trainings = [job for job, training in self.submitted.items() if training]
        for job in filter(self._repeated_tail, trainings):
            self._tell_the_story_of(job)
        return {
            "jobs": len(self.submitted),
            "trainings": len(trainings),
            "attempts": len(list((self.truth / "starts").iterdir())),
            "lost": sum(shown[job]["state"] != "completed" or not self._lines(f"ends/{job}") for job in self.submitted),
            "double": len(self._lines("double")),
            "overlapping": len(self._lines("overlapping")),
            "orphans": self._orphans(),
            "repeated_tails": sum(self._repeated_tail(job) for job in trainings),
            "epochs_wrong": sum(self._trained(job) != list(range(EPOCHS)) for job in trainings),
            "epochs_shown_wrong": sum(shown[job]["progress"]["epochs_done"] != EPOCHS for job in trainings),
        }

    def _lines(self, name: str) -> list[str]:
        path = self.truth / name
        return path.read_text().splitlines() if path.exists() else []

    def _repeated_tail(self, job: int) -> bool:
        """Runs whose shim was killed in their tail are lost, and rightly tried again."""
        return len([run for run in self._lines(f"tails/{job}") if run not in self.shims_killed]) > 1

    def _tell_the_story_of(self, job: int) -> None:
        """Files are gone when the verdict is read."""
        print(f"job {job}: tails {self._lines(f'tails/{job}')}, ends {self._lines(f'ends/{job}')}")
        told = [
            sys.executable,
            "-m",
            "swell",
            "events",
            "--home",
            str(self.home),
            "--job",
            str(job),
            "-n",
            "500",
            "--json",
        ]
        print(subprocess.run(told, capture_output=True, text=True, check=False).stdout)
        for journal in sorted((self.home / "runs").glob(f"{job}.*/*/*.json")):
            print(f"  {journal.relative_to(self.home)}: {journal.read_text(errors='replace')[:400]}")

    def _trained(self, job: int) -> list[int]:
        lines = self._lines(f"trained/{job}")
        return [int(epoch) for epoch in lines[-1].split(",")] if lines else []

    def _orphans(self) -> int:
        """Processes by their number, and locks that somebody still holds. The last sweep is given a moment."""
        give_up = time.monotonic() + 10
        while (left := len(list(self._living())) + len(list(self._held()))) and time.monotonic() < give_up:
            time.sleep(0.1)
        return left

    def _living(self) -> Iterator[int]:
        needle = f"sleep\0{self.token}".encode()
        for path in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if (path / "cmdline").read_bytes().startswith(needle):
                    yield int(path.name)

    def _held(self) -> Iterator[str]:
        for path in (self.truth / "locks").iterdir():
            with path.open() as file:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except OSError:
                    yield path.name
