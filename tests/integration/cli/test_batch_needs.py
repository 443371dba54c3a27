"""Every requirement of a batch by its effect: which lines run at the same time, and on which GPUs. The GPUs are played
by a stand-in for the driver; lines wait for a file, so that who runs beside whom can be seen."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from harness import Daemon, end_runs, eventually
from integration.cli.conftest import Shell
from stubs.nvml import FakeGpu, NvmlStub

SMALL_MIB, LARGE_MIB = 8_000, 16_000
SMALL, LARGE = FakeGpu(name="Tesla T4", total_mib=SMALL_MIB), FakeGpu(name="Tesla V100", total_mib=LARGE_MIB)
LINES = 8
CPU_ONLY = "none"
Held = dict[str, int]
"""By GPU, how many lines run on it; CPU_ONLY: those without one."""


@contextmanager
def machine_with(folder: Path, *gpus: FakeGpu) -> Iterator[Daemon]:
    """No declared slots: the driver says what there is."""
    stub = NvmlStub(folder)
    stub.write(gpus)
    made = Daemon(folder / "home", env=stub.env)
    made.args = ()
    try:
        made.start()
        yield made
    finally:
        if made.process is not None and made.process.poll() is None:
            made.kill()
        end_runs(made.home)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    with machine_with(tmp_path_factory.mktemp("needs"), LARGE, LARGE) as made:
        yield made


class Waiting:
    """A batch whose lines wait for a file before they end."""

    def __init__(self, served: Daemon, sh: Shell, *options: object, lines: int = LINES) -> None:
        self.served = served
        self.go = sh.work / "go"
        line = f"echo gpus=$CUDA_VISIBLE_DEVICES; until [ -e {self.go} ]; do sleep 0.05; done"
        (sh.work / "b.sh").write_text("".join(f"{line}; : {n}\n" for n in range(lines)))
        self.number = lines
        said = json.loads(sh("batch", "b.sh", "--detach", "--json", *options).out)
        self.name = said["batch"]

    def views(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.served.get(f"/v1/jobs?batch={self.name}&state=all")["jobs"]
        return found

    def held(self) -> Held:
        """Once every line that does not run has been told why."""
        seen: list[dict[str, Any]] = []

        def settled() -> bool:
            seen[:] = self.views()
            others = [view for view in seen if view["state"] != "running"]
            return len(others) < self.number and all(view["state"] == "queued" and view["why"] for view in others)

        eventually(settled, 60.0, what="each line runs or waits for a reason", every_s=0.2)
        places = [str(view["where"][0]) for view in seen if view["state"] == "running"]
        return dict(Counter(place.partition(":")[2] or CPU_ONLY for place in places))

    def end(self) -> None:
        self.go.touch()
        eventually(lambda: {view["state"] for view in self.views()} == {"completed"}, 60.0, what="all end")


def memory_mib(sh: Shell) -> int:
    return int(json.loads(sh("nodes", "--json").out)[0]["memory_mib"])


@pytest.mark.parametrize(
    ("options", "held"),
    [
        ([], {"0": 1, "1": 1}),
        (["--gpu-memory-required=7000"], {"0": 1, "1": 1}),
        (["--gpu-memory-required=7000", "--no-reserve-gpu", "--num-cpus=0"], {"0": 2, "1": 2}),
        (["--gpu-memory-required=5GiB", "--no-reserve-gpu", "--num-cpus=0"], {"0": 3, "1": 3}),
        (["--gpu-utilization=0.5", "--no-reserve-gpu", "--num-cpus=0"], {"0": 2, "1": 2}),
        (["--gpu-utilization=0.5"], {"0": 1, "1": 1}),
        (["--gpus=2"], {"0,1": 1}),
        (["--reserve"], {"0,1": 1}),
        (["--reserve", "--gpus=1"], {"0": 1}),
        (["--reserve", "--no-gpu-required"], {CPU_ONLY: 1}),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_requirement_decides_who_runs_beside_whom(served: Daemon, sh: Shell, options: list[str], held: Held) -> None:
    waiting = Waiting(served, sh, *options)
    assert waiting.held() == held
    waiting.end()


def test_memory_and_cores_decide_how_many_lines_a_machine_runs_at_once(served: Daemon, sh: Shell) -> None:
    """Lines that need no GPU would all run at the same time but for them."""
    for options in (["--num-cpus=1000000"], [f"--memory-required={memory_mib(sh) + 1}"]):
        (sh.work / "b.sh").write_text("true\n")
        assert sh("batch", "b.sh", "--no-gpu-required", *options, code=2).err
    half = Waiting(served, sh, "--no-gpu-required", "--num-cpus=0", f"--memory-required={memory_mib(sh) // 2}", lines=4)
    assert half.held() == {CPU_ONLY: 2}
    half.end()


def test_lines_that_need_no_gpu_run_while_all_gpus_are_held(served: Daemon, sh: Shell, tmp_path: Path) -> None:
    both = Waiting(served, sh, "--num-cpus=0", lines=2)
    assert both.held() == {"0": 1, "1": 1}
    other = Shell(sh.home, tmp_path / "other")
    other.work.mkdir()
    cpu = Waiting(served, other, "--no-gpu-required", "--num-cpus=0", lines=3)
    assert cpu.held() == {CPU_ONLY: 3}
    cpu.end()
    other("batch", "fetch", cpu.name)
    assert [out.read_text() for out in (other.work / "job_results").glob("*.out")] == ["gpus=\n"] * 3
    both.end()


def test_lines_run_only_on_gpus_with_the_memory_that_they_need(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    with machine_with(tmp_path, SMALL, LARGE) as served:
        waiting = Waiting(
            served, Shell(served.home, tmp_path / "work"), f"--gpu-memory-required={SMALL_MIB + 1}", lines=3
        )
        assert waiting.held() == {"1": 1}
        waiting.end()


def test_gpu_memory_that_no_gpu_has_is_refused_with_what_there_is(sh: Shell) -> None:
    (sh.work / "b.sh").write_text("true\n")
    said = sh("batch", "b.sh", f"--gpu-memory-required={LARGE_MIB + 1}", code=2).err
    assert f"it needs {LARGE_MIB + 1} MiB of memory on a GPU, the largest GPU it may use has {LARGE_MIB}" in said
