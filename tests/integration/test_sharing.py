"""Sharing GPUs, with real processes and a stand-in for the GPU driver: who is beside whom, and what happens when one
grows. What each process “uses” is written into the driver's state by the test, from what the processes say."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from harness import ROOT, Daemon, end_runs, eventually
from stubs.nvml import FakeGpu, NvmlStub

TRAINING = """
import os, pathlib, time, swell
place, who = pathlib.Path(os.environ["PLACE"]), os.environ["WHO"]
with swell.training(epochs=100000) as run:
    for epoch in run.epochs():
        mib = 9000 if (place / ("grow-" + who)).exists() else 5000
        said = place / (who + ".new")
        said.write_text(f"{os.environ['CUDA_VISIBLE_DEVICES']} {os.getpid()} {mib}")
        said.rename(place / (who + ".use"))
        for step in run.steps(range(5)):
            time.sleep(0.04)
        run.save({"epoch": epoch})
"""
TOTAL_MIB = 16_000


class Gpus:
    """Two GPUs of 16,000 MiB whose use is what the processes last said, as long as they live."""

    def __init__(self, folder: Path) -> None:
        self.place = folder / "place"
        self.place.mkdir()
        (self.place / "train.py").write_text(TRAINING)
        self.stub = NvmlStub(folder)
        self.tell()

    def uses(self) -> dict[str, tuple[int, int, int]]:
        """(GPU, pid, MiB) of each that lives."""
        said = {path.stem: path.read_text().split() for path in sorted(self.place.glob("*.use"))}
        return {
            who: (int(gpu), int(pid), int(mib)) for who, (gpu, pid, mib) in said.items() if Path("/proc", pid).exists()
        }

    def tell(self) -> dict[str, int]:
        """Write what is used into the driver's state; returns on which GPU each is."""
        uses = self.uses()
        used = [min(TOTAL_MIB, sum(mib for gpu, _, mib in uses.values() if gpu == index)) for index in (0, 1)]
        fakes = [FakeGpu(name="Tesla V100", total_mib=TOTAL_MIB, used_mib=mib) for mib in used]
        self.stub.write(fakes, processes=list(uses.values()))
        return {who: gpu for who, (gpu, _, _) in uses.items()}

    def runs(self, who: str) -> bool:
        return who in self.tell()


@pytest.fixture
def gpus(tmp_path: Path) -> Gpus:
    return Gpus(tmp_path)


@pytest.fixture
def served(tmp_path: Path, gpus: Gpus) -> Iterator[Daemon]:
    made = Daemon(tmp_path / "home", env=gpus.stub.env)
    made.args = ("--policy", "elastic-fifo")  # no declared slots: the driver says what there is
    try:
        made.start()
        yield made
    finally:
        if made.process is not None and made.process.poll() is None:
            made.kill()
        end_runs(made.home)


def submit(served: Daemon, gpus: Gpus, who: str, *, share: bool = True) -> int:
    env = {"PLACE": str(gpus.place), "WHO": who, "PYTHONPATH": str(ROOT / "src"), **gpus.stub.env}
    return served.submit(
        name=who,
        command=[sys.executable, str(gpus.place / "train.py")],
        gpus={"min": 1, "max": 1, "share": share, "memory": "5000MiB"},
        cpus=0,  # the machine that tests this may have fewer than four
        env=env,
        uses_library=True,
    )[0]


def test_three_share_the_fourth_goes_elsewhere_and_one_that_grows_is_moved(served: Daemon, gpus: Gpus) -> None:
    jobs: dict[str, int] = {}
    for who in ("a", "b", "c", "d"):
        jobs[who] = submit(served, gpus, who)
        eventually(partial(gpus.runs, who), 30, what=f"{who} runs; {served.said()}")
    assert gpus.tell() == {"a": 0, "b": 0, "c": 0, "d": 1}
    before = {who: pid for who, (_, pid, _) in gpus.uses().items()}
    (gpus.place / "grow-c").touch()
    eventually(lambda: gpus.tell().get("c") == 1, 60, what="the one that grew is moved")
    after = gpus.uses()
    assert {who: after[who][1] for who in "abd"} == {who: before[who] for who in "abd"}, "somebody else was restarted"
    for index in (0, 1):
        assert sum(mib for gpu, _, mib in after.values() if gpu == index) <= TOTAL_MIB
    told = {who: served.get(f"/v1/jobs/{job}") for who, job in jobs.items()}
    assert {who: job["failures"] for who, job in told.items()} == dict.fromkeys(jobs, 0)
    assert told["c"]["attempts"] == 2
    assert told["c"]["gpu_memory_mib"] >= 9000


def test_a_job_that_does_not_share_has_its_gpu_alone(served: Daemon, gpus: Gpus) -> None:
    for who, share in (("a", True), ("b", False), ("c", True)):
        submit(served, gpus, who, share=share)
        eventually(partial(gpus.runs, who), 30, what=f"{who} runs; {served.said()}")
    assert gpus.tell() == {"a": 0, "b": 1, "c": 0}
