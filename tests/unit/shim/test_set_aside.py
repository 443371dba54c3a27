"""What a job has saved is set aside to be copied once it is whole."""

from __future__ import annotations

from pathlib import Path

import pytest

from swell.shim import checkpoints
from swell.shim.checkpoint_files import SETTLE_S
from swell.shim.checkpoints import Checkpoints

LIMIT = 1 << 20


class Machine:
    """With one job, whose directory is `own`, and a clock that the test sets."""

    def __init__(self, directory: Path) -> None:
        self.own, self.now_s = directory / "own", 100.0
        self.own.mkdir()
        self.kept = Checkpoints(str(directory / "kept"))

    def why_not(self) -> str:
        """Empty: it is set aside."""
        return str(self.kept.set_aside(7, str(self.own), "", False, LIMIT).get("why", ""))


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    found = Machine(tmp_path)
    monkeypatch.setattr(checkpoints, "boot_s", lambda: found.now_s)
    return found


def test_a_file_that_is_written_again_has_to_settle_again(machine: Machine) -> None:
    (machine.own / "model.pt").write_bytes(b"half of ")
    assert machine.why_not() == "writing"
    machine.now_s += SETTLE_S
    (machine.own / "model.pt").write_bytes(b"half of it and the rest")
    assert machine.why_not() == "writing", "it was the same for no time"
    machine.now_s += SETTLE_S
    assert machine.why_not() == ""


def test_directories_of_too_many_files_are_refused_by_name(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoints, "MAX_FILES", 2)
    for name in ("a", "b"):
        (machine.own / name).write_bytes(b"x")
    assert machine.why_not() == "writing", "as many as may be are no trouble"
    (machine.own / "c").write_bytes(b"x")
    with pytest.raises(OSError, match=f"{machine.own} has more than 2 files"):
        machine.why_not()
