"""Machines that are full or out of memory: a clear end, running work untouched, the truth not lost."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from contract.executor_benches import RUN, LocalBench, launch_of, watching
from integration.executors.processes import wait_until
from swell.core.events import ExitReason
from swell.core.ids import RunId
from swell.core.observations import RunGone, RunUp
from swell.executors.verdict import end_of, sight_from_json
from swell.shim import ask, shim
from swell.shim import processes as proc


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 1 MiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m,mode=700", "tmpfs", folder], capture_output=True)
    if mounted.returncode:
        pytest.skip("needs the right to mount a small file system (root)")
    try:
        yield folder
        _end_all(folder / "runs")
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


def _end_all(runs: Path) -> None:
    for run in runs.glob("*.*"):
        ask.stop(str(run), [0], kill=True)
        wait_until(lambda run=run: not ask.is_held(str(run / "0")), "the end of its shim")  # type: ignore[misc]


def fill(folder: Path) -> Path:
    ballast = folder / "ballast"
    with ballast.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(b"\0" * 4096)
    return ballast


def test_on_a_full_disk_running_work_ends_with_its_record_and_nothing_new_starts(small_disk: Path) -> None:
    bench = LocalBench(small_disk)
    running, refused, later = RunId(7, 1), RunId(7, 2), RunId(7, 3)

    async def scene() -> None:
        async with watching(bench) as watch:
            await watch.executor.launch(launch_of(bench, "stay", run=running))
            await watch.until(RunUp, running)
            ballast = fill(small_disk)
            await watch.executor.launch(launch_of(bench, "finish", run=refused))
            gone = await watch.until(RunGone, refused)
            assert gone.reason is ExitReason.NODE_FULL
            assert "No space left" in gone.message
            assert watch.of(running) == ["RunUp"]
            pid, start = _child_of(bench.runs / str(running) / "0")
            assert proc.send(pid, start, signal.SIGSEGV)
            gone = await watch.until(RunGone, running)
            assert gone.reason is ExitReason.KILLED
            ballast.unlink()
            await watch.executor.launch(launch_of(bench, "finish", run=later))
            gone = await watch.until(RunGone, later)
            assert gone.reason is ExitReason.FINISHED

    asyncio.run(scene())


def _child_of(folder: Path) -> tuple[int, int]:
    holder = json.loads((folder / "claim").read_text())["pid"]
    return next(iter(proc.alive(proc.descendants(holder)).items()))


def test_a_full_disk_does_not_keep_a_run_from_being_stopped(small_disk: Path) -> None:
    bench = LocalBench(small_disk)

    async def scene() -> None:
        async with watching(bench) as watch:
            await watch.executor.launch(launch_of(bench, "stay"))
            await watch.until(RunUp)
            fill(small_disk)
            await watch.executor.signal(RUN, kill=False)
            gone = await watch.until(RunGone)
            assert gone.reason is ExitReason.STOPPED

    asyncio.run(scene())


@pytest.fixture
def small_memory() -> Iterator[Path]:
    """A cgroup of 64 MiB, of either version."""
    name = f"swell-test-{os.getpid()}"
    for parent, limit in (("memory", "memory.limit_in_bytes"), (".", "memory.max"), ("unified", "memory.max")):
        group = Path("/sys/fs/cgroup") / parent / name
        try:
            group.mkdir()
            (group / limit).write_text(str(64 * 1024 * 1024))
        except OSError:
            if group.exists():
                group.rmdir()
            continue
        yield group
        wait_until(lambda group=group: not (group / "cgroup.procs").read_text(), "an empty cgroup")  # type: ignore[misc]
        group.rmdir()
        return
    pytest.skip("needs the right to make a memory cgroup (root)")


@pytest.mark.parametrize("through_a_shell", [False, True])
def test_a_worker_that_eats_too_much_memory_is_told_as_out_of_memory(
    small_memory: Path, tmp_path: Path, through_a_shell: bool
) -> None:
    eat = "b = []\nwhile True: b.append(bytearray(4 << 20))"
    argv = ["python3", "-ISs", "-c", eat]
    if through_a_shell:
        argv = ["sh", "-c", 'python3 -ISs -c "$EAT"; exit $?']
    folder = tmp_path / "runs/1.1/0"
    folder.mkdir(parents=True)
    env = {"PATH": os.environ["PATH"], "EAT": eat}
    request = {"run": "1.1", "rank": 0, "argv": argv, "env": env, "cwd": "/", "grace_s": 1}
    (folder / "request.json").write_text(json.dumps(request))
    hold = f"echo $$ > {small_memory}/cgroup.procs && exec python3 -ISs {shim.__file__} hold {folder}"
    subprocess.run(["sh", "-c", hold], check=True, timeout=20)
    wait_until((folder / "swept").exists, "the end of the worker")
    (seen,) = sight_from_json([ask.look(str(folder.parent), [0])], time.time()).workers
    end = end_of(seen, None, time.time())
    assert end is not None
    assert (end.reason, seen.exit["oom"] if seen.exit else None) == (ExitReason.OUT_OF_MEMORY, True)
    assert "ask for more memory" in end.message
