"""What a worker may use is held to by the kernel, where cgroups may be made."""

import os

import pytest

from swell.shim import limits, members

HERE = [name for name in limits.CONTROLLERS if members.own_place(name)]


def test_without_limits_nothing_is_made() -> None:
    assert limits.impose("unit-none", {"limits": {}}) == []
    assert not [group for group in limits.groups("unit-none") if os.path.exists(group)]


@pytest.mark.skipif("pids" not in HERE, reason="no cgroup of pids (v1) may be made here")
def test_processes_beyond_the_limit_are_not_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MAX_PIDS", 5)
    mark = f"unit-{os.getpid()}"
    held = limits.impose(mark, {"limits": {"cpus": 2, "memory_mib": 512}})
    read, write = os.pipe()
    pid = os.fork()
    if not pid:
        for group in held:
            members.join(group)
        os.write(write, str(_forks()).encode())
        os._exit(0)
    os.waitpid(pid, 0)
    assert int(os.read(read, 10)) == 4  # and the first makes five
    os.close(read)
    os.close(write)
    limits.remove(mark)
    assert not [group for group in limits.groups(mark) if os.path.exists(group)]


def _forks() -> int:
    """How many children this process can have, of twenty."""
    children = []
    read, write = os.pipe()
    try:
        for _ in range(20):
            child = os.fork()
            if not child:
                os.close(write)
                os.read(read, 1)
                os._exit(0)
            children.append(child)
    except OSError:
        pass
    os.close(write)
    for child in children:
        os.waitpid(child, 0)
    return len(children)


@pytest.mark.parametrize(("of_machine", "most"), [(8192, 4096), (4194304, limits.MAX_PIDS)])
def test_a_job_leaves_half_of_a_small_machines_processes_to_others(
    of_machine: int, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "_pid_max", lambda: of_machine)
    assert limits._files({"cpus": 2})["pids.max"] == str(most)
