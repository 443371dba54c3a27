"""What a shim leaves behind once its worker has ended: nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from swell.shim import limits
from swell.shim.members import Members
from swell.shim.shim import Holder


def test_a_shim_leaves_no_cgroup_behind_nor_what_a_member_made_below_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    removed: list[str] = []
    monkeypatch.setattr(Members, "kill", lambda *_: 0)
    monkeypatch.setattr(Holder, "_reap", lambda _: False)
    monkeypatch.setattr(limits, "remove", removed.append)
    cgroup = tmp_path / "swell-mark"
    (cgroup / "below").mkdir(parents=True)
    Holder(str(tmp_path), {}, Members("mark", str(cgroup)), 0o077)._sweep()
    assert not cgroup.exists()
    assert removed == ["mark"], "nor one that limits it"
