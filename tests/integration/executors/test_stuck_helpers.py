"""Helpers that somebody stopped (SIGSTOP) or killed (SIGKILL): runs still end as asked, and nothing of them is left."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from contract.executor_benches import RUN, LocalBench, Watcher, launch_of, ready, watching
from integration.executors.processes import is_alive, pid_in, wait_until
from swell.core.events import ExitReason
from swell.core.observations import RunGone, RunUp
from swell.ports import Launch, Worker
from swell.shim import ask, files, members, nursery
from swell.shim import processes as proc

SRC = Path(files.__file__).parents[2]
WITHOUT_CGROUPS = (
    f"import sys; sys.path.insert(0, {str(SRC)!r}); from swell.shim import members, shim; "
    "members._parents = lambda: []; sys.exit(shim.main(['shim.py', 'nursery']))"
)
ESCAPE = "setsid env -i sh -c 'echo $$ > {pid}; exec sleep 1000' & (env -i setsid sleep 1000 &); exec sleep 1000"
"""A grandchild that wiped its environment and left its session, and one that its parent left as well."""


@pytest.fixture(params=["cgroup", "no cgroup"])
def bench(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalBench]:
    if request.param == "no cgroup":
        monkeypatch.setattr(nursery, "NURSERY", (sys.executable, "-ISs", "-c", WITHOUT_CGROUPS))
    elif not members.cgroup_for("probe"):
        pytest.skip("no cgroup may be made here")
    made = LocalBench(tmp_path)
    yield made
    for run in made.runs.glob("*.*"):
        ask.stop(str(run), [0], kill=True)
        ask.force(str(run), [0])
        wait_until(lambda run=run: not ask.is_held(str(run / "0")), "the end of its helpers")  # type: ignore[misc]


def play(bench: LocalBench, scene: Callable[[Watcher], Awaitable[None]]) -> None:
    async def whole() -> None:
        async with watching(bench) as watch:
            await scene(watch)

    asyncio.run(whole())


def shell(text: str) -> Launch:
    worker = Worker(rank=0, node="here", argv=("/bin/sh", "-c", text), env={"PATH": "/usr/bin:/bin"}, cwd="/")
    return Launch(run=RUN, workers=(worker,), grace_s=0.3)


def helper(bench: LocalBench, name: str) -> int:
    """The pid of the shim (`claim`) or of its guard (`lock`)."""
    return int(json.loads((bench.runs / str(RUN) / "0" / name).read_text())["pid"])


def stop_for_good(pid: int) -> None:
    os.kill(pid, signal.SIGSTOP)
    wait_until(lambda: (stat := proc.stat_of(pid)) is not None and stat.state == "T", f"{pid} stopped")


def cgroup_of(bench: LocalBench) -> str:
    return str(json.loads((bench.runs / str(RUN) / "0/claim").read_text())["cgroup"])


@pytest.mark.parametrize("kill", [False, True], ids=["term", "kill"])
def test_a_stopped_shim_does_not_keep_its_run_from_ending(bench: LocalBench, kill: bool) -> None:
    async def scene(watch: Watcher) -> None:
        await watch.executor.launch(launch_of(bench, "deaf"))
        await watch.until(RunUp)
        stop_for_good(helper(bench, "claim"))
        await watch.executor.signal(RUN, kill=kill)
        gone = await watch.until(RunGone)
        assert gone.reason is ExitReason.STOPPED

    play(bench, scene)


def test_a_worker_that_ends_under_a_stopped_shim_is_told_as_finished(bench: LocalBench, tmp_path: Path) -> None:
    async def scene(watch: Watcher) -> None:
        await watch.executor.launch(ready(shell(f"while [ ! -e {tmp_path}/go ]; do sleep 0.02; done")))
        await watch.until(RunUp)
        stop_for_good(helper(bench, "claim"))
        (tmp_path / "go").touch()
        gone = await watch.until(RunGone)
        assert gone.reason is ExitReason.FINISHED

    play(bench, scene)


def test_a_shim_that_is_stopped_again_and_again_is_killed_with_all_it_held(bench: LocalBench, tmp_path: Path) -> None:
    """As by a debugger that holds it: being woken does not help."""

    async def scene(watch: Watcher) -> None:
        watch.executor._floor.tuning = replace(watch.executor._floor.tuning, force_s=0.3)  # type: ignore[attr-defined]
        await watch.executor.launch(ready(shell(ESCAPE.format(pid=tmp_path / "pid"))))
        await watch.until(RunUp)
        escaped, shim_pid = pid_in(tmp_path / "pid"), helper(bench, "claim")
        hold = threading.Thread(target=keep_stopped, args=(shim_pid,))
        hold.start()
        wait_until(lambda: (stat := proc.stat_of(shim_pid)) is not None and stat.state in "Tt", "the shim held")
        await watch.executor.signal(RUN, kill=True)
        gone = await watch.until(RunGone)
        assert gone.reason in (ExitReason.SHIM_LOST, ExitReason.STOPPED)
        await asyncio.to_thread(hold.join)
        assert not is_alive(escaped)

    play(bench, scene)


def keep_stopped(pid: int) -> None:
    give_up_s = time.monotonic() + 15
    while is_alive(pid) and time.monotonic() < give_up_s:
        with_stop = proc.stat_of(pid)
        if with_stop is not None and with_stop.state not in "Tt":
            proc.send(pid, with_stop.start, signal.SIGSTOP)
        time.sleep(0.0005)


def test_a_stopped_nursery_is_replaced_and_the_run_starts(bench: LocalBench) -> None:
    async def scene(watch: Watcher) -> None:
        nursery = watch.executor._here.transport._host.nursery  # type: ignore[attr-defined]
        nursery._answer_s = 1.0
        await asyncio.to_thread(nursery.close)
        await asyncio.to_thread(nursery.warm)
        stop_for_good(nursery._process.pid)
        await watch.executor.launch(launch_of(bench, "finish"))
        gone = await watch.until(RunGone)
        assert gone.reason is ExitReason.FINISHED
        assert bench.starts(RUN) == 1

    play(bench, scene)


def test_a_guard_that_was_stopped_before_it_had_a_shim_only_delays_the_start(bench: LocalBench) -> None:
    """It holds the lock and there is no claim yet: nobody else could start, or fence, the worker."""

    async def scene(watch: Watcher) -> None:
        folder = bench.runs / str(RUN) / "0"
        folder.mkdir(parents=True)
        pid = os.fork()
        if not pid:
            files.take_lock(str(folder))
            os.kill(os.getpid(), signal.SIGSTOP)
            os._exit(0)  # once it is woken
        wait_until(lambda: (stat := proc.stat_of(pid)) is not None and stat.state == "T", "a stopped guard")
        watch.executor._floor.tuning = replace(watch.executor._floor.tuning, ask_again_s=0.3, ask_times=20)  # type: ignore[attr-defined]
        await watch.executor.launch(launch_of(bench, "finish"))
        gone = await watch.until(RunGone)
        os.waitpid(pid, 0)
        assert gone.reason is ExitReason.FINISHED

    play(bench, scene)


@pytest.mark.parametrize("also_stopped", [False, True], ids=["guard", "stopped guard"])
def test_what_wiped_its_environment_and_left_its_session_dies_with_a_killed_shim(
    bench: LocalBench, tmp_path: Path, also_stopped: bool
) -> None:
    async def scene(watch: Watcher) -> None:
        await watch.executor.launch(ready(shell(ESCAPE.format(pid=tmp_path / "pid"))))
        await watch.until(RunUp)
        escaped, guard = pid_in(tmp_path / "pid"), helper(bench, "lock")
        family = proc.descendants(guard)
        if also_stopped:
            stop_for_good(guard)
        os.kill(helper(bench, "claim"), signal.SIGKILL)
        gone = await watch.until(RunGone)
        assert gone.reason is ExitReason.SHIM_LOST
        assert not is_alive(escaped)
        assert not [pid for pid in family if is_alive(pid)]
        wait_until(lambda: not is_alive(guard), "the guard's own end")
        assert not cgroup_of(bench) or not Path(cgroup_of(bench)).exists()

    play(bench, scene)


def test_the_guard_sweeps_also_while_nobody_looks(bench: LocalBench, tmp_path: Path) -> None:
    """The daemon is down: what a killed shim left does not wait for its return."""

    async def scene(watch: Watcher) -> None:
        await watch.executor.launch(ready(shell(ESCAPE.format(pid=tmp_path / "pid"))))
        await watch.until(RunUp)

    play(bench, scene)
    escaped = pid_in(tmp_path / "pid")
    os.kill(helper(bench, "claim"), signal.SIGKILL)
    wait_until(lambda: not is_alive(escaped), "the sweep")
    wait_until((bench.runs / str(RUN) / "0/swept").exists, "its word for it")


def test_a_guard_that_was_stopped_ends_with_its_run(bench: LocalBench, tmp_path: Path) -> None:
    async def scene(watch: Watcher) -> None:
        await watch.executor.launch(ready(shell(f"while [ ! -e {tmp_path}/go ]; do sleep 0.02; done")))
        await watch.until(RunUp)
        guard = helper(bench, "lock")
        stop_for_good(guard)
        (tmp_path / "go").touch()
        await watch.until(RunGone)
        wait_until(lambda: not is_alive(guard), "the guard's end")

    play(bench, scene)


def test_a_killed_guard_leaves_the_shim_at_its_work(bench: LocalBench) -> None:
    async def scene(watch: Watcher) -> None:
        await watch.executor.launch(launch_of(bench, "stay"))
        await watch.until(RunUp)
        os.kill(helper(bench, "lock"), signal.SIGKILL)
        await watch.executor.signal(RUN, kill=False)
        gone = await watch.until(RunGone)
        assert gone.reason is ExitReason.STOPPED

    play(bench, scene)


def test_with_a_cgroup_nothing_survives_even_both_helpers(tmp_path: Path) -> None:
    if not members.cgroup_for("probe"):
        pytest.skip("no cgroup may be made here")
    bench = LocalBench(tmp_path)

    async def scene(watch: Watcher) -> None:
        await watch.executor.launch(ready(shell(ESCAPE.format(pid=tmp_path / "pid"))))
        await watch.until(RunUp)
        escaped = pid_in(tmp_path / "pid")
        guard, held = helper(bench, "lock"), helper(bench, "claim")
        os.kill(guard, signal.SIGSTOP)
        os.kill(held, signal.SIGKILL)
        os.kill(guard, signal.SIGKILL)
        gone = await watch.until(RunGone)
        assert gone.reason is ExitReason.SHIM_LOST
        assert not is_alive(escaped)

    play(bench, scene)
