"""What a worker finds, and that nothing of it outlives its run. Real processes, one shim each."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import stat
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from contract.executor_benches import RUN, LocalBench, Watcher, ready, watching
from integration.executors.processes import is_alive, pid_in, wait_until
from swell.core.events import ExitReason
from swell.core.observations import RunGone, RunUp
from swell.core.resources import Node
from swell.ports import Done, Launch, LogChunk, Worker
from swell.shim import ask
from swell.shim import processes as proc


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[LocalBench]:
    made = LocalBench(tmp_path)
    yield made
    for run in made.runs.glob("*.*"):
        ask.stop(str(run), [int(rank.name) for rank in run.iterdir() if rank.name.isdigit()], kill=True)


def launch_of(*argvs: list[str], cwd: str = "/", grace_s: float = 1.0, env: dict[str, str] | None = None) -> Launch:
    workers = tuple(
        Worker(rank=rank, node="here", argv=tuple(argv), env=env or {}, cwd=cwd) for rank, argv in enumerate(argvs)
    )
    return Launch(run=RUN, workers=workers, grace_s=grace_s)


def sh(text: str) -> list[str]:
    return ["/bin/sh", "-c", text]


def python(text: str) -> list[str]:
    return [sys.executable, "-ISs", "-c", text]


def play(bench: LocalBench, scene: Callable[[Watcher], Awaitable[None]]) -> None:
    async def whole() -> None:
        async with watching(bench) as watch:
            await scene(watch)

    asyncio.run(whole())


def run_to_end(bench: LocalBench, launch: Launch) -> RunGone:
    found: list[RunGone] = []

    async def scene(watch: Watcher) -> None:
        await watch.executor.launch(ready(launch))
        found.append(await watch.until(RunGone))

    play(bench, scene)
    return found[0]


def log_of(bench: LocalBench, rank: int = 0) -> str:
    return (bench.runs / str(RUN) / str(rank) / "log").read_text()


ESCAPES = {
    "a new session": "setsid sh -c 'echo $$ > {pid}; exec sleep 1000' & ",
    "a new session without the mark": "setsid env -i sh -c 'echo $$ > {pid}; exec sleep 1000' & ",
    "forked twice": "(setsid sh -c 'echo $$ > {pid}; exec sleep 1000' &) & ",
    "deaf": "(trap \"\" TERM HUP INT; setsid sh -c 'echo $$ > {pid}; while :; do sleep 1; done' &) & ",
}


@pytest.mark.parametrize("escape", sorted(ESCAPES))
def test_never_leaves_a_descendant_behind(bench: LocalBench, tmp_path: Path, escape: str) -> None:
    pid = tmp_path / "pid"
    script = ESCAPES[escape].format(pid=pid) + f"until [ -s {pid} ]; do sleep 0.01; done; exit 0"
    gone = run_to_end(bench, launch_of(sh(script)))
    assert gone.reason is ExitReason.FINISHED
    assert not is_alive(pid_in(pid))


def test_never_leaves_behind_what_somebody_else_started_with_the_runs_mark(bench: LocalBench, tmp_path: Path) -> None:
    """Not a descendant: a server that was there before started it, with the environment of the run."""

    async def scene(watch: Watcher) -> None:
        await watch.executor.launch(ready(launch_of(sh(f"echo $SWELL_MARK > {tmp_path}/mark; exec sleep 1000"))))
        wait_until(lambda: (tmp_path / "mark").exists() and len((tmp_path / "mark").read_text()) > 30, "the mark")
        mark = (tmp_path / "mark").read_text().strip()
        with _sleeper(mark) as marked, _sleeper("0" * 32) as other:
            await watch.executor.signal(RUN, kill=False)
            await watch.until(RunGone)
            assert not is_alive(marked.pid)
            assert is_alive(other.pid)

    play(bench, scene)


@contextmanager
def _sleeper(mark: str) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "1000"], env={"SWELL_MARK": mark, "PATH": "/usr/bin:/bin"}) as process:
        try:
            yield process
        finally:
            process.kill()


def test_sigterm_reaches_descendants_in_other_sessions(bench: LocalBench, tmp_path: Path) -> None:
    """So that a training below a launcher that does not forward signals can still save its work."""
    saver = f"trap 'echo saved > {tmp_path}/saved; exit 0' TERM; echo $$ > {tmp_path}/pid; while :; do sleep 0.02; done"

    async def scene(watch: Watcher) -> None:
        await watch.executor.launch(ready(launch_of(sh('setsid sh -c "$SAVER" & wait'), env={"SAVER": saver})))
        pid_in(tmp_path / "pid")
        await watch.executor.signal(RUN, kill=False)
        await watch.until(RunGone)
        assert (tmp_path / "saved").exists()

    play(bench, scene)


def test_a_descendant_has_its_grace_though_the_worker_leaves_at_once(bench: LocalBench, tmp_path: Path) -> None:
    saver = (
        f"trap 'sleep 0.5; echo saved > {tmp_path}/saved; exit 0' TERM; "
        f"echo $$ > {tmp_path}/pid; while :; do sleep 0.02; done"
    )
    script = 'setsid sh -c "$SAVER" & trap "exit 0" TERM; while :; do sleep 0.02; done'

    async def scene(watch: Watcher) -> None:
        await watch.executor.launch(ready(launch_of(sh(script), env={"SAVER": saver}, grace_s=30.0)))
        pid_in(tmp_path / "pid")
        await watch.executor.signal(RUN, kill=False)
        await watch.until(RunGone)
        assert (tmp_path / "saved").exists()

    play(bench, scene)


def test_kill_reaches_everything_at_once(bench: LocalBench, tmp_path: Path) -> None:
    script = f"trap '' TERM; setsid sh -c 'echo $$ > {tmp_path}/pid; exec sleep 1000' & while :; do sleep 1; done"

    async def scene(watch: Watcher) -> None:
        await watch.executor.launch(ready(launch_of(sh(script), grace_s=1000.0)))
        escaped = pid_in(tmp_path / "pid")
        await watch.executor.signal(RUN, kill=False)
        await watch.executor.signal(RUN, kill=True)
        gone = await watch.until(RunGone)
        assert gone.reason is ExitReason.STOPPED
        assert not is_alive(escaped)

    play(bench, scene)


def test_a_worker_killed_by_somebody_else_is_killed_not_stopped(bench: LocalBench, tmp_path: Path) -> None:
    async def scene(watch: Watcher) -> None:
        await watch.executor.launch(ready(launch_of(sh(f"echo $$ > {tmp_path}/pid; exec sleep 1000"))))
        os.kill(pid_in(tmp_path / "pid"), signal.SIGKILL)
        gone = await watch.until(RunGone)
        assert (gone.reason, gone.message) == (ExitReason.KILLED, "ended by SIGKILL")

    play(bench, scene)


def test_the_last_line_of_the_log_says_why_but_never_a_secret(bench: LocalBench) -> None:
    launch = launch_of(sh("echo first; echo \"KeyError: '$PASSWORD'\" >&2; exit 4"), env={"PASSWORD": "swordfish"})
    gone = run_to_end(bench, replace(launch, secrets=("PASSWORD",)))
    assert (gone.exit_code, gone.message) == (4, "exit code 4: KeyError: '***'")


@pytest.mark.parametrize(
    ("argv", "cwd", "words"),
    [
        (["no-such-program"], "/", ["no-such-program", "on the PATH of the job", "check the command"]),
        (["./train.py"], "/", ["./train.py", "no such program", "submit the file"]),
        (["true"], "/no/such/place", ["/no/such/place", "cannot be entered", "workdir"]),
    ],
)
def test_what_cannot_start_says_what_is_missing_and_what_to_do(
    bench: LocalBench, argv: list[str], cwd: str, words: list[str]
) -> None:
    gone = run_to_end(bench, launch_of(argv, cwd=cwd))
    assert gone.reason is ExitReason.START_FAILED
    for word in words:
        assert word in gone.message


@pytest.mark.parametrize(
    ("text", "mode", "words"),
    [
        ("#!/no/such/python\n", 0o755, "names an interpreter that is not on the node"),
        ("print(1)\n", 0o644, "it is not executable; `chmod +x` it"),
        ("print(1)\n", 0o755, "a script needs a first line such as #!/usr/bin/env python3"),
    ],
)
def test_a_script_that_is_no_program_says_why(
    bench: LocalBench, tmp_path: Path, text: str, mode: int, words: str
) -> None:
    script = tmp_path / "train"
    script.write_text(text)
    script.chmod(mode)
    gone = run_to_end(bench, launch_of([str(script)]))
    assert gone.reason is ExitReason.START_FAILED
    assert words in gone.message


def test_what_a_worker_finds(bench: LocalBench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its own environment over the machine's, nothing of the daemon's, no open files of others, its own session."""
    monkeypatch.setenv("DAEMON_SECRET", "hush")
    monkeypatch.setenv("LC_TIME", "C")
    look = (
        "import os, json, signal; folder = '/proc/self/fd';"
        "fds = sorted(int(f) for f in os.listdir(folder) if os.path.exists(f'{folder}/{f}'));"
        "mask = os.umask(0); print(json.dumps([dict(os.environ), fds, os.getsid(0) == os.getpid(), mask,"
        "sorted(signal.pthread_sigmask(signal.SIG_BLOCK, [])), os.getcwd()]))"
    )
    gone = run_to_end(bench, launch_of(python(look), env={"MINE": "1", "SWELL_RUN": "spoofed"}, cwd="/usr"))
    assert gone.reason is ExitReason.FINISHED
    env, fds, leads, mask, blocked, cwd = json.loads(log_of(bench))
    assert (env["MINE"], env["SWELL_RUN"], env["LC_TIME"]) == ("1", str(RUN), "C")
    assert len(env["SWELL_MARK"]) == 32
    assert "DAEMON_SECRET" not in env
    assert (fds, leads, blocked, cwd) == ([0, 1, 2], True, [], "/usr")
    assert mask == _umask()


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def test_secrets_are_never_on_a_command_line_nor_readable_by_others(bench: LocalBench) -> None:
    secret = "swordfish-4711"

    async def scene(watch: Watcher) -> None:
        await watch.executor.launch(ready(launch_of(sh("exec sleep 1000"), env={"PASSWORD": secret})))
        await watch.until(RunUp)
        lines = [Path(f"/proc/{pid}/cmdline") for pid in proc.pids()]
        assert not [path for path in lines if path.exists() and secret.encode() in path.read_bytes()]
        for path in [bench.runs, *bench.runs.rglob("*")]:
            assert not stat.S_IMODE(path.stat().st_mode) & 0o077, path

    play(bench, scene)


def test_servers_are_stopped_when_the_workers_have_finished(bench: LocalBench) -> None:
    """Parameter servers never end by themselves; their stop is no stop of the run."""
    launch = launch_of(sh("exit 0"), sh("exec sleep 1000"))
    worker, server = launch.workers
    gone = run_to_end(bench, replace(launch, workers=(worker, replace(server, role="server"))))
    assert (gone.reason, gone.exit_code) == (ExitReason.FINISHED, 0)


def discovery(*hosts: str, gpus: str) -> str:
    return "\n".join(["#!/bin/sh", f"# gpus {gpus}", *(f"echo {host}" for host in hosts), ""])


def test_host_discovery_is_a_script_that_a_resize_rewrites(bench: LocalBench) -> None:
    async def scene(watch: Watcher) -> None:
        script = bench.runs / str(RUN) / "discovery"
        launch = replace(launch_of(sh("exec sleep 1000")), discovery=discovery("localhost:1", gpus="localhost=2"))
        await watch.executor.launch(ready(launch))
        assert subprocess.check_output([script], text=True) == "localhost:1\n"
        (worker,), more = launch.workers, discovery("localhost:3", gpus="localhost=0,1,2")
        grown = replace(launch, workers=(replace(worker, gpus=(0, 1, 2)),), discovery=more)
        await watch.executor.resize(ready(grown))
        assert subprocess.check_output([script], text=True) == "localhost:3\n"
        noted = json.loads((bench.runs / str(RUN) / "launch.json").read_text())
        assert noted["members"][0]["gpus"] == [0, 1, 2], "they are looked at when it has ended"

    play(bench, scene)


@pytest.mark.parametrize(
    ("nodes", "wanted"),
    [
        (("other",), discovery("localhost:1", gpus="localhost=3")),
        (("here", "other"), discovery("10.0.0.1:1", "10.0.0.2:1", gpus="10.0.0.1=2 10.0.0.2=3")),
    ],
    ids=["its first machine is not among them", "one machine becomes several"],
)
def test_a_run_that_cannot_follow_a_resize_in_place_is_stopped(
    bench: LocalBench, nodes: tuple[str, ...], wanted: str
) -> None:
    """The discovery script was written on the first of its new machines, and horovodrun went on where it was, on GPUs
    that were free to be given to others."""

    async def scene(watch: Watcher) -> None:
        script = bench.runs / str(RUN) / "discovery"
        launch = replace(launch_of(sh("exec sleep 1000")), discovery=discovery("localhost:1", gpus="localhost=2"))
        await watch.executor.launch(ready(launch))
        await watch.until(RunUp)
        asked = replace(ready(replace(launch, discovery=wanted)), nodes={name: Node(name=name) for name in nodes})
        assert await watch.executor.resize(asked) == Done()
        gone = await watch.until(RunGone)
        assert gone.reason is ExitReason.STOPPED
        assert subprocess.check_output([script], text=True) == "localhost:1\n"

    play(bench, scene)


def test_a_nursery_that_dies_with_a_request_is_asked_again(bench: LocalBench, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene(watch: Watcher) -> None:
        nursery = watch.executor._here.transport._host.nursery  # type: ignore[attr-defined]
        really_ask, asked = nursery.ask, []

        def lose_the_first(directory: Path) -> None:
            asked.append(directory)
            if len(asked) > 1:
                really_ask(directory)

        monkeypatch.setattr(nursery, "ask", lose_the_first)
        watch.executor._floor.tuning = replace(watch.executor._floor.tuning, ask_again_s=0.2)  # type: ignore[attr-defined]
        await watch.executor.launch(ready(launch_of(sh("exit 0"))))
        gone = await watch.until(RunGone)
        assert gone.reason is ExitReason.FINISHED
        assert len(asked) == 2

    play(bench, scene)


def test_a_run_whose_shim_never_comes_waits_for_another_try_and_never_starts_later(
    bench: LocalBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scene(watch: Watcher) -> None:
        monkeypatch.setattr(watch.executor._here.transport._host.nursery, "ask", lambda directory: None)  # type: ignore[attr-defined]
        watch.executor._floor.tuning = replace(watch.executor._floor.tuning, ask_again_s=0.1, ask_times=2)  # type: ignore[attr-defined]
        await watch.executor.launch(ready(launch_of(sh("exit 0"))))
        gone = await watch.until(RunGone)
        assert gone.reason is ExitReason.NODE_FULL
        assert (bench.runs / str(RUN) / "0/claim").exists(), "a late shim finds the claim taken"

    play(bench, scene)


def _read_whole_log(bench: LocalBench, size: int) -> None:
    """Every byte, in pieces, with flat memory."""
    line = b"x" * 1023 + b"\n"
    writer = f"import os\nb = ({line!r}) * 1024\nfor _ in range({size}): os.write(1, b)"

    async def scene(watch: Watcher) -> None:
        await watch.executor.launch(ready(launch_of(python(writer))))
        before_kib, offset, chunk = _rss_kib(), 0, LogChunk(data=b"", offset=0, next_offset=0, end=False)
        while not chunk.end:
            chunk = await watch.executor.log(RUN, 0, offset, 1 << 20)
            assert chunk.offset == offset
            assert chunk.data.count(b"x") + chunk.data.count(b"\n") == len(chunk.data)
            offset = chunk.next_offset
            if not chunk.data:
                await watch.bench.pass_time()
        assert offset == size * 1024 * 1024
        assert (await watch.executor.log(RUN, 0, offset - 1, 10)).data == b"\n"
        assert _rss_kib() - before_kib < 32 * 1024

    play(bench, scene)


def _rss_kib() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") // 1024


def test_a_long_log_is_read_whole_with_flat_memory(bench: LocalBench) -> None:
    _read_whole_log(bench, size=64)


@pytest.mark.slow
def test_a_log_of_a_gigabyte_is_read_whole_with_flat_memory(bench: LocalBench) -> None:
    _read_whole_log(bench, size=1024)
