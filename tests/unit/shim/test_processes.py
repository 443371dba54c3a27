"""Signals to exactly one process, and to whose rights a worker's process changes."""

from __future__ import annotations

import io
import os
import pwd
import signal
import subprocess

import pytest

from swell.shim import processes
from swell.shim.processes import send, stat_of
from swell.shim.shim import _belong_to

NO_SIGNAL = 0


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_a_signal_reaches_the_process_that_is_meant_and_no_later_one_of_its_pid() -> None:
    child = subprocess.Popen(["sleep", "60"])
    try:
        stat = stat_of(child.pid)
        assert stat is not None
        assert not send(child.pid, stat.start + 1, signal.SIGKILL)
        assert child.poll() is None
        assert send(child.pid, stat.start, signal.SIGKILL)
        assert child.wait(30) == -signal.SIGKILL
        assert not send(child.pid, stat.start, signal.SIGKILL)
    finally:
        child.kill()
        child.wait(30)


def test_signals_leave_nothing_open_behind() -> None:
    """A shim sends some to each of its processes again and again, for as long as a run lasts."""
    stat = stat_of(os.getpid())
    assert stat is not None
    before = descriptors()
    for start in (stat.start, stat.start + 1):
        send(os.getpid(), start, NO_SIGNAL)
    assert descriptors() == before


@pytest.mark.skipif(os.getuid() != 0, reason="only root may become another user")
def test_a_job_has_the_groups_of_its_user_and_none_of_the_daemons() -> None:
    user = "nobody"
    account = pwd.getpwnam(user)
    read, write = os.pipe()
    pid = os.fork()
    if not pid:
        os.setgroups([0, 4])  # of a daemon that may read what other users may not
        _belong_to(user)
        os.write(write, repr((os.getuid(), os.getgid(), sorted(os.getgroups()))).encode())
        os._exit(0)
    os.close(write)
    os.waitpid(pid, 0)
    with os.fdopen(read) as answer:
        has = answer.read()
    assert has == repr((account.pw_uid, account.pw_gid, sorted(os.getgrouplist(user, account.pw_gid))))


def test_kills_for_want_of_memory_are_counted_wherever_a_cgroup_may_count_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    of_process = "4:cpu,memory:/box\n3:pids:/box\n0::/user.slice\n"
    monkeypatch.setattr(processes, "open", lambda *_, **__: io.StringIO(of_process), raising=False)
    assert processes._oom_counters() == [
        "/proc/vmstat",
        "/sys/fs/cgroup/memory/box/memory.oom_control",
        "/sys/fs/cgroup/user.slice/memory.events",
        "/sys/fs/cgroup/unified/user.slice/memory.events",
    ]
