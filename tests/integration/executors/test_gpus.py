"""GPUs through pynvml, with a stand-in for the driver's library."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

import pytest

from contract.executor_benches import RUN, RealClock, as_is, ready, watching
from stubs.nvml import FakeGpu, NvmlStub
from swell.core.observations import NodeSeen, Observation, RunGone, RunUp
from swell.core.resources import GpuHealth, Node
from swell.executors.inventory import Machine, Ours
from swell.executors.local import LocalExecutor
from swell.executors.nvml import GpuProcess, Nvml
from swell.executors.tracking import Tuning
from swell.ports import Launch, Worker
from swell.shim import ask
from swell.shim import processes as proc


@pytest.fixture
def stub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> NvmlStub:
    made = NvmlStub(tmp_path)
    made.load(monkeypatch)
    return made


def test_without_a_driver_there_are_no_gpus() -> None:
    code = "from swell.executors.nvml import Nvml; print(Nvml().read())"
    env = {"PYTHONPATH": os.pathsep.join(sys.path), "PATH": os.environ["PATH"]}
    assert subprocess.check_output([sys.executable, "-c", code], text=True, env=env) == "()\n"


def test_another_process_finds_the_gpus_by_its_library_path(stub: NvmlStub) -> None:
    stub.write([FakeGpu(), FakeGpu()])
    code = "from swell.executors.nvml import Nvml; print([gpu.type for gpu in Nvml().read()])"
    env = {"PYTHONPATH": os.pathsep.join(sys.path), "PATH": os.environ["PATH"], **stub.env}
    assert subprocess.check_output([sys.executable, "-c", code], text=True, env=env) == "['A100', 'A100']\n"


def test_gpus_are_read_with_memory_processes_and_links(stub: NvmlStub) -> None:
    gpus = [FakeGpu(used_mib=700, utilisation=85), FakeGpu(), FakeGpu(name="Tesla T4", total_mib=15_360)]
    stub.write(gpus, processes=[(0, 4711, 700), (2, 4712, -1)], links=[(0, 1)])
    first, second, third = Nvml().read()
    assert (first.type, first.total_mib, first.used_mib) == ("A100", 40_960, 700)
    assert (first.percent, second.percent) == (85, 0)
    assert first.processes == (GpuProcess(pid=4711, memory_mib=700),)
    assert third.processes == (GpuProcess(pid=4712, memory_mib=None),)
    assert (third.type, third.total_mib) == ("T4", 15_360)
    assert first.link_group == second.link_group > 0
    assert third.link_group == 0
    assert [gpu.uuid for gpu in (first, second, third)] == ["GPU-0", "GPU-1", "GPU-2"]


def test_a_lost_gpu_and_a_lost_driver_take_no_gpu_out_of_the_record(stub: NvmlStub) -> None:
    reader = Nvml()
    stub.write([FakeGpu(), FakeGpu()])
    assert [gpu.trouble for gpu in reader.read()] == ["", ""]
    stub.write([FakeGpu(), FakeGpu(error=15)])
    healthy, lost = reader.read()
    assert (healthy.trouble, lost.type, lost.trouble) == ("", "A100", "GPU is lost")
    stub.state.unlink()
    assert [bool(gpu.trouble) for gpu in reader.read()] == [True, True]


class GpuBench:
    """A machine with GPUs on which a run's memory use is played by the state file."""

    def __init__(self, home: Path) -> None:
        self.runs = home / "runs"
        self.machine = Machine(RealClock(), name="here")

    def executor(self) -> LocalExecutor:
        tuning = Tuning(poll_s=0.2, inventory_s=0.1, clean_s=0.3)
        return LocalExecutor(self.runs, RealClock(), as_is, machine=self.machine, tuning=tuning)

    async def pass_time(self) -> None:
        await asyncio.sleep(0.02)

    def starts(self, run: object) -> int:
        return 0


def launch(*gpus: int) -> Launch:
    worker = Worker(rank=0, node="here", argv=("sleep", "1000"), env={}, cwd="/", gpus=gpus)
    return Launch(run=RUN, workers=(worker,), grace_s=1.0)


def _nodes(told: Sequence[Observation]) -> list[Node]:
    return [item.node for item in told if isinstance(item, NodeSeen)]


@pytest.mark.parametrize("left_mib", [0, 9_000])
def test_a_gpu_with_memory_left_is_told_dirty_before_its_run_is_gone(
    stub: NvmlStub, tmp_path: Path, left_mib: int
) -> None:
    """Never given to the next run before it is clean: the engine hears of the dirt first."""
    bench = GpuBench(tmp_path)

    async def scene() -> None:
        stub.write([FakeGpu()])
        async with watching(bench, nodes=True) as watch:
            await watch.executor.launch(ready(launch(0)))
            await watch.until(RunUp)
            stub.write([FakeGpu(used_mib=9_000)])
            await watch.executor.signal(RUN, kill=True)
            stub.write([FakeGpu(used_mib=left_mib)])
            await watch.until(RunGone)
            before = watch.told[: [type(item) for item in watch.told].index(RunGone)]
            healths = [health for health, _ in groupby(node.gpus[0].health for node in _nodes(before))]
            assert healths == [GpuHealth.OK] + ([GpuHealth.DIRTY] if left_mib else [])
            stub.write([FakeGpu()])
            while _nodes(watch.told)[-1].gpus[0].health is not GpuHealth.OK:
                await bench.pass_time()

    asyncio.run(scene())


def test_our_own_process_is_not_somebody_elses(stub: NvmlStub, tmp_path: Path) -> None:
    bench = GpuBench(tmp_path)

    async def scene() -> None:
        stub.write([FakeGpu(), FakeGpu()])
        async with watching(bench, nodes=True) as watch:
            await watch.executor.launch(ready(launch(0)))
            await watch.until(RunUp)
            worker = _worker_pid(bench.runs / str(RUN) / "0")
            gpus = [FakeGpu(used_mib=900), FakeGpu(used_mib=800)]
            stub.write(gpus, processes=[(0, worker, 900), (1, os.getpid(), 800)])
            while len(_nodes(watch.told)) < 2:
                await bench.pass_time()
            ours, others = _nodes(watch.told)[-1].gpus
            assert not ours.others
            assert (others.others, others.others_memory_mib) == (True, 1_024)
            await watch.executor.signal(RUN, kill=True)
            await watch.until(RunGone)

    asyncio.run(scene())


def _worker_pid(folder: Path) -> int:
    held = ask.look(str(folder.parent), [0])["workers"][0]["pid"]
    return proc.descendants(held)[0]


def test_clean_is_asked_of_one_gpu(stub: NvmlStub) -> None:
    stub.write([FakeGpu(), FakeGpu(used_mib=5_000)])
    machine = Machine(RealClock(), name="here")
    assert machine.gpu_clean(0, Ours())
    assert not machine.gpu_clean(1, Ours())
