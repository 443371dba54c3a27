"""Below which directory the cgroup of a worker is made."""

from __future__ import annotations

import pytest

from swell.shim import members


def test_the_unified_hierarchy_comes_first_then_the_freezer_then_pids(monkeypatch: pytest.MonkeyPatch) -> None:
    mounts = [
        ("/", "/sys/pids", "cgroup", ["rw", "pids"]),
        ("/", "/sys/systemd", "cgroup", ["rw", "name=systemd"]),
        ("/", "/sys/freezer", "cgroup", ["rw", "freezer"]),
        ("/", "/sys/unified", "cgroup2", ["rw"]),
        ("/other", "/sys/elsewhere", "cgroup", ["rw", "pids"]),
    ]
    own = {"": "/user/1", "freezer": "/f", "pids": "/p", "name=systemd": "/s"}
    monkeypatch.setattr(members, "_cgroup_mounts", lambda: mounts)
    monkeypatch.setattr(members, "_own_cgroups", lambda: own)
    allowed = ["/sys/pids/p", "/sys/systemd/s", "/sys/freezer/f", "/sys/unified/user/1"]
    monkeypatch.setattr(members, "_may_divide", lambda path: path in allowed)
    chosen = []
    while found := members.cgroup_for("mark"):
        chosen.append(found)
        allowed.remove(found[: -len("/swell-mark")])
    parents = ("/sys/unified/user/1", "/sys/freezer/f", "/sys/pids/p", "/sys/systemd/s")
    assert chosen == [f"{parent}/swell-mark" for parent in parents]
