"""Checkpoints on their way between directories that stand for machines: through the store, whole or not at all."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import pytest

from swell.checkpoints.carrying import CannotCarry, Carrier, Limits, Pace, Target, manifest_of
from swell.checkpoints.copies import CopyStore
from swell.checkpoints.holder import Spot
from swell.checkpoints.in_process import InProcess
from swell.core.ids import RunId
from swell.core.job import JobSpec
from swell.core.resources import Allocation, Contact, Node, Part
from swell.core.state import CheckpointCopy, JobRecord, JobState, Run
from swell.shim.checkpoints import PIECE, Checkpoints

T = TypeVar("T")


def run(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(work)


class Cable(InProcess):
    """A machine that may be cut off after so many pieces."""

    def __init__(self, files: Checkpoints) -> None:
        super().__init__(files)
        self.pieces_left = 10**9
        self.read_at: list[int] = []

    async def read(self, job: int, content: str, offset: int) -> bytes:
        self._pass()
        self.read_at.append(offset)
        return await super().read(job, content, offset)

    async def take(self, job: int, content: str, offset: int, digest: str, data: bytes) -> None:
        self._pass()
        await super().take(job, content, offset, digest, data)

    def _pass(self) -> None:
        if not self.pieces_left:
            raise OSError("cut off")
        self.pieces_left -= 1


class Lab:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.store = CopyStore(folder / "store")
        self.machines: dict[str, Target] = {}
        self.carrier = self.new_carrier()

    def new_carrier(self, **limits: Any) -> Carrier:
        async def home_of(_: JobRecord, node: Node) -> Target | None:
            return self.machines.get(node.name)

        return Carrier(self.store, Limits(**limits), home_of)

    def machine(self, name: str, directory: Path | None = None) -> Path:
        own = directory or self.folder / name / "checkpoints" / "1"
        own.mkdir(parents=True, exist_ok=True)
        holder = Cable(Checkpoints(str(self.folder / name / "set-aside")))
        self.machines[name] = Target(node=name, holder=holder, spot=Spot(own=str(own)))
        return own

    def cable(self, name: str) -> Cable:
        holder = self.machines[name].holder
        assert isinstance(holder, Cable)
        return holder

    def bring(self, record: JobRecord, *names: str, contact: Contact = Contact.HERE) -> Any:
        home = Node(name=record.files_on, executor="ssh", contact=contact)
        return run(self.carrier.bring(record, {name: self.machines[name] for name in names}, home))


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab(tmp_path)


def record(**changes: Any) -> JobRecord:
    found = JobRecord(
        id=1,
        spec=JobSpec(name="train", command=("true",), uses_library=True),
        submitted_s=0.0,
        state=JobState.RUNNING,
        run=Run(id=RunId(1, 1), allocation=Allocation(parts=(Part(node="a"),)), planned_s=0.0),
        attempts=1,
        uses_library=True,
        epochs_done=5,
        epochs_saved=5,
        files_on="a",
    )
    return replace(found, **changes)


def save(directory: Path, epoch: int, data: bytes = b"weights") -> None:
    (directory / f"checkpoint-{epoch:08d}-00000000.pkl").write_bytes(data + str(epoch).encode())


def files(directory: Path) -> dict[str, bytes]:
    found = (path for path in sorted(directory.rglob("*")) if path.is_file() and not path.name.startswith("."))
    return {str(path.relative_to(directory)): path.read_bytes() for path in found}


def test_the_newest_checkpoint_is_copied_once_and_replaces_the_one_before(lab: Lab) -> None:
    own = lab.machine("a")
    save(own, 4)
    save(own, 5)
    copied = run(lab.carrier.copy(record(), lab.machines["a"], over=False))
    assert copied.new
    assert copied.manifest is not None
    assert (copied.manifest.epoch, [file.path for file in copied.manifest.files]) == (
        5,
        ["checkpoint-00000005-00000000.pkl"],
    )
    assert not run(lab.carrier.copy(record(), lab.machines["a"], over=False)).new
    save(own, 6)
    run(lab.carrier.copy(record(), lab.machines["a"], over=False))
    kept = lab.store.manifest(1)
    assert kept is not None
    assert kept.epoch == 6
    assert len(list((lab.folder / "store" / "1").iterdir())) == 2  # the manifest and one file: the latest only


def test_a_machine_that_was_lost_hands_on_what_was_copied_and_the_job_is_set_back(lab: Lab) -> None:
    own, other = lab.machine("a"), lab.machine("b")
    save(own, 4)
    run(lab.carrier.copy(record(), lab.machines["a"], over=False))
    save(own, 5)
    found = lab.bring(record(), "b", contact=Contact.LOST)
    assert files(other) == {"checkpoint-00000004-00000000.pkl": b"weights4"}
    assert found.epoch == 4
    assert "a has its newer files; the latest copy of its checkpoint is of 4" in found.why


def test_a_machine_that_answers_hands_on_its_newest_and_nothing_is_set_back(lab: Lab) -> None:
    own, other, third = lab.machine("a"), lab.machine("b"), lab.machine("c")
    save(own, 5)
    save(other, 3)  # of an earlier attempt there
    found = lab.bring(record(), "b", "c")
    assert files(other) == files(third) == {"checkpoint-00000005-00000000.pkl": b"weights5"}
    assert found.epoch is None
    assert found.copied is not None


def test_where_its_files_are_nothing_is_carried(lab: Lab) -> None:
    save(lab.machine("a"), 5)
    assert lab.bring(record(), "a") == lab.bring(record(copy=CheckpointCopy(epoch=4, at_s=0.0)), "a")
    assert lab.store.manifest(1) is None


def test_without_any_copy_the_job_begins_again_and_that_is_told(lab: Lab) -> None:
    lab.machine("b")
    found = lab.bring(record(), "b", contact=Contact.LOST)
    assert (found.epoch, found.why) == (0, "a has its newer files, and there is no copy of them")


def test_a_transfer_that_broke_off_continues_where_it_was(lab: Lab) -> None:
    own, other = lab.machine("a"), lab.machine("b")
    save(own, 5, bytes(2 * PIECE))
    lab.cable("a").pieces_left = 2
    with pytest.raises(OSError, match="cut off"):
        run(lab.carrier.copy(record(), lab.machines["a"], over=False))
    assert lab.store.manifest(1) is None
    lab.cable("a").pieces_left = 9
    run(lab.carrier.copy(record(), lab.machines["a"], over=False))
    assert lab.cable("a").read_at == [0, PIECE, 2 * PIECE]
    lab.cable("b").pieces_left = 2
    with pytest.raises(OSError, match="cut off"):
        lab.bring(record(), "b", contact=Contact.LOST)
    assert files(other) == {}
    lab.cable("b").pieces_left = 1
    lab.bring(record(), "b", contact=Contact.LOST)
    assert files(other) == files(own)


def test_what_does_not_arrive_as_it_was_sent_is_not_taken(lab: Lab, tmp_path: Path) -> None:
    there = Checkpoints(str(tmp_path / "there"))
    with pytest.raises(OSError, match="did not arrive as it was sent"):
        there.take(1, "ab", 0, "00", b"data")


def test_a_copy_that_rotted_on_the_daemons_disk_is_fetched_again(lab: Lab) -> None:
    own = lab.machine("a")
    save(own, 5, bytes(PIECE))
    lab.cable("a").pieces_left = 1
    with pytest.raises(OSError, match="cut off"):
        run(lab.carrier.copy(record(), lab.machines["a"], over=False))
    [part] = (lab.folder / "store" / "1").iterdir()
    part.write_bytes(b"x" * PIECE)
    lab.cable("a").pieces_left = 9
    assert run(lab.carrier.copy(record(), lab.machines["a"], over=False)).manifest is None
    assert run(lab.carrier.copy(record(), lab.machines["a"], over=False)).new


def test_files_in_directories_empty_ones_and_twins_arrive_with_their_modes(lab: Lab) -> None:
    own, other = lab.machine("a"), lab.machine("b")
    (own / "step-5" / "parts").mkdir(parents=True)
    (own / "step-5" / "parts" / "0").write_bytes(b"same")
    (own / "step-5" / "parts" / "1").write_bytes(b"same")
    (own / "step-5" / "empty").touch(mode=0o640)
    (own / "link").symlink_to("/etc/passwd")
    lab.bring(record(), "b")
    assert files(other) == {"step-5/empty": b"", "step-5/parts/0": b"same", "step-5/parts/1": b"same"}
    assert (other / "step-5" / "empty").stat().st_mode & 0o777 == 0o640
    (other / "step-5" / "parts" / "0").write_bytes(b"else")  # in place: its twin is a file of its own
    assert (other / "step-5" / "parts" / "1").read_bytes() == b"same"


def test_what_the_training_deletes_while_it_is_copied_arrives_all_the_same(lab: Lab) -> None:
    own = lab.machine("a")
    save(own, 5, bytes(2 * PIECE))
    lab.cable("a").pieces_left = 1
    with pytest.raises(OSError, match="cut off"):
        run(lab.carrier.copy(record(), lab.machines["a"], over=False))
    lab.cable("a").pieces_left = 9
    holder, spot = lab.machines["a"].holder, lab.machines["a"].spot
    [file] = manifest_of(record(), run(holder.set_aside(1, spot, over=False, limit=10**9))).files
    (own / file.path).unlink()
    assert run(holder.read(1, file.content, 2 * PIECE)) == b"5"


def test_checkpoints_over_the_limit_stay_and_say_so(lab: Lab) -> None:
    save(lab.machine("a"), 5, bytes(2 * 1024 * 1024))
    lab.machine("b")
    lab.carrier = lab.new_carrier(job_mib=1)
    copied = run(lab.carrier.copy(record(), lab.machines["a"], over=False))
    assert copied.problem == "it has 2 MiB, more than `checkpoint_copy_mib` allows"
    with pytest.raises(CannotCarry, match="its checkpoint stays on a: it has 2 MiB"):
        lab.bring(record(), "b")


def test_a_training_that_saves_elsewhere_is_not_carried_without_its_weights(lab: Lab) -> None:
    own = lab.machine("a")
    (own / "progress.json").write_text(json.dumps({"epochs_done": 5}))
    copied = run(lab.carrier.copy(record(), lab.machines["a"], over=False))
    assert "it saves outside of its checkpoint directory" in copied.problem


def test_machines_that_see_the_same_directory_are_found_by_a_nonce(lab: Lab, tmp_path: Path) -> None:
    shared = tmp_path / "nfs" / "1"
    lab.machine("a", shared)
    lab.machine("b", shared)
    lab.machine("c")
    others = {name: lab.machines[name] for name in ("b", "c")}
    assert run(lab.carrier.shared_by(record(), lab.machines["a"], others)) == ("b",)
    save(shared, 5)
    lab.bring(record(), "b")
    assert lab.store.manifest(1) is None, "b sees the files: nothing was carried"
    found = lab.bring(record(copy=CheckpointCopy(epoch=0, at_s=0.0, shared_by=("b",))), "b", contact=Contact.LOST)
    assert found.epoch is None, "b has them, though a is lost"


def test_scripts_that_save_where_their_user_said_are_carried_from_there(lab: Lab, tmp_path: Path) -> None:
    """Nothing else in that directory is deleted."""
    for name in ("a", "b"):
        lab.machine(name)
        named = tmp_path / name / "work"
        named.mkdir()
        target = lab.machines[name]
        lab.machines[name] = replace(target, spot=Spot(own=str(named / "1"), named=str(named)))
    (tmp_path / "a" / "work" / "model.pt").write_bytes(b"new")
    (tmp_path / "b" / "work" / "model.pt").write_bytes(b"old")
    (tmp_path / "b" / "work" / "mine.txt").write_bytes(b"mine")
    lab.bring(record(uses_library=False, epochs_saved=0, copy=CheckpointCopy(epoch=5, at_s=0.0)), "b")
    assert files(tmp_path / "b" / "work") == {"mine.txt": b"mine", "model.pt": b"new"}


def test_paths_that_lead_out_of_the_directory_are_refused(tmp_path: Path) -> None:
    there = Checkpoints(str(tmp_path / "there"))
    for path in ("../x", "/etc/x", "a//b", "a/../../b"):
        with pytest.raises(OSError, match="no path inside"):
            there.put_in_place(1, str(tmp_path / "own"), "", [[path, 0, 0o600, "ab"]])


def test_copies_share_one_rate() -> None:
    now_s = [100.0]
    pace = Pace(1000.0, lambda: now_s[0])
    assert pace.wait_s(500) == pytest.approx(0.5)
    assert pace.wait_s(500) == pytest.approx(1.0)  # another transfer at the same moment
    now_s[0] = 103.0
    assert pace.wait_s(100) == pytest.approx(0.1)
    assert Pace(0.0).wait_s(10**9) == 0.0


def test_a_checkpoint_that_is_further_than_what_was_reported_is_what_the_run_is_told(lab: Lab) -> None:
    save(lab.machine("a"), 7)
    assert lab.bring(record(epochs_done=5), "a").epoch == 7
